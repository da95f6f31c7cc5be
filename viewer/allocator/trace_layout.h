// Which segment holds what at one event of a trace: as the allocator's own segments were recorded, or as the simulated caching allocator
// would have laid the recorded blocks out. Pins are allocations by their ordinal.
#pragma once
#include <optional>

#include "viewer/allocator/replay.h"
#include "viewer/ledger/physical.h"

namespace liveset::allocator {

// From the segment events of a heap: the truth where the trace has them. Blocks of before the recording are not told from free memory.
struct RecordedLayout {
  Fragmentation fragmentation;                          // `requested` is not known, and small only of segments that cannot grow
  std::uint64_t outside_blocks = 0, outside_bytes = 0;  // live blocks in no segment: those were taken before the recording
};
Result<RecordedLayout> recorded_layout(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger, std::uint32_t heap,
                                       std::uint64_t event);

struct SimulatedOptions {
  std::uint32_t heap = 0;
  Settings settings;
  Device device;
  std::optional<std::uint64_t> at = std::nullopt;  // an event; none: of those with the peak of reserved the one with most allocated
  ledger::Range range;                             // where peaks are looked for
  ledger::Progress progress;
};
struct SimulatedLayout {
  Fragmentation fragmentation;
  Peaks peaks;  // events are those of the trace
  Statistics statistics;
  std::uint64_t blocks = 0;  // that were replayed
};
// The heap's blocks through the simulation, with their recorded sizes. Calls of empty_cache are not replayed: a trace does not tell them.
// Errors: those of Replay, a chunk that cannot be read.
Result<SimulatedLayout> simulated_layout(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger,
                                         const SimulatedOptions& options);

}  // namespace liveset::allocator
