// What `liveset peak` says: the live set at a peak or at any event, grouped, and its largest blocks.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "viewer/ledger/details.h"
#include "viewer/report/summary.h"

namespace liveset::report {

enum class GroupBy { memory_class, module, op, phase, step, size };

struct Group {
  std::string name;
  std::uint64_t bytes = 0, blocks = 0;
};

struct LiveBlock {
  ledger::BlockDetail detail;
  trace::MemoryClass memory_class = trace::MemoryClass::none;
  std::string module, op;
  std::vector<std::string> names;  // what states it: values that live in it, or graph slots that retain it
};

struct PeakReport {
  std::string file;
  PeakFigure peak;
  bool is_peak = true;                           // false: --at EVENT
  bool is_empty = false;                         // the trace has no allocation: there is no peak and nothing lives
  std::vector<OutOfMemoryFigure> out_of_memory;  // in the range
  GroupBy by = GroupBy::memory_class;
  std::vector<Group> groups;       // by bytes, falling; they sum to peak.allocated_bytes
  std::vector<LiveBlock> largest;  // by bytes, falling; equal ones in the order of birth
  std::vector<std::string> warnings;
};

struct PeakOptions {
  std::string heap, counter = "allocated";
  ledger::Range range;
  std::uint64_t at = ledger::no_event;  // an event instead of the peak
  GroupBy by = GroupBy::memory_class;
  std::size_t top = 10;
  ledger::Progress progress;
};

Result<PeakReport> build_peak(const trace::TraceFile& file, const PeakOptions& options);
nlohmann::ordered_json peak_report_json(const PeakReport& report);
std::string peak_text(const PeakReport& report, std::size_t top, const Style& style);
std::string peak_markdown(const PeakReport& report, const Style& style);
std::string peak_csv(const PeakReport& report);

}  // namespace liveset::report
