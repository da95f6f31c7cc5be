#include "viewer/model/region_search.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "viewer/model/region_tree.h"

namespace liveset::model {
namespace {

constexpr std::size_t max_families = 256;  // that are tried: each looks through all names
constexpr int max_corrections = 16;        // of the budget that the planner is asked for

using Set = std::vector<std::uint32_t>;  // of the tree's modules, rising

// The name with one of its numbers left open: "net.0.b.11.attn" -> "net.*.b.11.attn", "net.0.b.*.attn".
std::vector<std::string> families_of(const std::string& name) {
  std::vector<std::string> families;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find_first_of("./", begin), name.size());
    const std::string_view part = std::string_view(name).substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos)
      families.push_back(name.substr(0, begin) + "*" + name.substr(end));
    begin = end + 1;
  }
  return families;
}

// Sets of modules as a policy says them: a family as a pattern where the set has all of it.
class Names {
 public:
  Names(const NamedRuns& runs, const RegionTree& tree) : names_(tree.modules.size()), families_(tree.modules.size()) {
    std::map<std::string, Set> families;
    for (std::uint32_t module = 0; module < tree.modules.size(); ++module) {
      if (!tree.modules[module].may_checkpoint) continue;
      const NamedRun& run = runs.all()[tree.run[module]];
      const std::string path(run.path);
      names_[module] = runs.is_one_of_many(run) ? run.numbered() : path;
      for (const std::string& family : families_of(path)) families[family].push_back(module);
      if (names_[module] != path) families[path].push_back(module);
    }
    std::size_t tried = 0;
    for (auto& [pattern, members] : families) {
      if (members.size() < 2) continue;
      if (++tried > max_families) break;
      std::vector<std::uint32_t> named;
      for (const std::uint32_t module : members) named.push_back(tree.run[module]);
      std::sort(named.begin(), named.end());
      if (runs.find(pattern) != named) continue;
      for (const std::uint32_t module : members) families_[module].push_back(static_cast<std::uint32_t>(members_.size()));
      patterns_.push_back(pattern);
      members_.push_back(std::move(members));
    }
  }

  // O(set): a set is said for each that is tried.
  std::string policy(const Set& set) const {
    if (set.empty()) return "save-all";
    std::vector<std::size_t> missing(members_.size());  // of a family, in the set
    for (std::size_t family = 0; family < members_.size(); ++family) missing[family] = members_[family].size();
    for (const std::uint32_t module : set)
      for (const std::uint32_t family : families_[module]) --missing[family];
    std::string text = "regions:";
    std::vector<bool> said(names_.size());
    for (const std::uint32_t module : set) {
      if (said[module]) continue;
      const auto& families = families_[module];
      const auto whole = std::find_if(families.begin(), families.end(), [&](std::uint32_t family) { return missing[family] == 0; });
      if (text.back() != ':') text += ',';
      text += whole == families.end() ? names_[module] : patterns_[*whole];
      if (whole == families.end()) continue;
      for (const std::uint32_t member : members_[*whole]) said[member] = true;
    }
    return text;
  }

 private:
  std::vector<std::string> names_, patterns_;
  std::vector<std::vector<std::uint32_t>> families_;  // of a module
  std::vector<Set> members_;                          // of a family
};

class RegionSearch {
 public:
  RegionSearch(const Model& model, const RegionSearchOptions& options, const Follow& follow)
      : options_(options),
        follow_(follow),
        runs_(model),
        tree_(region_tree(model, runs_)),
        names_(runs_, tree_),
        step_(2 * model.ops.size()),
        most_(options.limits.max_ops) {}

  RegionSearchResult run() {
    RegionSearchResult result;
    result.modules = tree_.checkpointable;
    if (sets() <= options_.limits.max_sets && sets() * step_ <= options_.limits.max_ops) {
      Set set;
      from(0, set);
      result.all_sets = true;
      return result;
    }
    propose();
    if (settled_) most_ = std::min(most_, spent_ + options_.limits.max_ops / 8);
    improve();
    return result;
  }

 private:
  struct Point {
    Set set;
    plan::Figures figures;
    bool expanded = false;
  };

  bool may_spend() const { return spent_ + step_ <= most_; }

  std::optional<plan::Figures> evaluate(const Set& set) {
    const auto [known, fresh] = seen_.try_emplace(set);
    if (!fresh) return known->second;
    spent_ += step_;
    known->second = follow_(names_.policy(set));
    if (known->second) keep({set, *known->second});
    return known->second;
  }

  // Among those that nothing beats.
  void keep(Point point) {
    const plan::Figures& fresh = point.figures;
    for (const Point& old : front_)
      if (old.figures.peak <= fresh.peak && old.figures.cost <= fresh.cost) return;
    std::erase_if(front_, [&](const Point& old) { return fresh.peak <= old.figures.peak && fresh.cost <= old.figures.cost; });
    front_.push_back(std::move(point));
  }

  // How many sets there are; the largest number where they are many.
  std::uint64_t sets() const {
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    const auto product = [](std::uint64_t a, std::uint64_t b) { return b != 0 && a > most / b ? most : a * b; };
    std::vector<std::uint64_t> inside(tree_.modules.size(), 1);
    std::uint64_t all = 1;
    for (std::size_t i = tree_.modules.size(); i-- > 0;) {
      if (tree_.modules[i].may_checkpoint && inside[i] != most) ++inside[i];
      const std::uint32_t parent = tree_.modules[i].parent;
      std::uint64_t& outer = parent == plan::no_parent ? all : inside[parent];
      outer = product(outer, inside[i]);
    }
    return all;
  }
  void from(std::uint32_t first, Set& set) {
    evaluate(set);
    for (std::uint32_t i = first; i < tree_.modules.size(); ++i) {
      if (!tree_.modules[i].may_checkpoint) continue;
      set.push_back(i);
      from(tree_.end[i], set);
      set.pop_back();
    }
  }

  void propose() {
    plan::RegionOptions planner;
    planner.max_states = 400'000;
    planner.max_points = 32;
    const Result<plan::RegionFrontier> frontier = plan::region_frontier(tree_.modules, planner);
    if (!frontier) return;
    settled_ = !options_.budget;
    for (const plan::RegionPlan& point : frontier->points)
      if (may_spend()) settled_ = came_as_planned(point, evaluate(point.checkpointed)) && settled_;
    if (options_.budget && *options_.budget >= options_.statics) meet(*options_.budget - options_.statics, planner);
  }

  // The planner's best, and the executor says the same of it: there is little to improve, if anything.
  bool came_as_planned(const plan::RegionPlan& plan, const std::optional<plan::Figures>& found) const {
    return plan.exact && found && found->peak == plan.figures.peak + options_.statics && found->cost == plan.figures.cost;
  }

  // Plans for the budget: less is asked of the planner until the executor finds the plan within it, more while it leaves something.
  void meet(std::uint64_t budget, const plan::RegionOptions& planner) {
    std::uint64_t asked = budget;
    std::optional<std::uint64_t> fits, fails;  // the most and the least that was asked with that outcome
    for (int i = 0; i < max_corrections && may_spend(); ++i) {
      const Result<std::optional<plan::RegionPlan>> plan = plan::best_regions(tree_.modules, asked, planner);
      if (!plan || !*plan) return;
      const std::optional<plan::Figures> found = evaluate((*plan)->checkpointed);
      if (!found) return;
      settled_ = settled_ || (i == 0 && came_as_planned(**plan, found));
      if (settled_) return;
      const std::uint64_t peak = found->peak - std::min(found->peak, options_.statics);
      (peak <= budget ? fits : fails) = asked;
      if (fits && fails)
        asked = *fits + (*fails - std::min(*fails, *fits)) / 2;
      else
        asked = peak <= budget ? asked + (budget - peak) : asked - std::min(asked, peak - budget);
      if (asked == fits || asked == fails) return;
    }
  }

  // With a budget: the fastest that fits, then the smallest of the others. Without: one after the other, peaks rising, over and over.
  Point* next() {
    Point* best = nullptr;
    const auto rank = [this](const Point& each) {
      const plan::Figures& figures = each.figures;
      if (!options_.budget) return std::tuple(figures.peak <= last_peak_, figures.peak, figures.cost);
      const bool fits = figures.peak <= *options_.budget;
      return std::tuple(!fits, fits ? figures.cost : figures.peak, figures.peak);
    };
    for (Point& point : front_)
      if (!point.expanded && (best == nullptr || rank(point) < rank(*best))) best = &point;
    if (best != nullptr) last_peak_ = best->figures.peak;
    return best;
  }

  void improve() {
    while (may_spend()) {
      Point* const point = next();
      if (point == nullptr) return;
      point->expanded = true;
      const Set set = point->set;
      neighbours(set);
    }
  }

  void neighbours(const Set& set) {
    Set other;
    for (std::size_t i = 0; i < set.size() && may_spend(); ++i) {
      other = set;
      other.erase(other.begin() + static_cast<std::ptrdiff_t>(i));
      evaluate(other);
      const std::size_t before = other.size();
      for (std::uint32_t inner = set[i] + 1; inner < tree_.end[set[i]];) {
        const bool take = tree_.modules[inner].may_checkpoint;
        if (take) other.push_back(inner);
        inner = take ? tree_.end[inner] : inner + 1;
      }
      if (other.size() == before || !may_spend()) continue;
      std::sort(other.begin(), other.end());
      evaluate(other);
    }
    std::size_t at = 0;
    for (std::uint32_t module = 0; module < tree_.modules.size() && may_spend();) {
      while (at < set.size() && set[at] < module) ++at;
      if (at < set.size() && set[at] == module) {
        module = tree_.end[module];
        continue;
      }
      if (tree_.modules[module].may_checkpoint) {
        other.clear();
        for (const std::uint32_t each : set)
          if (each < module || each >= tree_.end[module]) other.push_back(each);
        other.insert(std::lower_bound(other.begin(), other.end(), module), module);
        evaluate(other);
      }
      ++module;
    }
  }

  const RegionSearchOptions& options_;
  const Follow& follow_;
  NamedRuns runs_;
  RegionTree tree_;
  Names names_;
  std::uint64_t step_, most_, spent_ = 0;  // ops: of a set, of all sets
  bool settled_ = false;
  std::uint64_t last_peak_ = 0;  // of the point that was last improved
  std::map<Set, std::optional<plan::Figures>> seen_;
  std::vector<Point> front_;
};

}  // namespace

RegionSearchResult search_regions(const Model& model, const RegionSearchOptions& options, const Follow& follow) {
  return RegionSearch(model, options, follow).run();
}

}  // namespace liveset::model
