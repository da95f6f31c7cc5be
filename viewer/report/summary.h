// What `liveset summary` says, as plain data: built once, formatted as text, JSON, Markdown or CSV. One number
// everywhere.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

#include "viewer/ledger/attribution.h"
#include "viewer/ledger/classes.h"
#include "viewer/ledger/counter.h"
#include "viewer/ledger/physical.h"
#include "viewer/report/driver.h"
#include "viewer/report/estimates.h"
#include "viewer/report/text.h"

namespace liveset::report {

struct CounterFigure {
  std::string heap, name;
  std::uint64_t peak = 0, final = 0, peak_event = ledger::no_event;
  bool sampled = false;
  bool peak_is_known = true;  // false: `peak` means nothing
};

// The highest moment of one counter, and what lived then.
struct PeakFigure {
  std::string counter, heap, module, scope;
  std::uint64_t bytes = 0, event = ledger::no_event, time_ns = 0;
  bool sampled = false;
  bool is_known = true;        // false: an imported file without a past; this is its last moment, and no peak
  std::string label;           // of a dry run: label_of
  std::optional<Factor> band;  // of a dry run's estimate
  std::optional<std::int64_t> step;
  trace::Phase phase = trace::Phase::other;
  std::uint64_t allocated_bytes = 0;  // sum of the live blocks at that event; `bytes` itself for the counter `allocated`
  ledger::ClassBytes classes{};       // sums to allocated_bytes
  ledger::ClassBytes guessed{};       // of each class, what nothing states and no record of lifetimes shows (ledger/evidence.h)
  std::uint64_t blocks = 0;
  std::uint64_t unnamed_blocks = 0, unnamed_bytes = 0;  // no value and no storage statement names them
  // What a larger counter (reserved) holds beyond the blocks; below 0: of the blocks a smaller one (requested) does not count it.
  std::int64_t beyond_blocks() const {
    return ledger::wrapping_difference(static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(allocated_bytes));
  }
};

// An allocator had no memory for what was asked of it. What lived then: `liveset peak --at EVENT`.
struct OutOfMemoryFigure {
  ledger::OutOfMemory found;
  std::string heap, module, scope;
  std::uint64_t time_ns = 0;
  std::optional<std::int64_t> step;
  trace::Phase phase = trace::Phase::other;
  std::optional<PeakFigure> live;  // what lived then; of the last one, when it is of the shown heap
};

struct BackwardFigure {
  std::uint64_t event = 0, live_bytes = 0;
  std::int64_t nodes = 0;
  ledger::ClassBytes classes{};  // sums to live_bytes
  ledger::RetainedSet retained;
};

struct StepFigure {
  ledger::Step step;
  std::vector<BackwardFigure> backwards;
};

struct Summary {
  std::string file;
  std::uint64_t file_bytes = 0, events = 0, allocations = 0, end_time_ns = 0;
  trace::Process process;
  std::vector<trace::Source> sources;
  ledger::Range range;
  std::string heap;  // the shown one; empty when the trace has no block
  std::vector<CounterFigure> counters;
  std::optional<PeakFigure> peak;
  std::vector<OutOfMemoryFigure> out_of_memory;  // in the range
  Shortage shortage;                             // in the range
  std::optional<int> job_status;                 // Ending::status
  std::optional<DryRun> dry_run;                 // of the whole trace
  std::vector<DeviceFigure> devices;
  std::optional<KernelFigures> kernels;
  std::optional<ledger::Imported> imported;
  std::uint64_t baseline_bytes = 0;  // of the shown heap: allocated before the recording began
  ledger::Phases phases;
  std::vector<StepFigure> steps;  // that begin in the range
  ledger::Attribution attribution;
  // Health.
  trace::Health health;
  std::uint64_t unmatched_frees = 0, conservation_mismatches = 0, checked_events = 0, open_blocks = 0, holes = 0, sums_off = 0;
  std::uint64_t reserved_below_total = 0, segments_not_reserved = 0, dropped_marks = 0;
  std::vector<ledger::Mismatch> mismatches;
  std::vector<std::string> heap_names;  // by id, for the mismatches
};

struct SummaryOptions {
  std::string heap;     // empty: choose
  std::string counter;  // empty: the one of blocks ("allocated"); or reserved, segments, or one that is sampled
  ledger::Range range;
  ledger::Progress progress;
  std::optional<int> job_status = std::nullopt;  // Ending::status, which no trace tells
};

// The ledger that a report of a heap needs; without a name, of the heap that is shown.
Result<ledger::PhysicalLedger> read_physical(const trace::TraceFile& file, const std::string& heap, const ledger::Range& range,
                                             const ledger::Progress& progress);

// Errors: what the ledger refuses; a heap or a counter that the trace does not have (usage).
Result<Summary> summarize(const trace::TraceFile& file, const SummaryOptions& options);

// The ledger of one counter's peak, for `peak` too; "" is the counter of blocks. `ledger` must have been attributed.
Result<PeakFigure> peak_of(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger, const std::string& counter);
// The live set of the shown heap after `event`, as if it were a peak of `allocated`.
Result<PeakFigure> moment_at(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger, std::uint64_t event);

void label_peak(const DryRun& dry_run, PeakFigure& peak);

Result<std::vector<OutOfMemoryFigure>> out_of_memory_in(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger,
                                                        const ledger::Range& range);

DevicePeaks device_peaks(const Summary& summary);
Ending ending_of(const Summary& summary);

nlohmann::ordered_json classes_json(const ledger::ClassBytes& classes);
nlohmann::ordered_json peak_json(const PeakFigure& peak);
nlohmann::ordered_json out_of_memory_json(const std::vector<OutOfMemoryFigure>& figures);
nlohmann::ordered_json summary_json(const Summary& summary);
std::string summary_text(const Summary& summary, const Style& style);
std::string summary_markdown(const Summary& summary, const Style& style);

// Parts that other reports share.
std::string out_of_memory_text(const std::vector<OutOfMemoryFigure>& figures, const Style& style);
std::string peak_headline(const PeakFigure& peak, const Style& style);
std::string quoted(const std::string& path);                             // as a shell takes it
std::string guess_note(std::uint64_t guess_bytes, std::uint64_t bytes);  // "", "guess", "12.3% a guess"
std::string beyond_blocks_name(const PeakFigure& peak);                  // of the row of PeakFigure::beyond_blocks
Cell beyond_blocks_cell(const PeakFigure& peak, TableFormat format, const Style& style);
Table classes_table(const PeakFigure& peak, TableFormat format, const Style& style);
// One line a problem; empty when the trace is sound.
std::vector<std::string> health_lines(const Summary& summary, const Style& style);

}  // namespace liveset::report
