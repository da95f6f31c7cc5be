// Addresses of file and shared-memory mappings that PyTorch uses as tensors: what DataLoader workers send, tensors in
// shared memory, checkpoints that are loaded with mmap.
//
// PyTorch reports them as CPU blocks, but they are none of its CPU allocator's: their allocation comes with a total of
// 0 and their size as reserved, their free with 0 and 0 (torch 2.14). A free with total 0 may also be the allocator's
// very last block, so the addresses are remembered.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace liveset::c10_hook {

class MappedBlocks {
 public:
  void add(std::uint64_t address) {
    for (std::size_t probe = 0; probe < probes; ++probe) {
      std::uint64_t empty = 0;
      if (slot(address, probe).compare_exchange_strong(empty, address, std::memory_order_relaxed)) {
        count_.fetch_add(1, std::memory_order_relaxed);
        return;
      }
    }
    // Thousands live at once: this one's free will be an unmatched free of the CPU heap, and shown as one.
  }
  // True when it was there.
  bool remove(std::uint64_t address) {
    if (count_.load(std::memory_order_relaxed) == 0) return false;
    for (std::size_t probe = 0; probe < probes; ++probe) {
      std::uint64_t found = address;
      if (slot(address, probe).compare_exchange_strong(found, 0, std::memory_order_relaxed)) {
        count_.fetch_sub(1, std::memory_order_relaxed);
        return true;
      }
    }
    return false;
  }
  bool contains(std::uint64_t address) {
    if (count_.load(std::memory_order_relaxed) == 0) return false;
    for (std::size_t probe = 0; probe < probes; ++probe) {
      if (slot(address, probe).load(std::memory_order_relaxed) == address) return true;
    }
    return false;
  }

 private:
  static constexpr std::size_t slots = 16384, probes = 64;

  // Mappings are page-aligned, give or take a header.
  std::atomic<std::uint64_t>& slot(std::uint64_t address, std::size_t probe) {
    const std::uint64_t hash = (address >> 6) * 0x9e3779b97f4a7c15U;
    return slots_[((hash >> 50) + probe) % slots];
  }

  std::atomic<std::uint64_t> slots_[slots] = {};
  std::atomic<std::uint32_t> count_{0};
};

}  // namespace liveset::c10_hook
