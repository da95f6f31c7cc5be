#include "viewer/plan/frontier.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <queue>

namespace liveset::plan {
namespace {

Status check_small(const Chain& chain) {
  if (Status whole = check(chain); !whole) return whole;
  if (chain.layers() > max_frontier_layers)
    return detail::refused("the search over all schedules takes at most " + std::to_string(max_frontier_layers) +
                               " layers, the chain has " + std::to_string(chain.layers()),
                           "rotor and revolve have no such limit");
  return Done{};
}

// A state is a number: below the highest bit the live values 0 .. next, the bit above them tells `next`.
using State = std::uint32_t;

struct Label {
  std::uint64_t cost = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t peak = std::numeric_limits<std::uint64_t>::max();
  auto operator<=>(const Label&) const = default;
};

class Search {
 public:
  explicit Search(const Chain& chain)
      : chain_(chain), layers_(static_cast<std::uint32_t>(chain.layers())), held_(std::size_t{1} << (layers_ + 1)) {
    for (std::size_t mask = 1; mask < held_.size(); ++mask)
      held_[mask] = held_[mask & (mask - 1)] + chain.bytes[static_cast<std::size_t>(std::countr_zero(mask))];
  }

  // Dijkstra. An error when a way was left out because its cost does not fit into 64 bits.
  Result<std::optional<FrontierPoint>> run(std::uint64_t budget) {
    best_.assign(std::size_t{1} << (layers_ + 2), Label{});
    came_by_.assign(best_.size(), Move{});
    queue_ = {};
    budget_ = budget;
    overflow_ = false;
    const State start = (State{1} << (layers_ + 1)) | 1U;
    if (held_[1] <= budget) reach(start, {0, held_[1]}, {});
    while (!queue_.empty()) {
      const auto [label, state] = queue_.top();
      queue_.pop();
      if (label > best_[state]) continue;
      const auto next = static_cast<std::uint32_t>(std::bit_width(state)) - 2;
      if (next == 0) return std::optional<FrontierPoint>({label.peak, label.cost, moves_to(state)});
      go_on(state, next, label);
    }
    if (overflow_) return detail::refused("the costs of schedules within the budget exceed 2^64");
    return std::optional<FrontierPoint>();
  }

 private:
  void reach(State state, const Label& label, Move move) {
    if (label >= best_[state]) return;
    best_[state] = label;
    came_by_[state] = move;
    queue_.emplace(label, state);
  }

  void go_on(State state, std::uint32_t next, const Label& label) {
    const State above = std::bit_floor(state), mask = state ^ above, own = above >> 1U;
    for (std::uint32_t layer = 1; layer <= next; ++layer) {
      const State bit = State{1} << layer;
      if (mask & bit) {
        reach(state & ~bit, label, {Move::Kind::drop, layer});
        continue;
      }
      if (!(mask & (bit >> 1)) || held_[mask | bit] > budget_) continue;
      Label after{0, std::max(label.peak, held_[mask | bit])};
      if (__builtin_add_overflow(label.cost, chain_.cost[layer - 1], &after.cost))
        overflow_ = true;
      else
        reach(state | bit, after, {Move::Kind::forward, layer});
    }
    const State pair = own | (own >> 1U);
    if ((mask & pair) == pair) reach(mask, label, {Move::Kind::reverse, next});  // the bit of the released value now tells `next`
    // Dropping h_0 leads nowhere: nothing makes it again, and layer 1 needs it.
  }

  std::vector<Move> moves_to(State state) const {
    std::vector<Move> moves;
    const State start = (State{1} << (layers_ + 1)) | 1U;
    while (state != start) {
      const Move move = came_by_[state];
      moves.push_back(move);
      const State bit = State{1} << move.layer;
      if (move.kind == Move::Kind::forward)
        state &= ~bit;
      else if (move.kind == Move::Kind::drop)
        state |= bit;
      else
        state = (bit << 1) | (state & (bit - 1)) | bit;
    }
    std::reverse(moves.begin(), moves.end());
    return moves;
  }

  const Chain& chain_;
  std::uint32_t layers_;
  std::vector<std::uint64_t> held_;  // bytes of a set of values
  std::vector<Label> best_;
  std::vector<Move> came_by_;
  std::priority_queue<std::pair<Label, State>, std::vector<std::pair<Label, State>>, std::greater<>> queue_;
  std::uint64_t budget_ = 0;
  bool overflow_ = false;
};

}  // namespace

Result<std::optional<FrontierPoint>> cheapest_within(const Chain& chain, std::uint64_t budget) {
  if (Status small = check_small(chain); !small) return small.take_error();
  return Search(chain).run(budget);
}

Result<Frontier> exact_frontier(const Chain& chain, std::size_t max_points) {
  if (Status small = check_small(chain); !small) return small.take_error();
  Search search(chain);
  Frontier frontier;
  std::uint64_t budget = detail::total(chain.bytes);
  while (true) {
    Result<std::optional<FrontierPoint>> point = search.run(budget);
    if (!point) return point.take_error();
    if (!*point) break;
    if (frontier.points.size() == max_points) {
      frontier.complete = false;
      break;
    }
    const std::uint64_t peak = (*point)->peak;
    frontier.points.push_back(std::move(**point));
    if (peak == 0) break;
    budget = peak - 1;
  }
  std::reverse(frontier.points.begin(), frontier.points.end());
  return frontier;
}

}  // namespace liveset::plan
