// What is open in a thread, scopes or nodes of backward, and which execution of its region a scope is. All that follow threads into
// scopes do it by these rules:
//
// - An end ends the innermost open thing of its key, and with it all that is open inside: an exception left that without a word.
//   The end of what is not open ends nothing. Of what is too deep to be followed only the number is known: an end of an unknown key
//   is taken for one of those, and so is one of the innermost that is followed (a key may repeat); that of an outer one ends them all.
// - A region that begins in the phase recompute is made again, unless the job says there what it is ("checkpoint", as in forward):
//   then it runs forward inside of a recompute around it, and what it makes is that one's. Mostly it repeats a forward that it ran
//   inside of the forward of the region around it. Where that has told nothing of it (a region in one without a graph), this is
//   its forward.
// - The recomputes of a region are numbered from its last forward on, in the order of their begins. The number of the innermost open
//   recompute is the incarnation of what is made.
#pragma once
#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "viewer/trace/records.h"

namespace liveset::ledger {

template <class Item>
class OpenStack {
 public:
  static constexpr std::size_t max_depth = 512;

  // Null: it is too deep to be followed.
  Item* begin(std::uint64_t key, Item item = {}) {
    if (keys_.size() == max_depth) {
      ++beyond_;
      return nullptr;
    }
    keys_.push_back(key);
    return &items_.emplace_back(std::move(item));
  }
  // closed(item) for each that ends, the innermost first; the rest of the stack is as it will be then.
  template <class Closed>
  void end(std::uint64_t key, Closed closed) {
    std::size_t depth = keys_.size();
    while (depth != 0 && keys_[depth - 1] != key) --depth;
    if (beyond_ != 0 && (depth == 0 || depth == keys_.size())) {
      --beyond_;
      return;
    }
    if (depth == 0) return;
    beyond_ = 0;
    cut(depth - 1, closed);
  }
  void end(std::uint64_t key) {
    end(key, [](Item&&) {});
  }
  template <class Closed>
  void clear(Closed closed) {
    beyond_ = 0;
    cut(0, closed);
  }
  void clear() {
    clear([](Item&&) {});
  }

  bool empty() const { return keys_.empty(); }
  std::size_t size() const { return keys_.size(); }
  std::uint64_t key() const { return keys_.back(); }
  Item& back() { return items_.back(); }
  const Item& back() const { return items_.back(); }
  Item& operator[](std::size_t depth) { return items_[depth]; }
  const Item& operator[](std::size_t depth) const { return items_[depth]; }

 private:
  template <class Closed>
  void cut(std::size_t depth, Closed closed) {
    while (keys_.size() > depth) {
      Item item = std::move(items_.back());
      items_.pop_back();
      keys_.pop_back();
      closed(std::move(item));
    }
  }

  std::vector<std::uint64_t> keys_;
  std::vector<Item> items_;
  std::size_t beyond_ = 0;  // open ones that are too deep
};

// A node of backward has one name and number at its begin and at its end.
inline std::uint64_t node_key(std::uint32_t name, std::int64_t number) {
  return std::uint64_t{name} << 32 | (static_cast<std::uint64_t>(number) & 0xffffffffU);
}

// Numbers the recomputes of regions. A recompute belongs to the last forward of its region in its thread, or else in any.
class RegionRounds {
 public:
  static constexpr std::size_t max_regions = 1'000'000;  // of further ones every recompute is the first, and is counted

  explicit RegionRounds(std::size_t most = max_regions) : most_(most) {}
  void forward(std::uint32_t thread, std::uint32_t scope) {
    if (Region* const region = place(thread, scope); region != nullptr) *region = {0, ++forwards_};
    latest_[scope] = thread;
  }
  // -> its number, from 1
  std::uint32_t again(std::uint32_t thread, std::uint32_t scope) {
    Region* const region = place(of(thread, scope), scope);
    if (region != nullptr) return ++region->last;
    ++left_out_;
    return 1;
  }
  // That was none.
  void take_back(std::uint32_t thread, std::uint32_t scope, std::uint32_t number) {
    Region* const region = place(of(thread, scope), scope);
    if (region != nullptr && region->last == number) --region->last;
  }
  // Whether the last forward of `inner` came after that of `outer`.
  bool is_inside(std::uint32_t thread, std::uint32_t inner, std::uint32_t outer) const {
    const auto in = regions_.find(key(of(thread, inner), inner)), out = regions_.find(key(of(thread, outer), outer));
    return in != regions_.end() && in->second.forward > (out != regions_.end() ? out->second.forward : 0);
  }
  std::uint64_t left_out() const { return left_out_; }  // recomputes whose number is not known

 private:
  struct Region {
    std::uint32_t last = 0;     // number of the last recompute
    std::uint64_t forward = 0;  // its place among the forwards of all
  };
  static std::uint64_t key(std::uint32_t thread, std::uint32_t scope) { return std::uint64_t{thread} << 32 | scope; }
  std::uint32_t of(std::uint32_t thread, std::uint32_t scope) const {
    if (regions_.contains(key(thread, scope))) return thread;
    const auto latest = latest_.find(scope);
    return latest != latest_.end() ? latest->second : thread;
  }
  Region* place(std::uint32_t thread, std::uint32_t scope) {
    if (regions_.size() < most_) return &regions_.try_emplace(key(thread, scope)).first->second;
    const auto found = regions_.find(key(thread, scope));
    return found != regions_.end() ? &found->second : nullptr;
  }

  absl::flat_hash_map<std::uint64_t, Region> regions_;        // by thread and scope
  absl::flat_hash_map<std::uint32_t, std::uint32_t> latest_;  // scope -> thread of its last forward
  std::size_t most_;
  std::uint64_t forwards_ = 0, left_out_ = 0;
};

// The regions that are open in one thread, each with what a follower keeps of it.
template <class Kept>
class OpenRegions {
 public:
  struct Region {
    std::uint32_t scope = 0, thread = 0;
    std::uint32_t round = 0;  // of the recomputes of the region; 0: it runs forward
    std::uint32_t inner = 0;  // 1 + depth of the innermost recompute, up to here; 0: none
    bool repeats = false;     // it runs forward as it did before, when the region around it ran forward
    Kept kept{};
    bool again() const { return round != 0; }
  };

  // Null: it is too deep to be followed.
  Region* begin(RegionRounds& rounds, std::uint32_t thread, std::uint32_t scope, trace::Phase phase) {
    Region region;
    region.scope = scope;
    region.thread = thread;
    region.inner = innermost();
    if (phase == trace::Phase::recompute) {
      region.round = rounds.again(thread, scope);
      region.inner = static_cast<std::uint32_t>(stack_.size()) + 1;
    } else {
      rounds.forward(thread, scope);
    }
    return stack_.begin(scope, std::move(region));
  }
  // closed(region) for each that ends, the innermost first.
  template <class Closed>
  void end(std::uint32_t scope, Closed closed) {
    stack_.end(scope, closed);
  }
  // The job says there what the region is. -> the region, where it was taken for a recompute until now
  Region* is_forward(RegionRounds& rounds, std::uint32_t scope) {
    if (stack_.empty() || stack_.key() != scope || !stack_.back().again()) return nullptr;
    Region& region = stack_.back();
    rounds.take_back(region.thread, scope, region.round);
    region.round = 0;
    region.inner = stack_.size() > 1 ? stack_[stack_.size() - 2].inner : 0;
    const Region* const outer = recompute();
    region.repeats = outer != nullptr && rounds.is_inside(region.thread, scope, outer->scope);
    if (!region.repeats) rounds.forward(region.thread, scope);
    return &region;
  }

  bool empty() const { return stack_.empty(); }
  std::size_t size() const { return stack_.size(); }
  Region& back() { return stack_.back(); }
  const Region& back() const { return stack_.back(); }
  Region& operator[](std::size_t depth) { return stack_[depth]; }
  // The innermost one if it has this scope; else null.
  Region* at(std::uint32_t scope) { return stack_.empty() || stack_.key() != scope ? nullptr : &stack_.back(); }
  // The innermost recompute; null: none is open.
  Region* recompute() { return innermost() == 0 ? nullptr : &stack_[innermost() - 1]; }
  const Region* recompute() const { return innermost() == 0 ? nullptr : &stack_[innermost() - 1]; }

 private:
  std::uint32_t innermost() const { return stack_.empty() ? 0 : stack_.back().inner; }

  OpenStack<Region> stack_;
};

}  // namespace liveset::ledger
