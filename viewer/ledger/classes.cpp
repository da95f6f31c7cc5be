#include "viewer/ledger/classes.h"

#include <algorithm>

namespace liveset::ledger {

MemoryClass class_of(const Block& block) {
  const MemoryClass stated = block.stated();
  return stated == MemoryClass::none ? MemoryClass::unattributed : stated;
}

void settle_unnamed(PhysicalLedger& ledger, std::uint64_t since) {
  std::size_t step = 0, backward = 0, failure = 0;  // the step that is open at a birth; the next of the others after it
  const auto is_temporary = [&](const Block& block) {
    if (block.phase() >= trace::Phase::backward) return true;
    const std::uint64_t step_end = step == 0 ? no_event : ledger.steps[step - 1].end_event;
    if (backward < ledger.backwards.size() && ledger.backwards[backward].event < step_end) return true;
    return block.freed() && (failure == ledger.out_of_memory.size() || !block.live_after(ledger.out_of_memory[failure].event));
  };
  for (std::uint64_t ordinal = 0; ordinal < ledger.blocks.end(); ++ordinal) {
    Block& block = *ledger.blocks.find(ordinal);
    while (step < ledger.steps.size() && ledger.steps[step].first_event <= block.birth) ++step;
    while (backward < ledger.backwards.size() && ledger.backwards[backward].event <= block.birth) ++backward;
    while (failure < ledger.out_of_memory.size() && ledger.out_of_memory[failure].event <= block.birth) ++failure;
    if (block.stated() != MemoryClass::none || block.birth < since) continue;
    const Evidence evidence = block.evidence();
    // A gradient that lives on beyond its step is one that the program holds, and was stated: what is not is a library's workspace or so.
    const std::uint64_t step_end = block.in_step() && step != 0 ? ledger.steps[step - 1].end_event : no_event;
    const bool outlives_step = step_end > block.birth && step_end < ledger.events && block.death > step_end;
    if (evidence == Evidence::accumulated || (evidence == Evidence::outlives_backward && !outlives_step)) {
      block.state(MemoryClass::gradient, evidence);
    } else if (evidence == Evidence::unfinished_backward) {
      block.state(MemoryClass::activation_gradient, evidence);
    } else if (!block.in_step()) {
      if (!ledger.steps.empty()) block.state(MemoryClass::input, Evidence::outside_steps);
    } else if (is_temporary(block)) {
      block.state(MemoryClass::temporary, Evidence::lifetime);
    }
  }
}

// One pass over the blocks: each adds its bytes to the first moment that sees it and takes them away from the first
// that no longer does; prefix sums do the rest. Most blocks live between two moments and touch nothing.
std::vector<ClassBytes> class_bytes_at(const PhysicalLedger& ledger, std::uint32_t heap, std::span<const std::uint64_t> events) {
  std::vector<ClassBytes> sums(events.size() + 1);
  std::size_t next = 0;  // first moment not before the block's birth
  ledger.blocks.for_each([&](std::uint32_t, const Block& block) {
    while (next < events.size() && events[next] < block.birth) ++next;
    if (next == events.size() || block.death <= events[next] || block.heap() != heap) return;
    const auto gone =
        std::lower_bound(events.begin() + static_cast<std::ptrdiff_t>(next), events.end(), block.freed() ? block.death : no_event);
    const auto memory_class = static_cast<std::size_t>(class_of(block));
    const std::uint64_t bytes = ledger.blocks.bytes(block);
    sums[next][memory_class] += bytes;
    sums[static_cast<std::size_t>(gone - events.begin())][memory_class] -= bytes;  // wraps; the prefix sum does not
  });
  for (std::size_t i = 1; i < events.size(); ++i) {
    for (std::size_t c = 0; c < sums[i].size(); ++c) sums[i][c] += sums[i - 1][c];
  }
  sums.resize(events.size());
  return sums;
}

std::vector<std::uint32_t> live_blocks(const PhysicalLedger& ledger, std::uint32_t heap, std::uint64_t event) {
  std::vector<std::uint32_t> ordinals;
  ledger.blocks.for_each([&](std::uint32_t ordinal, const Block& block) {
    if (block.live_after(event) && block.heap() == heap) ordinals.push_back(ordinal);
  });
  return ordinals;
}

}  // namespace liveset::ledger
