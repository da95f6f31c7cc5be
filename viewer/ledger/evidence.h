// Why a block has its class: the kind of the strongest evidence that the trace has for it. The details (which slot, which node,
// which region) are kept apart, for the blocks of one moment (Attribution::details).
#pragma once
#include <array>
#include <cstdint>

#include "viewer/trace/records.h"

namespace liveset::ledger {

// Which class wins where several are stated of one block.
inline constexpr std::array class_precedence = {trace::MemoryClass::parameter,
                                                trace::MemoryClass::buffer,
                                                trace::MemoryClass::optimizer_state,
                                                trace::MemoryClass::gradient,
                                                trace::MemoryClass::activation,
                                                trace::MemoryClass::checkpoint_input,
                                                trace::MemoryClass::rng_state,
                                                trace::MemoryClass::loss,
                                                trace::MemoryClass::offloaded,
                                                trace::MemoryClass::communication,
                                                trace::MemoryClass::activation_gradient,
                                                trace::MemoryClass::library,
                                                trace::MemoryClass::recomputed_activation,
                                                trace::MemoryClass::input,
                                                trace::MemoryClass::temporary};

enum class Evidence : std::uint8_t {
  none,
  // Stated.
  storage,     // by the program's own objects: parameters, gradients, optimizer state, inputs of a checkpoint region, ...
  value,       // by a program that names its values
  graph,       // autograd's graph holds it at the start of a backward
  remade,      // a checkpoint region has made its slot again in it
  offload,     // a slot's content was put there by the program's hook
  collective,  // a collective runs on it
  // From when and where it was born and freed.
  outlives_recompute,  // made in a recompute, outlives it
  accumulated,         // made by AccumulateGrad, outlives the node
  between_nodes,       // made in a backward, outlives the node that made it, freed in the same backward
  root_gradient,       // made in a backward before its first node: what it begins with
  in_node,             // born and freed inside one node of a backward
  in_recompute,        // born and freed inside one recompute
  in_phase,            // born and freed inside one forward, one loss or one optimizer step, without a break
  dropped,             // a checkpoint region gave it up
  // Guesses: what nothing states and no record of lifetimes shows.
  outlives_backward,    // made in a backward, outlives it
  unfinished_backward,  // made in a backward that has no end, and alive
  lifetime,             // no graph of its step holds it
  outside_steps,
  read_again,    // given up by a checkpoint region, and read by its recompute: an input that the region does not state
  dropped_alive  // given up by a checkpoint region, and alive when that made it again
};
constexpr bool is_guess(Evidence evidence) { return evidence >= Evidence::outlives_backward; }

// 0 is the strongest; `none` and `unattributed` are beyond the last.
constexpr unsigned class_rank(trace::MemoryClass memory_class) {
  constexpr auto ranks = [] {
    std::array<std::uint8_t, trace::class_count> table{};
    for (std::uint8_t& rank : table) rank = class_precedence.size();
    for (std::size_t i = 0; i < class_precedence.size(); ++i)
      table[static_cast<std::size_t>(class_precedence[i])] = static_cast<std::uint8_t>(i);
    return table;
  }();
  const auto number = static_cast<std::size_t>(memory_class);
  return number < ranks.size() ? ranks[number] : static_cast<unsigned>(class_precedence.size());
}

}  // namespace liveset::ledger
