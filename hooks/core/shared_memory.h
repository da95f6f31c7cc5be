// Memory files that the job shares with the collector.
#pragma once
#include <cstdint>

namespace liveset::core {

struct SharedMemory {
  void* memory = nullptr;  // zeroed; null when none could be had
  int descriptor = -1;     // to hand over; the caller closes it
};

// A file in memory, or an unlinked one in $TMPDIR where memfd is refused. All of its pages exist before it is used: a page that
// cannot be had later would be a SIGBUS in the middle of the job. `first_bytes` < `bytes`: only that much now, the rest by
// populate(), where the kernel can do that.
SharedMemory make_shared(std::uint64_t bytes, std::uint64_t first_bytes);

// Makes the pages of [memory, memory + bytes) exist; false when they cannot be had.
bool populate(void* memory, std::uint64_t bytes);

}  // namespace liveset::core
