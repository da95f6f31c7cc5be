// What checkpoint regions gave up and made again: each region of each step, each recompute of it, and for each block that a
// recompute made the one original that it replaces.
//
// Where a job states the slots of a region (DROP in forward, REMAKE at the end of a recompute), slot i of the one is slot i of the
// other: `position`. Where it cannot (a region under no_grad has no slots), the k-th block of a size that a recompute makes in a
// module replaces the k-th block of that size that the region's forward made there: `order`. A recompute outside of every region
// (a program's own checkpoint function) is known by the phase of its allocations inside a node of backward, and is inferred.
//
// A block that several slots share is one value. A slot whose storage was not born in the recompute (a weight, the region's input) is
// no remade value.
#pragma once
#include <cstdint>
#include <vector>

#include "viewer/ledger/physical.h"

namespace liveset::ledger {

inline constexpr std::uint32_t no_block = Block::none;

enum class Matched : std::uint8_t { none, position, order };

// One region in one step: it ran once in forward and any number of times again.
struct CheckpointRegion {
  std::uint32_t scope = 0;   // the region's; by_phase: the innermost module that holds all of the recompute
  std::uint32_t inner = 0;   // the innermost scope that contains all that it saved; 0: not known
  std::uint32_t thread = 0;  // of its forward; by_phase: of its recompute
  std::uint32_t node = 0;    // by_phase: String id of the node of backward that recomputed
  std::uint32_t about = 0;   // String id: JSON text that the job says of the region's forward; 0: nothing
  bool by_phase = false, has_step = false;
  bool held_stated = false;                // the job says which storages the region holds
  std::int64_t step = 0, microbatch = -1;  // of its forward; by_phase: of its recompute; -1: not stated
  std::uint64_t forward_begin = 0;         // event
  std::uint64_t forward_end = no_event;    // no_event: it did not end, or is not known
  std::uint64_t forward_end_ns = 0;
  std::uint64_t slots = 0, dropped_blocks = 0;  // blocks: distinct storages in the slots
  // Bytes of blocks, each counted once a region. `not_held`: given up, and freed before the first recompute began (or the next
  // backward, or the trace's end, where there was none). `still_live`: given up, and alive then, for whatever reason.
  std::uint64_t input_bytes = 0, random_bytes = 0, selective_bytes = 0, dropped_bytes = 0, not_held_bytes = 0, still_live_bytes = 0;
  std::uint32_t rounds = 0;
  std::uint64_t held_bytes() const { return input_bytes + random_bytes + selective_bytes; }
};

struct RecomputeRound {
  std::uint32_t region = 0;                // index into Lineage::regions
  std::uint32_t number = 1;                // of the region's rounds since its forward, from 1: the incarnation of what it made
  std::uint32_t thread = 0, outcome = 0;   // outcome: String id of what the job says of its end, as JSON text
  bool inside = false;                     // another recompute of its thread was open: its time contains this one's
  bool unfinished = false;                 // its end is not in the trace
  std::uint64_t begin = 0, end = 0;        // events
  std::uint64_t begin_ns = 0, end_ns = 0;  // of the host's clock
  std::uint64_t remade_blocks = 0, remade_bytes = 0;
};

struct RemadeValue {
  std::uint32_t round = 0, block = 0;  // index into Lineage::rounds; ordinal of the block that the recompute made
  std::uint32_t original = no_block;   // ordinal of the block it replaces; no_block: not found
  std::uint32_t scope = 0;             // where the original was saved; matched by order: where it was made
  std::uint32_t slot = 0;              // String id "AddmmBackward0.mat1"; 0: not known
  std::uint32_t incarnation = 1;       // the round's number; made by a recompute inside of that: of this one
  std::uint32_t slots = 0;             // of the region that share the block
  std::int16_t dtype = -1;
  Matched matched = Matched::none;
  // By order, where the forward made more or fewer such blocks than the recompute, or a recompute without a region; by position, where
  // the two blocks differ in size.
  bool guess = false;
};

// A block that a region gave up and that was alive when it was made again (or would have been).
struct StillLive {
  std::uint32_t region = 0, block = 0;
  std::uint32_t scope = 0, slot = 0;  // where it was saved, and String id of the slot that waits for it; slot 0: not known
  std::uint64_t read_until_ns = 0;    // the recomputes have put the same block into its slot: what they read, their input; 0: they have not
};

struct Lineage {
  static constexpr std::size_t max_regions = 1'000'000, max_rounds = 1'000'000, max_values = 4'000'000, max_still_live = 1'000'000;

  std::vector<CheckpointRegion> regions;  // by their forward's begin, the inferred ones behind
  std::vector<RecomputeRound> rounds;     // in order of their ends
  std::vector<RemadeValue> values;        // by round
  std::vector<StillLive> still_live;
  std::uint64_t slots = 0;                                  // stated in forward
  std::uint64_t reused_slots = 0;                           // remade slots whose storage was there already
  std::uint64_t unmatched_blocks = 0, unmatched_bytes = 0;  // remade, without an original
  std::uint64_t conflicts = 0;                              // slots that share a remade block and did not share an original
  std::uint64_t stray_statements = 0;                       // of regions or rounds that are not there
  std::uint64_t left_out = 0;                               // regions, rounds, values, and names and numbers of them, beyond the limits
  std::uint64_t lost_blocks = 0;                            // statements about addresses where no block was
};

struct LineageOptions {
  Range range;  // regions whose forward begins in it; inferred ones whose recompute does
  Progress progress;
  std::uint64_t max_names = 4'000'000;  // of slots
};

// Memory: in proportion to what it returns and to the regions' slots of two steps.
Result<Lineage> trace_lineage(const trace::TraceFile& file, const PhysicalLedger& ledger, const LineageOptions& options = {});

}  // namespace liveset::ledger
