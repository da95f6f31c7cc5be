#include "viewer/ledger/range.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "viewer/ledger/quantity.h"
#include "viewer/trace/columns.h"

namespace liveset::ledger {
namespace {

constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();

Error usage(std::string what, std::string hint = "forms: step:A..B, 1.5s..2s, event:A..B") {
  Error error;
  error.kind = ErrorKind::usage;
  error.what = std::move(what);
  error.hint = std::move(hint);
  return error;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<std::int64_t> parse_time(std::string_view text) {
  if (text != "0" && !text.ends_with('s')) return std::nullopt;  // only 0 needs no unit
  const Result<std::uint64_t> time = parse_duration(text);
  return time ? std::optional(static_cast<std::int64_t>(*time)) : std::nullopt;
}

struct Mark {
  std::uint64_t event = 0;
  std::int64_t number = 0;
  bool begins = false;
};

Result<std::vector<Mark>> step_marks(const trace::TraceFile& file) {
  std::vector<Mark> marks;
  trace::Columns columns;
  const trace::ColumnTable& table = trace::column_table();
  for (std::size_t chunk = 0; chunk < file.chunks().size(); ++chunk) {
    if (Status status = file.read_chunk(chunk, trace::column::kind | trace::column::number, columns); !status) return status.take_error();
    std::size_t number_at = 0;
    for (std::uint32_t i = 0; i < columns.events; ++i) {
      if ((table[columns.kind[i]] & trace::column::number) == 0) continue;
      const auto kind = static_cast<trace::Kind>(columns.kind[i] & 0x7f);
      const bool begins = kind == trace::Kind::step_begin;
      if (begins || kind == trace::Kind::step_end) marks.push_back({columns.first_event + i, columns.number[number_at], begins});
      ++number_at;
    }
  }
  return marks;
}

Result<Range> resolve_steps(const trace::TraceFile& file, const RangeSpec& spec) {
  Result<std::vector<Mark>> marks = step_marks(file);
  if (!marks) return marks.take_error();
  Range range{Range::open_end, Range::open_end};
  std::int64_t least = highest, most = lowest;
  bool inside = false;  // the step that is open now is wanted
  for (const Mark& mark : *marks) {
    if (!mark.begins) {
      if (inside && mark.number >= spec.from && mark.number <= spec.to) {
        range.end = mark.event + 1;
        inside = false;
      }
      continue;
    }
    least = std::min(least, mark.number);
    most = std::max(most, mark.number);
    const bool wanted = mark.number >= spec.from && mark.number <= spec.to;
    if (inside && !wanted) range.end = mark.event;
    if (wanted) {
      range.first = std::min(range.first, mark.event);
      range.end = Range::open_end;
    }
    inside = wanted;
  }
  if (range.first != Range::open_end) return range;
  Error error =
      least == highest
          ? usage("the trace has no steps, so --range " + spec.text + " selects nothing", "use a range of times or events")
          : usage("the trace has no step in --range " + spec.text, "its steps are " + std::to_string(least) + ".." + std::to_string(most));
  error.file = file.path();
  return error;
}

// First event whose time is not before `time_ns`.
Result<std::uint64_t> event_at_time(const trace::TraceFile& file, std::int64_t time_ns) {
  const auto& chunks = file.chunks();
  const auto time = static_cast<std::uint64_t>(std::max<std::int64_t>(time_ns, 0));
  // The last chunk that begins before the time holds it, or the one after begins with it.
  auto after = std::lower_bound(chunks.begin(), chunks.end(), time,
                                [](const trace::ChunkInfo& chunk, std::uint64_t t) { return chunk.first_time_ns < t; });
  if (after == chunks.begin()) return chunks.empty() ? 0 : chunks.front().first_event;
  const auto chunk = after - 1;
  trace::Columns columns;
  if (Status status = file.read_chunk(static_cast<std::size_t>(chunk - chunks.begin()), trace::column::time, columns); !status)
    return status.take_error();
  const auto found = std::lower_bound(columns.time_ns.begin(), columns.time_ns.end(), time);
  return columns.first_event + static_cast<std::uint64_t>(found - columns.time_ns.begin());
}

}  // namespace

Result<RangeSpec> parse_range(std::string_view text) {
  RangeSpec spec;
  spec.text = text;
  if (text.empty()) return spec;
  std::string_view body = text;
  if (text.substr(0, 5) == "step:") {
    spec.unit = RangeSpec::Unit::step;
    body = text.substr(5);
  } else if (text.substr(0, 6) == "event:") {
    spec.unit = RangeSpec::Unit::event;
    body = text.substr(6);
  } else {
    spec.unit = RangeSpec::Unit::time;
  }
  const auto number = [&](std::string_view part) { return spec.unit == RangeSpec::Unit::time ? parse_time(part) : parse_integer(part); };
  const std::size_t dots = body.find("..");
  const std::string_view first = body.substr(0, dots);
  const std::string_view last = dots == std::string_view::npos ? std::string_view() : body.substr(dots + 2);
  const std::optional<std::int64_t> from = first.empty() ? lowest : number(first);
  std::optional<std::int64_t> to = last.empty() ? highest : number(last);
  if (dots == std::string_view::npos) {
    if (spec.unit == RangeSpec::Unit::time || first.empty()) return usage("--range " + spec.text + " is not a range");
    if (from) to = spec.unit == RangeSpec::Unit::event ? *from + 1 : *from;
  }
  if (!from || !to) return usage("--range " + spec.text + " is not a range");
  if (*from > *to || (spec.unit != RangeSpec::Unit::step && *from == *to))
    return usage("--range " + spec.text + " is empty: its end is not after its begin", "events and times are half-open, steps inclusive");
  spec.from = *from;
  spec.to = *to;
  return spec;
}

Result<Range> resolve_range(const trace::TraceFile& file, const RangeSpec& spec) {
  Range range;
  switch (spec.unit) {
    case RangeSpec::Unit::whole: return range;
    case RangeSpec::Unit::step: return resolve_steps(file, spec);
    case RangeSpec::Unit::event:
      range.first = static_cast<std::uint64_t>(std::max<std::int64_t>(spec.from, 0));
      range.end = spec.to == highest ? Range::open_end : static_cast<std::uint64_t>(std::max<std::int64_t>(spec.to, 0));
      break;
    case RangeSpec::Unit::time: {
      Result<std::uint64_t> first = event_at_time(file, spec.from);
      if (!first) return first.take_error();
      Result<std::uint64_t> end = spec.to == highest ? Result<std::uint64_t>(Range::open_end) : event_at_time(file, spec.to);
      if (!end) return end.take_error();
      range = {*first, *end};
      break;
    }
  }
  const std::uint64_t events = file.chunks().empty() ? 0 : file.chunks().back().first_event + file.chunks().back().events;
  if (range.first >= events || range.first >= range.end) {
    Error error = usage("no event lies in --range " + spec.text,
                        (events == 0 ? "the trace has no events" : "the trace has events 0.." + std::to_string(events - 1)) +
                            " and ends at " + std::to_string(file.end_time_ns()) + "ns");
    error.file = file.path();
    return error;
  }
  return range;
}

Result<Range> resolve_range(const trace::TraceFile& file, std::string_view text) {
  Result<RangeSpec> spec = parse_range(text);
  if (!spec) return spec.take_error();
  return resolve_range(file, *spec);
}

}  // namespace liveset::ledger
