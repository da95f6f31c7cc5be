#include "viewer/ledger/retained.h"

#include <algorithm>
#include <numeric>

namespace liveset::ledger {

using trace::Kind;
using trace::MemoryClass;
using trace::Phase;

namespace {

// A graph retains weights too; what a storage is said to be wins over that, whenever it is said.
bool is_of_the_model(MemoryClass memory_class) {
  return memory_class == MemoryClass::parameter || memory_class == MemoryClass::buffer || memory_class == MemoryClass::optimizer_state ||
         memory_class == MemoryClass::gradient;
}

}  // namespace

RetainedFinder::RetainedFinder(const trace::Dictionary& dictionary, const PhysicalLedger& physical, const Lineage& lineage)
    : dictionary_(dictionary),
      physical_(physical),
      lineage_(lineage),
      paths_(dictionary),
      originals_(dictionary, paths_, lineage),
      slots_(dictionary) {
  std::vector<std::uint32_t> all(lineage.values.size());
  std::iota(all.begin(), all.end(), 0);
  for (const std::uint32_t i : all) values_.try_emplace(lineage.values[i].block, i);
  originals_.number(all);
}

void RetainedFinder::visit(const trace::Event& event) {
  switch (event.kind) {
    case Kind::alloc: allocate(event); break;
    case Kind::free_requested: release(event.allocation); break;
    case Kind::value_retain:
      if (event.value == 0 && event.memory_class != MemoryClass::parameter) retain(event, event.memory_class);
      break;
    case Kind::storage:
      if (event.memory_class == MemoryClass::checkpoint_input) retain(event, event.memory_class);
      if (is_of_the_model(event.memory_class))
        if (const Live* block = block_at(event)) of_the_model_.insert(block->allocation);
      break;
    case Kind::graph_node: slots_.walk(event.thread, event.name); break;
    case Kind::value_use:
      if (event.value == 0)
        slots_.waits(event.thread, region_of(dictionary_, event.scope), trace::tensor_facts(event.number).index, event.name);
      break;
    case Kind::value_drop:
      if (event.value == 0) slots_.saved(region_of(dictionary_, event.scope), trace::tensor_facts(event.number).index, event.scope);
      break;
    case Kind::value_remake:
      if (event.value == 0) remake(event);
      break;
    case Kind::backward_begin: ++backward_; break;
    case Kind::microbatch_begin: microbatch_ = event.number; break;
    case Kind::step_begin:
      names_.clear();
      remade_.clear();
      microbatch_ = -1;
      break;
    case Kind::scope_begin:
      if (event.scope >= dictionary_.scopes.size() || dictionary_.scopes[event.scope].kind != trace::ScopeKind::region) break;
      regions_[event.thread].begin(rounds_, event.thread, event.scope, event.phase);
      if (event.phase != Phase::recompute) slots_.forward(event.scope);
      break;
    case Kind::scope_end:
      if (const auto open = regions_.find(event.thread); open != regions_.end())
        open->second.end(event.scope, [this](const Regions::Region& region) { end_region(region); });
      break;
    case Kind::attribute:
      if (const auto open = regions_.find(event.thread); open != regions_.end() && dictionary_.string(event.name) == "checkpoint")
        if (const auto* region = open->second.is_forward(rounds_, event.scope); region != nullptr && !region->repeats)
          slots_.forward(event.scope);
      break;
    default: break;
  }
}

void RetainedFinder::allocate(const trace::Event& event) {
  const Key key{event.heap, event.address};
  const Live& live = live_[key] = {event.size, event.allocation, event.scope, microbatch_};
  keys_[event.allocation] = key;
  if (event.phase != Phase::recompute) return;
  if (const auto value = values_.find(event.allocation); value != values_.end()) {
    name_remade(live, lineage_.values[value->second]);
    return;
  }
  const auto regions = regions_.find(event.thread);
  if (regions == regions_.end() || regions->second.empty()) return;
  Regions::Region* const recompute = regions->second.recompute();
  (recompute != nullptr ? *recompute : regions->second.back()).kept.push_back(event.allocation);
}

void RetainedFinder::release(std::uint64_t allocation) {
  const auto key = keys_.find(allocation);
  if (key == keys_.end()) return;
  const auto live = live_.find(key->second);
  if (live != live_.end() && live->second.allocation == allocation) live_.erase(live);
  keys_.erase(key);
  kept_in_.erase(allocation);
}

// A storage may begin inside a block: the block is the last one that begins at or before its address.
const RetainedFinder::Live* RetainedFinder::block_at(const trace::Event& event) const {
  auto after = live_.upper_bound({event.heap, event.address});
  if (after == live_.begin()) return nullptr;
  const auto& [key, live] = *--after;
  return key.first == event.heap && event.address - key.second < std::max<std::uint64_t>(live.size, 1) ? &live : nullptr;
}

void RetainedFinder::retain(const trace::Event& event, MemoryClass memory_class) {
  const Live* at = block_at(event);
  if (at == nullptr || of_the_model_.count(at->allocation) != 0) return;
  const Live& live = *at;
  auto block = found_.blocks.find(live.allocation);
  if (block == found_.blocks.end()) {
    const SlotName name{event.kind == Kind::value_retain ? slots_.node(event.thread) : 0, event.name, 0};
    RetainedBlock& named = name_block(live, name, trace::class_name(memory_class), 0);
    if (event.kind == Kind::value_retain) name_slot(name, named);
    named.memory_class = memory_class == MemoryClass::none ? MemoryClass::activation : memory_class;
  } else if (block->second.recomputed) {
    return;
  }
  std::uint64_t& kept = kept_in_[live.allocation];
  if (kept == backward_) return;
  kept = backward_;
  found_.keeps.push_back({event.index, live.allocation});
}

RetainedBlocks RetainedFinder::finish() {
  const auto of_the_model = [&](std::uint64_t allocation) { return of_the_model_.count(allocation) != 0; };
  std::erase_if(found_.blocks, [&](const auto& block) { return of_the_model(block.first); });
  std::erase_if(found_.keeps, [&](const RetainedKeep& keep) { return of_the_model(keep.allocation); });
  return std::move(found_);
}

void RetainedFinder::end_region(const Regions::Region& region) {
  for (const std::uint64_t allocation : region.kept) {
    const auto key = keys_.find(allocation);
    if (key == keys_.end() || found_.blocks.count(allocation) != 0) continue;
    // Its free may lie in a part of the file that cannot be read: then its address is nobody's by now, or another's.
    const auto live = live_.find(key->second);
    if (live == live_.end() || live->second.allocation != allocation) continue;
    const auto slot = remade_.find(allocation);
    const SlotName name = slot != remade_.end() ? slot->second : SlotName{};
    RetainedBlock& block = name_block(live->second, name, "recomputed", std::max(region.round, 1U));
    block.memory_class = MemoryClass::recomputed_activation;
    block.recomputed = true;
    name_slot(name, block);
    if (slot != remade_.end()) remade_.erase(slot);
  }
}

// In which slot of its region a block was made again: what waits there says which node's it is.
void RetainedFinder::remake(const trace::Event& event) {
  const Live* block = block_at(event);
  if (block == nullptr || values_.contains(block->allocation)) return;
  SlotName& name = remade_[block->allocation];
  slots_.again(region_of(dictionary_, event.scope), trace::tensor_facts(event.number).index, event.name, name);
}

void RetainedFinder::name_slot(const SlotName& name, RetainedBlock& block) const {
  const auto [op, slot] = node_and_slot(dictionary_, name);
  block.op = op;
  block.slot = slot;
}

RetainedBlock& RetainedFinder::name_block(const Live& live, const SlotName& name, std::string_view otherwise, std::uint32_t incarnation) {
  const std::string_view slot = dictionary_.string(name.slot);
  RetainedBlock block;
  block.module = dictionary_.module_path(name.saved_in != 0 ? name.saved_in : live.scope);
  block.microbatch = live.microbatch;
  block.incarnation = incarnation;
  block.name = value_name(block.module, slot.empty() ? otherwise : slot);
  const std::uint32_t number = ++names_[block.name];
  block.name = numbered_name(std::move(block.name), number);
  if (!slot.empty()) block.name = incarnation_name(std::move(block.name), incarnation);
  block.bytes = live.size;
  return found_.blocks[live.allocation] = std::move(block);
}

RetainedBlock& RetainedFinder::name_remade(const Live& live, const RemadeValue& value) {
  RetainedBlock block;
  block.module = dictionary_.module_path(value.scope != 0 ? value.scope : live.scope);
  block.microbatch = live.microbatch;
  block.incarnation = value.incarnation;
  block.memory_class = MemoryClass::recomputed_activation;
  block.recomputed = true;
  name_slot({0, value.slot, 0}, block);
  block.name = incarnation_name(originals_.of(value).text(), value.incarnation);
  if (value.original != no_block) block.original_event = physical_.blocks.find(value.original)->birth;
  block.bytes = live.size;
  return found_.blocks[live.allocation] = std::move(block);
}

}  // namespace liveset::ledger
