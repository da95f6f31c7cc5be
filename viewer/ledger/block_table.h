// Every allocation of a trace in 16 bytes, addressed by its ordinal.
//
// The trace's frees say how many allocations ago their block was made, so a table by ordinal replaces the hash map that
// address-keyed traces need; that map is what makes such analysers slow. Pages keep growth free of copies and of trust in
// counts that a damaged file states; an ordinal that was never seen (a hole in the file) costs no memory.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "viewer/trace/records.h"

namespace liveset::ledger {

struct Block {
  static constexpr std::uint32_t none = 0xffffffffU;  // as birth: not seen; as death: never freed
  static constexpr std::uint32_t big = 0x80000000U;

  // No initial values: a page of blocks must cost nothing before it is filled.
  std::uint32_t birth;  // event index of the allocation
  std::uint32_t death;  // event index of the free
  std::uint32_t size;   // bytes; with `big` set, an index into BlockTable's sizes of 2 GiB and more
  std::uint32_t facts;  // heap: 12 bits, phase at birth: 3, born in a step: 1, stated classes: 15, named: 1

  static constexpr std::uint32_t max_heap = 0xfff;
  static std::uint32_t pack(std::uint32_t heap, std::uint32_t phase, bool in_step) {
    return heap | (phase & 7) << 12 | (in_step ? 1U << 15 : 0);
  }
  std::uint32_t heap() const { return facts & max_heap; }
  trace::Phase phase() const { return static_cast<trace::Phase>((facts >> 12) & 7); }
  bool in_step() const { return (facts & 1U << 15) != 0; }
  // Classes that something in the trace states of this block, bit (class - 1).
  std::uint32_t stated() const { return (facts >> 16) & 0x7fff; }
  void state(trace::MemoryClass memory_class) {
    const auto number = static_cast<unsigned>(memory_class);
    if (number >= 1 && number <= 15) facts |= 1U << (15 + number);
  }
  // A value or storage statement names this block.
  bool named() const { return (facts & 1U << 31) != 0; }
  void name() { facts |= 1U << 31; }

  bool seen() const { return birth != none; }
  bool freed() const { return death != none; }
  bool live_after(std::uint64_t event) const { return birth <= event && birth != none && death > event; }
};
static_assert(sizeof(Block) == 16);

class BlockTable {
 public:
  // Ordinals only rise; those that are skipped read as unseen.
  Block& add(std::uint32_t ordinal, std::uint64_t bytes) {
    if ((ordinal & page_mask) == 0 || ordinal != end_) make_page(ordinal);
    end_ = ordinal + 1;
    Block& block = pages_[ordinal >> page_bits][ordinal & page_mask];
    block.size = bytes < Block::big ? static_cast<std::uint32_t>(bytes) : add_big(bytes);
    block.death = Block::none;
    return block;
  }
  std::uint64_t end() const { return end_; }  // one past the highest ordinal

  // Null when the ordinal was not seen.
  Block* find(std::uint64_t ordinal) {
    if (ordinal >= end_) return nullptr;
    Block* page = pages_[ordinal >> page_bits].get();
    if (page == nullptr) return nullptr;
    Block& block = page[ordinal & page_mask];
    return block.seen() ? &block : nullptr;
  }
  const Block* find(std::uint64_t ordinal) const { return const_cast<BlockTable*>(this)->find(ordinal); }
  std::uint64_t bytes(const Block& block) const {
    return block.size < Block::big ? block.size : big_sizes_[block.size & ~Block::big];
  }

  // visit(ordinal, block) for every block that was seen, by rising ordinal.
  template <class Visit>
  void for_each(Visit visit) const { for_each_from(0, visit); }
  template <class Visit>
  void for_each_from(std::uint64_t first, Visit visit) const {
    for (std::uint64_t ordinal = first; ordinal < end_;) {
      const std::uint64_t page_end = std::min<std::uint64_t>((ordinal | page_mask) + 1, end_);
      const Block* page = pages_[ordinal >> page_bits].get();
      if (page == nullptr) {
        ordinal = page_end;
        continue;
      }
      for (; ordinal < page_end; ++ordinal) {
        const Block& block = page[ordinal & page_mask];
        if (block.seen()) visit(static_cast<std::uint32_t>(ordinal), block);
      }
    }
  }

 private:
  static constexpr unsigned page_bits = 16;
  static constexpr std::uint32_t page_mask = (1U << page_bits) - 1;

  void make_page(std::uint32_t ordinal);
  std::uint32_t add_big(std::uint64_t bytes);

  std::vector<std::unique_ptr<Block[]>> pages_;
  std::vector<std::uint64_t> big_sizes_;
  std::uint64_t end_ = 0;
};

}  // namespace liveset::ledger
