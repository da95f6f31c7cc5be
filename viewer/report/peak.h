// What `liveset peak` says: the live set at a peak or at any event, grouped, and its largest blocks.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string>
#include <vector>

#include "viewer/report/rules.h"
#include "viewer/report/summary.h"

namespace liveset::report {

enum class GroupBy { memory_class, module, op, dtype, phase, step, size, stack, category };

// Blocks of one group with the same evidence for their class.
struct EvidenceFigure {
  std::uint64_t bytes = 0, blocks = 0;
  bool guess = false;
};

struct Group {
  std::string name;
  std::uint64_t bytes = 0, blocks = 0, guess_bytes = 0;          // guess: of blocks whose class is one
  std::vector<std::pair<std::string, EvidenceFigure>> evidence;  // the largest few, by bytes, falling
};

struct ListedBlock : ledger::LiveBlock {
  std::string category;                                  // by the user's rules, where there are some
  std::shared_ptr<const nlohmann::ordered_json> frames;  // all of the allocation (report/stacks.h)
};

struct PeakReport {
  std::string file;
  PeakFigure peak;
  bool is_peak = true;                           // false: --at EVENT
  bool is_empty = false;                         // the trace has no allocation: there is no peak and nothing lives
  std::vector<OutOfMemoryFigure> out_of_memory;  // in the range
  GroupBy by = GroupBy::memory_class;
  std::vector<Group> groups;         // by bytes, falling; they sum to peak.allocated_bytes
  bool has_categories = false;       // blocks carry the user's
  bool has_ops = false;              // some block was born in an op that the trace names, or is held by a node
  std::vector<ListedBlock> largest;  // by bytes, falling; equal ones in the order of birth
  std::vector<std::string> warnings;
};

struct PeakOptions {
  std::string heap, counter;  // empty: choose; the counter of blocks
  ledger::Range range;
  std::uint64_t at = ledger::no_event;  // an event instead of the peak
  GroupBy by = GroupBy::memory_class;
  std::size_t top = 10;
  Rules rules;  // of the blocks' categories; GroupBy::category needs them
  ledger::Progress progress;
};

Result<PeakReport> build_peak(const trace::TraceFile& file, const PeakOptions& options);
nlohmann::ordered_json peak_report_json(const PeakReport& report);
std::string peak_text(const PeakReport& report, std::size_t top, const Style& style);
// Of a report by module of the moment at which an allocator had no memory.
std::string shortage_text(const PeakReport& report, const Style& style);
std::string peak_markdown(const PeakReport& report, const Style& style);
std::string peak_csv(const PeakReport& report);

}  // namespace liveset::report
