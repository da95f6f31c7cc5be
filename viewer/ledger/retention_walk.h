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
  std::uint32_t scope() const { return static_cast<std::uint32_t>((what & ~of_region) >> 24); }
  std::uint32_t index() const { return static_cast<std::uint32_t>(what & 0xffffff); }
  std::uint32_t ordinal() const { return static_cast<std::uint32_t>(what); }
};

// What all walks together may hold.
struct WalkBudget {
  static constexpr std::uint64_t most = 8'000'000;  // nodes and slots
  std::uint64_t used = 0, left_out = 0;
};

class Walk {
 public:
  struct Node {
    std::uint32_t name = 0, next = none;  // next: another node with its sequence number, of another thread
    std::uint32_t first = 0, end = 0;     // of slots
    bool begun = false, ended = false;
  };
  static constexpr std::uint32_t none = 0xffffffffU;

  explicit Walk(WalkBudget& budget) : budget_(budget) {}
  Walk(const Walk&) = delete;
  ~Walk() { budget_.used -= nodes_.size() + slots_.size(); }

  void add(std::uint32_t name, std::int64_t number) {
    takes_slots_ = has_room();
    if (!takes_slots_) return;
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
  // False where there is no room for it.
  bool add(WalkSlot slot) {
    if (!takes_slots_ || !has_room()) return takes_slots_ = false;
    slots_.push_back({slot, none});
    nodes_.back().end = static_cast<std::uint32_t>(slots_.size());
    return true;
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
  // visit(slot, held): `held` is the block that the slot stood for when its node began; none: for none, or it has not begun.
  template <class Visit>
  void for_slots(const Node& node, Visit visit) {
    for (std::uint32_t i = node.first; i < node.end; ++i) visit(slots_[i].slot, slots_[i].held);
  }
  const std::vector<Node>& nodes() const { return nodes_; }
  // Whether the last node can be told from others when it runs.
  bool is_numbered() const { return numbered_; }

 private:
  struct Slot {
    WalkSlot slot;
    std::uint32_t held;
  };
  bool has_room() {
    if (budget_.used < WalkBudget::most) {
      ++budget_.used;
      return true;
    }
    ++budget_.left_out;
    return false;
  }

  WalkBudget& budget_;
  bool numbered_ = false, takes_slots_ = false;
  std::vector<Node> nodes_;
  std::vector<Slot> slots_;
  absl::flat_hash_map<std::int64_t, std::uint32_t> by_number_;
};

}  // namespace liveset::ledger
