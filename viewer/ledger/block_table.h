// Every allocation of a trace in 16 bytes, addressed by its ordinal.
//
// The trace's frees say how many allocations ago their block was made, so a table by ordinal replaces the hash map that
// address-keyed traces need; that map is what makes such analysers slow. The reader numbers allocations without gaps.
// Pages keep growth free of copies and of trust in counts that a file states.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "viewer/ledger/evidence.h"
#include "viewer/trace/records.h"

namespace liveset::ledger {

struct Block {
  static constexpr std::uint32_t none = 0xffffffffU;  // as death: never freed
  static constexpr std::uint32_t big = 0x80000000U;

  // No initial values: a page of blocks must cost nothing before it is filled.
  std::uint32_t birth;  // event index of the allocation
  std::uint32_t death;  // event index of the free
  std::uint32_t size;   // bytes; with `big` set, an index into BlockTable's sizes of 2 GiB and more
  std::uint32_t facts;  // heap: 12 bits, phase at birth: 3, born in a step: 1, class: 4, evidence: 5, unused: 6, named: 1

  static constexpr std::uint32_t max_heap = 0xfff;
  static std::uint32_t pack(std::uint32_t heap, std::uint32_t phase, bool in_step) {
    return heap | (phase & 7) << 12 | (in_step ? 1U << 15 : 0);
  }
  std::uint32_t heap() const { return facts & max_heap; }
  trace::Phase phase() const { return static_cast<trace::Phase>((facts >> 12) & 7); }
  bool in_step() const { return (facts & 1U << 15) != 0; }
  // The strongest class that something in the trace is evidence for, and what that is; none: nothing.
  trace::MemoryClass stated() const { return static_cast<trace::MemoryClass>(facts >> 16 & 0xf); }
  Evidence evidence() const { return static_cast<Evidence>(facts >> 20 & 0x1f); }
  void state(trace::MemoryClass memory_class, Evidence why) {
    if (class_rank(memory_class) < class_rank(stated()))
      facts = (facts & ~(0x1ffU << 16)) | static_cast<unsigned>(memory_class) << 16 | static_cast<unsigned>(why) << 20;
  }
  // Evidence that decides only where nothing states a class.
  void suspect(Evidence why) {
    if (stated() == trace::MemoryClass::none) facts = (facts & ~(0x1fU << 20)) | static_cast<unsigned>(why) << 20;
  }
  // What was thought to be shown is doubtful.
  void doubt(Evidence known, Evidence why) {
    if (evidence() == known) facts = (facts & ~(0x1fU << 20)) | static_cast<unsigned>(why) << 20;
  }
  // A value or storage statement names this block.
  bool named() const { return (facts & 1U << 31) != 0; }
  void name() { facts |= 1U << 31; }

  bool freed() const { return death != none; }
  bool live_after(std::uint64_t event) const { return birth <= event && death > event; }
};
static_assert(sizeof(Block) == 16);

class BlockTable {
 public:
  // The next ordinal's block. Its size and death are set; the rest is the caller's.
  Block& add(std::uint64_t bytes) {
    if ((end_ & page_mask) == 0) pages_.push_back(std::make_unique_for_overwrite<Block[]>(page_mask + 1));
    Block& block = pages_[end_ >> page_bits][end_ & page_mask];
    ++end_;
    block.size = bytes < Block::big ? static_cast<std::uint32_t>(bytes) : add_big(bytes);
    block.death = Block::none;
    return block;
  }
  std::uint64_t end() const { return end_; }  // one past the highest ordinal

  // Null beyond the end.
  Block* find(std::uint64_t ordinal) { return ordinal < end_ ? &pages_[ordinal >> page_bits][ordinal & page_mask] : nullptr; }
  const Block* find(std::uint64_t ordinal) const { return const_cast<BlockTable*>(this)->find(ordinal); }
  std::uint64_t bytes(const Block& block) const { return block.size < Block::big ? block.size : big_sizes_[block.size & ~Block::big]; }

  // visit(ordinal, block), by rising ordinal, which is also by rising birth.
  template <class Visit>
  void for_each(Visit visit) const {
    for (std::size_t page = 0; page < pages_.size(); ++page) {
      const std::uint64_t first = std::uint64_t{page} << page_bits;
      const std::uint64_t count = std::min<std::uint64_t>(end_ - first, page_mask + 1);
      for (std::uint64_t i = 0; i < count; ++i) visit(static_cast<std::uint32_t>(first + i), pages_[page][i]);
    }
  }

 private:
  static constexpr unsigned page_bits = 16;
  static constexpr std::uint64_t page_mask = (1U << page_bits) - 1;

  std::uint32_t add_big(std::uint64_t bytes) {
    if (big_sizes_.empty() || big_sizes_.back() != bytes) big_sizes_.push_back(bytes);
    return Block::big | static_cast<std::uint32_t>(big_sizes_.size() - 1);
  }

  std::vector<std::unique_ptr<Block[]>> pages_;
  std::vector<std::uint64_t> big_sizes_;
  std::uint64_t end_ = 0;
};

}  // namespace liveset::ledger
