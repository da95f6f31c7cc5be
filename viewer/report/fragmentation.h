// What `liveset fragmentation` says: which segment holds how much that nothing uses at one event, and what keeps it from being given back.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

#include "viewer/allocator/trace_layout.h"
#include "viewer/report/summary.h"

namespace liveset::report {

// A block that lives in a segment. Address and size are those of the layout; what it is, is the trace's.
struct PinFigure {
  allocator::Pin pin;
  std::uint64_t birth_event = 0;
  trace::MemoryClass memory_class = trace::MemoryClass::none;
  std::string name, module, op;  // as `liveset peak` says them
  std::vector<std::string> names;
};

struct SegmentFigure {
  allocator::FragmentedSegment segment;  // without its pins
  std::uint64_t pins = 0;
  std::vector<PinFigure> largest;  // of the pins, by bytes, falling
};

struct FragmentationReport {
  std::string file;
  bool is_recorded = false;      // the allocator's own segments; else the simulation's
  bool is_peak = true;           // of reserved, where it is fullest; false: --at EVENT, or the end of a file that tells no peak
  bool is_empty = false;         // the trace has no allocation
  std::string settings;          // of the simulation
  PeakFigure moment;             // heap, event, time, step, phase, module
  allocator::Counters counters;  // of the layout at that event
  bool has_requested = false;    // a recorded layout, and blocks of PyTorch's CUDA allocator, do not tell what was asked for
  // A recorded layout whose blocks are as they were asked for: what they take of a segment is not known, at least this.
  bool of_requests = false;
  allocator::Peaks peaks;  // of the simulation, in the range
  allocator::Statistics statistics;
  std::uint64_t free_bytes = 0, largest_free = 0, unpinned_bytes = 0;  // unpinned: of segments that nothing lives in
  std::vector<SegmentFigure> segments;                                 // by free bytes, falling; first those that something lives in
  std::vector<std::string> warnings;
};

struct FragmentationOptions {
  std::string heap, settings;
  bool simulate = false;  // although segments were recorded
  std::optional<std::uint64_t> at = std::nullopt, capacity = std::nullopt;
  bool falling_addresses = false;
  ledger::Range range;
  std::size_t top = 10;  // segments in tables, pins of each segment everywhere
  ledger::Progress progress;
};

Result<FragmentationReport> build_fragmentation(const trace::TraceFile& file, const FragmentationOptions& options);
nlohmann::ordered_json fragmentation_json(const FragmentationReport& report);
std::string fragmentation_text(const FragmentationReport& report, std::size_t top, const Style& style);
std::string fragmentation_markdown(const FragmentationReport& report, const Style& style);
std::string fragmentation_csv(const FragmentationReport& report);

}  // namespace liveset::report
