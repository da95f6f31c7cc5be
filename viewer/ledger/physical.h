// The physical ledger: which bytes each heap held after every event, rebuilt from a trace in one pass.
//
// All figures are running sums of the blocks that the trace shows. What the allocator had out before the recording
// began is each heap's `baseline_bytes` and no part of them. Peaks are exact: the first event of the range after which
// the counter had its highest value.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/ledger/block_table.h"
#include "viewer/ledger/counter.h"
#include "viewer/ledger/driver_memory.h"
#include "viewer/ledger/imported.h"
#include "viewer/ledger/range.h"
#include "viewer/trace/trace_file.h"

namespace liveset::ledger {

using Progress = std::function<void(std::size_t done, std::size_t all)>;  // called once a chunk

// What one heap did. Index 0 of PhysicalLedger::heaps is the empty heap.
struct HeapLedger {
  std::uint32_t heap = 0;
  Counter allocated;  // sum of the live blocks
  Counter reserved;   // as the allocator reports it beside its events
  Counter segments;   // what it took from the system, where the trace shows segments
  std::uint64_t allocations = 0, frees = 0, unmatched_frees = 0;
  std::uint64_t checked_events = 0;     // carried the allocator's own total
  std::uint64_t mismatched_events = 0;  // ... which differed from our sum by something else than the baseline
  std::uint64_t reserved_below_total = 0, segments_not_reserved = 0;
  std::int64_t baseline_bytes = 0;  // allocator's total - our sum at the first such event
  std::uint64_t live_blocks = 0;    // at the end
  std::uint64_t last_segment = 0;   // event of the last one that it took; 0: none
  // Of the events of the range at which reserved was highest (segments, where the trace does not state it), the one with most in blocks.
  std::uint64_t reserved_and_fullest = no_event;
};

// A counter that a source or the program states by events of kind counter.
struct SampledCounter {
  std::uint32_t heap = 0, name = 0;
  std::int64_t peak = 0, final = 0;
  std::uint64_t peak_event = no_event, samples = 0;
};

// Of one heap. A step or a phase peaks at the highest sum after any event that is stamped with it.
struct PhaseFigures {
  std::int64_t peak_bytes = -1;  // -1: the phase does not occur
  std::uint64_t peak_event = no_event, allocations = 0;
};
using Phases = std::array<PhaseFigures, 8>;  // by trace::Phase; the last two stay empty

struct Step {
  std::int64_t number = 0;
  std::uint64_t first_event = 0, end_event = no_event;
  Phases phases;
  const PhaseFigures& peak() const;  // the highest of its phases, the first of equals
};

struct Backward {
  std::uint64_t event = 0;
  std::int64_t nodes = 0;  // graph nodes walked
  std::uint64_t live_bytes = 0;
  std::size_t step = no_event;  // index into steps; no_event before the first
};

struct Mismatch {
  std::uint64_t event = 0;
  std::uint32_t heap = 0;
  std::int64_t found = 0, expected = 0;  // allocator's total - our sum
};

// An allocator had no memory for what was asked of it.
struct OutOfMemory {
  std::uint64_t event = 0, asked_bytes = 0, allocated_bytes = 0;  // of that heap then: its blocks, or its segments where it has no block
  std::uint32_t heap = 0;
};

struct PhysicalLedger {
  static constexpr std::size_t max_mismatches = 8, max_out_of_memory = 1000;
  static constexpr std::size_t max_marks = 1'000'000;  // steps and backward starts that are kept one by one

  std::uint64_t events = 0;
  BlockTable blocks;
  std::vector<HeapLedger> heaps;  // by heap id
  std::vector<SampledCounter> counters;
  DriverMemory driver;
  std::uint64_t kernels = 0;               // launches in the trace
  std::uint32_t shown_heap = 0;            // whose steps and phases follow; 0: the trace has no block
  Phases phases;                           // of the range, in and outside steps
  std::vector<Step> steps;                 // all of the trace
  std::vector<Backward> backwards;         // all of the trace
  std::uint64_t dropped_marks = 0;         // steps and backward starts beyond max_marks
  std::vector<Mismatch> mismatches;        // the first few
  std::vector<OutOfMemory> out_of_memory;  // all of the trace, up to max_out_of_memory
  std::uint64_t unmatched_frees = 0;       // frees without a block, of all heaps
  std::uint64_t holes = 0;                 // places where events are missing in the file
  std::uint64_t sums_off_after_holes = 0;  // chunks after a hole whose stated sums differ from ours
  std::uint64_t statements = 0;            // storage and value events
  std::uint64_t nodes = 0;                 // of autograd's graph, that a backward ran
  std::uint64_t releases = 0;              // of values, and drops, among them
  bool recompute_regions = false;
  std::optional<Imported> imported;  // nothing: the trace was recorded
  // What HeapLedger::allocated counts: "allocated", or what an imported file has instead ("requested").
  std::string block_counter = "allocated";
  // Of the shown heap: false where an imported file tells only the state at its end.
  bool peak_is_known = true;

  const HeapLedger& shown() const { return heaps[shown_heap]; }
  std::uint64_t mismatched_events() const;
  std::uint64_t open_blocks() const;  // of all heaps, at the end
};

struct PhysicalOptions {
  std::uint32_t heap = 0;  // shown heap; 0: choose_heap()
  Range range;             // peaks and phases are of this part; blocks, steps and backward starts of the whole trace
  Progress progress;
  std::uint64_t memory_bytes = 0;  // that the ledger may take; 0: what the system has
};

// The heap that people ask about first: of the CUDA heaps the one with the largest peak, else "cpu", else the one with
// the largest peak. 0 when the trace has no heap. Reads only the index.
std::uint32_t choose_heap(const trace::TraceFile& file);
// By its name as in the dictionary ("cuda:0"). Usage error naming the ones there are.
Result<std::uint32_t> find_heap(const trace::TraceFile& file, std::string_view name);

// Errors: more allocations than there is memory for (a file's size does not tell), more events than 2^32 - 2, more than 4,095 heaps, a
// chunk that cannot be read.
Result<PhysicalLedger> build_physical(const trace::TraceFile& file, const PhysicalOptions& options = {});

}  // namespace liveset::ledger
