// What a block holds, decided from evidence in the trace over the block's whole life, never from names.
//
// Storage statements (parameters, gradients, optimizer states, ...), the graph walk (what backward retains) and value
// events of programs that instrument themselves each leave their class on the block that is live at the stated address;
// a block that outlives the recompute region it was made in is a recomputed activation; lifetimes.h adds what the nodes of
// a backward show. When several apply, the first in `class_precedence` is the block's class from its birth to its death.
//
// That nothing names a block is evidence only where something would have named it: the graph walk of a backward names
// what autograd holds. In a step that has not come to its backward (it ran out of memory, or was killed) a block may be
// held or not, so it is unattributed.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "viewer/ledger/physical.h"

namespace liveset::ledger {

using trace::MemoryClass;

// States `temporary`, `input` or `gradient` of the blocks that nothing else states, where the trace shows that they may well be:
// guesses (evidence.h). For traces with the Python source, which spoke first at event `since`; without it such blocks are
// unattributed.
//
// A temporary was born in a step and was not held by autograd: a backward of its step came after its birth, or its step
// was past its forward, or its life ended (but not by the unwinding after an allocator had run out of memory). An input
// was made outside the steps of a trace that has some.
void settle_unnamed(PhysicalLedger& ledger, std::uint64_t since);

// Class of a block whose evidence has been collected (attribute_blocks).
MemoryClass class_of(const Block& block);

using ClassBytes = std::array<std::uint64_t, trace::class_count>;  // by MemoryClass

// Live bytes of `heap` by class after each of `events`, which must rise. The classes of a moment sum to the heap's
// running sum.
std::vector<ClassBytes> class_bytes_at(const PhysicalLedger& ledger, std::uint32_t heap, std::span<const std::uint64_t> events);

// Ordinals of the blocks of `heap` that live after `event`, rising.
std::vector<std::uint32_t> live_blocks(const PhysicalLedger& ledger, std::uint32_t heap, std::uint64_t event);

}  // namespace liveset::ledger
