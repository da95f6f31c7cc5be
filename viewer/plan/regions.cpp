#include "viewer/plan/regions.h"

#include <algorithm>
#include <limits>

namespace liveset::plan {
namespace {

constexpr std::uint64_t infinite = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint32_t none = 0xffffffff;

// For each module the index after its subtree. Modules must have been checked.
std::vector<std::uint32_t> ends_of(std::span<const Module> modules) {
  std::vector<std::uint32_t> ends(modules.size());
  for (std::size_t i = modules.size(); i-- > 0;) {
    ends[i] = std::max(ends[i], static_cast<std::uint32_t>(i + 1));
    if (modules[i].parent != no_parent) ends[modules[i].parent] = std::max(ends[modules[i].parent], ends[i]);
  }
  return ends;
}

// A walk through the tree: begin(i) says whether to go inside of module i, end(i) comes after what is inside.
template <class Begin, class End>
void walk(std::span<const Module> modules, const std::vector<std::uint32_t>& ends, Begin begin, End end) {
  std::vector<std::uint32_t> open;
  for (std::uint32_t i = 0; i <= modules.size();) {
    while (!open.empty() && ends[open.back()] == i) {
      end(open.back());
      open.pop_back();
    }
    if (i == modules.size()) break;
    if (begin(i)) {
      open.push_back(i);
      ++i;
    } else {
      i = ends[i];
    }
  }
}

// What was retained so far, at which cost; `choice` names the last checkpointed module and those before.
struct State {
  std::uint64_t retained = 0, cost = 0;
  std::uint32_t choice = none;
};
using List = std::vector<State>;  // retained rising, cost falling

enum class Thinning {
  sound,       // states are left out: what remains can be had
  optimistic,  // states become one that is as good as all of them: nothing that can be had is better
};

class Search {
 public:
  Search(std::span<const Module> modules, std::uint64_t budget, std::uint64_t max_states, Thinning thinning)
      : modules_(modules), ends_(ends_of(modules)), budget_(budget), thinning_(thinning) {
    longest_ = std::max<std::uint64_t>(max_states / modules.size(), 4);
    List list{{}};
    std::vector<List> aside;  // of the modules that are open: what came of checkpointing them
    walk(
        modules, ends_,
        [&](std::uint32_t i) {
          aside.push_back(checkpointed(list, i));
          for (State& state : list) state.retained += modules[i].own;
          cut(list, 0);
          return true;
        },
        [&](std::uint32_t i) {
          cut(list, modules[i].temporary);
          list = merged(list, aside.back());
          aside.pop_back();
          thin(list);
        });
    cut(list, 0);
    list_ = std::move(list);
  }

  bool exact() const { return exact_; }
  bool feasible() const { return !list_.empty(); }
  std::uint64_t cost() const { return list_.back().cost; }
  std::vector<std::uint32_t> chosen() const {
    std::vector<std::uint32_t> chosen;
    for (std::uint32_t at = list_.back().choice; at != none; at = choices_[at].before) chosen.push_back(choices_[at].module);
    std::reverse(chosen.begin(), chosen.end());
    return chosen;
  }

 private:
  struct Choice {
    std::uint32_t before = none, module = 0;
  };

  // Leaves what fits with `extra` on top.
  void cut(List& list, std::uint64_t extra) const {
    while (!list.empty() && (extra > budget_ || list.back().retained > budget_ - extra)) list.pop_back();
  }

  List checkpointed(const List& list, std::uint32_t i) {
    const Module& module = modules_[i];
    List after;
    if (!module.may_checkpoint) return after;
    for (const State& state : list) {
      after.push_back({state.retained + module.boundary, state.cost + module.cost, state.choice});
    }
    cut(after, module.working);
    for (State& state : after) {
      choices_.push_back({state.choice, i});
      state.choice = static_cast<std::uint32_t>(choices_.size() - 1);
    }
    return after;
  }

  static List merged(const List& a, const List& b) {
    List merged;
    merged.reserve(a.size() + b.size());
    for (std::size_t i = 0, j = 0; i < a.size() || j < b.size();) {
      const auto less = [](const State& x, const State& y) {
        return x.retained != y.retained ? x.retained < y.retained : x.cost <= y.cost;
      };
      const State& next = j == b.size() || (i < a.size() && less(a[i], b[j])) ? a[i++] : b[j++];
      if (merged.empty() || next.cost < merged.back().cost) merged.push_back(next);
    }
    return merged;
  }

  // Into parts of equal width: of each the first and the last state, or one that has the best of both.
  void thin(List& list) {
    if (list.size() <= longest_) return;
    exact_ = false;
    const std::uint64_t low = list.front().retained, part = (list.back().retained - low) / (longest_ / 2) + 1;
    std::size_t kept = 0;
    for (std::size_t first = 0, last = 0; first < list.size(); first = last + 1) {
      for (last = first; last + 1 < list.size() && (list[last + 1].retained - low) / part == (list[first].retained - low) / part;) ++last;
      const State least = list[first], cheapest = list[last];
      if (thinning_ == Thinning::optimistic) {
        list[kept++] = {least.retained, cheapest.cost, none};
      } else {
        list[kept++] = least;
        if (last != first) list[kept++] = cheapest;
      }
    }
    list.resize(kept);
  }

  std::span<const Module> modules_;
  std::vector<std::uint32_t> ends_;
  std::uint64_t budget_, longest_ = 4;
  Thinning thinning_;
  std::vector<Choice> choices_;
  List list_;
  bool exact_ = true;
};

Result<std::optional<RegionPlan>> search(std::span<const Module> modules, std::uint64_t budget, const RegionOptions& options) {
  const Search sound(modules, budget, options.max_states, Thinning::sound);
  if (!sound.feasible()) return std::optional<RegionPlan>();  // thinning never leaves out the state that retains least
  Result<RegionPlan> plan = region_figures(modules, sound.chosen());
  if (!plan) return plan.take_error();
  plan->least_cost = plan->figures.cost;
  if (!sound.exact()) plan->least_cost = Search(modules, budget, options.max_states, Thinning::optimistic).cost();
  plan->exact = plan->least_cost == plan->figures.cost;
  return std::optional(std::move(*plan));
}

}  // namespace

Status check(std::span<const Module> modules) {
  if (modules.empty()) return detail::refused("there are no modules");
  if (modules.size() > max_modules)
    return detail::refused("there are " + std::to_string(modules.size()) + " modules, at most " + std::to_string(max_modules));
  std::uint64_t bytes = 0, cost = 0;
  std::vector<std::uint32_t> open;
  for (std::uint32_t i = 0; i < modules.size(); ++i) {
    const Module& module = modules[i];
    while (!open.empty() && open.back() != module.parent) open.pop_back();
    if (open.empty() && module.parent != no_parent)
      return detail::refused("module " + std::to_string(i) + " does not follow its parent and what is inside of that");
    open.push_back(i);
    for (const std::uint64_t size : {module.own, module.temporary, module.boundary, module.working}) {
      if (size > max_total || (bytes += size) > max_total) return detail::refused("the bytes of the modules sum to more than 2^60");
    }
    if (module.cost > max_total || (cost += module.cost) > max_total)
      return detail::refused("the costs of the modules sum to more than 2^60");
  }
  return Done{};
}

Result<RegionPlan> region_figures(std::span<const Module> modules, std::span<const std::uint32_t> checkpointed) {
  if (Status whole = check(modules); !whole) return whole.take_error();
  const std::vector<std::uint32_t> ends = ends_of(modules);
  std::uint32_t free_from = 0;
  for (const std::uint32_t i : checkpointed) {
    if (i >= modules.size()) return detail::refused("there is no module " + std::to_string(i));
    if (i < free_from)
      return detail::refused("module " + std::to_string(i) + " is inside of a checkpointed one, or the list does not rise");
    if (!modules[i].may_checkpoint) return detail::refused("module " + std::to_string(i) + " may not be checkpointed");
    free_from = ends[i];
  }
  RegionPlan plan;
  plan.checkpointed.assign(checkpointed.begin(), checkpointed.end());
  auto next = checkpointed.begin();
  walk(
      modules, ends,
      [&](std::uint32_t i) {
        const Module& module = modules[i];
        if (next == checkpointed.end() || *next != i) {
          plan.retained += module.own;
          return true;
        }
        ++next;
        plan.retained += module.boundary;
        plan.figures.cost += module.cost;
        plan.figures.peak = std::max(plan.figures.peak, plan.retained + module.working);
        return false;
      },
      [&](std::uint32_t i) { plan.figures.peak = std::max(plan.figures.peak, plan.retained + modules[i].temporary); });
  plan.figures.peak = std::max(plan.figures.peak, plan.retained);
  plan.exact = false;
  return plan;
}

Result<std::uint64_t> regions_least_peak(std::span<const Module> modules) {
  if (Status whole = check(modules); !whole) return whole.take_error();
  const std::vector<std::uint32_t> ends = ends_of(modules);
  // Less retained is never worse, so within a budget one number is enough.
  const auto feasible = [&](std::uint64_t budget) {
    const auto within = [budget](std::uint64_t retained, std::uint64_t extra) {
      return retained <= budget && extra <= budget - retained ? retained : infinite;
    };
    std::uint64_t least = 0;
    std::vector<std::uint64_t> aside;
    walk(
        modules, ends,
        [&](std::uint32_t i) {
          const Module& module = modules[i];
          aside.push_back(least == infinite || !module.may_checkpoint ? infinite : within(least + module.boundary, module.working));
          if (least != infinite) least = within(least + module.own, 0);
          return true;
        },
        [&](std::uint32_t i) {
          if (least != infinite) least = within(least, modules[i].temporary);
          least = std::min(least, aside.back());
          aside.pop_back();
        });
    return least != infinite;
  };
  std::uint64_t low = 0, high = region_figures(modules, {})->figures.peak;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (feasible(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return high;
}

Result<std::optional<RegionPlan>> best_regions(std::span<const Module> modules, std::uint64_t budget, const RegionOptions& options) {
  if (Status whole = check(modules); !whole) return whole.take_error();
  return search(modules, budget, options);
}

Result<RegionFrontier> region_frontier(std::span<const Module> modules, const RegionOptions& options) {
  if (Status whole = check(modules); !whole) return whole.take_error();
  RegionFrontier frontier;
  for (std::uint64_t budget = max_total; true;) {
    Result<std::optional<RegionPlan>> plan = search(modules, budget, options);
    if (!plan) return plan.take_error();
    if (!*plan) break;
    const std::uint64_t peak = (*plan)->figures.peak, cost = (*plan)->figures.cost;
    // A smaller peak for the same cost, or, where states were left out, for less.
    while (!frontier.points.empty() && frontier.points.back().figures.cost >= cost) frontier.points.pop_back();
    if (frontier.points.size() == options.max_points) {
      frontier.complete = false;
      break;
    }
    frontier.points.push_back(std::move(**plan));
    if (peak == 0) break;
    budget = peak - 1;
  }
  std::reverse(frontier.points.begin(), frontier.points.end());
  return frontier;
}

}  // namespace liveset::plan
