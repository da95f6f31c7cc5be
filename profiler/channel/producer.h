// The job's end of a ring. One thread at a time; no system call, no lock, no atomic read-modify-write.
//
//   if (!ring.has_space(n)) ...;
//   const std::uint64_t ticks = ring.open(clock);   // marks the ring busy, then stamps
//   ring.unit(0) = ...;
//   ring.close(n);                                  // publishes, and is no longer busy
//
// The mark comes before the stamp: whoever sees the ring not busy at time T knows that no event with a stamp before T (less the
// time that a store needs to become visible) will still appear in it.
#pragma once
#include <atomic>
#include <cstdint>

#include "profiler/channel/clock.h"
#include "profiler/channel/layout.h"

namespace liveset::channel {

// Writes the header of a fresh ring into zeroed memory.
inline void format_ring(void* memory, std::uint32_t ring, std::uint64_t capacity) {
  auto* header = static_cast<RingHeader*>(memory);
  header->magic = ring_magic;
  header->version = layout_version;
  header->ring = ring;
  header->capacity = capacity;
}

class Producer {
 public:
  // `memory`: a formatted ring. Goes on where the producer before left off.
  void attach(void* memory) {
    header_ = static_cast<RingHeader*>(memory);
    units_ = reinterpret_cast<Unit*>(static_cast<char*>(memory) + ring_data_offset);
    mask_ = header_->capacity - 1;
    head_ = header_->head.load(std::memory_order_relaxed) >> 1;
    tail_ = header_->tail.load(std::memory_order_acquire);
  }
  bool has_space(std::uint32_t units) {
    if (head_ + units - tail_ <= mask_ + 1) [[likely]]
      return true;
    tail_ = header_->tail.load(std::memory_order_acquire);
    return head_ + units - tail_ <= mask_ + 1;
  }
  void mark_busy() { header_->head.store(head_ << 1 | 1, std::memory_order_relaxed); }
  std::uint64_t open(ClockKind clock) {
    mark_busy();
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return read_ticks(clock);
  }
  Unit& unit(std::uint32_t index) { return units_[(head_ + index) & mask_]; }
  template <class T>
  T& unit_as(std::uint32_t index) {
    static_assert(sizeof(T) == sizeof(Unit));
    return *reinterpret_cast<T*>(&unit(index));
  }
  void close(std::uint32_t units) {
    head_ += units;
    header_->head.store(head_ << 1, std::memory_order_release);
    // Between two events the job fills the caches with its own data: fetch the next event's line while it computes.
    __builtin_prefetch(&unit(0), 1);
    __builtin_prefetch(&unit(2), 1);
  }
  void drop() {  // only this thread writes it, so no read-modify-write is needed
    header_->dropped.store(header_->dropped.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  std::uint64_t capacity() const { return mask_ + 1; }
  std::uint64_t taken() const { return header_->tail.load(std::memory_order_relaxed); }
  std::uint64_t waiting() const { return head_ - header_->tail.load(std::memory_order_relaxed); }

 private:
  RingHeader* header_ = nullptr;
  Unit* units_ = nullptr;
  std::uint64_t mask_ = 0, head_ = 0, tail_ = 0;
};

}  // namespace liveset::channel
