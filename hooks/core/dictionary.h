// Names, interned once per process into the dictionary region that the collector reads.
//
// Open addressing in our own memory; looking a known name up takes no lock. An entry is appended to the region and published there
// before its id is given out, so whoever reads the region after it saw an id finds the entry.
#pragma once
#include <atomic>
#include <cstdint>

#include "hooks/core/lock.h"
#include "profiler/channel/layout.h"

namespace liveset::core {

class Dictionary {
 public:
  // `control`: a region of `region_bytes` bytes, the first `ready_bytes` of which have pages. False: no memory for the table.
  bool attach(channel::Control* control, std::uint64_t region_bytes, std::uint64_t ready_bytes);

  // Id of the entry of this type whose payload begins with `key`; made with payload key + rest when there is none. 0 when the
  // region is full (counted once per call).
  std::uint32_t intern(channel::EntryType type, const void* key, std::uint32_t key_bytes, const void* rest = nullptr,
                       std::uint32_t rest_bytes = 0);

 private:
  std::uint32_t find(channel::EntryType type, std::uint32_t hash, const void* key, std::uint32_t key_bytes, std::uint32_t* slot);
  std::uint32_t append(channel::EntryType type, const void* key, std::uint32_t key_bytes, const void* rest, std::uint32_t rest_bytes,
                       std::uint64_t* offset);
  bool make_room(std::uint64_t bytes);
  void count_full() { control_->lost[static_cast<int>(channel::LossReason::dictionary_full)].fetch_add(1, std::memory_order_relaxed); }

  channel::Control* control_ = nullptr;
  char* entries_ = nullptr;
  std::atomic<std::uint64_t>* slots_ = nullptr;  // hash << 32 | offset / 8 + 1; 0: empty
  std::uint64_t used_ = 0, ready_ = 0, limit_ = 0;
  std::uint32_t filled_ = 0;
  std::uint32_t next_id_[8] = {};
  SpinLock lock_;
};

}  // namespace liveset::core
