// What a block holds, decided from evidence in the trace over the block's whole life, never from names.
//
// Storage statements (parameters, gradients, optimizer states, ...), the graph walk (what backward retains) and value
// events of programs that instrument themselves each leave their class on the block that is live at the stated address;
// a block that outlives the recompute region it was made in is a recomputed activation. When several apply, the first
// in `class_precedence` is the block's class from its birth to its death.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "viewer/ledger/physical.h"

namespace liveset::ledger {

using trace::MemoryClass;

inline constexpr std::array class_precedence = {MemoryClass::parameter,
                                                MemoryClass::buffer,
                                                MemoryClass::optimizer_state,
                                                MemoryClass::gradient,
                                                MemoryClass::activation,
                                                MemoryClass::checkpoint_input,
                                                MemoryClass::rng_state,
                                                MemoryClass::loss,
                                                MemoryClass::offloaded,
                                                MemoryClass::communication,
                                                MemoryClass::activation_gradient,
                                                MemoryClass::library,
                                                MemoryClass::recomputed_activation,
                                                MemoryClass::input,
                                                MemoryClass::temporary};

// Class of a block whose evidence has been collected (attribute_blocks). `python`: the trace has the Python source, so
// that what nothing retains is an input (made outside steps) or a temporary; without it such blocks are unattributed.
MemoryClass class_of(const Block& block, bool python);

using ClassBytes = std::array<std::uint64_t, trace::class_count>;  // by MemoryClass

// Live bytes of `heap` by class after each of `events`, which must rise. The classes of a moment sum to the heap's
// running sum.
std::vector<ClassBytes> class_bytes_at(const PhysicalLedger& ledger, std::uint32_t heap,
                                       std::span<const std::uint64_t> events, bool python);

// Ordinals of the blocks of `heap` that live after `event`, rising.
std::vector<std::uint32_t> live_blocks(const PhysicalLedger& ledger, std::uint32_t heap, std::uint64_t event);

}  // namespace liveset::ledger
