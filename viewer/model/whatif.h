// One step under several policies.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "viewer/ledger/classes.h"
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
  bool names_no_layer = false;  // as the function of that name says
  PredictedCounters counters;
  bool of_estimates = false;                             // Model::estimate: then so is every figure
  std::array<bool, counter_kinds.size()> is_estimate{};  // by CounterKind: of that peak (MemoryEvent::is_estimate)
  bool phase_is_estimate[trace::phase_count] = {};
  bool peak_is_rounded = false;  // of requested (MemoryCurve)
  bool phase_is_rounded[trace::phase_count] = {};
  std::uint64_t static_bytes = 0;
  std::uint64_t phase_peak[trace::phase_count] = {};        // requested
  std::uint64_t forward_cost = 0, extra_cost = 0;           // in the model's unit: nanoseconds of a recorded step; re-runs are in both
  std::uint64_t offloaded_bytes = 0, prefetched_bytes = 0;  // copied to the host, and back; in no cost
  std::uint64_t peak_ids = 0;
  ledger::ClassBytes class_bytes{};  // live at the peak of requested
  std::vector<PeakPart> parts;       // at the same moment: they sum to the peak; the largest first
  bool copies() const { return offloaded_bytes + prefetched_bytes != 0; }
  // One forward of the step, without what runs again.
  std::uint64_t single_forward_cost() const { return forward_cost - extra_cost; }
  std::vector<LiveTensor> live;                         // then: the largest that the step made
  std::uint64_t live_left_out = 0, bytes_left_out = 0;  // what of them is beyond max_live
};

Result<Outcome> outcome(const Model& model, const Policy& policy, const PredictOptions& options = {});
// The same of a prediction that is there.
Result<Outcome> outcome(const Model& model, const Policy& policy, const Prediction& prediction);

// over: or under: a threshold that no layer passes, so that the policy is save-all.
bool names_no_layer(const Model& model, const Policy& policy);

// Where blocks are as large as they are asked for and go at once, requested, allocated and active are one. Null: the model does not tell.
const CounterPeak* counter_peak(const PredictedCounters& counters, CounterKind kind);

// Policies that are worth a look where none is asked for: save-all, full, sqrt, and segments of 2, of 5 and of all layers, as far as the
// model has so many.
std::vector<Policy> usual_policies(const Model& model);

// Bytes by class that live after the event; `never`: the statics alone. `size`: of a block that was asked for in so many bytes.
ledger::ClassBytes class_bytes_after(const MemoryCurve& memory, std::uint64_t event, std::uint64_t (*size)(std::uint64_t) = nullptr);

}  // namespace liveset::model
