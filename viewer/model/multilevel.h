// Schedules with more than one level: a layer may run many times, and what is kept changes on the way.
#pragma once
#include <optional>
#include <span>

#include "viewer/model/schedule.h"
#include "viewer/plan/chain.h"
#include "viewer/plan/rotor.h"

namespace liveset::model {

// The model's layers as a chain, for the planners: sizes of what goes from one layer to the next, costs of forwards.
// Error (usage): a layer reads what another than the one before it made, or it is not known what reads what.
struct ChainOfLayers {
  plan::Chain values;       // a value for each layer: its outputs
  plan::RotorChain stages;  // with everything that its backward needs, gradients and temporaries
};
Result<ChainOfLayers> chain_of_layers(const Model& model);

// What rotor:BYTES runs, of more layers than rotor takes (plan::max_rotor_stages) with groups of them as its stages. Error (usage): there
// is nothing within the budget ("infeasible, least is N"; of groups "least found is N").
Result<std::vector<plan::RotorOperation>> rotor_operations(const plan::RotorChain& stages, std::uint64_t budget,
                                                           const plan::RotorOptions& options = {});
// A table as such a policy takes it, for the budgets up to that one.
struct RotorStages {
  plan::RotorTable table;
  std::optional<plan::RotorGroups> groups;

  std::vector<plan::RotorOperation> operations(const plan::RotorPlan& plan) const;
};
Result<RotorStages> rotor_stages(const plan::RotorChain& stages, std::uint64_t budget, const plan::RotorOptions& options);

// revolve:C, moves:... and rotor:BYTES; of more layers than rotor takes (plan::max_rotor_stages), groups of them are its stages. Errors: as
// above; a move that is not possible; no schedule within the budget ("infeasible, least is N").
Result<Schedule> multilevel_schedule(const Model& model, const Policy& policy);
// Of operations that a planner gave for chain_of_layers().
Result<Schedule> schedule_of(const Model& model, std::span<const plan::RotorOperation> operations);
Result<Schedule> schedule_of(const Model& model, std::span<const plan::Move> moves);

}  // namespace liveset::model
