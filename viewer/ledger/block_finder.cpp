#include "viewer/ledger/block_finder.h"

#include <algorithm>

namespace liveset::ledger {

void BlockFinder::enter(std::uint64_t event) {
  for (const Noted& noted : noted_) {
    if (blocks_.find(noted.ordinal)->death > event) live_.insert_or_assign({noted.heap, noted.address}, noted.ordinal);
  }
  noted_.clear();
  if (live_.size() < purge_at_) return;
  for (auto it = live_.begin(); it != live_.end();) it = blocks_.find(it->second)->death <= event ? live_.erase(it) : std::next(it);
  purge_at_ = std::max<std::size_t>(4096, 2 * live_.size());
}

std::int64_t BlockFinder::find(std::uint32_t heap, std::uint64_t address, std::uint64_t event) {
  if (!noted_.empty()) enter(event);
  auto it = live_.upper_bound({heap, address});
  while (it != live_.begin()) {
    --it;
    if (it->first.first != heap) return none;
    const Block& block = *blocks_.find(it->second);
    if (block.death > event) {
      // Live blocks do not overlap, so the first live one at or below the address decides.
      const std::uint64_t offset = address - it->first.second;
      return offset < std::max<std::uint64_t>(blocks_.bytes(block), 1) ? static_cast<std::int64_t>(it->second) : none;
    }
    it = live_.erase(it);
  }
  return none;
}

}  // namespace liveset::ledger
