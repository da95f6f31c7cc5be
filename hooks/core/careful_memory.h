// Reads memory of this process that may not be there, through the kernel: a wrong address is an answer, and no fault.
#pragma once
#include <cstdint>

namespace liveset::core {

// Copies `bytes` bytes; false when they cannot be read. Leaves errno alone.
bool copy_memory(std::uint64_t address, void* out, std::uint64_t bytes);

// Whether copy_memory() can read anything: a container may forbid the call.
bool can_copy_memory();

struct CarefulReader {
  template <class T>
  bool operator()(std::uint64_t address, T& out) const {
    return copy_memory(address, &out, sizeof out);
  }
};

}  // namespace liveset::core
