// Expandable segments: a range of addresses a pool and stream, larger than the device, that pages are mapped into where room is needed. Its
// unmapped parts are blocks of their own.
#include <algorithm>

#include "viewer/allocator/caching_allocator.h"

namespace liveset::allocator {
namespace {

constexpr std::uint64_t addresses_without_capacity = std::uint64_t{1} << 44;

}  // namespace

// The first place, by address, where free and unmapped blocks in a row have `size` bytes: the block that it begins with.
CachingAllocator::Index CachingAllocator::find_expandable(std::uint32_t list_index, std::uint64_t size) {
  List& list = *lists_[list_index];
  const auto can_be_taken = [this](Index block) {
    return block != none && (blocks_[block].state == State::free || blocks_[block].state == State::unmapped);
  };
  for (const UnmappedKey& key : list.unmapped) {
    const Index before = blocks_[key.block].previous;
    const Index first = can_be_taken(before) ? before : key.block;
    std::uint64_t bytes = 0;
    for (Index block = first; bytes < size && can_be_taken(block); block = blocks_[block].next) {
      if (!look()) return none;
      bytes += blocks_[block].size;
    }
    if (bytes >= size) return first;
  }
  const std::uint64_t page = page_size(list);
  const std::uint64_t memory = total_ == unlimited ? addresses_without_capacity : total_;
  const std::uint64_t addresses = memory > unlimited / 4 ? 0 : (memory + memory / 8 + page - 1) / page * page;
  if (addresses < size) return none;
  const Index block = start_segment(list_index, addresses, true);
  if (block == none) return none;
  blocks_[block].state = State::unmapped;
  list.unmapped.insert({blocks_[block].address, block});
  return block;
}

CachingAllocator::Index CachingAllocator::take_expandable(std::uint32_t list, std::uint64_t size) {
  Index block = find_expandable(list, size);
  if (block == none) return none;
  if (blocks_[block].state == State::unmapped) block = map(block, std::min(blocks_[block].size, size));
  while (block != none && blocks_[block].size < size) {
    const Index next = blocks_[block].next;
    block = map(next, std::min(size - blocks_[block].size, blocks_[next].size));
  }
  if (block != none) take_out(block);
  return block;
}

// Maps whole pages from the begin of an unmapped block on. The free block that they are part of then; none: the device has no more.
CachingAllocator::Index CachingAllocator::map(Index index, std::uint64_t size) {
  List& list = *lists_[blocks_[index].list];
  const std::uint64_t page = page_size(list);
  const std::uint64_t bytes = (size + page - 1) / page * page;
  if (!fits_device(bytes)) return none;
  list.unmapped.erase({blocks_[index].address, index});
  if (bytes < blocks_[index].size) {
    const Index rest = split(index, bytes);
    if (rest == none) return none;
    list.unmapped.insert({blocks_[rest].address, rest});
  }
  if (const Index next = blocks_[index].next; next != none && blocks_[next].state == State::free) {
    take_out(next);
    absorb_next(index);
  }
  if (const Index before = blocks_[index].previous; before != none && blocks_[before].state == State::free) {
    take_out(before);
    absorb_next(before);
    index = before;
  }
  put_free(index);
  counters_.reserved += bytes;
  ++statistics_.device_mallocs;
  peaks_.reserved = std::max(peaks_.reserved, counters_.reserved);
  return index;
}

// Gives back the whole pages of a free block. The unmapped block that they are part of then; none: it has no whole page.
CachingAllocator::Index CachingAllocator::unmap(Index index) {
  List& list = *lists_[blocks_[index].list];
  const std::uint64_t page = page_size(list), base = segments_[blocks_[index].segment].address;
  const std::uint64_t begin = (blocks_[index].address - base + page - 1) / page * page + base;
  const std::uint64_t end = (blocks_[index].address + blocks_[index].size - base) / page * page + base;
  if (begin >= end) return none;
  take_out(index);
  Index gone = index;
  if (begin > blocks_[index].address) {
    gone = split(index, begin - blocks_[index].address);
    put_free(index);
    if (gone == none) return none;
  }
  if (end < blocks_[gone].address + blocks_[gone].size) {
    const Index rest = split(gone, end - begin);
    if (rest == none) return none;
    put_free(rest);
  }
  blocks_[gone].state = State::unmapped;
  if (const Index next = blocks_[gone].next; next != none && blocks_[next].state == State::unmapped) {
    list.unmapped.erase({blocks_[next].address, next});
    absorb_next(gone);
  }
  if (const Index before = blocks_[gone].previous; before != none && blocks_[before].state == State::unmapped) {
    list.unmapped.erase({blocks_[before].address, before});
    absorb_next(before);
    gone = before;
  }
  list.unmapped.insert({blocks_[gone].address, gone});
  counters_.reserved -= end - begin;
  ++statistics_.device_frees;
  return gone;
}

}  // namespace liveset::allocator
