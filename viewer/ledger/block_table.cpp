#include "viewer/ledger/block_table.h"

namespace liveset::ledger {
namespace {
constexpr Block unseen{Block::none, Block::none, 0, 0};
}

// Called for the first ordinal of a page and after a hole. Entries between the last ordinal and this one become unseen;
// entries beyond this one stay unwritten, because nothing reads at or beyond end().
void BlockTable::make_page(std::uint32_t ordinal) {
  const std::size_t page = ordinal >> page_bits;
  if (page >= pages_.size()) pages_.resize(page + 1);
  if (end_ != 0) {
    const std::size_t last_page = (end_ - 1) >> page_bits;
    if (pages_[last_page] != nullptr) {
      const std::uint64_t page_end = (last_page + 1) << page_bits;
      for (std::uint64_t gap = end_; gap < std::min<std::uint64_t>(page_end, ordinal); ++gap) pages_[last_page][gap & page_mask] = unseen;
    }
  }
  if (pages_[page] == nullptr) {
    pages_[page] = std::make_unique_for_overwrite<Block[]>(page_mask + 1);
    for (std::uint32_t gap = 0; gap < (ordinal & page_mask); ++gap) pages_[page][gap] = unseen;
  }
}

std::uint32_t BlockTable::add_big(std::uint64_t bytes) {
  if (big_sizes_.empty() || big_sizes_.back() != bytes) big_sizes_.push_back(bytes);
  return Block::big | static_cast<std::uint32_t>(big_sizes_.size() - 1);
}

}  // namespace liveset::ledger
