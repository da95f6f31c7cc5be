// How long the steps of a recorded run took: whether memory that was saved became time, or cost some, is measured and not assumed.
#pragma once
#include <cstdint>
#include <optional>

#include "viewer/ledger/physical.h"
#include "viewer/trace/trace_file.h"

namespace liveset::compare {

struct Pace {
  std::uint64_t steps = 0;                        // of which the time is known: not the first, where there are others
  std::uint64_t median_ns = 0;                    // by the host's clock; 0: no step
  bool only_the_first = false;                    // there is but one step, which warms up
  std::optional<std::uint64_t> samples_per_step;  // as somebody says
  std::optional<double> samples_per_second() const {
    if (!samples_per_step || median_ns == 0) return std::nullopt;
    return static_cast<double>(*samples_per_step) * 1e9 / static_cast<double>(median_ns);
  }
};

// Of the steps that begin in the range. Reads the times of the chunks that they begin and end in.
Result<Pace> pace_of(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger, const ledger::Range& range);

}  // namespace liveset::compare
