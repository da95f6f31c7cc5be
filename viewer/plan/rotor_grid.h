// The recursion of rotor.h on sizes that are slots already; what rotor_table.cpp is made of. First `least` and `full` of every pair of
// stages, exact and without a bound on memory; then the times between them, up to `top` slots: in an array with an entry for every slot
// (fill), or as a list of the places where they change (fill_steps).
#pragma once
#include <algorithm>
#include <limits>
#include <numeric>

#include "viewer/plan/rotor.h"

namespace liveset::plan::detail {

inline constexpr std::int64_t infinite_time = std::int64_t{1} << 61;  // two of them and a time still fit
inline constexpr std::uint64_t unbounded = std::numeric_limits<std::uint64_t>::max();

class RotorGrid {
 public:
  explicit RotorGrid(RotorChain chain) : chain_(std::move(chain)), stages_(chain_.stages()), pairs_(stages_ * stages_) {
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

  // `told` gets the number of stages that are done: the last ones take longest.
  template <class Told>
  void fill(std::uint64_t top, Told told) {
    std::uint64_t place = 0;
    for (Pair& each : pairs_) {
      each.place = place;
      each.size = size_of(each, top);
      place += each.size;
    }
    times_.assign(place, infinite_time);
    // What ends with t stays in the cache; what begins with s lies in one piece and streams through it.
    for (std::size_t t = 1; t <= stages_; ++t) {
      for (std::size_t s = t; s > 0; --s) fill_pair(s, t);
      told(t);
    }
  }

  // The same, by the places only where the time changes: exact at any number of slots where such places are few. Gives up (false) when all
  // pairs together have more than `max_steps` of them, or after looking at `max_looks`.
  bool fill_steps(std::uint64_t top, std::uint64_t max_steps, std::uint64_t max_looks);

  // Of everything, with m free slots, at most the `top` of fill() or at least full().
  std::int64_t time(std::uint64_t m) const { return time(pair(1, stages_), m); }

  struct Step {
    std::uint64_t m = 0;
    std::int64_t time = 0;  // from m on
  };
  // Of everything, after fill_steps(): m rises, the time falls.
  std::span<const Step> steps() const { return steps_.empty() ? std::span<const Step>() : steps_[stages_ - 1]; }
  bool has_steps() const { return !steps_.empty(); }

  std::vector<RotorOperation> operations(std::uint64_t m) const {
    return write(m, [this](std::size_t s, std::size_t t, std::uint64_t free) -> std::size_t {
      return free >= pair(s, t).full ? 0 : best_restart(s, t, free);
    });
  }
  std::vector<RotorOperation> least_operations() const {
    return write(least(), [this](std::size_t s, std::size_t t, std::uint64_t free) -> std::size_t {
      return free >= pair(s, t).full ? 0 : pair(s, t).least_restart;
    });
  }

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
    if (has_steps()) return time(steps_[static_cast<std::size_t>(&pair - pairs_.data())], m);
    return m < pair.least || m - pair.least >= pair.size ? infinite_time : times_[pair.place + m - pair.least];
  }

  static std::int64_t time(const std::vector<Step>& steps, std::uint64_t m) {
    const auto after =
        std::upper_bound(steps.begin(), steps.end(), m, [](std::uint64_t place, const Step& step) { return place < step.m; });
    return after == steps.begin() ? infinite_time : std::prev(after)->time;
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
    const auto emit = [&operations](RotorOperation::Kind kind, std::size_t stage) {
      operations.push_back({kind, static_cast<std::uint32_t>(stage)});
    };
    std::vector<Task> tasks{{1, stages_, m}};
    while (!tasks.empty()) {
      const Task task = tasks.back();
      tasks.pop_back();
      const auto [s, t, free] = task;
      if (t == 0) {
        emit(RotorOperation::Kind::backward, s);
        continue;
      }
      const std::size_t r = s == t ? 0 : restarts(s, t, free);
      if (r == 0) {
        emit(RotorOperation::Kind::forward_keep_all, s);
        tasks.push_back({s, 0, 0});
        if (s < t) tasks.push_back({s + 1, t, free - chain_.abar[s - 1]});
      } else {
        emit(RotorOperation::Kind::forward_keep_input, s);
        for (std::size_t j = s + 1; j < r; ++j) emit(RotorOperation::Kind::forward, j);
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
  std::vector<std::vector<Step>> steps_;  // by pair; of fill_steps
};

}  // namespace liveset::plan::detail
