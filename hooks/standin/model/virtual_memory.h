// Virtual memory management: reserved address ranges, physical handles with reference counts, and which handle is mapped where.
// A handle's bytes count against its device from creation until it is released and nowhere mapped. Thread-safe.
#pragma once
#include <cstddef>
#include <map>
#include <mutex>

#include "hooks/standin/model/memory.h"

namespace standin {

class VirtualMemory {
 public:
  static constexpr std::size_t granularity = AddressSpace::alignment;

  explicit VirtualMemory(Memory& memory) : memory_(memory) {}

  Error reserve(std::size_t bytes, std::size_t alignment, Address* address);
  // Only a whole reservation, and only when nothing is mapped in it.
  Error unreserve(Address address, std::size_t bytes);

  Error create(int device, std::size_t bytes, std::uint64_t* handle);
  Error release(std::uint64_t handle);
  Error retain(Address address, std::uint64_t* handle);  // of what is mapped there
  Error map(Address address, std::size_t bytes, std::size_t offset, std::uint64_t handle);
  // Whole mappings only.
  Error unmap(Address address, std::size_t bytes);
  // Memory can be used by copies once access is given; every byte of the range must be mapped.
  Error set_access(Address address, std::size_t bytes, int device, unsigned flags);
  Error access(Address address, int device, unsigned* flags) const;
  Error device_of(std::uint64_t handle, int* device) const;
  // A reservation that holds the address: its begin and bytes.
  bool reservation_of(Address address, Address* begin, std::size_t* bytes) const;

 private:
  struct Handle {
    int device = 0;
    std::size_t bytes = 0;
    int references = 0;  // of the program
    int mappings = 0;
  };
  struct Mapping {
    std::size_t bytes = 0;
    std::uint64_t handle = 0;
    std::map<int, unsigned> access;
  };
  using Mappings = std::map<Address, Mapping>;

  void drop_unused(std::uint64_t handle);
  bool covers(Address address, std::size_t bytes) const;

  Memory& memory_;
  mutable std::mutex mutex_;
  std::map<Address, std::size_t> reservations_;
  std::map<std::uint64_t, Handle> handles_;
  Mappings mappings_;
  std::uint64_t next_handle_ = 0x1000;
};

}  // namespace standin
