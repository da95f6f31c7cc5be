#include "viewer/plan/segments.h"

#include <algorithm>
#include <cmath>
#include <queue>

namespace liveset::plan {
namespace {

Status check_lengths(std::uint64_t layers, std::span<const std::uint64_t> lengths) {
  std::uint64_t left = layers;
  for (const std::uint64_t length : lengths) {
    if (length == 0) return detail::refused("a segment needs at least one layer");
    if (length > left) return detail::refused("the segments have more layers than the chain, which has " + std::to_string(layers));
    left -= length;
  }
  if (left > 0)
    return detail::refused("the segments have " + std::to_string(layers - left) + " layers, the chain has " + std::to_string(layers));
  return Done{};
}

// The best cuts up to each place, for one peak.
class OneLevel {
 public:
  explicit OneLevel(const std::vector<std::uint64_t>& bytes) : bytes_(bytes), made_(bytes.size()), before_(bytes.size()) {
    for (std::size_t i = 1; i < bytes.size(); ++i) made_[i] = made_[i - 1] + bytes[i];
  }

  // With cuts[i] the least bytes of kept values up to and with a cut at i, a segment from j to i fits when
  // cuts[j] + (made[i] - made[j]) <= peak. What is left of the peak, peak - made[i], falls with i: what does not fit never will.
  bool fits(std::uint64_t peak) {
    using Place = std::pair<std::uint64_t, std::size_t>;  // cuts, where
    std::priority_queue<Place, std::vector<Place>, std::greater<>> places;
    places.emplace(bytes_[0], 0);
    for (std::size_t i = 1; i < bytes_.size(); ++i) {
      while (!places.empty() && places.top().first + (made_[i] - made_[places.top().second]) > peak) places.pop();
      if (places.empty()) return false;
      before_[i] = places.top().second;
      places.emplace(places.top().first + bytes_[i], i);
    }
    return true;
  }

  // Of the last peak that fitted.
  std::vector<std::uint64_t> lengths() const {
    std::vector<std::uint64_t> lengths;
    for (std::size_t i = bytes_.size() - 1; i > 0; i = before_[i]) lengths.push_back(i - before_[i]);
    std::reverse(lengths.begin(), lengths.end());
    return lengths;
  }

 private:
  const std::vector<std::uint64_t>& bytes_;
  std::vector<std::uint64_t> made_;  // bytes of h_1 .. h_i
  std::vector<std::size_t> before_;
};

}  // namespace

Result<Figures> segment_figures(const Chain& chain, std::span<const std::uint64_t> lengths, const SegmentRules& rules) {
  if (Status whole = check(chain); !whole) return whole.take_error();
  if (Status whole = check_lengths(chain.layers(), lengths); !whole) return whole.take_error();
  Figures figures;
  std::uint64_t cuts = rules.count_input ? chain.bytes[0] : 0;
  std::size_t layer = 0;
  for (std::size_t j = 0; j < lengths.size(); ++j) {
    const std::size_t end = layer + lengths[j];
    const bool rerun = j + 1 < lengths.size() || rules.checkpoint_last_segment;
    std::uint64_t inside = 0, cost = 0;
    while (++layer < end) {
      inside += chain.bytes[layer];
      cost += chain.cost[layer - 1];
    }
    cuts += chain.bytes[end];
    figures.cost += cost + chain.cost[end - 1];
    if (rerun) figures.cost += cost + (rules.rerun_boundary ? chain.cost[end - 1] : 0);
    const bool copy = rerun && rules.rerun_boundary && rules.copy_boundary;
    figures.peak = std::max(figures.peak, cuts + inside + (copy ? chain.bytes[end] : 0));
  }
  return figures;
}

Result<std::vector<Move>> segment_moves(std::span<const std::uint64_t> lengths) {
  std::uint64_t layers = 0;
  for (const std::uint64_t length : lengths) {
    if (length == 0 || length > max_chain_layers || (layers += length) > max_chain_layers)
      return detail::refused("segments have at least one layer each and at most " + std::to_string(max_chain_layers) + " together");
  }
  std::vector<Move> moves;
  std::vector<std::uint32_t> begins;
  std::uint32_t layer = 0;
  const auto add = [&moves](Move::Kind kind, std::uint32_t at) { moves.push_back({kind, at}); };
  for (const std::uint64_t length : lengths) {
    begins.push_back(layer);
    for (std::uint64_t i = 0; i < length; ++i) {
      add(Move::Kind::forward, ++layer);
      if (i > 0) add(Move::Kind::drop, layer - 1);
    }
  }
  for (std::size_t j = begins.size(); j-- > 0;) {
    const std::uint32_t end = begins[j] + static_cast<std::uint32_t>(lengths[j]);
    for (std::uint32_t i = begins[j] + 1; i < end; ++i) add(Move::Kind::forward, i);
    for (std::uint32_t i = end; i > begins[j]; --i) add(Move::Kind::reverse, i);
  }
  return moves;
}

Result<Figures> save_all_figures(const Chain& chain) {
  if (Status whole = check(chain); !whole) return whole.take_error();
  return Figures{detail::total(chain.bytes), detail::total(chain.cost)};
}

std::vector<std::uint64_t> equal_segments(std::uint64_t layers, std::uint64_t length) {
  std::vector<std::uint64_t> lengths;
  length = std::max<std::uint64_t>(length, 1);
  for (; layers > length; layers -= length) lengths.push_back(length);
  if (layers > 0) lengths.push_back(layers);
  return lengths;
}

std::vector<std::uint64_t> sqrt_segments(std::uint64_t layers) {
  auto root = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(layers)));
  while (root * root < layers) ++root;
  while (root > 0 && (root - 1) * (root - 1) >= layers) --root;
  return equal_segments(layers, root);
}

std::uint64_t best_one_level_peak(std::uint64_t layers) {
  std::uint64_t peak = 1 + static_cast<std::uint64_t>(std::sqrt(2.0 * static_cast<double>(layers)));
  const auto reach = [](std::uint64_t p) { return static_cast<unsigned __int128>(p) * (p - 1) / 2; };
  while (reach(peak) < layers) ++peak;
  while (peak > 1 && reach(peak - 1) >= layers) --peak;
  return peak;
}

Result<std::vector<std::uint64_t>> best_one_level(const Chain& chain) {
  if (Status whole = check(chain); !whole) return whole.take_error();
  OneLevel search(chain.bytes);
  std::uint64_t low = least_peak(chain), high = detail::total(chain.bytes);  // one segment has the total
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (search.fits(middle))
      high = middle;
    else
      low = middle + 1;
  }
  search.fits(high);
  return search.lengths();
}

Result<std::vector<std::uint64_t>> greedy_segments(const Chain& chain, std::uint64_t limit) {
  if (Status whole = check(chain); !whole) return whole.take_error();
  std::vector<std::uint64_t> lengths;
  std::uint64_t sum = 0, length = 0;
  for (std::size_t i = 1; i < chain.bytes.size(); ++i) {
    sum += chain.bytes[i];
    ++length;
    if (sum > limit || i + 1 == chain.bytes.size()) {
      lengths.push_back(length);
      sum = length = 0;
    }
  }
  return lengths;
}

Result<std::vector<std::uint64_t>> best_greedy_segments(const Chain& chain) {
  if (Status whole = check(chain); !whole) return whole.take_error();
  const std::uint64_t largest = *std::max_element(chain.bytes.begin(), chain.bytes.end()), all = detail::total(chain.bytes);
  std::vector<std::uint64_t> best;
  std::uint64_t best_peak = 0;
  for (std::uint64_t limit = largest;; limit = std::min(all, limit + std::max<std::uint64_t>(1, limit / 16))) {
    Result<std::vector<std::uint64_t>> lengths = greedy_segments(chain, limit);
    if (!lengths) return lengths.take_error();
    const Result<Figures> figures = segment_figures(chain, *lengths);
    if (best.empty() || figures->peak < best_peak || (figures->peak == best_peak && lengths->size() < best.size())) {
      best_peak = figures->peak;
      best = std::move(*lengths);
    }
    if (limit >= all) return best;
  }
}

}  // namespace liveset::plan
