// What every prediction keeps, whatever the model and the policy; worked out from the list of blocks anew.
#pragma once
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "viewer/model/counters.h"
#include "viewer/model/predict.h"
#include "viewer/model/search.h"

namespace liveset::test {

// What a policy may leave alive at the step's end: what no op frees. Indices of tensors.
inline std::vector<bool> never_freed(const model::Model& model) {
  std::vector<bool> stays(model.tensors.size(), true);
  for (const model::Op& op : model.ops)
    for (const std::uint32_t tensor : model.list(op.frees)) stays[tensor] = model.tensors[tensor].accumulates;
  return stays;
}

// Every microbatch keeps the same values, but for what all share.
inline std::string broken_keep_rule(const model::Model& model, const ledger::LogicalLedger& ledger) {
  std::set<std::string> shared;
  for (const model::Tensor& tensor : model.tensors)
    if (model.is_shared(tensor)) shared.insert(tensor.id);
  std::map<std::int64_t, std::multiset<std::string>> kept;  // by microbatch
  for (const ledger::LogicalValue& value : ledger.values) kept[value.microbatch];
  for (const ledger::LogicalEvent& event : ledger.events) {
    if (event.kind != ledger::LogicalKind::keep) continue;
    const ledger::LogicalValue& value = ledger.values[event.value];
    if (!shared.contains(value.name)) kept[value.microbatch].insert(value.name);
  }
  for (const auto& [microbatch, values] : kept)
    if (values != kept.begin()->second) return "microbatch " + std::to_string(microbatch) + " keeps other values than the first";
  return "";
}

inline std::string broken_memory_rule(const model::Model& model, const model::Prediction& made, const model::PredictOptions& options) {
  const model::MemoryCurve& memory = made.memory;
  std::uint64_t live = model::static_bytes(model, options), peak = live, peak_event = model::never;
  if (memory.static_bytes != live) return "statics do not sum up";
  std::vector<int> lives(memory.blocks.size());  // 0: not yet, 1: yes, 2: no more
  for (std::uint64_t index = 0; index < memory.events.size(); ++index) {
    const model::MemoryEvent& event = memory.events[index];
    if (event.block >= memory.blocks.size()) return "an event of no block";
    const model::PredictedBlock& block = memory.blocks[event.block];
    if (event.alloc ? lives[event.block] != 0 || block.made != index : lives[event.block] != 1 || block.freed != index)
      return "a block is made twice, or freed where it does not live";
    if (!event.alloc && block.bytes > live) return "negative memory";
    lives[event.block] = event.alloc ? 1 : 2;
    live = event.alloc ? live + block.bytes : live - block.bytes;
    if (live > peak) {
      peak = live;
      peak_event = index;
    }
    if (live > memory.phase_peak[static_cast<std::size_t>(event.phase)]) return "a phase's peak is too low";
  }
  if (peak != memory.peak_bytes || peak_event != memory.peak_event) return "the peak is not that of the events";
  const std::vector<bool> stays = never_freed(model);
  std::set<std::pair<std::uint32_t, std::uint32_t>> left;
  for (std::size_t index = 0; index < memory.blocks.size(); ++index) {
    const model::PredictedBlock& block = memory.blocks[index];
    if (lives[index] == 0) return "a block without events";
    if ((lives[index] == 1) != (block.freed == model::never)) return "a block that is gone lives, or the other way";
    if (lives[index] != 1) continue;
    if (block.tensor >= stays.size() || !stays[block.tensor])
      return "'" + made.tensor_name(model, block.tensor) + "' lives at the end of the step";
    if (!left.emplace(block.tensor, block.microbatch).second) return "'" + made.tensor_name(model, block.tensor) + "' lives twice";
  }
  return "";
}

// Empty, or what is wrong.
inline std::string broken_rule(const model::Model& model, const model::Prediction& made, const model::PredictOptions& options = {}) {
  if (std::string wrong = broken_memory_rule(model, made, options); !wrong.empty()) return wrong;
  const ledger::LogicalLedger& ledger = made.ledger;
  if (ledger.broken_count != 0) return "a broken rule of the ledger: " + ledger.broken.front().what;
  if (std::string wrong = broken_keep_rule(model, ledger); !wrong.empty()) return wrong;
  const std::vector<bool> stays = never_freed(model);
  std::set<std::string> staying;
  for (std::size_t tensor = 0; tensor < stays.size(); ++tensor)
    if (stays[tensor]) staying.insert(model.tensors[tensor].id);
  for (const std::uint32_t value : ledger.live_at_end)
    if (staying.count(ledger.values[value].name) == 0) return "value '" + ledger.values[value].name + "' lives at the end";
  if (ledger.live_at_end.empty() && !ledger.events.empty() && (ledger.events.back().live_ids != 0 || ledger.events.back().live_bytes != 0))
    return "the ledger's last event leaves something live";
  std::uint64_t once = 0;
  for (const model::Op& op : model.ops)
    if (op.phase == trace::Phase::forward) once += op.cost;
  if (made.forward_cost != once * model.microbatches.count + made.extra_cost)
    return "the cost is not that of every op once and of what ran again";
  if (made.memory.peak_bytes < model::peak_bound(model, options).bytes) return "the peak is below the certified lower bound";
  const Result<model::PredictedCounters> counters = model::predict_counters(model, {}, made.memory);  // a file has no past
  if (!counters) return "no counters: " + counters.error().message();
  std::uint64_t before = counters->requested.bytes;
  if (before != made.memory.peak_bytes) return "requested is not the peak";
  for (const auto& counter : {counters->allocated, counters->active, counters->reserved}) {
    if (counter.has_value() != model.physical.caching_allocator) return "counters of an allocator that there is not";
    if (counter && counter->bytes < before) return "counters are out of order";
    if (counter) before = counter->bytes;
  }
  return "";
}

// Empty, or the first difference; tensors are told apart by index.
inline std::string difference(const model::Prediction& a, const model::Prediction& b) {
  const auto equal = [](const auto& left, const auto& right, auto same) {
    return left.size() == right.size() && std::equal(left.begin(), left.end(), right.begin(), same);
  };
  using ledger::LogicalEvent;
  using ledger::LogicalValue;
  if (!equal(a.ledger.values, b.ledger.values, [](const LogicalValue& x, const LogicalValue& y) {
        return x.name == y.name && x.layer == y.layer && x.bytes == y.bytes && x.incarnation == y.incarnation &&
               x.memory_class == y.memory_class && x.counted == y.counted && x.microbatch == y.microbatch;
      }))
    return "values differ";
  if (!equal(a.ledger.events, b.ledger.events, [](const LogicalEvent& x, const LogicalEvent& y) {
        return x.live_ids == y.live_ids && x.live_bytes == y.live_bytes && x.forward_layers == y.forward_layers && x.layer == y.layer &&
               x.value == y.value && x.phase == y.phase && x.kind == y.kind && x.read_count == y.read_count;
      }))
    return "the ledgers' events differ";
  if (a.ledger.reads != b.ledger.reads || a.ledger.held_at_loss != b.ledger.held_at_loss) return "the ledgers differ";
  if (!equal(a.memory.statics, b.memory.statics, [](const model::StaticStorage& x, const model::StaticStorage& y) {
        return x.id == y.id && x.bytes == y.bytes && x.memory_class == y.memory_class && x.from_step == y.from_step;
      }))
    return "statics differ";
  if (!equal(a.memory.blocks, b.memory.blocks, [](const model::PredictedBlock& x, const model::PredictedBlock& y) {
        return x.tensor == y.tensor && x.op == y.op && x.microbatch == y.microbatch && x.incarnation == y.incarnation &&
               x.memory_class == y.memory_class && x.phase == y.phase && x.bytes == y.bytes && x.made == y.made && x.freed == y.freed;
      }))
    return "blocks differ";
  if (a.memory.peak_bytes != b.memory.peak_bytes || a.memory.peak_event != b.memory.peak_event) return "peaks differ";
  if (a.boundaries != b.boundaries || a.forward_cost != b.forward_cost || a.extra_cost != b.extra_cost) return "boundaries or costs differ";
  return "";
}

}  // namespace liveset::test
