// The table of rotor.h. Two layers: Grid, the recursion in whole slots, and RotorTable, which chooses slots and answers in bytes.
#include <algorithm>
#include <limits>
#include <numeric>

#include "viewer/plan/rotor.h"

namespace liveset::plan {
namespace {

using Kind = RotorOperation::Kind;

constexpr std::int64_t infinite = std::int64_t{1} << 61;  // two of them and a time still fit
constexpr std::uint64_t unbounded = std::numeric_limits<std::uint64_t>::max();

enum class Rounding { up, down };

RotorChain in_slots(RotorChain chain, std::uint64_t slot, Rounding rounding) {
  for (auto* list : {&chain.a, &chain.abar, &chain.delta, &chain.of, &chain.ob}) {
    for (std::uint64_t& size : *list) size = size / slot + (rounding == Rounding::up && size % slot != 0 ? 1 : 0);
  }
  return chain;
}

// The recursion on sizes that are slots already. First `least` and `full` of every pair of stages, exact and without a bound on memory;
// then, by fill(), the times between them up to `top` slots.
class Grid {
 public:
  explicit Grid(RotorChain chain) : chain_(std::move(chain)), stages_(chain_.stages()), pairs_(stages_ * stages_) {
    sums_.resize(stages_ + 1);
    std::partial_sum(chain_.uf.begin(), chain_.uf.end(), sums_.begin() + 1);
    for (std::size_t length = 1; length <= stages_; ++length) {
      for (std::size_t s = 1; s + length - 1 <= stages_; ++s) measure(s, s + length - 1);
    }
  }

  // Free slots with a_0 held.
  std::uint64_t least() const { return pair(1, stages_).least; }
  std::uint64_t full() const { return pair(1, stages_).full; }
  std::uint64_t input() const { return chain_.a[0]; }

  std::uint64_t entries(std::uint64_t top) const {
    std::uint64_t sum = 0;
    for (const Pair& each : pairs_) sum += size_of(each, top);
    return sum;
  }

  void fill(std::uint64_t top) {
    std::uint64_t place = 0;
    for (Pair& each : pairs_) {
      each.place = place;
      each.size = size_of(each, top);
      place += each.size;
    }
    times_.assign(place, infinite);
    // What ends with t stays in the cache; what begins with s lies in one piece and streams through it.
    for (std::size_t t = 1; t <= stages_; ++t) {
      for (std::size_t s = t; s > 0; --s) fill_pair(s, t);
    }
  }

  // Of everything, with m free slots, at most the `top` of fill() or at least full().
  std::int64_t time(std::uint64_t m) const { return time(pair(1, stages_), m); }

  std::vector<RotorOperation> operations(std::uint64_t m) const;
  std::vector<RotorOperation> least_operations() const;

 private:
  struct Pair {
    std::uint64_t least = unbounded, full = 0;  // free slots from which on there is a way, and from which on everything can be kept
    std::uint64_t place = 0, size = 0;          // times of least, least + 1, ..
    std::int64_t full_time = 0;
    std::uint32_t least_restart = 0;  // the way of `least`: where it restarts, 0 for keep all
  };

  const Pair& pair(std::size_t s, std::size_t t) const { return pairs_[(s - 1) * stages_ + t - 1]; }
  Pair& pair(std::size_t s, std::size_t t) { return pairs_[(s - 1) * stages_ + t - 1]; }

  static std::uint64_t size_of(const Pair& pair, std::uint64_t top) {
    if (pair.least == unbounded || pair.least > top) return 0;  // pairs with s > t among them
    return pair.full > pair.least ? std::min(pair.full, top + 1) - pair.least : 0;
  }

  std::int64_t time(const Pair& pair, std::uint64_t m) const {
    if (m >= pair.full) return pair.full_time;
    return m < pair.least || m - pair.least >= pair.size ? infinite : times_[pair.place + m - pair.least];
  }

  // Slots that running Fall_s and B_s with everything kept needs.
  std::uint64_t keep_needs(std::size_t s, std::size_t t) const {
    const std::uint64_t forward = chain_.delta[t] + chain_.abar[s - 1] + chain_.of[s - 1];
    return std::max(forward, chain_.delta[s] + chain_.abar[s - 1] + chain_.delta[s - 1] + chain_.ob[s - 1]);
  }
  // Slots that Fck_s, and then Fn_j, need.
  std::uint64_t start_needs(std::size_t s, std::size_t t) const { return chain_.delta[t] + chain_.a[s] + chain_.of[s - 1]; }
  std::uint64_t step_needs(std::size_t j, std::size_t t) const {
    return chain_.delta[t] + chain_.a[j - 1] + chain_.a[j] + chain_.of[j - 1];
  }
  std::int64_t forward_time(std::size_t first, std::size_t last) const { return static_cast<std::int64_t>(sums_[last] - sums_[first - 1]); }

  void measure(std::size_t s, std::size_t t) {
    Pair& own = pair(s, t);
    const std::uint64_t keep = keep_needs(s, t);
    own.full = s == t ? keep : std::max(keep, chain_.abar[s - 1] + pair(s + 1, t).full);
    own.full_time = static_cast<std::int64_t>(chain_.uf[s - 1] + chain_.ub[s - 1]) + (s == t ? 0 : pair(s + 1, t).full_time);
    own.least = s == t ? keep : std::max(keep, chain_.abar[s - 1] + pair(s + 1, t).least);
    std::uint64_t needs = start_needs(s, t);
    for (std::size_t r = s + 1; r <= t; ++r) {
      if (r > s + 1) needs = std::max(needs, step_needs(r - 1, t));
      const std::uint64_t least = std::max({needs, chain_.a[r - 1] + pair(r, t).least, pair(s, r - 1).least});
      if (least < own.least) {
        own.least = least;
        own.least_restart = static_cast<std::uint32_t>(r);
      }
    }
  }

  void fill_pair(std::size_t s, std::size_t t) {
    const Pair& own = pair(s, t);
    if (own.size == 0) return;
    const std::uint64_t end = own.least + own.size;  // m of [least, end)
    std::int64_t* times = times_.data() + own.place;
    if (s < t) {  // with s = t nothing lies between least and full
      const Pair& rest = pair(s + 1, t);
      const std::uint64_t keeps = chain_.abar[s - 1];
      const std::int64_t once = static_cast<std::int64_t>(chain_.uf[s - 1] + chain_.ub[s - 1]);
      for (std::uint64_t m = std::max({own.least, keep_needs(s, t), keeps + rest.least}); m < end; ++m)
        times[m - own.least] = once + time(rest, m - keeps);
    }
    std::uint64_t needs = start_needs(s, t);
    for (std::size_t r = s + 1; r <= t; ++r) {
      if (r > s + 1) needs = std::max(needs, step_needs(r - 1, t));
      restart(own, pair(r, t), pair(s, r - 1), chain_.a[r - 1], needs, forward_time(s, r - 1));
    }
  }

  // times[m] = min(times[m], once + later(m - kept) + sooner(m)). Both are arrays up to a place and constant from there on: up to three
  // runs.
  void restart(const Pair& own, const Pair& later, const Pair& sooner, std::uint64_t kept, std::uint64_t needs, std::int64_t once) {
    const std::uint64_t begin = std::max({own.least, needs, kept + later.least, sooner.least}), end = own.least + own.size;
    if (begin >= end) return;
    const std::uint64_t later_full = std::clamp(kept + later.full, begin, end), sooner_full = std::clamp(sooner.full, begin, end);
    // Sizes were cut at the top, which no m reaches beyond: in these runs every index is inside of its array.
    const auto of_later = [base = later.place - later.least - kept, this](std::uint64_t m) { return times_[base + m]; };
    const auto of_sooner = [base = sooner.place - sooner.least, this](std::uint64_t m) { return times_[base + m]; };
    const std::uint64_t times = own.place - own.least;
    const std::uint64_t both = std::min(later_full, sooner_full), either = std::max(later_full, sooner_full);
    improve(times, begin, both, [&](std::uint64_t m) { return once + of_later(m) + of_sooner(m); });
    if (later_full < sooner_full)
      improve(times, both, either, [&, fixed = once + later.full_time](std::uint64_t m) { return fixed + of_sooner(m); });
    else
      improve(times, both, either, [&, fixed = once + sooner.full_time](std::uint64_t m) { return fixed + of_later(m); });
    improve(times, either, end, [fixed = once + later.full_time + sooner.full_time](std::uint64_t) { return fixed; });
  }

  // Times and candidates both fall with m: where the last candidate of a block is no better than the block's first time, none of it is.
  template <class Cost>
  void improve(std::uint64_t place, std::uint64_t from, std::uint64_t to, Cost cost) {
    constexpr std::uint64_t block = 32;
    std::int64_t* times = times_.data();
    for (std::uint64_t end = 0; from < to; from = end) {
      end = std::min(to, from + block);
      if (cost(end - 1) >= times[place + from]) continue;
      for (std::uint64_t m = from; m < end; ++m) {
        const std::int64_t candidate = cost(m);
        std::int64_t& best = times[place + m];
        best = candidate < best ? candidate : best;
      }
    }
  }

  // Where the best way of (s, t, m) restarts; 0 for keep all.
  std::size_t best_restart(std::size_t s, std::size_t t, std::uint64_t m) const {
    const std::int64_t best = time(pair(s, t), m);
    std::uint64_t needs = start_needs(s, t);
    for (std::size_t r = s + 1; r <= t; ++r) {
      if (r > s + 1) needs = std::max(needs, step_needs(r - 1, t));
      if (needs > m || chain_.a[r - 1] > m) continue;
      if (forward_time(s, r - 1) + time(pair(r, t), m - chain_.a[r - 1]) + time(pair(s, r - 1), m) == best) return r;
    }
    return 0;
  }

  // Writes the operations down; `restarts(s, t, m)` chooses the way.
  template <class Restarts>
  std::vector<RotorOperation> write(std::uint64_t m, Restarts restarts) const {
    struct Task {
      std::size_t s = 0, t = 0;  // t = 0: the backward of s
      std::uint64_t m = 0;
    };
    std::vector<RotorOperation> operations;
    const auto emit = [&operations](Kind kind, std::size_t stage) { operations.push_back({kind, static_cast<std::uint32_t>(stage)}); };
    std::vector<Task> tasks{{1, stages_, m}};
    while (!tasks.empty()) {
      const Task task = tasks.back();
      tasks.pop_back();
      const auto [s, t, free] = task;
      if (t == 0) {
        emit(Kind::backward, s);
        continue;
      }
      const std::size_t r = s == t ? 0 : restarts(s, t, free);
      if (r == 0) {
        emit(Kind::forward_keep_all, s);
        tasks.push_back({s, 0, 0});
        if (s < t) tasks.push_back({s + 1, t, free - chain_.abar[s - 1]});
      } else {
        emit(Kind::forward_keep_input, s);
        for (std::size_t j = s + 1; j < r; ++j) emit(Kind::forward, j);
        tasks.push_back({s, r - 1, free});
        tasks.push_back({r, t, free - chain_.a[r - 1]});
      }
    }
    return operations;
  }

  RotorChain chain_;
  std::size_t stages_;
  std::vector<Pair> pairs_;
  std::vector<std::uint64_t> sums_;  // of uf
  std::vector<std::int64_t> times_;
};

std::vector<RotorOperation> Grid::operations(std::uint64_t m) const {
  return write(m, [this](std::size_t s, std::size_t t, std::uint64_t free) -> std::size_t {
    return free >= pair(s, t).full ? 0 : best_restart(s, t, free);
  });
}

std::vector<RotorOperation> Grid::least_operations() const {
  return write(least(), [this](std::size_t s, std::size_t t, std::uint64_t free) -> std::size_t {
    return free >= pair(s, t).full ? 0 : pair(s, t).least_restart;
  });
}

std::uint64_t common_divisor(const RotorChain& chain) {
  std::uint64_t divisor = 0;
  for (const auto* list : {&chain.a, &chain.abar, &chain.delta, &chain.of, &chain.ob}) {
    for (const std::uint64_t size : *list) divisor = std::gcd(divisor, size);
  }
  return std::max<std::uint64_t>(divisor, 1);
}

}  // namespace

struct RotorTable::Body {
  RotorChain chain;
  std::uint64_t slot = 1, top = 0;  // top: the largest budget that the grids know, in bytes
  bool exact = true;
  std::uint64_t least = 0;  // budget
  RotorPlan least_plan;     // within it; used where the grid rounds too much
  RotorPlan keep_all;
  std::optional<Grid> upper, lower;  // lower only where not exact

  // Free slots of a budget.
  static std::optional<std::uint64_t> free_slots(const Grid& grid, std::uint64_t budget, std::uint64_t slot) {
    const std::uint64_t slots = budget / slot;
    return slots < grid.input() ? std::nullopt : std::optional(slots - grid.input());
  }
  static std::int64_t time(const Grid& grid, std::uint64_t budget, std::uint64_t slot) {
    const std::optional<std::uint64_t> free = free_slots(grid, budget, slot);
    return free ? grid.time(*free) : infinite;
  }

  RotorPlan planned(std::vector<RotorOperation> operations) const {
    RotorPlan plan;
    plan.figures = *replay(chain, operations);
    plan.operations = std::move(operations);
    return plan;
  }
};

RotorTable::RotorTable(std::unique_ptr<Body> body) : body_(std::move(body)) {}
RotorTable::RotorTable(RotorTable&&) noexcept = default;
RotorTable& RotorTable::operator=(RotorTable&&) noexcept = default;
RotorTable::~RotorTable() = default;

Result<RotorTable> RotorTable::make(RotorChain chain, std::uint64_t budget, const RotorOptions& options) {
  if (Status whole = check(chain); !whole) return whole.take_error();
  if (chain.stages() > max_rotor_stages)
    return detail::refused(
        "rotor takes at most " + std::to_string(max_rotor_stages) + " stages, the chain has " + std::to_string(chain.stages()),
        "take several layers together as one stage");
  auto body = std::make_unique<Body>();
  body->chain = std::move(chain);
  body->slot = common_divisor(body->chain);
  Grid exact(in_slots(body->chain, body->slot, Rounding::up));
  body->least = (exact.input() + exact.least()) * body->slot;
  body->least_plan = body->planned(exact.least_operations());
  body->keep_all = body->planned(rotor_keep_all(body->chain.stages()));
  body->keep_all.exact = true;
  body->keep_all.least_cost = body->keep_all.figures.cost;
  body->top = std::min(budget, body->keep_all.figures.peak);

  const auto too_large = [&options](const Grid& grid, std::uint64_t slots) {
    return slots >= grid.input() && grid.entries(slots - grid.input()) > options.max_table_bytes / sizeof(std::int64_t);
  };
  const auto fill = [](Grid& grid, std::uint64_t slots) {
    if (slots >= grid.input()) grid.fill(slots - grid.input());
  };
  std::uint64_t slots = body->top / body->slot;
  if (slots <= options.slots && !too_large(exact, slots)) {
    fill(exact, slots);
    body->upper = std::move(exact);
    return RotorTable(std::move(body));
  }
  body->exact = false;
  for (slots = std::min(slots, options.slots); slots > 0; slots /= 2) {
    body->slot = body->top / slots + (body->top % slots != 0 ? 1 : 0);
    Grid upper(in_slots(body->chain, body->slot, Rounding::up)), lower(in_slots(body->chain, body->slot, Rounding::down));
    slots = body->top / body->slot;
    if (too_large(upper, slots) || too_large(lower, slots)) continue;
    fill(upper, slots);
    fill(lower, slots);
    body->upper = std::move(upper);
    body->lower = std::move(lower);
    return RotorTable(std::move(body));
  }
  return detail::refused("the table of rotor does not fit into " + std::to_string(options.max_table_bytes) + " bytes",
                         "take several layers together as one stage");
}

bool RotorTable::exact() const { return body_->exact; }
std::uint64_t RotorTable::slot() const { return body_->slot; }
std::uint64_t RotorTable::least_budget() const { return body_->least; }

std::optional<RotorPlan> RotorTable::plan(std::uint64_t budget) const {
  const Body& body = *body_;
  budget = std::min(budget, body.top);
  if (budget < body.least) return std::nullopt;
  if (budget >= body.keep_all.figures.peak) return body.keep_all;
  const std::int64_t time = Body::time(*body.upper, budget, body.slot);
  RotorPlan plan = body.least_plan;
  if (time < infinite && static_cast<std::uint64_t>(time) <= plan.figures.cost)
    plan = body.planned(body.upper->operations(*Body::free_slots(*body.upper, budget, body.slot)));
  plan.least_cost = plan.figures.cost;
  if (!body.exact) plan.least_cost = static_cast<std::uint64_t>(Body::time(*body.lower, budget, body.slot));
  plan.exact = plan.least_cost == plan.figures.cost;
  return plan;
}

std::optional<std::uint64_t> RotorTable::cost(std::uint64_t budget) const {
  const Body& body = *body_;
  budget = std::min(budget, body.top);
  if (budget < body.least) return std::nullopt;
  if (budget >= body.keep_all.figures.peak) return body.keep_all.figures.cost;
  const std::int64_t time = Body::time(*body.upper, budget, body.slot);
  return std::min(body.least_plan.figures.cost, static_cast<std::uint64_t>(time));
}

std::vector<RotorTable::Step> RotorTable::steps() const {
  const Body& body = *body_;
  std::vector<Step> steps;
  const auto add = [&steps](std::uint64_t budget, std::uint64_t cost) {
    if (steps.empty() || cost < steps.back().cost) steps.push_back({budget, cost});
  };
  if (body.top < body.least) return steps;
  add(body.least, *cost(body.least));
  for (std::uint64_t slots = body.least / body.slot; slots <= body.top / body.slot; ++slots) {
    const std::uint64_t budget = slots * body.slot;
    if (budget > body.least) add(budget, *cost(budget));
  }
  if (body.top >= body.keep_all.figures.peak) add(body.keep_all.figures.peak, body.keep_all.figures.cost);
  return steps;
}

}  // namespace liveset::plan
