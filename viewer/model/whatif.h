// One step under several policies.
#pragma once
#include <string>
#include <vector>

#include "viewer/model/counters.h"
#include "viewer/model/predict.h"

namespace liveset::model {

struct LiveTensor {
  std::string name;  // "GPT.bs.0.ln1/NativeLayerNormBackward0.result1@1": behind the '@' how often it was made again
  trace::MemoryClass memory_class = trace::MemoryClass::none;
  std::uint64_t bytes = 0;
};

// Everything of one name at the peak: the same tensor of every layer and microbatch; a static that has a formula, or all others of a class.
struct PeakPart {
  std::string name;  // "softmax output", "AddmmBackward0.mat1"
  trace::MemoryClass memory_class = trace::MemoryClass::none;
  std::uint64_t count = 0, bytes = 0;
  Formula formula;  // of one of them; empty: not known
};

struct Outcome {
  static constexpr std::size_t max_live = 50;

  std::string policy;
  PredictedCounters counters;
  std::uint64_t phase_peak[trace::phase_count] = {};        // requested
  std::uint64_t forward_cost = 0, extra_cost = 0;           // in the model's unit: nanoseconds of a recorded step
  std::uint64_t offloaded_bytes = 0, prefetched_bytes = 0;  // copied to the host, and back; in no cost
  std::uint64_t peak_ids = 0;
  std::vector<std::uint64_t> class_bytes;  // by MemoryClass, live at the peak of requested
  std::vector<PeakPart> parts;             // at the same moment: they sum to the peak; the largest first
  std::vector<LiveTensor> live;            // then: the largest that the step made
};

Result<Outcome> outcome(const Model& model, const Policy& policy, const PredictOptions& options = {});
// The same of a prediction that is there.
Result<Outcome> outcome(const Model& model, const Policy& policy, const Prediction& prediction);

// Policies that are worth a look where none is asked for: those that need no number, and thirds of the way between.
std::vector<Policy> usual_policies(const Model& model);

// Bytes by class (trace::MemoryClass) that live after the event; `never`: the statics alone.
std::vector<std::uint64_t> class_bytes_after(const MemoryCurve& memory, std::uint64_t event);

}  // namespace liveset::model
