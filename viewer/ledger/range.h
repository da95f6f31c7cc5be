// The part of a trace that a command looks at: `--range step:A..B | TIME..TIME | event:A..B`.
//
// Steps are inclusive (step:3..5 is three steps), events and times half-open (event:0..10 is ten events). Either end
// may be left out; `step:3` and `event:3` name one. Times carry a unit: ns, us, ms or s (1.5s..2s), counted from the
// trace's start.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "viewer/trace/trace_file.h"

namespace liveset::ledger {

inline constexpr std::uint64_t no_event = std::numeric_limits<std::uint64_t>::max();

// Events [first, end) of a trace.
struct Range {
  static constexpr std::uint64_t open_end = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t first = 0, end = open_end;

  bool whole() const { return first == 0 && end == open_end; }
  bool contains(std::uint64_t event) const { return event >= first && event < end; }
};

// A range as written; ends that were left out are the lowest and the highest number.
struct RangeSpec {
  enum class Unit { whole, step, time, event };
  Unit unit = Unit::whole;
  std::int64_t from = 0, to = 0;  // step numbers, nanoseconds or event indices; `to` inclusive for steps
  std::string text;
};

// Errors are of kind usage. An empty text is the whole trace.
Result<RangeSpec> parse_range(std::string_view text);

// Finds the events of a range. A step range reads the trace's step marks. Usage errors: no such step, nothing in the
// range.
Result<Range> resolve_range(const trace::TraceFile& file, const RangeSpec& spec);
Result<Range> resolve_range(const trace::TraceFile& file, std::string_view text);

}  // namespace liveset::ledger
