// Blocks that are held too long, in bounded memory: the largest of them one by one, and all of them by name.
#pragma once
#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "viewer/ledger/retention.h"

namespace liveset::ledger {

class OverdueList {
 public:
  using Weight = double (*)(const OverdueBlock&);
  explicit OverdueList(Weight weight) : weight_(weight) {}

  // `region`: scope of the region that gave it up; 0: none.
  void add(const OverdueBlock& block, std::uint32_t region) {
    ++count_;
    count(block, region);
    blocks_.push_back(block);
    if (blocks_.size() >= 2 * Retention::max_overdue) cut();
  }
  OverdueBlocks take() {
    cut();
    std::stable_sort(groups_.begin(), groups_.end(),
                     [](const OverdueGroup& a, const OverdueGroup& b) { return a.byte_seconds > b.byte_seconds; });
    return {std::move(blocks_), std::move(groups_), count_, ungrouped_};
  }

 private:
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, bool, bool, Release>;

  void count(const OverdueBlock& block, std::uint32_t region) {
    const Key key{block.scope, block.slot,   block.incarnation, block.holder, block.released_in,
                  region,      block.remade, block.read_again,  block.release};
    auto found = places_.find(key);
    if (found == places_.end()) {
      if (groups_.size() >= Retention::max_groups) {
        ++ungrouped_;
        return;
      }
      found = places_.emplace(key, groups_.size()).first;
      groups_.emplace_back().example = block;
    }
    OverdueGroup& group = groups_[found->second];
    ++group.blocks;
    group.most_bytes = std::max(group.most_bytes, block.bytes);
    group.longest_ns = std::max(group.longest_ns, block.held_ns);
    group.byte_seconds += block.byte_seconds();
    if (weight_(block) > weight_(group.example)) group.example = block;
  }
  void cut() {
    std::sort(blocks_.begin(), blocks_.end(), [this](const OverdueBlock& a, const OverdueBlock& b) {
      return std::pair(weight_(b), a.block) < std::pair(weight_(a), b.block);
    });
    if (blocks_.size() > Retention::max_overdue) blocks_.resize(Retention::max_overdue);
  }

  Weight weight_;
  std::uint64_t count_ = 0, ungrouped_ = 0;
  std::vector<OverdueBlock> blocks_;
  std::vector<OverdueGroup> groups_;
  absl::flat_hash_map<Key, std::size_t> places_;
};

}  // namespace liveset::ledger
