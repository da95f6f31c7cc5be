// RotorGrid::fill_steps: times as lists of steps. A restart is a sum of two lists, one of them moved; the best of all ways is their lower
// envelope.
#include "viewer/plan/rotor_grid.h"

namespace liveset::plan::detail {
namespace {

using Step = RotorGrid::Step;
using Steps = std::vector<Step>;

// What a list says from a place on, moved to the right by `moved`.
class Reader {
 public:
  // The list must say something at `begin`.
  Reader(const Steps& steps, std::uint64_t moved, std::uint64_t begin) : steps_(steps), moved_(moved) {
    const auto after =
        std::upper_bound(steps.begin(), steps.end(), begin - moved, [](std::uint64_t m, const Step& step) { return m < step.m; });
    at_ = static_cast<std::size_t>(after - steps.begin()) - 1;
  }
  std::int64_t time() const { return steps_[at_].time; }
  std::uint64_t next() const { return at_ + 1 < steps_.size() ? steps_[at_ + 1].m + moved_ : unbounded; }
  void advance_to(std::uint64_t m) {
    if (next() <= m) ++at_;
  }

 private:
  const Steps& steps_;
  std::uint64_t moved_;
  std::size_t at_ = 0;
};

void add(Steps& steps, std::uint64_t m, std::int64_t time) {
  if (steps.empty() || time < steps.back().time) steps.push_back({m, time});
}

// The smaller of both everywhere.
Steps lower(const Steps& a, const Steps& b) {
  Steps both;
  both.reserve(a.size() + b.size());
  for (std::size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    const bool first = j == b.size() || (i < a.size() && a[i].m < b[j].m);
    const Step step = first ? a[i++] : b[j++];
    const bool same = !both.empty() && both.back().m == step.m;
    if (same && step.time < both.back().time)
      both.back().time = step.time;
    else if (!same)
      add(both, step.m, step.time);
  }
  return both;
}

}  // namespace

bool RotorGrid::fill_steps(std::uint64_t top, std::uint64_t max_steps, std::uint64_t max_looks) {
  steps_.assign(pairs_.size(), {});
  std::uint64_t count = 0, looks = 0;
  Steps way;
  for (std::size_t t = 1; t <= stages_; ++t) {
    for (std::size_t s = t; s > 0; --s) {
      const Pair& own = pair(s, t);
      const auto list = [this](std::size_t first, std::size_t last) -> const Steps& { return steps_[(first - 1) * stages_ + last - 1]; };
      Steps best;
      if (own.full <= top) best.push_back({own.full, own.full_time});
      if (s < t && own.least < own.full) {
        const std::uint64_t keeps = chain_.abar[s - 1], begin = std::max({own.least, keep_needs(s, t), keeps + pair(s + 1, t).least});
        if (begin <= top) {
          const std::int64_t once = static_cast<std::int64_t>(chain_.uf[s - 1] + chain_.ub[s - 1]);
          way.clear();
          Reader rest(list(s + 1, t), keeps, begin);
          for (std::uint64_t m = begin; m <= top; m = rest.next()) {
            rest.advance_to(m);
            add(way, m, once + rest.time());
            ++looks;
          }
          best = lower(best, way);
        }
      }
      std::uint64_t needs = start_needs(s, t);
      for (std::size_t r = s + 1; r <= t && own.least < own.full; ++r) {
        if (r > s + 1) needs = std::max(needs, step_needs(r - 1, t));
        const std::uint64_t kept = chain_.a[r - 1], begin = std::max({own.least, needs, kept + pair(r, t).least, pair(s, r - 1).least});
        if (begin > top || begin >= own.full) continue;
        const std::int64_t once = forward_time(s, r - 1);
        // Not if its last and best time is no better than what is known at its first place.
        ++looks;
        if (once + list(r, t).back().time + list(s, r - 1).back().time >= time(best, begin)) continue;
        way.clear();
        Reader later(list(r, t), kept, begin), sooner(list(s, r - 1), 0, begin);
        for (std::uint64_t m = begin; m <= top && m < own.full; m = std::min(later.next(), sooner.next())) {
          later.advance_to(m);
          sooner.advance_to(m);
          add(way, m, once + later.time() + sooner.time());
          ++looks;
        }
        looks += best.size() + way.size();
        best = lower(best, way);
      }
      count += best.size();
      if (count > max_steps || looks > max_looks) {
        steps_.clear();
        return false;
      }
      steps_[(s - 1) * stages_ + t - 1] = std::move(best);
    }
  }
  return true;
}

}  // namespace liveset::plan::detail
