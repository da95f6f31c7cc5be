#include "hooks/standin/model/address_space.h"

#include <sys/mman.h>

#include <algorithm>

namespace standin {
namespace {

constexpr std::size_t page = 4096;  // the smallest; a larger system page only makes these calls cover more

constexpr std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }
void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

constexpr int unbacked = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

}  // namespace

AddressSpace::~AddressSpace() {
  for (std::size_t i = 0; i < arena_count_; ++i) munmap(pointer(arenas_[i].begin), arenas_[i].end - arenas_[i].begin);
}

bool AddressSpace::add_arena(std::size_t bytes) {
  auto count = arena_count_.load();
  if (count == arenas_.size()) return false;
  void* memory = mmap(nullptr, bytes + alignment, PROT_NONE, unbacked, -1, 0);
  if (memory == MAP_FAILED) return false;
  auto begin = reinterpret_cast<std::uintptr_t>(memory);
  arenas_[count].begin = begin;
  arenas_[count].end = begin + bytes + alignment;
  arena_count_ = count + 1;
  free_[round_up(begin, alignment)] = bytes;
  return true;
}

std::uintptr_t AddressSpace::take(std::size_t bytes, std::size_t wanted_alignment) {
  const auto need = round_up(std::max<std::size_t>(bytes, 1), alignment);
  const auto step = round_up(std::max<std::size_t>(wanted_alignment, 1), alignment);
  if (need < bytes) return 0;
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (auto range = free_.begin(); range != free_.end(); ++range) {
      const auto [begin, size] = *range;
      const auto address = round_up(begin, step);
      if (address - begin > size || size - (address - begin) < need) continue;
      if (address == begin)
        free_.erase(range);
      else
        range->second = address - begin;
      if (const auto rest = size - (address - begin) - need; rest > 0) free_[address + need] = rest;
      return address;
    }
    // What the process may still have (a limit on its addresses, huge devices) may be less than an arena.
    std::size_t arena = std::max(arena_bytes_, need + step);
    while (!add_arena(arena)) {
      if (arena == need + step) return 0;
      arena = std::max(arena / 2, need + step);
    }
  }
  return 0;
}

void AddressSpace::give_back(std::uintptr_t address, std::size_t bytes) {
  auto size = round_up(std::max<std::size_t>(bytes, 1), alignment);
  drop(address, size);
  auto after = free_.lower_bound(address);
  if (after != free_.end() && after->first == address + size) {
    size += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    auto before = std::prev(after);
    if (before->first + before->second == address) {
      before->second += size;
      return;
    }
  }
  free_[address] = size;
}

bool AddressSpace::contains(std::uintptr_t address) const {
  for (std::size_t i = 0; i < arena_count_.load(std::memory_order_acquire); ++i)
    if (address >= arenas_[i].begin && address < arenas_[i].end) return true;
  return false;
}

bool AddressSpace::back(std::uintptr_t address, std::size_t bytes) {
  return mprotect(pointer(address), round_up(bytes, page), PROT_READ | PROT_WRITE) == 0;
}

void AddressSpace::drop(std::uintptr_t address, std::size_t bytes) {
  mmap(pointer(address), round_up(bytes, page), PROT_NONE, unbacked | MAP_FIXED, -1, 0);
}

}  // namespace standin
