// Addresses of device memory: ranges of the process's address space that nothing else can get, with no memory behind them until
// `back`. Ranges are handed out ascending, first fit, aligned to 2 MiB; an arena is added when none fits. A choice, not a copy of the
// driver: real segments of PyTorch on Linux were seen at descending addresses, 32 MiB-aligned. PyTorch's allocator chooses among free
// blocks of equal size by address, so which segments it splits, and with that reserved, may differ (README.md, "Limits").
// Not thread-safe but for `contains`.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>

namespace standin {

class AddressSpace {
 public:
  static constexpr std::size_t alignment = std::size_t{2} << 20;

  explicit AddressSpace(std::size_t arena_bytes) : arena_bytes_(arena_bytes) {}
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  // `bytes` rounded up to the alignment; 0 when the process has no such range left.
  std::uintptr_t take(std::size_t bytes, std::size_t wanted_alignment = alignment);
  // A range that `take` gave: what was behind it is dropped.
  void give_back(std::uintptr_t address, std::size_t bytes);

  bool contains(std::uintptr_t address) const;

  // Readable and writable zero pages behind a part of a range, taken by the system when they are first written; false: refused.
  static bool back(std::uintptr_t address, std::size_t bytes);
  static void drop(std::uintptr_t address, std::size_t bytes);

 private:
  struct Arena {
    std::atomic<std::uintptr_t> begin{0};
    std::atomic<std::uintptr_t> end{0};
  };
  bool add_arena(std::size_t bytes);

  std::size_t arena_bytes_;
  std::map<std::uintptr_t, std::size_t> free_;  // begin -> bytes, never adjacent within an arena
  std::array<Arena, 64> arenas_;
  std::atomic<std::size_t> arena_count_{0};
};

}  // namespace standin
