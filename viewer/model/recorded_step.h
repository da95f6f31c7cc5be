// A model of a step that was recorded without checkpointing.
//
// Every block of the step's heap becomes a tensor, and every run of allocations and the frees behind it an op, so that the model under
// save-all is the recorded step again, byte for byte. An op belongs to the autograd node for which the recording says it was made
// (EVENT_SEQUENCE) or, in backward, that ran then; what the graph held for the node at the begin of backward are its saves. The frees of
// blocks that the graph held happen where the node that needs them ran; so a policy can move them.
//
// Of a caching allocator's heap the model has a past: what the job did from its start, the first steps as models of their own.
//
// What a recorded step does not tell, and the model therefore assumes:
// - what reads what. In the forward of a region a value that it gives up is held until the last op that saves it is through, and the
//   module that was called with it; what else reads it, and the names that the program gave it, are not known. What a region returns is
//   what its last op with a block left has made.
// - what was asked for, of blocks of a caching allocator that no statement speaks of (temporaries): the block's size, rounded up.
// - costs are the host's time from one op to the next: on a GPU that is the time to launch.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "viewer/ledger/physical.h"
#include "viewer/model/model.h"
#include "viewer/trace/trace_file.h"

namespace liveset::model {

struct RecordedStepOptions {
  std::optional<std::int64_t> step;  // default: the last step that another one follows, else the last
  std::string heap;                  // name; default: as ledger::choose_heap
  std::string unit;                  // pattern of the modules that are layers; default: the repeated modules that hold most
  ledger::Progress progress;
};

struct RecordedStep {
  Model model;
  std::int64_t step = 0;
  std::string heap, unit;  // unit: the pattern of its layers; empty: every forward op that records a graph is one
  std::uint64_t first_event = 0, end_event = 0;
  std::uint64_t peak_bytes = 0;    // recorded
  std::vector<std::string> notes;  // what is not known of this step, for people
};

// Errors: no blocks or no backward in the trace ("trace without activations"), no such step or heap, a step that recomputes,
// a trace without sequence numbers (format before 1.3).
Result<RecordedStep> model_of_step(const trace::TraceFile& file, const RecordedStepOptions& options = {});

}  // namespace liveset::model
