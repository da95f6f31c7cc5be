// What memory exists: on devices (allocated, managed, mapped, of pools and graphs, opened from another process) and pinned on
// the host; who owns an address; how much of each device is used; and copies, as far as memory stands behind the addresses.
// Thread-safe.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "hooks/standin/limits.h"
#include "hooks/standin/model/address_space.h"
#include "hooks/standin/model/configuration.h"
#include "hooks/standin/model/errors.h"
#include "hooks/standin/model/written_ranges.h"

namespace standin {

using Address = std::uint64_t;  // as the driver's functions pass it

enum class Kind : std::uint8_t { device, managed, pool, graph, mapped, imported, host, registered };

struct Allocation {
  Address address = 0;
  std::size_t bytes = 0;  // as asked for
  int device = 0;
  Kind kind = Kind::device;
  std::uint64_t id = 0;  // never given twice in a process
  unsigned flags = 0;    // of host memory
  void* pool = nullptr;
  std::uint64_t context = 0;  // the id of the one whose end frees it; 0: none's
};

constexpr bool is_host(Kind kind) { return kind == Kind::host || kind == Kind::registered; }

class Memory {
 public:
  explicit Memory(const Configuration& configuration);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Device memory with its own address. What counts against the device is rounded up to 2 MiB from 1 MiB on, else to 512 bytes.
  // Out of memory also when the host refuses what stands behind the addresses.
  Error allocate(int device, std::size_t bytes, Kind kind, Address* address, std::uint64_t context = 0);
  // Only the address that `allocate` gave, and only of the stated kinds.
  Error free(Address address);

  // What a context leaves behind: its device and managed memory.
  void free_all(std::uint64_t context);

  // Pinned host memory, and host memory of the program that is made known.
  Error allocate_host(std::size_t bytes, unsigned flags, int device, Address* address);
  Error free_host(Address address);
  Error register_host(Address address, std::size_t bytes, unsigned flags, int device);
  Error unregister_host(Address address);

  // The allocation that an address lies in.
  std::optional<Allocation> find(Address address) const;
  bool on_device(Address address) const;

  // Bytes of a device that are used and free; context bytes come by `charge` too.
  std::size_t used(int device) const;
  std::size_t total() const { return configuration_.memory_bytes; }
  Error charge(int device, std::size_t bytes);
  void discharge(int device, std::size_t bytes);

  // Address ranges without memory, and allocations that live in them: virtual memory, pools, graphs.
  Address reserve(std::size_t bytes, std::size_t alignment);
  void unreserve(Address address, std::size_t bytes);
  // Out of memory when the host refuses what stands behind the addresses; then there is no such allocation.
  [[nodiscard]] Error add(const Allocation& allocation, bool backed);
  void remove(Address address, bool backed);

  // Memory that counts against no device: of a module's variable, or another process's.
  Error allocate_uncounted(int device, std::size_t bytes, Kind kind, Address* address);
  void free_uncounted(Address address, std::size_t bytes);

  // Both sides may be device or host memory. What is not kept (Configuration::backing) reads as zeros.
  void copy(Address to, Address from, std::size_t bytes);
  // `count` elements of `width` bytes (1, 2 or 4).
  void fill(Address to, std::uint32_t value, std::size_t width, std::size_t count);
  // The memory got a new owner within its allocation (a caching allocator's block): it reads as zeros again. On a device it would hold
  // what the kernels write, which nobody runs here; without this a job would read what a block's former owner copied there.
  void forget(Address address, std::size_t bytes);

  std::uint64_t next_id() { return next_id_.fetch_add(1, std::memory_order_relaxed) + 1; }

 private:
  struct Entry {
    Allocation allocation;
    std::size_t charged = 0;
  };
  using Entries = std::map<Address, Entry>;

  Entries::iterator entry_at(Address address);
  Entries::iterator release(Entries::iterator entry);
  bool back(Address address, std::size_t bytes) const;
  bool overlaps_host(Address address, std::size_t bytes) const;
  bool keeps(std::size_t bytes) const;
  void note_written(Address address, std::size_t bytes);

  const Configuration& configuration_;
  mutable std::mutex mutex_;
  AddressSpace allocations_;
  AddressSpace reservations_;
  Entries entries_;
  WrittenRanges written_;
  std::array<std::atomic<std::size_t>, limits::most_devices> used_{};
  std::atomic<std::uint64_t> next_id_{0};
};

}  // namespace standin
