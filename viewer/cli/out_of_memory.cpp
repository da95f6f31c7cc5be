#include "viewer/cli/out_of_memory.h"

#include <algorithm>
#include <iostream>
#include <optional>

#include "viewer/cli/traces.h"
#include "viewer/report/peak.h"

namespace liveset::cli {
namespace {

constexpr std::size_t max_traces = 8;  // of one run, that are explained

struct Shortage {
  std::uint64_t event = 0;
  std::string heap;
};

// The last out-of-memory after which no step began or ended.
std::optional<Shortage> last_shortage(const trace::TraceFile& file) {
  using trace::Kind;
  std::optional<Shortage> found;
  trace::Columns columns;
  for (std::size_t left = file.chunks().size(); left > 0 && !found; --left) {
    if (!file.read_chunk(left - 1, 0, columns)) return std::nullopt;
    for (std::size_t i = columns.kind.size(); i > 0; --i) {
      const auto kind = static_cast<Kind>(columns.kind[i - 1] & 0x7f);
      if (kind == Kind::step_begin || kind == Kind::step_end) return std::nullopt;
      if (kind != Kind::out_of_memory) continue;
      found = Shortage{columns.first_event + i - 1, ""};
      break;
    }
  }
  if (!found) return std::nullopt;
  const std::size_t chunk = ledger::chunk_of(file, found->event);
  const auto visit = [&](const trace::Event& event) {
    if (event.index == found->event && event.heap < file.dictionary().heaps.size())
      found->heap = file.dictionary().string(file.dictionary().heaps[event.heap].name);
    return event.index < found->event;
  };
  if (!trace::for_each_event(file, chunk, chunk + 1, visit) || found->heap.empty()) return std::nullopt;
  return found;
}

bool explain(const trace::TraceFile& file, const report::Style& style) {
  const std::optional<Shortage> shortage = last_shortage(file);
  if (!shortage) return false;
  report::PeakOptions options;
  options.heap = shortage->heap;
  options.at = shortage->event;
  options.by = report::GroupBy::module;
  options.top = 3;
  options.range.first = shortage->event;
  options.range.end = shortage->event + 1;
  Result<report::PeakReport> report = report::build_peak(file, options);
  if (!report || report->is_empty) return false;
  std::cerr << '\n' << report::shortage_text(*report, style) << std::flush;
  return true;
}

}  // namespace

void explain_out_of_memory(const std::string& output, const Context& context) {
  const Result<std::vector<trace::TraceFile>> files = open_run(output);
  if (!files) return;
  report::Style style = style_of(context);
  style.color = false;
  std::size_t explained = 0;
  for (const trace::TraceFile& file : *files) {
    explained += explain(file, style);
    if (explained == max_traces) return;
  }
}

}  // namespace liveset::cli
