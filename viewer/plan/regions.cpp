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

// A price of bytes in units of cost: price / scale. With it the constraint becomes a part of the objective (Lagrange): for any price,
//   cost of a plan within the budget  >=  ( least of  scale x cost + price x retained  over all plans  -  price x budget ) / scale,
// and the least is found module by module. rest[i] is that least for all that a walk meets from module i on, with everything around it
// open.
using Wide = __int128;
constexpr Wide scale = Wide{1} << 40U;

struct Priced {
  Wide price = 0;
  std::vector<Wide> rest;
  std::uint64_t retained = 0;  // by the plan of that least

  Priced(std::span<const Module> modules, const std::vector<std::uint32_t>& ends, Wide bytes_price)
      : price(bytes_price), rest(modules.size() + 1) {
    std::vector<std::uint64_t> kept(modules.size() + 1, 0);
    for (std::size_t i = modules.size(); i-- > 0;) {
      const Module& module = modules[i];
      // What is inside comes first, then what follows: rest[i + 1] has both. A checkpoint leaves out the former.
      rest[i] = price * module.own + rest[i + 1];
      kept[i] = module.own + kept[i + 1];
      const Wide checkpointed = scale * module.cost + price * module.boundary + rest[ends[i]];
      if (!module.may_checkpoint || checkpointed >= rest[i]) continue;
      rest[i] = checkpointed;
      kept[i] = module.boundary + kept[ends[i]];
    }
    retained = kept[0];
  }

  std::vector<std::uint32_t> chosen(const std::vector<std::uint32_t>& ends, std::span<const Module> modules) const {
    std::vector<std::uint32_t> list;
    for (std::uint32_t i = 0; i < modules.size();) {
      const bool take = rest[i] < price * modules[i].own + rest[i + 1];
      if (take) list.push_back(i);
      i = take ? ends[i] : i + 1;
    }
    return list;
  }

  // No plan within the budget costs less.
  std::uint64_t least_cost(std::uint64_t budget) const {
    const Wide bound = rest[0] - price * budget;
    return bound <= 0 ? 0 : static_cast<std::uint64_t>((bound + scale - 1) / scale);
  }
};

// The least price of those that were tried whose plan is `fine`.
template <class Fine>
Wide least_price(std::span<const Module> modules, const std::vector<std::uint32_t>& ends, Fine fine) {
  Wide low = 0, high = Wide{1} << 60U;
  while (low < high) {
    const Wide middle = low + (high - low) / 2;
    if (fine(Priced(modules, ends, middle)))
      high = middle;
    else
      low = middle + 1;
  }
  return high;
}

// The price of the best bound: retained falls as the price rises, and the bound is best where it comes down to the budget.
Priced price_for(std::span<const Module> modules, const std::vector<std::uint32_t>& ends, std::uint64_t budget) {
  const Wide high = least_price(modules, ends, [budget](const Priced& priced) { return priced.retained <= budget; });
  Priced above(modules, ends, high), below(modules, ends, high > 0 ? high - 1 : 0);
  return above.rest[0] - above.price * budget >= below.rest[0] - below.price * budget ? above : below;
}

enum class Thinning {
  sound,       // states are left out: what remains can be had
  optimistic,  // states become one that is as good as all of them: nothing that can be had is better
};

class Search {
 public:
  // With `priced`, states that cannot lead to a plan of at most `known` cost are left out.
  Search(std::span<const Module> modules, const std::vector<std::uint32_t>& ends, std::uint64_t budget, std::uint64_t max_states,
         Thinning thinning, const Priced* priced = nullptr, std::uint64_t known = 0)
      : modules_(modules), budget_(budget), thinning_(thinning), priced_(priced), known_(known) {
    longest_ = std::max<std::uint64_t>(max_states / modules.size(), 4);
    List list{{}};
    std::vector<List> aside;  // of the modules that are open: what came of checkpointing them
    walk(
        modules, ends,
        [&](std::uint32_t i) {
          aside.push_back(checkpointed(list, i));
          for (State& state : list) state.retained += modules[i].own;
          cut(list, 0);
          leave_out_hopeless(list, i + 1);
          return true;
        },
        [&](std::uint32_t i) {
          cut(list, modules[i].temporary);
          list = merged(list, aside.back());
          aside.pop_back();
          leave_out_hopeless(list, ends[i]);
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

  void leave_out_hopeless(List& list, std::uint32_t next) const {
    if (!priced_) return;
    const Wide most = scale * known_ + priced_->price * budget_ - priced_->rest[next];
    std::erase_if(list, [&](const State& state) { return scale * state.cost + priced_->price * state.retained > most; });
  }

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

  // The states that lead to the cheapest plans, as far as the price of bytes can tell.
  void keep_promising(List& list) {
    exact_ = false;
    const auto merit = [this](const State& state) { return scale * state.cost + priced_->price * state.retained; };
    const auto last = list.begin() + static_cast<std::ptrdiff_t>(longest_);
    std::nth_element(list.begin(), last, list.end(), [&](const State& a, const State& b) { return merit(a) < merit(b); });
    list.erase(last, list.end());
    std::sort(list.begin(), list.end(), [](const State& a, const State& b) { return a.retained < b.retained; });
  }

  // Into parts of equal width: of each the first and the last state, or one that has the best of both.
  void thin(List& list) {
    if (list.size() <= longest_) return;
    if (priced_ && thinning_ == Thinning::sound) return keep_promising(list);
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
  std::uint64_t budget_, longest_ = 4;
  Thinning thinning_;
  const Priced* priced_;
  std::uint64_t known_;
  std::vector<Choice> choices_;
  List list_;
  bool exact_ = true;
};

// Whether there is a plan within the budget. Less retained is never worse, so one number is enough. `barred` gets the modules that no such
// plan checkpoints: their working set does not fit on the least that can be retained before them.
bool fits(std::span<const Module> modules, const std::vector<std::uint32_t>& ends, std::uint64_t budget,
          std::vector<bool>* barred = nullptr) {
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
        if (barred != nullptr) (*barred)[i] = aside.back() == infinite;
        if (least != infinite) least = within(least + module.own, 0);
        return true;
      },
      [&](std::uint32_t i) {
        if (least != infinite) least = within(least, modules[i].temporary);
        least = std::min(least, aside.back());
        aside.pop_back();
      });
  return least != infinite;
}

Result<std::optional<RegionPlan>> search(std::span<const Module> all, std::uint64_t budget, const RegionOptions& options) {
  const std::vector<std::uint32_t> ends = ends_of(all);
  std::vector<bool> barred(all.size());
  if (!fits(all, ends, budget, &barred)) return std::optional<RegionPlan>();
  // A price of bytes knows nothing of working sets: left to it, the whole tree would be one checkpoint.
  std::vector<Module> possible(all.begin(), all.end());
  for (std::size_t i = 0; i < possible.size(); ++i) possible[i].may_checkpoint = possible[i].may_checkpoint && !barred[i];
  const std::span<const Module> modules = possible;
  const std::uint64_t first_look = std::max<std::uint64_t>(options.max_states / 16, 1);
  const Search quick(modules, ends, budget, first_look, Thinning::sound);
  if (!quick.feasible()) return std::optional<RegionPlan>();  // thinning never leaves out the state that retains least
  std::vector<std::uint32_t> chosen = quick.chosen();
  std::uint64_t cost = quick.cost(), least_cost = cost;
  if (!quick.exact()) {
    const Priced priced = price_for(modules, ends, budget);
    const auto figures_of = [&](const Priced& each) { return region_figures(modules, each.chosen(ends, modules))->figures; };
    const Priced within(modules, ends, least_price(modules, ends, [&](const Priced& each) { return figures_of(each).peak <= budget; }));
    if (const Figures figures = figures_of(within); figures.peak <= budget && figures.cost < cost) {
      chosen = within.chosen(ends, modules);
      cost = figures.cost;
    }
    bool exact = false, better = true;
    for (int rounds = 0; rounds < 4 && better && !exact; ++rounds) {  // what one search finds lets the next one leave out more
      const Search sound(modules, ends, budget, options.max_states, Thinning::sound, &priced, cost);
      exact = sound.exact();
      better = sound.feasible() && sound.cost() < cost;
      if (!better) continue;
      chosen = sound.chosen();
      cost = sound.cost();
    }
    if (exact)
      least_cost = cost;
    else
      least_cost = std::max(priced.least_cost(budget),
                            Search(modules, ends, budget, options.max_states, Thinning::optimistic, &priced, cost).cost());
  }
  Result<RegionPlan> plan = region_figures(modules, chosen);
  if (!plan) return plan.take_error();
  plan->least_cost = least_cost;
  plan->exact = least_cost == cost;
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
  const auto feasible = [&](std::uint64_t budget) { return fits(modules, ends, budget); };
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
  // A smaller peak for the same cost, or, where states were left out, for less.
  const auto add = [&points = frontier.points](RegionPlan plan) {
    while (!points.empty() && points.back().figures.cost >= plan.figures.cost) points.pop_back();
    points.push_back(std::move(plan));
  };
  std::uint64_t budget = max_total;
  for (std::size_t searches = 0; frontier.complete; ++searches) {
    Result<std::optional<RegionPlan>> plan = search(modules, budget, options);
    if (!plan) return plan.take_error();
    if (!*plan) break;
    if (searches == options.max_points) {
      frontier.complete = false;
      break;
    }
    budget = (*plan)->figures.peak;
    add(std::move(**plan));
    if (budget-- == 0) break;
  }
  if (!frontier.complete) {  // as many budgets, from the largest that matters to the least that is possible
    const std::uint64_t most = frontier.points.front().figures.peak, least = *regions_least_peak(modules);
    frontier.points.clear();
    const std::uint64_t parts = std::max<std::uint64_t>(options.max_points, 2) - 1;
    for (std::uint64_t i = 0; i <= parts; ++i) {
      const auto part = static_cast<std::uint64_t>(static_cast<unsigned __int128>(most - least) * (parts - i) / parts);
      Result<std::optional<RegionPlan>> plan = search(modules, least + part, options);
      if (!plan) return plan.take_error();
      add(std::move(**plan));
    }
  }
  std::reverse(frontier.points.begin(), frontier.points.end());
  return frontier;
}

}  // namespace liveset::plan
