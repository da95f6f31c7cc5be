// A libc10.so with the functions that matter, to be linked as torch does and with -Bsymbolic.
#include <cstddef>
#include <cstdint>

namespace c10 {

struct Device {
  std::int8_t type;
  std::int8_t index;
};

int reports = 0;

bool memoryProfilingEnabled() { return false; }
void reportMemoryUsageToProfiler(void*, std::int64_t, std::size_t, std::size_t, Device) { ++reports; }

// Returns how many reports reached this library's own function.
int allocate(void* block, std::size_t bytes) {
  if (memoryProfilingEnabled()) reportMemoryUsageToProfiler(block, static_cast<std::int64_t>(bytes), bytes, 0, {0, 0});
  return reports;
}

}  // namespace c10
