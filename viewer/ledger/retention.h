// What lives longer than backward needs it, in one pass.
//
// The walk before a backward says which node holds which storage; the nodes that backward runs say when that ends: the last use of
// a storage is the end of the last node that has it in a slot, and its real end is the free of its block. A block that is freed
// while such a node runs was released by it: then nothing is overdue. What a recompute made is used by the nodes that waited for it.
// What a checkpoint region gave up is needed no longer once the region's forward is over.
//
// Weights, buffers, inputs and what else the program holds on purpose are left out: only what was made in forward, in the loss or by a
// recompute counts.
#pragma once
#include <cstdint>
#include <vector>

#include "viewer/ledger/lineage.h"

namespace liveset::ledger {

// How an overdue block went, which tells who may have held it.
enum class Release : std::uint8_t {
  at_the_end,  // it was alive when the trace ended
  in_node,     // while backward ran a node that has nothing to do with it
  in_module,   // while a module ran its forward
  many,        // at once with many others, outside of nodes and modules
  outside,     // none of these
};

struct OverdueBlock {
  std::uint32_t block = 0, scope = 0;  // where it was made; remade or given up: where it, or its original, was saved
  std::uint32_t slot = 0;              // String id "AddmmBackward0.mat1"; 0: not known
  std::uint32_t region = 0;            // index into Lineage::regions + 1 of the region that gave it up; 0: none
  std::uint32_t holder = 0;            // String id: what the job says that holds it; 0: nothing
  std::uint32_t released_in = 0;       // in_node: String id of the node; in_module: scope
  std::uint32_t freed_at_once = 0;     // blocks freed in a row with it
  std::uint32_t incarnation = 0;       // remade: by that recompute of its region; 0: it was not, or that is not known
  bool read_again = false;             // the region did not give it up: its recompute reads it
  bool remade = false, used = true;    // used = false: no node of a finished backward had it in a slot that ran
  Release release = Release::at_the_end;
  std::uint64_t bytes = 0, last_use_ns = 0, held_ns = 0;  // unused: since the backward's end
  double byte_seconds() const { return static_cast<double>(bytes) * static_cast<double>(held_ns) * 1e-9; }
};

// Overdue blocks of one scope, slot and holder that went in the same way.
struct OverdueGroup {
  OverdueBlock example;  // the first in the order of the list
  std::uint64_t blocks = 0, most_bytes = 0, longest_ns = 0;
  double byte_seconds = 0;
};

struct OverdueBlocks {
  std::vector<OverdueBlock> largest;     // the first Retention::max_overdue
  std::vector<OverdueGroup> groups;      // of all of them, by bytes x time, falling
  std::uint64_t all = 0, ungrouped = 0;  // ungrouped: those of more than Retention::max_groups groups
};

// Storages of one scope with the same number of elements in two floating dtypes, both held by the graph: most likely a cast.
struct TwoDtypes {
  std::uint32_t scope = 0, slots[2] = {}, blocks = 0;  // blocks: pairs, of all backwards
  std::int16_t dtypes[2] = {-1, -1};
  std::uint64_t elements = 0, times = 0;  // times: backwards
  std::uint64_t bytes = 0;                // of both, in the backward that has most
};

// Blocks of one size, made in one scope, of which every step leaves more alive.
struct Growth {
  std::uint32_t scope = 0;
  trace::MemoryClass memory_class = trace::MemoryClass::none;  // as the job states; none: nothing states them
  std::uint64_t block_bytes = 0, blocks = 0, bytes = 0;        // blocks and bytes: left over from those steps
  std::int64_t first_step = 0, last_step = 0;                  // numbers of the steps that left them
  std::uint32_t example = 0;                                   // the last of the blocks
  std::uint32_t holder = 0;                                    // as of OverdueBlock, of any of them
};

struct Retention {
  static constexpr std::size_t max_overdue = 10'000, max_groups = 10'000, max_two_dtypes = 100'000, max_growth = 1'000;

  bool nodes = false;                 // the trace has the nodes that backward runs; else nothing is known of last uses
  std::vector<OverdueBlock> overdue;  // by bytes x time, falling; the first max_overdue
  std::vector<OverdueBlock> unused;   // by bytes, falling; likewise
  std::vector<OverdueGroup> overdue_groups, unused_groups;  // of all of them, by bytes x time, falling; the first max_groups found
  std::uint64_t overdue_blocks = 0, unused_blocks = 0;      // all of them
  std::uint64_t ungrouped = 0;                              // those of them that are in no group
  std::vector<TwoDtypes> two_dtypes;                        // by bytes, falling
  std::vector<Growth> growth;                               // by bytes, falling
  std::uint64_t followed = 0;                               // blocks whose last use was looked for
  std::uint64_t left_out = 0;                               // nodes and slots of graphs too large to follow, and what they hold
};

struct RetentionOptions {
  Range range;  // blocks made in it
  std::uint64_t min_bytes = 0, min_delay_ns = 0;
  Progress progress;
};

Result<Retention> trace_retention(const trace::TraceFile& file, const PhysicalLedger& ledger, const Lineage& lineage,
                                  const RetentionOptions& options);

// The part that needs no events. `scopes`: of each allocation; `stated`: classes of blocks, by ordinal, as far as a statement tells.
std::vector<Growth> find_growth(const PhysicalLedger& ledger, const Range& range, const std::vector<std::uint32_t>& scopes,
                                const std::vector<std::pair<std::uint32_t, trace::MemoryClass>>& stated);

}  // namespace liveset::ledger
