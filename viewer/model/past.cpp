#include "viewer/model/past.h"

#include <algorithm>
#include <utility>

namespace liveset::model {
namespace {

struct Moment {
  std::uint64_t event = 0;
  BlockMove move;
};

// A block that nothing saves and that outlives the later step too was made for good, as a library's workspace is: an op that runs again
// finds it.
void mark_made_once(const ledger::PhysicalLedger& ledger, std::uint64_t end, Model& model) {
  for (Tensor& tensor : model.tensors) {
    const ledger::Block* const block = ledger.blocks.find(tensor.block);
    tensor.once = block != nullptr && !tensor.value && (!block->freed() || block->death >= end);
  }
}

}  // namespace

std::vector<PastPart> make_past(const ledger::PhysicalLedger& ledger, std::vector<PastStep> steps, const PastOf& of) {
  const std::uint64_t end = of.follows ? of.first_event : steps.empty() ? 0 : steps.back().end_event;
  const auto is_modelled = [&](std::uint64_t event) {
    const auto after = std::upper_bound(steps.begin(), steps.end(), event,
                                        [](std::uint64_t number, const PastStep& step) { return number < step.first_event; });
    return after != steps.begin() && (after - 1)->model && event < (after - 1)->end_event;
  };
  std::vector<Moment> moments;
  ledger.blocks.for_each([&](std::uint32_t ordinal, const ledger::Block& block) {
    if (block.heap() != ledger.shown_heap) return;
    const std::uint64_t bytes = ledger.blocks.bytes(block);
    if (block.birth < end && !is_modelled(block.birth)) moments.push_back({block.birth, {ordinal, true, bytes}});
    if (block.freed() && block.death < end && !is_modelled(block.death)) moments.push_back({block.death, {ordinal, false, bytes}});
  });
  std::sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) { return a.event < b.event; });

  std::vector<PastPart> parts;
  std::size_t next = 0;
  const auto moves_before = [&](std::uint64_t event) {
    std::vector<BlockMove> moves;
    while (next < moments.size() && moments[next].event < event) moves.push_back(moments[next++].move);
    return moves;
  };
  for (PastStep& step : steps) {
    if (!step.model) continue;
    mark_made_once(ledger, of.end_event, *step.model);
    parts.push_back({moves_before(step.first_event), std::move(step.model)});
  }
  parts.push_back({moves_before(end), std::nullopt});
  return parts;
}

}  // namespace liveset::model
