// What a job did before a recorded step, for the simulation of its caching allocator.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "viewer/ledger/physical.h"
#include "viewer/model/model.h"

namespace liveset::model {

// An earlier step: its events, [first, end), and its model where there is one.
struct PastStep {
  std::uint64_t first_event = 0, end_event = 0;
  std::optional<Model> model;
};

// The step whose past it is.
struct PastOf {
  std::uint64_t first_event = 0, end_event = 0;
  bool follows = true;  // it comes right behind the last of the earlier steps
};

// All that the shown heap's blocks did from the begin of the trace on: the steps with a model as models, the rest as recorded; but nothing
// between the last earlier step and a step that does not follow it. `steps` are in order.
std::vector<PastPart> make_past(const ledger::PhysicalLedger& ledger, std::vector<PastStep> steps, const PastOf& of);

}  // namespace liveset::model
