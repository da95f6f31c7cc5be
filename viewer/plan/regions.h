// Which modules of a tree to checkpoint within a budget: a set of modules, none inside another.
//
// The forward pass visits the modules in the order of the list, a module before what is inside it. A module that is not checkpointed
// retains its own bytes and leaves the choice to its children. A checkpointed one retains `boundary` only, costs `cost` more, and while it
// is run again and its backward runs holds `working` on top. Backward goes the other way and releases what it passes, so what counts at a
// module is what was retained up to it in forward, itself included:
//   peak = max( everything retained,
//               for a checkpointed module: retained up to it + working,
//               for another one: retained up to its end + temporary )
// A parent's own bytes are counted from its beginning on: where they are in fact made after a child, the peak is stated too high, never too
// low. `working` is usually what the module would retain without checkpointing, plus its temporaries.
//
// Exact within a budget: going through the tree, only states (retained, cost) that no other beats are kept; every condition is "retained <=
// a number", so less retained is never worse. O(modules x states). Where states are many, a first look at a part of them gives a plan, a
// price of bytes gives a lower bound of what any state can still lead to (Lagrange), and the second search leaves out what cannot reach the
// plan's cost. Should the lists exceed `max_states` all the same, states are left out evenly over the bytes: the plan keeps its budget and
// its cost is an upper bound, and the same search with each part's states replaced by one as good as all of them gives `least_cost`, which
// no plan within the budget beats. The frontier begins without a budget and asks for less than the peak just found; with more than
// `max_points` points it is taken at as many budgets evenly between both ends instead.
//
// Certified bound: regions_least_peak, below which no set of modules gets, and which one reaches. Within a budget it is enough to know the
// least retained at each place, so feasibility takes O(modules), and the least budget is found by bisection; always exact.
#pragma once
#include <optional>

#include "viewer/plan/chain.h"

namespace liveset::plan {

inline constexpr std::uint32_t no_parent = 0xffffffff;
inline constexpr std::uint64_t max_modules = 100'000;

struct Module {
  std::uint32_t parent = no_parent;  // index of a module before this one; several roots are fine
  std::uint64_t own = 0;             // retained by itself, its children apart
  std::uint64_t temporary = 0;       // held on top while its own backward runs
  bool may_checkpoint = true;
  std::uint64_t boundary = 0;  // retained when checkpointed: its inputs that nobody else keeps
  std::uint64_t working = 0;   // held on top while it is run again and goes backward
  std::uint64_t cost = 0;      // of running it again, children included
};

struct RegionPlan {
  std::vector<std::uint32_t> checkpointed;  // rising
  Figures figures;                          // peak; cost: of what is run again
  std::uint64_t retained = 0;               // after the forward pass
  bool exact = false;                       // the cost is the least within the budget that was asked for
  std::uint64_t least_cost = 0;             // no plan within the budget costs less; the cost itself when exact
};

struct RegionOptions {
  std::uint64_t max_states = 4'000'000;  // in all lists together; 40 bytes each
  std::size_t max_points = 64;           // at least 2
};

// Parents before children, in forward order, subtrees contiguous; totals within max_total.
Status check(std::span<const Module> modules);

// What a given set needs (a rule of thumb, say). Errors: not rising, nested, or a module that may not be checkpointed.
Result<RegionPlan> region_figures(std::span<const Module> modules, std::span<const std::uint32_t> checkpointed);

// The cheapest set within the budget, with the least peak that was seen among those; nothing when there is none.
Result<std::optional<RegionPlan>> best_regions(std::span<const Module> modules, std::uint64_t budget, const RegionOptions& options = {});

struct RegionFrontier {
  std::vector<RegionPlan> points;  // peaks rising, costs falling
  bool complete = true;            // false: there are more points, between these
};
Result<RegionFrontier> region_frontier(std::span<const Module> modules, const RegionOptions& options = {});

Result<std::uint64_t> regions_least_peak(std::span<const Module> modules);

}  // namespace liveset::plan
