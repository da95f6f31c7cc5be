#include "viewer/compare/pace.h"

#include <algorithm>
#include <vector>

#include "viewer/ledger/details.h"
#include "viewer/trace/columns.h"

namespace liveset::compare {

Result<Pace> pace_of(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger, const ledger::Range& range) {
  trace::Columns columns;
  std::size_t read = file.chunks().size();
  Status status = Done{};
  const auto time_at = [&](std::uint64_t event) -> std::optional<std::uint64_t> {
    const std::size_t chunk = ledger::chunk_of(file, event);
    if (chunk == file.chunks().size()) return std::nullopt;
    if (chunk != read) status = file.read_chunk(chunk, trace::column::time, columns);
    if (!status) return std::nullopt;
    read = chunk;
    return columns.time_ns[event - columns.first_event];
  };
  std::vector<std::uint64_t> times;
  bool has_first = false;  // of the trace: it warms up
  for (std::size_t i = 0; i < ledger.steps.size(); ++i) {
    const ledger::Step& step = ledger.steps[i];
    if (!range.contains(step.first_event) || step.end_event <= step.first_event) continue;
    // Where a step ends because the next one begins, that is its end too.
    const bool to_the_next = i + 1 < ledger.steps.size() && ledger.steps[i + 1].first_event == step.end_event;
    const std::optional<std::uint64_t> begin = time_at(step.first_event), end = time_at(to_the_next ? step.end_event : step.end_event - 1);
    if (!status) return status.take_error();
    if (!begin || !end || *end < *begin) continue;
    has_first |= i == 0;
    times.push_back(*end - *begin);
  }
  Pace pace;
  pace.only_the_first = has_first && times.size() == 1;
  if (has_first && times.size() > 1) times.erase(times.begin());
  pace.steps = times.size();
  if (times.empty()) return pace;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  pace.median_ns = *middle;
  if (times.size() % 2 == 0) {
    const std::uint64_t below = *std::max_element(times.begin(), middle);
    pace.median_ns = below + (*middle - below) / 2;
  }
  return pace;
}

}  // namespace liveset::compare
