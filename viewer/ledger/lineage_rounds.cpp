// From recomputes to values: what each made, and what it stands for.
#include <tuple>

#include "viewer/ledger/lineage_pass.h"

namespace liveset::ledger::lineage {

void LineagePass::settle(ThreadState& thread) {
  if (thread.ended == nullptr) return;
  const std::unique_ptr<Round> round = std::move(thread.ended);
  finish(*round);
}

void LineagePass::end_by_phase(ThreadState& thread, std::uint64_t event, std::uint64_t time_ns) {
  if (thread.by_phase == nullptr) return;
  const std::unique_ptr<Round> round = std::move(thread.by_phase);
  if (!thread.nodes.empty()) thread.nodes.back().recomputed = true;
  round->about.end = event;
  round->about.end_ns = time_ns;
  phase_round(*round);
}

std::uint32_t LineagePass::add_round(Round& round, std::uint32_t region) {
  if (out_.rounds.size() >= Lineage::max_rounds) {
    ++out_.left_out;
    return none;
  }
  round.about.region = region;
  out_.rounds.push_back(round.about);
  return static_cast<std::uint32_t>(out_.rounds.size() - 1);
}

RemadeValue* LineagePass::add_value(std::uint32_t round, std::uint32_t block) {
  if (out_.values.size() >= Lineage::max_values) {
    ++out_.left_out;
    return nullptr;
  }
  RecomputeRound& about = out_.rounds[round];
  ++about.remade_blocks;
  about.remade_bytes += bytes(block);
  RemadeValue& value = out_.values.emplace_back();
  value.round = round;
  value.block = block;
  value.incarnation = about.number;
  const std::vector<std::pair<std::uint32_t, std::uint32_t>>& inside =
      threads_[about.thread < threads_.size() ? about.thread : 0].made_inside;
  if (!inside.empty()) {
    const auto made = std::lower_bound(inside.begin(), inside.end(), std::pair(block, std::uint32_t{0}));
    if (made != inside.end() && made->first == block) value.incarnation = made->second;
  }
  return &value;
}

void LineagePass::finish(Round& round) {
  if (round.region == none) {
    out_.stray_statements += round.work == nullptr && options_.range.whole();
    return;
  }
  if (round.work->region == round.region) round.work->first_round = std::min(round.work->first_round, round.about.begin);
  ++out_.regions[round.region].rounds;
  const std::uint32_t index = add_round(round, round.region);
  if (index == none) return;
  if (!round.by_slot.empty() || round.indexed)
    by_position(round, index);
  else
    by_order(round, index);
}

void LineagePass::by_position(const Round& round, std::uint32_t index) {
  const std::size_t first = out_.values.size();
  absl::flat_hash_map<std::uint32_t, std::size_t> known;  // block -> value
  for (const auto& [block, stated] : round.by_slot) {
    if (ledger_.blocks.find(block)->birth <= round.about.begin) {
      ++out_.reused_slots;
      if (stated.original == block && round.work->region == round.region) round.work->read_again[block] = round.about.end_ns;
      continue;
    }
    Slot slot = stated;
    if (slot.original != no_block && ledger_.blocks.find(slot.original)->birth > round.about.begin) slot.original = no_block;
    if (const auto found = known.find(block); found != known.end()) {
      RemadeValue& value = out_.values[found->second];
      ++value.slots;
      if (value.slot == 0 && slot.name != 0) {
        value.slot = slot.name;
        value.scope = slot.scope;
      }
      if (value.original != slot.original && slot.original != no_block) {
        if (value.original == no_block)
          value.original = slot.original;
        else
          ++out_.conflicts;
      }
      continue;
    }
    RemadeValue* value = add_value(index, block);
    if (value == nullptr) break;
    known.emplace(block, out_.values.size() - 1);
    value->original = slot.original;
    value->scope = slot.scope;
    value->slot = slot.name;
    value->slots = 1;
    value->dtype = slot.dtype;
  }
  for (std::size_t i = first; i < out_.values.size(); ++i) {
    RemadeValue& value = out_.values[i];
    if (value.original == no_block) continue;
    value.matched = Matched::position;
    value.guess = bytes(value.original) != bytes(value.block);
  }
}

// The remade blocks are those that a walk of the recompute's graph names, or else those that outlive it.
static std::vector<StatedAgain> remade_of(const Round& round, const BlockTable& blocks) {
  std::vector<StatedAgain> remade = round.stated;
  if (remade.empty()) {
    for (const auto& [block, scope] : round.made)
      if (blocks.find(block)->death > round.about.end) remade.push_back({block});
  }
  std::stable_sort(remade.begin(), remade.end(), [](const StatedAgain& a, const StatedAgain& b) { return a.block < b.block; });
  return remade;
}

struct Placed {
  std::uint32_t block, scope, place;
};

// For each block of a recompute its place among those of its scope and size.
static std::vector<Placed> placed(const Round& round, const BlockTable& blocks, Counts& counts) {
  std::vector<Placed> all;
  all.reserve(round.made.size());
  for (const auto& [block, scope] : round.made) all.push_back({block, scope, counts[{scope, blocks.bytes(*blocks.find(block))}]++});
  return all;
}

// Another slot that holds the last value. A walk comes to the node that made it last: that one names it best.
static void again(std::vector<RemadeValue>& values, std::uint32_t block, std::uint32_t name) {
  if (values.empty() || values.back().block != block) return;
  ++values.back().slots;
  values.back().slot = name;
}

// The values that a recompute made, and what is wanted of the forward for them. Without a region all of it is inferred.
std::vector<WantedOriginal> LineagePass::remade_in_order(const Round& round, std::uint32_t index, std::uint32_t interval, Counts& counts) {
  const bool inferred = round.region == none;
  const std::vector<Placed> made = placed(round, ledger_.blocks, counts);
  const std::vector<StatedAgain> remade = remade_of(round, ledger_.blocks);
  std::vector<WantedOriginal> wanted;
  auto next = made.begin();
  for (std::size_t i = 0; i < remade.size(); ++i) {
    const auto [block, name, dtype] = remade[i];
    if (i != 0 && remade[i - 1].block == block) {
      again(out_.values, block, name);
      continue;
    }
    while (next != made.end() && next->block < block) ++next;
    const bool is_made = next != made.end() && next->block == block;
    if (inferred ? !is_made : ledger_.blocks.find(block)->birth <= round.about.begin) {
      ++out_.reused_slots;
      continue;
    }
    RemadeValue* value = add_value(index, block);
    if (value == nullptr) break;
    value->guess = inferred;
    value->slot = name;
    value->slots = name != 0;
    value->dtype = dtype;
    if (is_made)
      wanted.push_back({interval, next->scope, bytes(block), next->place, 0, static_cast<std::uint32_t>(out_.values.size() - 1)});
  }
  return wanted;
}

void LineagePass::by_order(Round& round, std::uint32_t index) {
  Counts counts;
  const auto interval = static_cast<std::uint32_t>(intervals_.size());
  const std::vector<WantedOriginal> wanted = remade_in_order(round, index, interval, counts);
  const CheckpointRegion& region = out_.regions[round.region];
  if (wanted.empty() || region.forward_end == no_event) return;
  for (WantedOriginal one : wanted) {
    one.made = counts[{one.scope, one.bytes}];
    wanted_.push_back(one);
  }
  intervals_.push_back({region.forward_begin, region.forward_end, region.thread, false});
}

// ---- recomputes without a region

void LineagePass::phase_round(Round& round) {
  if (remade_of(round, ledger_.blocks).empty()) return;  // nothing of it outlives it: no backward is waiting for that
  if (inferred_.size() >= Lineage::max_regions) {
    ++out_.left_out;
    return;
  }
  // Blocks that were made in no module belong to whatever called the modules of this recompute.
  std::uint32_t inner = 0;
  bool any = false;
  for (const auto& [block, scope] : round.made)
    if (scope != 0) inner = std::exchange(any, true) ? common_scope(names_, inner, scope) : scope;
  const std::uint32_t outer = inner < names_.scopes.size() ? names_.scopes[inner].parent : 0;
  for (auto& [block, scope] : round.made)
    if (scope == 0) scope = outer;

  if (part_begin_ != phase_part_) {
    phase_part_ = part_begin_;
    phase_interval_ = static_cast<std::uint32_t>(intervals_.size());
    intervals_.push_back({part_begin_, round.about.begin, 0, true});
  }
  const std::uint32_t index = add_round(round, static_cast<std::uint32_t>(inferred_.size()));
  if (index == none) return;
  inferred_rounds_.push_back(index);
  CheckpointRegion& region = inferred_.emplace_back();
  region.by_phase = true;
  region.scope = region.inner = inner;
  region.thread = round.about.thread;
  const auto walked = walked_.find(round.sequence);
  region.node = walked != walked_.end() ? walked->second : round.node;
  region.has_step = has_step_;
  region.step = step_;
  region.microbatch = microbatch_;
  region.forward_begin = part_begin_;
  region.rounds = 1;

  PhaseRound waiting;
  waiting.interval = phase_interval_;
  waiting.sequence = round.sequence;
  Counts counts;
  waiting.wanted = remade_in_order(round, index, phase_interval_, counts);
  waiting.made.assign(counts.begin(), counts.end());
  phase_rounds_.push_back(std::move(waiting));
}

// Several recomputes of one module: the first in forward has the lowest sequence number. Where numbers are not known, backward's order
// is forward's reversed.
void LineagePass::settle_phase_rounds() {
  std::reverse(phase_rounds_.begin(), phase_rounds_.end());
  std::stable_sort(phase_rounds_.begin(), phase_rounds_.end(), [](const PhaseRound& a, const PhaseRound& b) {
    return std::pair(a.interval, a.sequence) < std::pair(b.interval, b.sequence);
  });
  for (std::size_t begin = 0; begin < phase_rounds_.size();) {
    std::size_t end = begin;
    Counts before;
    for (; end < phase_rounds_.size() && phase_rounds_[end].interval == phase_rounds_[begin].interval; ++end) {
      for (WantedOriginal& wanted : phase_rounds_[end].wanted) {
        wanted.place += before[{wanted.scope, wanted.bytes}];
        wanted_.push_back(wanted);
      }
      for (const auto& [key, number] : phase_rounds_[end].made) before[key] += number;
    }
    begin = end;
  }
  const auto first = static_cast<std::uint32_t>(out_.regions.size());
  for (const std::uint32_t round : inferred_rounds_) out_.rounds[round].region += first;
  out_.regions.insert(out_.regions.end(), inferred_.begin(), inferred_.end());
}

// ---- sums

static std::uint32_t joined(const trace::Dictionary& names, std::uint32_t scope, std::uint32_t more) {
  return scope == 0 ? more : more == 0 ? scope : common_scope(names, scope, more);
}

static std::uint64_t sum_of(std::vector<std::uint32_t>& blocks, const BlockTable& table) {
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  std::uint64_t bytes = 0;
  for (const std::uint32_t block : blocks) bytes += table.bytes(*table.find(block));
  return bytes;
}

void LineagePass::finalize(Work& work) {
  if (work.region == none) return;
  CheckpointRegion& region = out_.regions[work.region];
  region.input_bytes = sum_of(work.inputs, ledger_.blocks);
  region.random_bytes = sum_of(work.random, ledger_.blocks);
  region.selective_bytes = sum_of(work.selective, ledger_.blocks);
  for (const Slot& slot : work.slots) region.inner = joined(names_, region.inner, slot.scope);
  std::uint64_t moment = work.first_round;
  if (moment == no_event) {
    const auto next = std::lower_bound(ledger_.backwards.begin(), ledger_.backwards.end(), region.forward_begin,
                                       [](const Backward& backward, std::uint64_t event) { return backward.event < event; });
    moment = next != ledger_.backwards.end() ? next->event : Block::none - 1;
  }
  std::sort(work.slots.begin(), work.slots.end(),
            [](const Slot& a, const Slot& b) { return std::pair(a.original, a.index) < std::pair(b.original, b.index); });
  for (std::size_t i = 0; i < work.slots.size(); ++i) {
    const Slot& slot = work.slots[i];
    if (i != 0 && work.slots[i - 1].original == slot.original) continue;
    const Block& block = *ledger_.blocks.find(slot.original);
    ++region.dropped_blocks;
    region.dropped_bytes += ledger_.blocks.bytes(block);
    if (block.death <= moment) {
      region.not_held_bytes += ledger_.blocks.bytes(block);
      continue;
    }
    region.still_live_bytes += ledger_.blocks.bytes(block);
    const auto read = work.read_again.find(slot.original);
    if (out_.still_live.size() >= Lineage::max_still_live) continue;
    StillLive live{work.region, slot.original, slot.scope, 0, read != work.read_again.end() ? read->second : 0};
    for (std::size_t same = i; live.slot == 0 && same < work.slots.size() && work.slots[same].original == slot.original; ++same) {
      live.slot = slot_names_.find(region.scope, work.slots[same].index).slot;
      if (live.slot != 0) live.scope = work.slots[same].scope;
    }
    out_.still_live.push_back(live);
  }
  work = {};
}

// Regions without slots gave up the originals of what they made again.
void LineagePass::settle_order() {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> given_up;  // region, original
  for (const RemadeValue& value : out_.values) {
    if (value.original == no_block) {
      ++out_.unmatched_blocks;
      out_.unmatched_bytes += bytes(value.block);
    } else if (value.matched == Matched::order) {
      const std::uint32_t region = out_.rounds[value.round].region;
      given_up.emplace_back(region, value.original);
      out_.regions[region].inner = joined(names_, out_.regions[region].inner, value.scope);
    }
  }
  std::vector<std::uint64_t> first(out_.regions.size(), no_event);
  for (const RecomputeRound& round : out_.rounds) first[round.region] = std::min(first[round.region], round.begin);
  std::sort(given_up.begin(), given_up.end());
  given_up.erase(std::unique(given_up.begin(), given_up.end()), given_up.end());
  for (const auto& [index, original] : given_up) {
    CheckpointRegion& region = out_.regions[index];
    const Block& block = *ledger_.blocks.find(original);
    ++region.dropped_blocks;
    region.dropped_bytes += bytes(original);
    (block.death <= first[index] ? region.not_held_bytes : region.still_live_bytes) += bytes(original);
  }
}

}  // namespace liveset::ledger::lineage
