// The collector's end of a ring. The job may be mad or dead: nothing it wrote is trusted further than the ring's own bounds.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "profiler/channel/layout.h"

namespace liveset::channel {

class Consumer {
 public:
  // False when `memory` of `bytes` bytes holds no ring of this build.
  bool attach(void* memory, std::uint64_t bytes) {
    header_ = static_cast<RingHeader*>(memory);
    if (bytes < ring_data_offset || header_->magic != ring_magic || header_->version != layout_version) return false;
    capacity_ = header_->capacity;
    units_ = reinterpret_cast<const Unit*>(static_cast<const char*>(memory) + ring_data_offset);
    return capacity_ != 0 && (capacity_ & (capacity_ - 1)) == 0 && capacity_ <= (bytes - ring_data_offset) / sizeof(Unit);
  }

  struct Look {
    std::uint64_t units = 0;  // published and not yet taken
    bool busy = false;        // an event is being written, perhaps already stamped
    bool damaged = false;     // the job overwrote the ring's header
  };
  Look look() const {
    const std::uint64_t head = header_->head.load(std::memory_order_acquire);
    Look seen;
    seen.busy = (head & 1) != 0;
    seen.units = (head >> 1) - taken_;
    seen.damaged = seen.units > capacity_;
    if (seen.damaged) seen.units = 0;
    return seen;
  }

  // The unit `ahead` of the next one to take.
  const Unit& peek(std::uint64_t ahead) const { return units_[(taken_ + ahead) & (capacity_ - 1)]; }
  std::uint32_t event_units(std::uint64_t ahead) const { return channel::event_units(peek(ahead), peek(ahead + 1)); }

  // Appends the next `units` units to `out` and gives their room back to the job.
  void take(std::uint64_t units, std::vector<Unit>& out) {
    const std::uint64_t begin = taken_ & (capacity_ - 1);
    const std::uint64_t first = units < capacity_ - begin ? units : capacity_ - begin;
    out.insert(out.end(), units_ + begin, units_ + begin + first);
    out.insert(out.end(), units_, units_ + (units - first));
    taken_ += units;
    header_->tail.store(taken_, std::memory_order_release);
  }
  std::uint64_t dropped() const { return header_->dropped.load(std::memory_order_relaxed); }
  std::uint64_t capacity() const { return capacity_; }

 private:
  RingHeader* header_ = nullptr;
  const Unit* units_ = nullptr;
  std::uint64_t capacity_ = 0, taken_ = 0;
};

}  // namespace liveset::channel
