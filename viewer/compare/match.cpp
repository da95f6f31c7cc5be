#include "viewer/compare/match.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "viewer/compare/align.h"

namespace liveset::compare {
namespace {

constexpr std::int64_t max_differences = 200;  // of the sequences of one module and slot
constexpr std::uint32_t no_key = 0;            // as first word of a key: the block takes no part

using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint64_t, std::uint32_t>;
struct Keyed {
  Key key;
  std::uint32_t index = 0;
  friend bool operator<(const Keyed& a, const Keyed& b) { return std::tie(a.key, a.index) < std::tie(b.key, b.index); }
};

class Matcher {
 public:
  Matcher(const Side& measured, const Side& predicted) : sides_{&measured, &predicted} {
    out_.partner_of_measured.assign(measured.items.size(), Match::none);
    out_.partner_of_predicted.assign(predicted.items.size(), Match::none);
    std::unordered_map<std::string_view, std::uint32_t> ids;
    for (int side = 0; side < 2; ++side)
      for (const std::string& text : sides_[side]->texts)
        texts_[side].push_back(ids.try_emplace(text, static_cast<std::uint32_t>(ids.size())).first->second);
  }

  Match run() {
    pair_runs([&](int side, const Item& item) { return own_name(side, item); }, false);
    pair_runs([&](int side, const Item& item) { return order(side, item); }, false);
    pair_runs([&](int side, const Item& item) { return module_and_slot(side, item, false); }, true);
    pair_runs([&](int side, const Item& item) { return module_and_slot(side, item, true); }, false);
    pair_runs([&](int, const Item& item) { return random_state(item); }, false);
    pair_runs([&](int, const Item& item) { return older(item); }, true);
    if (sides_[0]->is_model || sides_[1]->is_model)
      pair_runs([&](int side, const Item& item) { return kept_by_policy(side, item); }, false);
    if (names_nothing(*sides_[0]) != names_nothing(*sides_[1])) {
      pairs_by_size_ = true;
      pair_runs([](int, const Item& item) { return size_alone(item); }, false);
      pair_unsplit(names_nothing(*sides_[0]) ? 0 : 1);
    }
    return std::move(out_);
  }

 private:
  static std::uint32_t family(const Item& item) { return static_cast<std::uint32_t>(item.family) + 1; }
  // Of what has no module or name its class tells more than its family.
  static std::uint32_t kind(const Item& item) {
    return item.family == Family::fixed ? 100 + static_cast<std::uint32_t>(item.memory_class) : family(item);
  }
  Key own_name(int side, const Item& item) const {
    if (!item.is_own_name) return {};
    return {family(item), texts_[side][item.name], 0, 0, 0};
  }
  Key order(int side, const Item& item) const {
    if (item.order == 0 || item.is_own_name) return {};
    return {family(item), texts_[side][item.module], static_cast<std::uint32_t>(ledger::counted_phase(item.phase)),
            ledger::size_units(item.bytes), item.order};
  }
  Key module_and_slot(int side, const Item& item, bool of_values) const {
    if (item.is_own_name || (of_values && item.family != Family::value && item.family != Family::recompute)) return {};
    return {kind(item), texts_[side][item.module], texts_[side][item.slot], static_cast<std::uint64_t>(ledger::counted_phase(item.phase)),
            0};
  }

  // Regions keep the random state in order, and nothing else is of that class; who keeps it is called differently.
  static Key random_state(const Item& item) {
    if (item.memory_class != trace::MemoryClass::rng_state || item.is_own_name) return {};
    return {family(item), 0, 0, ledger::size_units(item.bytes), 0};
  }

  // What the step found: who made it may not be known.
  static Key older(const Item& item) {
    if (!item.is_older || item.is_own_name) return {};
    return {kind(item), 0, 0, 0, 0};
  }

  // The model of a recorded step knows as a temporary what a policy makes it keep for a recompute.
  Key kept_by_policy(int side, const Item& item) const {
    if (item.family != Family::value && item.family != Family::temporary) return {};
    Key key = order(side, item);
    if (std::get<0>(key) != no_key) std::get<0>(key) = 1;
    return key;
  }

  // What a snapshot of the allocator says of its blocks: it names none.
  static bool names_nothing(const Side& side) {
    return std::all_of(side.items.begin(), side.items.end(),
                       [](const Item& item) { return item.family == Family::unattributed && !item.is_own_name; });
  }
  static Key size_alone(const Item& item) { return {1, 0, 0, ledger::size_units(item.bytes), 0}; }

  // What was requested, of the side that names nothing, with what the allocator gave for it: a large block is given whole where no more
  // than 1 MiB would be left of it.
  void pair_unsplit(int requested) {
    constexpr std::uint64_t not_split_off = 1 << 20;
    const auto by_size = [](int, const Item& item) { return Key{1, 0, 0, item.bytes, 0}; };
    const std::vector<Keyed> wanted = open_ones(requested, by_size), given = open_ones(1 - requested, by_size);
    std::size_t next = 0;
    for (const Keyed& want : wanted) {
      const std::uint64_t bytes = std::get<3>(want.key);
      if (bytes <= not_split_off) continue;
      while (next < given.size() && std::get<3>(given[next].key) < bytes) ++next;
      if (next == given.size()) return;
      if (std::get<3>(given[next].key) - bytes > not_split_off) continue;
      const std::uint32_t block = given[next++].index;
      requested == 0 ? pair(want.index, block) : pair(block, want.index);
    }
  }

  template <class KeyOf>
  std::vector<Keyed> open_ones(int side, const KeyOf& key_of) const {
    std::vector<Keyed> found;
    const std::vector<std::uint32_t>& partners = side == 0 ? out_.partner_of_measured : out_.partner_of_predicted;
    for (std::uint32_t i = 0; i < partners.size(); ++i) {
      if (partners[i] != Match::none) continue;
      const Key key = key_of(side, sides_[side]->items[i]);
      if (std::get<0>(key) != no_key) found.push_back({key, i});
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  // Blocks of one key: the k-th with the k-th, or as a sequence of sizes.
  template <class KeyOf>
  void pair_runs(const KeyOf& key_of, bool as_sequence) {
    const std::vector<Keyed> left = open_ones(0, key_of), right = open_ones(1, key_of);
    for (std::size_t i = 0, j = 0; i < left.size() && j < right.size();) {
      if (left[i].key < right[j].key) {
        ++i;
      } else if (right[j].key < left[i].key) {
        ++j;
      } else {
        const std::size_t i_end = end_of(left, i), j_end = end_of(right, j);
        if (as_sequence)
          pair_sequence(left, i, i_end, right, j, j_end);
        else
          for (std::size_t k = 0; k < std::min(i_end - i, j_end - j); ++k) pair(left[i + k].index, right[j + k].index);
        i = i_end;
        j = j_end;
      }
    }
  }
  static std::size_t end_of(const std::vector<Keyed>& list, std::size_t begin) {
    std::size_t end = begin + 1;
    while (end < list.size() && list[end].key == list[begin].key) ++end;
    return end;
  }

  void pair_sequence(const std::vector<Keyed>& left, std::size_t i, std::size_t i_end, const std::vector<Keyed>& right, std::size_t j,
                     std::size_t j_end) {
    std::unordered_map<std::uint64_t, std::uint32_t> sizes;
    const auto sequence = [&](const std::vector<Keyed>& list, std::size_t begin, std::size_t end, const Side& side) {
      std::vector<std::uint32_t> keys;
      for (; begin < end; ++begin)
        keys.push_back(sizes.try_emplace(ledger::size_units(side.items[list[begin].index].bytes), static_cast<std::uint32_t>(sizes.size()))
                           .first->second);
      return keys;
    };
    const std::vector<std::uint32_t> a = sequence(left, i, i_end, *sides_[0]), b = sequence(right, j, j_end, *sides_[1]);
    constexpr std::uint64_t absent = ~std::uint64_t{0};
    for (const auto& [l, r] : align(a, b, max_differences))
      if (l != absent && r != absent) pair(left[i + l].index, right[j + r].index);
  }

  void pair(std::uint32_t measured, std::uint32_t predicted) {
    out_.partner_of_measured[measured] = predicted;
    out_.partner_of_predicted[predicted] = measured;
    if (!pairs_by_size_) return;
    out_.is_by_size.resize(out_.partner_of_measured.size());
    out_.is_by_size[measured] = true;
    ++out_.paired_by_size;
  }

  const Side* sides_[2];
  std::vector<std::uint32_t> texts_[2];  // of each side's text the number that both have
  bool pairs_by_size_ = false;
  Match out_;
};

}  // namespace

Match match_items(const Side& measured, const Side& predicted) { return Matcher(measured, predicted).run(); }

}  // namespace liveset::compare
