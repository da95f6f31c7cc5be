#include "viewer/allocator/caching_allocator.h"

#include <algorithm>
#include <cmath>

namespace liveset::allocator {
namespace {

constexpr std::uint64_t least_block = 512;
constexpr std::uint64_t small_size = mebibyte, small_segment = 2 * mebibyte, large_step = 2 * mebibyte, least_own_segment = 10 * mebibyte;
constexpr std::uint64_t least_refused = std::uint64_t{1} << 60;  // "more than 1EB memory": refused before the allocator is asked
constexpr std::uint64_t first_address = std::uint64_t{1} << 62;  // room on both sides
constexpr std::uint64_t most_looks = std::uint64_t{1} << 32;

constexpr std::uint64_t round_up(std::uint64_t size, std::uint64_t step) { return (size + step - 1) / step * step; }

}  // namespace

CachingAllocator::CachingAllocator(const Settings& settings, const Device& device)
    : settings_(settings), order_(device.order), lowest_(first_address), highest_(first_address) {
  if (!device.capacity) return;
  capacity_ = *device.capacity;
  total_ = device.total.value_or(capacity_);
  has_allowed_ = settings.memory_fraction < 1;
  allowed_ = static_cast<std::uint64_t>(settings.memory_fraction * static_cast<double>(total_));
  collects_ = has_allowed_ && settings.garbage_collection_threshold > 0;
}

Outcome CachingAllocator::malloc(std::uint64_t size, std::uint64_t stream) {
  if (size == 0) return {Outcome::Kind::null, {}};
  if (size >= least_refused || exhausted_) return {Outcome::Kind::out_of_memory, {}};
  const std::uint64_t rounded = rounded_size(settings_, size);
  const std::uint32_t list = list_of(rounded <= small_size, stream);
  Index found = take_free(list, rounded);
  if (found == none) {
    if (collects_) collect_garbage();
    found = take_new(list, rounded);
    if (found == none && release_oversize(list, rounded)) found = take_new(list, rounded);
    if (found == none) {
      give_back_all();
      ++statistics_.retries;
      found = take_new(list, rounded);
    }
    if (found == none) {
      ++statistics_.out_of_memory;
      return {Outcome::Kind::out_of_memory, {}};
    }
  }
  if (blocks_[found].size != rounded && splits(*lists_[list], blocks_[found].size, rounded)) {  // a new one
    const Index remainder = split(found, rounded);
    if (remainder != none) put_free(remainder);
  }
  Block& block = blocks_[found];
  block.state = State::live;
  block.requested = size;
  ++block.generation;
  counters_.requested += size;
  counters_.allocated += block.size;
  counters_.active += block.size;
  raise_peaks();
  return {Outcome::Kind::ok, {found, block.generation}};
}

bool CachingAllocator::free(Handle handle) {
  if (!is(handle, State::live)) return false;
  counters_.allocated -= blocks_[handle.block].size;
  complete(handle.block);
  return true;
}

bool CachingAllocator::free_requested(Handle handle) {
  if (!is(handle, State::live)) return false;
  Block& block = blocks_[handle.block];
  counters_.allocated -= block.size;
  block.state = State::pending;
  if (pending_.size() >= 64 && pending_.size() / 2 > pending_count_)
    std::erase_if(pending_, [this](Handle old) { return !is(old, State::pending); });
  pending_.push_back(handle);
  ++pending_count_;
  return true;
}

bool CachingAllocator::free_completed(Handle handle) {
  if (!is(handle, State::pending)) return false;
  --pending_count_;
  complete(handle.block);
  return true;
}

void CachingAllocator::empty_cache() { give_back_all(); }

bool CachingAllocator::is(Handle handle, State state) const {
  return handle.block < blocks_.size() && blocks_[handle.block].generation == handle.generation && blocks_[handle.block].state == state;
}

void CachingAllocator::raise_peaks() {
  peaks_.requested = std::max(peaks_.requested, counters_.requested);
  peaks_.allocated = std::max(peaks_.allocated, counters_.allocated);
  peaks_.active = std::max(peaks_.active, counters_.active);
  peaks_.reserved = std::max(peaks_.reserved, counters_.reserved);
}

bool CachingAllocator::look(std::uint64_t count) {
  looked_ += count;
  exhausted_ = exhausted_ || looked_ > most_looks;
  return !exhausted_;
}

std::uint32_t CachingAllocator::list_of(bool small, std::uint64_t stream) {
  if (last_list_[small] != none && last_stream_[small] == stream) return last_list_[small];
  const auto [entry, is_new] = lists_by_stream_[small].try_emplace(stream, static_cast<std::uint32_t>(lists_.size()));
  if (is_new) {
    lists_.push_back(std::make_unique<List>());
    lists_.back()->small = small;
    lists_.back()->stream = stream;
  }
  last_stream_[small] = stream;
  last_list_[small] = entry->second;
  return entry->second;
}

// The best fit among the free blocks; none where PyTorch would rather ask the device.
CachingAllocator::Index CachingAllocator::take_free(std::uint32_t list_index, std::uint64_t size) {
  List& list = *lists_[list_index];
  if (collects_) ++searches_[list.small];
  auto found = list.free.lower_bound(FreeKey{size, 0, none});
  if (found == list.free.end()) return none;
  if (settings_.expandable_segments) {
    // A block before unmapped addresses counts with what it can grow to.
    const auto grown = [this](const FreeKey& key) {
      const Index next = blocks_[key.block].next;
      return key.size + (next != none && blocks_[next].state == State::unmapped ? blocks_[next].size : 0);
    };
    for (auto next = std::next(found); next != list.free.end() && grown(*next) < grown(*found) && look(); ++next) found = next;
  }
  if (size < settings_.max_split_size && found->size >= settings_.max_split_size) return none;
  if (size >= settings_.max_split_size && found->size - size >= settings_.max_non_split_rounding_size) return none;
  const Index index = found->block;
  if (!splits(list, found->size, size)) {
    list.free.erase(found);
    return index;
  }
  const Index rest = split(index, size);
  if (rest == none) return none;
  Block& remainder = blocks_[rest];
  remainder.state = State::free;
  remainder.cached_since = searches_[list.small];
  replace(list.free, found, FreeKey{remainder.size, remainder.address, rest});
  return index;
}

// A key becomes another one: in its place where the order stays, which is often so and costs no search.
void CachingAllocator::replace(FreeSet& set, FreeSet::iterator at, const FreeKey& key) {
  const bool above_before = at == set.begin() || *std::prev(at) < key;
  const auto next = std::next(at);
  if (above_before && (next == set.end() || key < *next)) {
    const_cast<FreeKey&>(*at) = key;
    return;
  }
  set.erase(at);
  set.insert(key);
}

bool CachingAllocator::splits(const List& list, std::uint64_t size, std::uint64_t wanted) const {
  const std::uint64_t rest = size - wanted;
  return list.small || settings_.expandable_segments ? rest >= least_block : wanted < settings_.max_split_size && rest > small_size;
}

// From the device.
CachingAllocator::Index CachingAllocator::take_new(std::uint32_t list, std::uint64_t size) {
  const std::uint64_t segment = size <= small_size         ? small_segment
                                : size < least_own_segment ? settings_.large_segment_size
                                                           : round_up(size, large_step);
  if (has_allowed_ && (segment > allowed_ || counters_.reserved > allowed_ - segment)) return none;
  if (settings_.expandable_segments) return take_expandable(list, size);
  if (!fits_device(segment)) return none;
  const Index block = start_segment(list, segment, false);
  if (block == none) return none;
  blocks_[block].state = State::free;
  counters_.reserved += segment;
  ++statistics_.device_mallocs;
  peaks_.reserved = std::max(peaks_.reserved, counters_.reserved);
  return block;
}

// A segment of one block, whose state is the caller's to set.
CachingAllocator::Index CachingAllocator::start_segment(std::uint32_t list, std::uint64_t size, bool expandable) {
  const auto address = take_addresses(size);
  if (!address) return none;
  const Index head = new_block();
  if (head == none) return none;
  std::uint32_t record = 0;
  if (unused_segments_.empty()) {
    record = static_cast<std::uint32_t>(segments_.size());
    segments_.emplace_back();
  } else {
    record = unused_segments_.back();
    unused_segments_.pop_back();
  }
  segments_[record] = {head, next_segment_++, *address, expandable};
  Block& block = blocks_[head];
  block.address = *address;
  block.size = size;
  block.previous = block.next = none;
  block.list = list;
  block.segment = record;
  return head;
}

std::optional<std::uint64_t> CachingAllocator::take_addresses(std::uint64_t size) {
  if (size > first_address) return std::nullopt;
  if (order_ == AddressOrder::rising) {
    if (highest_ > 2 * first_address - size) return std::nullopt;
    highest_ += size;
    return highest_ - size;
  }
  if (lowest_ < size) return std::nullopt;
  lowest_ -= size;
  return lowest_;
}

CachingAllocator::Index CachingAllocator::new_block() {
  if (!unused_blocks_.empty()) {
    const Index block = unused_blocks_.back();
    unused_blocks_.pop_back();
    return block;
  }
  if (blocks_.size() >= none - 1) {
    exhausted_ = true;
    return none;
  }
  blocks_.emplace_back();
  return static_cast<Index>(blocks_.size() - 1);
}

void CachingAllocator::drop_block(Index block) {
  blocks_[block].state = State::unused;
  unused_blocks_.push_back(block);
}

// The block keeps its first `size` bytes; what follows is a block of the same state, in no set yet.
CachingAllocator::Index CachingAllocator::split(Index index, std::uint64_t size) {
  const Index rest = new_block();
  if (rest == none) return none;
  Block& block = blocks_[index];
  Block& remainder = blocks_[rest];
  remainder.address = block.address + size;
  remainder.size = block.size - size;
  remainder.previous = index;
  remainder.next = block.next;
  remainder.list = block.list;
  remainder.segment = block.segment;
  remainder.state = block.state;
  if (block.next != none) blocks_[block.next].previous = rest;
  block.next = rest;
  block.size = size;
  return rest;
}

// The first block of two stays, so a segment's first block is always the same. Both are in no set.
void CachingAllocator::absorb_next(Index index) {
  Block& block = blocks_[index];
  const Index gone = block.next;
  block.size += blocks_[gone].size;
  block.next = blocks_[gone].next;
  if (block.next != none) blocks_[block.next].previous = index;
  drop_block(gone);
}

void CachingAllocator::put_free(Index index) {
  Block& block = blocks_[index];
  block.state = State::free;
  List& list = *lists_[block.list];
  block.cached_since = searches_[list.small];
  list.free.insert(FreeKey{block.size, block.address, index});
}

void CachingAllocator::take_out(Index index) {
  const Block& block = blocks_[index];
  lists_[block.list]->free.erase(FreeKey{block.size, block.address, index});
}

// A block is used by nobody any more.
void CachingAllocator::complete(Index index) {
  const Block& block = blocks_[index];
  counters_.active -= block.size;
  counters_.requested -= block.requested;
  FreeSet& set = lists_[block.list]->free;
  const auto key_of = [this](Index of) { return FreeKey{blocks_[of].size, blocks_[of].address, of}; };
  const bool after = block.next != none && blocks_[block.next].state == State::free;
  const Index before = block.previous;
  // One of the keys that go becomes that of the whole.
  auto old = set.end();
  if (before != none && blocks_[before].state == State::free) {
    if (after) set.erase(key_of(block.next));
    old = set.find(key_of(before));
    if (after) absorb_next(index);
    absorb_next(before);
    index = before;
  } else if (after) {
    old = set.find(key_of(block.next));
    absorb_next(index);
  }
  blocks_[index].state = State::free;
  blocks_[index].cached_since = searches_[lists_[blocks_[index].list]->small];
  if (old != set.end())
    replace(set, old, key_of(index));
  else
    set.insert(key_of(index));
}

void CachingAllocator::release_segment(Index index) {
  const Block& block = blocks_[index];
  take_out(index);
  counters_.reserved -= block.size;
  ++statistics_.device_frees;
  segments_[block.segment].head = none;
  unused_segments_.push_back(block.segment);
  drop_block(index);
}

// Oversize blocks of this pool and stream, one that is large enough or several from the largest on. Whether that was enough.
bool CachingAllocator::release_oversize(std::uint32_t list_index, std::uint64_t size) {
  const std::uint64_t oversize = settings_.max_split_size;
  if (oversize == unlimited) return false;
  FreeSet& free = lists_[list_index]->free;
  const std::uint64_t wanted = std::max(size, oversize);
  const auto found = free.lower_bound(FreeKey{wanted, 0, none});
  if (found != free.end() && !is_expandable(blocks_[found->block])) {
    if (!is_whole_segment(blocks_[found->block])) return false;
    release_segment(found->block);
    return true;
  }
  std::vector<Index> given;
  std::uint64_t total = 0;
  for (auto at = found; at != free.begin() && total < wanted && look();) {
    --at;
    if (at->size < oversize) break;
    const Block& block = blocks_[at->block];
    if (is_expandable(block) || !is_whole_segment(block)) continue;
    total += at->size;
    given.push_back(at->block);
  }
  for (const Index block : given) release_segment(block);
  return total >= wanted;
}

// Gives back large segments that have been cached for longer than the average, until the reserved bytes are below the threshold.
void CachingAllocator::collect_garbage() {
  const auto threshold = static_cast<std::uint64_t>(settings_.garbage_collection_threshold * static_cast<double>(allowed_));
  if (counters_.reserved <= threshold) return;
  const std::uint64_t target = counters_.reserved - threshold;
  constexpr int large = 0;
  std::vector<Index> cached;
  std::uint64_t total_age = 0, given = 0;
  const auto age = [this](Index block) { return searches_[large] - blocks_[block].cached_since; };
  for (const auto& list : lists_) {
    if (list->small || !look(list->free.size())) continue;
    for (const FreeKey& key : list->free) {
      if (!is_whole_segment(blocks_[key.block]) || is_expandable(blocks_[key.block])) continue;
      cached.push_back(key.block);
      total_age += age(key.block);
    }
  }
  for (bool gave = true; given < target && gave && !cached.empty() && look(cached.size());) {
    const double old = static_cast<double>(total_age) / static_cast<double>(cached.size());
    gave = false;
    std::erase_if(cached, [&](Index block) {
      if (static_cast<double>(age(block)) < old) return false;
      gave = true;
      given += blocks_[block].size;
      total_age -= age(block);
      release_segment(block);
      return true;
    });
  }
}

// What empty_cache does: every segment or page in which nothing lives goes back to the device.
void CachingAllocator::give_back_all() {
  for (const Handle handle : pending_) {
    if (is(handle, State::pending)) complete(handle.block);
  }
  pending_.clear();
  pending_count_ = 0;
  std::vector<Index> whole, mapped;
  for (const auto& list : lists_) {
    if (!look(list->free.size())) return;
    for (const FreeKey& key : list->free) {
      if (is_expandable(blocks_[key.block]))
        mapped.push_back(key.block);
      else if (is_whole_segment(blocks_[key.block]))
        whole.push_back(key.block);
    }
  }
  for (const Index block : whole) release_segment(block);
  for (const Index block : mapped) {
    const Index range = unmap(block);
    if (range == none || !is_whole_segment(blocks_[range])) continue;
    lists_[blocks_[range].list]->unmapped.erase(UnmappedKey{blocks_[range].address, range});
    segments_[blocks_[range].segment].head = none;
    unused_segments_.push_back(blocks_[range].segment);
    drop_block(range);
  }
}

std::vector<Segment> CachingAllocator::segments() const {
  std::vector<Segment> all;
  for (const SegmentRecord& record : segments_) {
    bool open = false;  // the range that is being filled ends where the next block begins
    for (Index index = record.head; index != none; index = blocks_[index].next) {
      const Block& block = blocks_[index];
      if (block.state == State::unmapped) {
        open = false;
        continue;
      }
      if (!open)
        all.push_back({record.number, block.address, 0, lists_[block.list]->stream, lists_[block.list]->small, record.expandable, {}});
      open = true;
      all.back().size += block.size;
      const bool is_free = block.state == State::free;
      all.back().blocks.push_back({is_free                         ? SegmentBlock::State::free
                                   : block.state == State::pending ? SegmentBlock::State::pending
                                                                   : SegmentBlock::State::live,
                                   block.address, block.size, is_free ? 0 : block.requested,
                                   is_free ? Handle{} : Handle{index, block.generation}});
    }
  }
  std::sort(all.begin(), all.end(),
            [](const Segment& a, const Segment& b) { return a.number != b.number ? a.number < b.number : a.address < b.address; });
  return all;
}

}  // namespace liveset::allocator
