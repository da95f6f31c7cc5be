// Call stacks of blocks: frames and chains of frames, interned into the dictionary.
//
// The recorder knows no interpreter: who does sets stack_source before the first event, and the recorder asks it at each ALLOC and FREE.
#pragma once
#include <cstdint>

namespace liveset::core {

// Null: blocks carry no stacks, at the cost of a test. Otherwise the calling thread's stack now: an id of intern_stack(), 0 when there
// is no room. It is called outside of the recorder's own calls, so it may intern; it must not record, and leave errno alone.
extern std::uint32_t (*stack_source)();

// What the calling thread's stack was when it was last asked for: one of the next events mostly has the same callers. Zeroed memory is
// an empty one; what the words mean is the source's affair.
struct StackCache {
  static constexpr std::uint32_t most_frames = 128;
  std::uint64_t generation;
  std::uint32_t root, count;
  bool busy;
  std::uint64_t place[most_frames];  // outermost first
  std::uint32_t stack[most_frames];  // that ends with that frame
};
// The calling thread's; null when it has recorded nothing yet.
StackCache* own_stack_cache();
// How many threads have a cache that is busy.
std::uint32_t busy_stack_caches();

// 0: the dictionary is full, which was counted. At most 65,535 frames and 524,288 stacks.
std::uint32_t intern_frame(std::uint32_t function, std::uint32_t file, std::uint32_t line);
// Of native code: its name is found after the run.
std::uint32_t intern_native_frame(std::uint32_t file, std::uint32_t build_id, std::uint64_t offset);
std::uint32_t intern_stack(std::uint32_t parent, std::uint32_t frame);
// A stack that says why there is none. `slot` keeps its id: static, 0 at first.
std::uint32_t intern_reason(std::uint32_t& slot, const char* why);

}  // namespace liveset::core
