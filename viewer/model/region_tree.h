// A step's tree of modules in the planner's terms (plan/regions.h): what each retains, and what checkpointing it would leave and cost.
//
// Worked out from the step without checkpointing alone. With live(t) the bytes alive at a point of that step, and before(i) what the
// modules up to i retain:
//   own         bytes made in the module that are alive when backward begins
//   temporary   the most of live(t) - before(i) in the module's forward and backward
//   boundary    own, less what the executor would drop (schedule.cpp: read and saved inside only), with inputs that must wait for the
//               re-run, and random states
//   working     the most above the boundary in the forward, the re-run and the backward of the module
//   cost        of its ops up to the last that saves something, where re-runs stop early; else of all of its ops
// So for no checkpoint, and for one, peaks are those of the executor, as far as backward runs in the reverse order of the forward. Of
// several it is a proposal: the executor has the last word. Sizes are without statics; microbatches count as one.
//
// Ops that lie in a module and in none of its children become a child without a name that may not be checkpointed; so do the ops outside
// of all modules, the loss, and first the rest of the step, whose peak no checkpoint changes. O(ops x depth).
#pragma once
#include "viewer/model/module_tree.h"
#include "viewer/plan/regions.h"

namespace liveset::model {

struct RegionTree {
  std::vector<plan::Module> modules;
  std::vector<std::uint32_t> run;    // of a module, in NamedRuns::all(); none: no policy can name it
  std::vector<std::uint32_t> end;    // of a module: the index after its subtree
  std::uint64_t checkpointable = 0;  // modules that may be checkpointed
};

// Where several runs are the same ops, a layer stands for them, else the innermost module.
RegionTree region_tree(const Model& model, const NamedRuns& runs);

}  // namespace liveset::model
