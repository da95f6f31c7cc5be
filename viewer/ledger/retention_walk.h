// The graph under a backward that runs: which node has which storages in its slots, and which of its nodes have run.
#pragma once
#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace liveset::ledger {

// A slot: a block's ordinal, or the slot of a checkpoint region that will be made again.
struct WalkSlot {
  static constexpr std::uint64_t of_region = std::uint64_t{1} << 63;
  std::uint64_t what = 0;
  static WalkSlot block(std::uint32_t ordinal) { return {ordinal}; }
  static WalkSlot again(std::uint32_t scope, std::int64_t index) {
    return {of_region | std::uint64_t{scope} << 24 | (static_cast<std::uint64_t>(index) & 0xffffff)};
  }
  bool is_again() const { return (what & of_region) != 0; }
  std::uint32_t ordinal() const { return static_cast<std::uint32_t>(what); }
};

class Walk {
 public:
  struct Node {
    std::uint32_t name = 0, next = none;  // next: another node with its sequence number, of another thread
    std::uint32_t first = 0, end = 0;     // of slots
    bool begun = false, ended = false;
  };
  static constexpr std::uint32_t none = 0xffffffffU;

  void add(std::uint32_t name, std::int64_t number) {
    const auto index = static_cast<std::uint32_t>(nodes_.size());
    const auto slots = static_cast<std::uint32_t>(slots_.size());
    Node node{name, none, slots, slots};
    numbered_ = number >= 0;
    if (number >= 0) {
      const auto [place, is_new] = by_number_.try_emplace(number, index);
      if (!is_new) node.next = std::exchange(place->second, index);
    }
    nodes_.push_back(node);
  }
  void add(WalkSlot slot) {
    if (nodes_.empty() || slots_.size() >= none - 1) return;
    slots_.push_back(slot);
    nodes_.back().end = static_cast<std::uint32_t>(slots_.size());
  }
  // A Python node has one name for the engine and another one for Python: then its number decides, where only one node has it.
  Node* find(std::uint32_t name, std::int64_t number) {
    const auto found = by_number_.find(number);
    if (found == by_number_.end()) return nullptr;
    Node* first = &nodes_[found->second];
    for (std::uint32_t i = found->second, steps = 0; i != none && steps < 64; i = nodes_[i].next, ++steps)
      if (nodes_[i].name == name) return &nodes_[i];
    return first->next == none ? first : nullptr;
  }
  template <class Visit>
  void for_slots(const Node& node, Visit visit) const {
    for (std::uint32_t i = node.first; i < node.end; ++i) visit(slots_[i]);
  }
  const std::vector<Node>& nodes() const { return nodes_; }
  // Whether the last node can be told from others when it runs.
  bool is_numbered() const { return numbered_; }

 private:
  bool numbered_ = false;
  std::vector<Node> nodes_;
  std::vector<WalkSlot> slots_;
  absl::flat_hash_map<std::int64_t, std::uint32_t> by_number_;
};

}  // namespace liveset::ledger
