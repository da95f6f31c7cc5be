#include "viewer/ledger/retained.h"

#include <algorithm>

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
    case Kind::graph_node: graph_nodes_[event.thread] = event.name; break;
    case Kind::value_use:
      if (event.value == 0) waiting_[{event.scope, trace::tensor_facts(event.number).index}] = {graph_nodes_[event.thread], event.name};
      break;
    case Kind::value_remake:
      if (event.value == 0) remake(event);
      break;
    case Kind::backward_begin: ++backward_; break;
    case Kind::microbatch_begin: microbatch_ = event.number; break;
    case Kind::step_begin:
      names_.clear();
      waiting_.clear();
      remade_.clear();
      rounds_.clear();
      microbatch_ = -1;
      break;
    case Kind::scope_begin:
      if (event.scope < dictionary_.scopes.size() && dictionary_.scopes[event.scope].kind == trace::ScopeKind::region)
        regions_[event.thread].push_back({event.scope, {}});
      break;
    case Kind::scope_end: end_region(event); break;
    default: break;
  }
}

void RetainedFinder::allocate(const trace::Event& event) {
  const Key key{event.heap, event.address};
  live_[key] = {event.size, event.allocation, event.scope, microbatch_};
  keys_[event.allocation] = key;
  if (event.phase != Phase::recompute) return;
  if (const auto regions = regions_.find(event.thread); regions != regions_.end() && !regions->second.empty())
    regions->second.back().made.push_back(event.allocation);
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
    std::string_view slot = dictionary_.string(event.name);
    if (slot.empty()) slot = trace::class_name(memory_class);
    RetainedBlock& named = name_block(live, slot);
    if (event.kind == Kind::value_retain) name_slot({graph_nodes_[event.thread], event.name}, named);
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

void RetainedFinder::end_region(const trace::Event& event) {
  const auto regions = regions_.find(event.thread);
  if (regions == regions_.end() || regions->second.empty() || regions->second.back().scope != event.scope) return;
  const std::vector<std::uint64_t> made = std::move(regions->second.back().made);
  regions->second.pop_back();
  for (const std::uint64_t allocation : made) {
    const auto key = keys_.find(allocation);
    if (key == keys_.end() || found_.blocks.count(allocation) != 0) continue;
    // Its free may lie in a part of the file that cannot be read: then its address is nobody's by now, or another's.
    const auto live = live_.find(key->second);
    if (live == live_.end() || live->second.allocation != allocation) continue;
    RetainedBlock& block = name_block(live->second, "recomputed");
    block.memory_class = MemoryClass::recomputed_activation;
    block.recomputed = true;
    block.incarnation = 1 + rounds_[event.scope];
    if (const auto slot = remade_.find(allocation); slot != remade_.end()) {
      name_slot(slot->second, block);
      remade_.erase(slot);
    }
  }
  if (event.phase == Phase::recompute) ++rounds_[event.scope];
}

// In which slot of its region a block was made again: what waits there says which node's it is.
void RetainedFinder::remake(const trace::Event& event) {
  const Live* block = block_at(event);
  const auto slot = waiting_.find({event.scope, trace::tensor_facts(event.number).index});
  if (block != nullptr && (slot != waiting_.end() || event.name != 0))
    remade_.try_emplace(block->allocation, slot != waiting_.end() ? slot->second : Slot{0, event.name});
}

// "AddmmBackward0.mat1" of the node AddmmBackward0 is its slot mat1; where no node is known, what stands before the last dot is it.
void RetainedFinder::name_slot(const Slot& slot, RetainedBlock& block) const {
  const std::string_view name = dictionary_.string(slot.name);
  const std::size_t dot = name.rfind('.');
  block.op = dictionary_.string(slot.node);
  if (block.op.empty() && dot != std::string_view::npos) block.op = name.substr(0, dot);
  block.slot = dot == std::string_view::npos ? name : name.substr(dot + 1);
}

RetainedBlock& RetainedFinder::name_block(const Live& live, std::string_view slot) {
  RetainedBlock block;
  block.module = dictionary_.module_path(live.scope);
  block.microbatch = live.microbatch;
  block.name = block.module;
  if (!block.name.empty()) block.name += "/";
  block.name += slot;
  const std::uint32_t ordinal = ++names_[block.name];
  if (ordinal > 1) block.name += "#" + std::to_string(ordinal);
  block.bytes = live.size;
  return found_.blocks[live.allocation] = std::move(block);
}

}  // namespace liveset::ledger
