// What a model predicts under a policy: the logical ledger (ids) and the memory of one step (bytes, requested).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "viewer/ledger/logical.h"
#include "viewer/model/policy.h"
#include "viewer/model/schedule.h"

namespace liveset::model {

inline constexpr std::uint64_t never = ~std::uint64_t{0};

// One making of a tensor. Alive from event `made` on, up to but without event `freed` (never: beyond the step's end).
struct PredictedBlock {
  std::uint32_t tensor = 0;  // of the model, then of Schedule::extra; none: a workspace
  std::uint32_t op = none;   // that made it
  std::uint32_t microbatch = 0;
  std::uint32_t incarnation = 0;  // how often the tensor had been made before
  trace::MemoryClass memory_class = trace::MemoryClass::none;
  trace::Phase phase = trace::Phase::forward;
  bool came_back = false;  // prefetched: `op` made it, but does not run then
  bool rounded = false;    // Tensor::rounded
  bool stays = false;      // a static storage of later steps, which comes in this one; `tensor` is in Prediction::extra
  std::uint64_t bytes = 0;
  std::uint64_t made = 0, freed = never;
};

// An allocation or a free, in the order in which they happen.
struct MemoryEvent {
  std::uint32_t block = 0;
  std::uint32_t op = none;  // that runs, or ran last; none: the step has just begun
  bool alloc = true;
  trace::Phase phase = trace::Phase::forward;
  // Inside of a region's forward, and not known what reads what (Conventions::drop_at_region_end): the region may hold less, or more.
  // Or in backward when a region has run again, and not known where functions return (Conventions::returns_unknown).
  // Or where what is taken for a region's argument may be none, or something else may be one (Schedule::doubt_from).
  // Or anywhere once a region has run, where the model says that its regions are doubtful.
  // Or in the optimizer phase that makes the states: an optimizer that makes them one by one may hold less (phase_of_coming).
  bool is_estimate = false;
};

struct MemoryCurve {
  std::vector<StaticStorage> statics;  // of the step that was asked for
  std::uint64_t static_bytes = 0;
  std::vector<PredictedBlock> blocks;
  std::vector<MemoryEvent> events;
  std::uint64_t peak_bytes = 0, peak_event = never;  // statics included; never: no event is higher than the statics
  std::uint64_t phase_peak[trace::phase_count] = {};
  // At some event that is an estimate more may live than at the peak.
  bool may_be_higher = false;
  // That, or the peak is reached at events that are estimates, and at no other.
  bool peak_is_estimate = false;
  bool phase_is_estimate[trace::phase_count] = {};
  // At every such event lives what is rounded: what was asked for may be less.
  bool peak_is_rounded = false;
  bool phase_is_rounded[trace::phase_count] = {};

  // Some event is an estimate: so is what depends on the order of all, as a cache does.
  bool order_is_estimate() const;
};

struct Prediction {
  ledger::LogicalLedger ledger;
  MemoryCurve memory;
  std::vector<std::uint64_t> boundaries;
  std::vector<Tensor> extra;                                // Schedule::extra, then the static storages that come in this step
  std::uint64_t forward_cost = 0;                           // sum of the costs of all forward ops executed, re-runs included
  std::uint64_t extra_cost = 0;                             // of them, the re-runs
  std::uint64_t offloaded_bytes = 0, prefetched_bytes = 0;  // copied to the host, and back; how long that takes is not known
  std::string tensor_name(const Model& model, std::uint32_t tensor) const;
};

struct PredictOptions {
  // Which step: statics are there from their from_step on, and come in the step before; default: a late one.
  std::uint64_t step = ~std::uint64_t{0};
  bool ledger = true;  // false: Prediction::ledger stays empty, for who wants bytes and costs of many policies
};

// From where on it lives in the step in which it comes: the first event of that phase, or the step's end where there is none. What backward
// needs, backward makes: gradients, and what a library keeps for its products; the rest comes with the optimizer, as Adam's moments do,
// which are there before the update itself.
trace::Phase phase_of_coming(const StaticStorage& storage);
inline bool comes_in_step(const StaticStorage& storage, std::uint64_t step) {
  return storage.from_step > step && storage.from_step - step == 1;
}

// Of the step that is asked for.
std::uint64_t static_bytes(const Model& model, const PredictOptions& options = {});

Result<Prediction> predict(const Model& model, const Policy& policy, const PredictOptions& options = {});
// The same of a schedule that was made elsewhere.
Result<Prediction> execute(const Model& model, Schedule schedule, const PredictOptions& options = {});

}  // namespace liveset::model
