// The four counters of a predicted step.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "viewer/model/predict.h"

namespace liveset::model {

enum class CounterKind : std::uint8_t { requested, allocated, active, reserved };
inline constexpr std::array counter_kinds{CounterKind::requested, CounterKind::allocated, CounterKind::active, CounterKind::reserved};
std::string_view counter_name(CounterKind kind);

struct CounterPeak {
  std::uint64_t bytes = 0;
  std::uint64_t event = never;  // of MemoryCurve::events; never: the step has no event above its statics
  trace::Phase phase = trace::Phase::other;
};

// Of PredictedCounters::cache_estimate: what the simulated cache finds or how it rounds is not known.
inline constexpr std::string_view past_estimate =
    "allocated, active and reserved are estimates: an earlier step cannot take the policy, and is taken to have saved all";
inline constexpr std::string_view no_past_estimate =
    "allocated, active and reserved are estimates: the model is of one recorded step, and what its job did before is not in it";
inline constexpr std::string_view rounding_estimate =
    "allocated, active and reserved are estimates: of blocks that nothing is stated of the size is known as it was rounded in the "
    "recording";

struct PredictedCounters {
  CounterPeak requested;
  // Of the caching allocator, simulated: what the job did before is replayed first, earlier steps under the same policy; of a model
  // without a past the step itself, so that it is a late one that finds what earlier ones left in the cache. Absent where blocks are as
  // large as they are asked for (the CPU's allocator).
  std::optional<CounterPeak> allocated, active, reserved;
  std::string_view cache_estimate;  // why the three are estimates; empty: they are not
  std::uint64_t outside = 0;        // context and communication, as the model states them

  const CounterPeak* of(CounterKind kind) const;
};

// `memory` is what the model predicts under the policy. Errors: allocator settings that make no sense.
Result<PredictedCounters> predict_counters(const Model& model, const Policy& policy, const MemoryCurve& memory);

}  // namespace liveset::model
