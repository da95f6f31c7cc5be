// PyTorch's CUDA caching allocator as a simulation: the layout that a list of allocations and frees leads to, without a device.
//
// Sizes are rounded (512 bytes, or power-of-two divisions). Up to 1 MiB a block comes from segments of 2 MiB, above from segments of 20 MiB
// or, from 10 MiB on, of its own size in steps of 2 MiB. The smallest free block of the pool and stream that is large enough serves, the
// one with the lowest address of equal ones; it is split when what remains is worth it, and a freed block grows together with free
// neighbours of its segment. Expandable segments are one range of addresses a pool and stream that pages are mapped into. When the device
// has no more, oversize blocks, then all segments without a live block are given back, and it is tried again. The rules are those of
// PyTorch 2.14 (c10/cuda/CUDACachingAllocator.cpp); private pools and several devices are not simulated.
//
// Blocks are nodes of one array, chained to their neighbours; free ones stand in a sorted set a pool and stream. An event costs O(log n);
// what PyTorch does by scanning (garbage collection, giving back, holes of expandable segments) scans here too, and is bounded in total:
// see exhausted().
#pragma once
#include <absl/container/btree_set.h>
#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "viewer/allocator/settings.h"

namespace liveset::allocator {

// Where the device puts a new segment: above or below all earlier ones. Matters where free blocks of equal size are to choose from. PyTorch
// 2.14 takes the block of the oldest segment then, wherever the device put it, which is what rising addresses give; earlier versions the
// one with the lowest address.
enum class AddressOrder { rising, falling };

struct Device {
  std::optional<std::uint64_t> capacity = std::nullopt;  // bytes that can be reserved; none: without limit
  std::optional<std::uint64_t> total = std::nullopt;     // of which a fraction may be allowed; none: capacity
  AddressOrder order = AddressOrder::rising;
};

// A live block. Stays different from all later ones, so that a stale one is noticed.
struct Handle {
  static constexpr std::uint32_t none = 0xffffffffU;
  std::uint32_t block = none, generation = 0;
  friend bool operator==(Handle, Handle) = default;
};

struct Outcome {
  enum class Kind : std::uint8_t { ok, null, out_of_memory };  // null: 0 bytes were asked for
  Kind kind = Kind::null;
  Handle handle = {};
};

struct Counters {
  std::uint64_t requested = 0, allocated = 0, active = 0, reserved = 0;  // bytes
  friend bool operator==(const Counters&, const Counters&) = default;
};

struct Statistics {
  std::uint64_t retries = 0, out_of_memory = 0, device_mallocs = 0, device_frees = 0;
};

struct SegmentBlock {
  enum class State : std::uint8_t { free, live, pending };  // pending: freed by the program, still in use on another stream
  State state = State::free;
  std::uint64_t address = 0, size = 0, requested = 0;  // requested: 0 of free blocks
  Handle handle = {};                                  // of blocks that are not free
};
// Of an expandable segment: one mapped range.
struct Segment {
  std::uint64_t number = 0;  // of creation, from 0; the ranges of an expandable segment share one
  std::uint64_t address = 0, size = 0, stream = 0;
  bool small = false, expandable = false;
  std::vector<SegmentBlock> blocks;  // by address, without gaps
};

class CachingAllocator {
 public:
  explicit CachingAllocator(const Settings& settings = {}, const Device& device = {});

  Outcome malloc(std::uint64_t size, std::uint64_t stream = 0);
  // Both frees at once: what a program's free is where no other stream uses the block. False, and nothing changes: the handle is stale.
  bool free(Handle handle);
  // Where another stream uses the block: it stays active from the program's free until that stream is done with it. Giving back memory
  // (empty_cache, out of memory) waits for such streams, and completes.
  bool free_requested(Handle handle);
  bool free_completed(Handle handle);
  void empty_cache();

  const Counters& counters() const { return counters_; }
  const Counters& peaks() const { return peaks_; }
  const Statistics& statistics() const { return statistics_; }
  const Settings& settings() const { return settings_; }
  std::vector<Segment> segments() const;  // by number, then address
  // More than 2^32 blocks were looked at in scans, or 2^32 - 2 exist: every further malloc is out of memory, and figures mean nothing.
  bool exhausted() const { return exhausted_; }

 private:
  using Index = std::uint32_t;
  static constexpr Index none = Handle::none;
  enum class State : std::uint8_t { free, live, pending, unmapped, unused };
  struct Block {
    std::uint64_t address = 0, size = 0, requested = 0;
    std::uint64_t cached_since = 0;  // searches of the pool when it was freed: its age for garbage collection
    Index previous = none, next = none;
    std::uint32_t list = 0, segment = 0, generation = 0;
    State state = State::unused;
  };
  struct FreeKey {
    std::uint64_t size = 0, address = 0;
    Index block = none;
    friend bool operator<(const FreeKey& a, const FreeKey& b) { return a.size != b.size ? a.size < b.size : a.address < b.address; }
  };
  struct UnmappedKey {
    std::uint64_t address = 0;
    Index block = none;
    friend bool operator<(const UnmappedKey& a, const UnmappedKey& b) { return a.address < b.address; }
  };
  using FreeSet = absl::btree_set<FreeKey>;
  struct List {  // the blocks of one pool and stream that can be taken
    bool small = false;
    std::uint64_t stream = 0;
    FreeSet free;
    absl::btree_set<UnmappedKey> unmapped;
  };
  struct SegmentRecord {
    Index head = none;  // its first block, as long as it exists; none: given back, the entry waits for reuse
    std::uint64_t number = 0, address = 0;
    bool expandable = false;
  };

  std::uint32_t list_of(bool small, std::uint64_t stream);
  Index take_free(std::uint32_t list, std::uint64_t size);
  Index take_new(std::uint32_t list, std::uint64_t size);
  Index find_expandable(std::uint32_t list, std::uint64_t size);
  Index take_expandable(std::uint32_t list, std::uint64_t size);
  Index map(Index block, std::uint64_t size);
  Index unmap(Index block);
  bool release_oversize(std::uint32_t list, std::uint64_t size);
  void collect_garbage();
  void give_back_all();
  void release_segment(Index block);
  void complete(Index block);
  void absorb_next(Index block);
  Index split(Index block, std::uint64_t size);
  Index new_block();
  void drop_block(Index block);
  Index start_segment(std::uint32_t list, std::uint64_t size, bool expandable);
  std::optional<std::uint64_t> take_addresses(std::uint64_t size);
  bool fits_device(std::uint64_t size) const { return size <= capacity_ - counters_.reserved; }
  void put_free(Index block);
  void take_out(Index block);  // of the free ones
  static void replace(FreeSet& set, FreeSet::iterator at, const FreeKey& key);
  bool splits(const List& list, std::uint64_t size, std::uint64_t wanted) const;
  bool is_whole_segment(const Block& block) const { return block.previous == none && block.next == none; }
  bool is_expandable(const Block& block) const { return segments_[block.segment].expandable; }
  std::uint64_t page_size(const List& list) const { return list.small ? 2 * mebibyte : settings_.large_segment_size; }
  bool look(std::uint64_t count = 1);
  bool is(Handle handle, State state) const;
  void raise_peaks();

  Settings settings_;
  std::uint64_t capacity_ = unlimited, total_ = unlimited, allowed_ = unlimited;
  bool has_allowed_ = false, collects_ = false;
  AddressOrder order_ = AddressOrder::rising;
  std::uint64_t lowest_ = 0, highest_ = 0;  // addresses given out

  Counters counters_, peaks_;
  Statistics statistics_;
  std::vector<Block> blocks_;
  std::vector<Index> unused_blocks_;
  std::vector<SegmentRecord> segments_;
  std::vector<std::uint32_t> unused_segments_;
  std::vector<std::unique_ptr<List>> lists_;
  absl::flat_hash_map<std::uint64_t, std::uint32_t> lists_by_stream_[2];
  std::uint64_t last_stream_[2] = {0, 0};
  std::uint32_t last_list_[2] = {none, none};
  std::uint64_t searches_[2] = {0, 0};  // of a pool
  std::vector<Handle> pending_;         // freed by the program, may be completed
  std::uint64_t pending_count_ = 0, next_segment_ = 0, looked_ = 0;
  bool exhausted_ = false;
};

}  // namespace liveset::allocator
