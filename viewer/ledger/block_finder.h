// Which live block holds an address, at the events where something asks.
//
// Few events ask (statements about storages and values), so allocations are only noted, and enter the ordered map when
// the next question comes, if they still live then: the ledger of the first pass knows every death in advance.
// Temporaries, the bulk of a training step, never enter it.
#pragma once
#include <absl/container/btree_map.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "viewer/ledger/block_table.h"

namespace liveset::ledger {

class BlockFinder {
 public:
  static constexpr std::int64_t none = -1;

  explicit BlockFinder(const BlockTable& blocks) : blocks_(blocks) {}

  // Events come in order. `ordinal` must be in the table.
  void born(std::uint32_t heap, std::uint64_t address, std::uint32_t ordinal) {
    if (noted_.size() >= max_noted) enter(blocks_.find(ordinal)->birth);
    noted_.push_back({address, heap, ordinal});
  }
  // Ordinal of the block of `heap` that is live after `event` and holds `address` (its first byte or an inner one).
  std::int64_t find(std::uint32_t heap, std::uint64_t address, std::uint64_t event);

 private:
  static constexpr std::size_t max_noted = 65536;
  struct Noted {
    std::uint64_t address;
    std::uint32_t heap, ordinal;
  };
  void enter(std::uint64_t event);

  const BlockTable& blocks_;
  std::vector<Noted> noted_;
  absl::btree_map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t> live_;  // with some dead ones, removed when met
  std::size_t purge_at_ = 4096;
};

}  // namespace liveset::ledger
