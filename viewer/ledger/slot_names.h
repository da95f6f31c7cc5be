// The slots of what autograd saves: which node the walk of the graph has come to, and which node and slot wait for a slot of a
// checkpoint region. A value is named by the module in which it was saved (of what no region gave up: made), the slot that holds
// it ("AddmmBackward0.mat1"), and the recompute that made it.
#pragma once
#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "viewer/trace/records.h"

namespace liveset::ledger {

struct SlotName {
  std::uint32_t node = 0, slot = 0;  // String ids: "AddmmBackward0", "AddmmBackward0.mat1"; 0: not known
  std::uint32_t saved_in = 0;        // scope; 0: not known
};

class SlotNames {
 public:
  static constexpr std::uint64_t max_slots = 4'000'000;
  static constexpr std::uint64_t slots_of_region = 8;  // so many weigh as much as the map of a region

  explicit SlotNames(const trace::Dictionary& names, std::uint64_t most = max_slots)
      : nodes_(std::max<std::size_t>(names.threads.size(), 1)), most_(most) {}

  void walk(std::uint32_t thread, std::uint32_t node) { nodes_[thread < nodes_.size() ? thread : 0] = node; }
  std::uint32_t node(std::uint32_t thread) const { return nodes_[thread < nodes_.size() ? thread : 0]; }
  // The region's forward begins, and repeats none: its slots are new ones.
  void forward(std::uint32_t region) {
    Slots* const slots = find_region(region);
    if (slots == nullptr) return;
    slots_ -= slots->size();
    slots->clear();
  }
  // The first time counts: a forward inside of a recompute says it again.
  void saved(std::uint32_t region, std::int64_t index, std::uint32_t scope) {
    if (SlotName* const name = place(region, index); name != nullptr && name->saved_in == 0) name->saved_in = scope;
  }
  void waits(std::uint32_t thread, std::uint32_t region, std::int64_t index, std::uint32_t slot) {
    if (SlotName* const name = place(region, index); name != nullptr) {
      name->node = node(thread);
      name->slot = slot;
    }
  }
  // A block that a region has made again. By position several slots may have it: the first that is known names it. Where the graph of
  // the recompute is walked instead, the last does: the node that made it, which a walk comes to last.
  void again(std::uint32_t region, std::int64_t index, std::uint32_t stated, SlotName& name) const {
    if (index < 0) {
      if (stated != 0) name = {0, stated, 0};
    } else if (name.slot == 0) {
      const SlotName found = find(region, index);
      if (name.saved_in == 0 || found.slot != 0) name = found;
    }
  }
  SlotName find(std::uint32_t region, std::int64_t index) const {
    const Slots* const slots = find_region(region);
    if (slots == nullptr) return {};
    const auto found = slots->find(static_cast<std::uint32_t>(index));
    return found != slots->end() ? found->second : SlotName{};
  }
  std::uint64_t left_out() const { return left_out_; }  // statements about further slots

 private:
  using Slots = absl::flat_hash_map<std::uint32_t, SlotName>;

  // Statements of one region come in a row.
  Slots* find_region(std::uint32_t region) const {
    if (region == last_region_) return last_;
    const auto found = regions_.find(region);
    if (found == regions_.end()) return nullptr;
    last_region_ = region;
    return last_ = found->second.get();
  }
  SlotName* place(std::uint32_t region, std::int64_t index) {
    if (index < 0) return nullptr;
    Slots* slots = find_region(region);
    if (slots_ + regions_.size() * slots_of_region >= most_) {
      if (slots != nullptr)
        if (const auto known = slots->find(static_cast<std::uint32_t>(index)); known != slots->end()) return &known->second;
      ++left_out_;
      return nullptr;
    }
    if (slots == nullptr) slots = (regions_[region] = std::make_unique<Slots>()).get();
    const auto [name, is_new] = slots->try_emplace(static_cast<std::uint32_t>(index));
    slots_ += is_new;
    return &name->second;
  }

  std::vector<std::uint32_t> nodes_;                                    // by thread
  absl::flat_hash_map<std::uint32_t, std::unique_ptr<Slots>> regions_;  // for ever: each is said of again in the next step
  mutable std::uint32_t last_region_ = 0xffffffffU;
  mutable Slots* last_ = nullptr;
  std::uint64_t most_;
  std::uint64_t slots_ = 0, left_out_ = 0;
};

// The region around a scope; 0: none.
inline std::uint32_t region_of(const trace::Dictionary& names, std::uint32_t scope) {
  for (int depth = 0; scope != 0 && scope < names.scopes.size() && depth < 256; ++depth, scope = names.scopes[scope].parent) {
    if (names.scopes[scope].kind == trace::ScopeKind::region) return scope;
  }
  return 0;
}

// "AddmmBackward0", "mat1": of a slot's name, and of the node where a walk has named that.
inline std::pair<std::string_view, std::string_view> node_and_slot(const trace::Dictionary& names, const SlotName& name) {
  const std::string_view slot = names.string(name.slot);
  std::string_view node = names.string(name.node);
  const std::size_t dot = slot.rfind('.');
  if (node.empty() && dot != std::string_view::npos) node = slot.substr(0, dot);
  return {node, dot == std::string_view::npos ? slot : slot.substr(dot + 1)};
}

}  // namespace liveset::ledger
