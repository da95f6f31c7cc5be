#include "hooks/core/stacks.h"

#include <atomic>
#include <cstring>

#include "hooks/core/process.h"
#include "hooks/core/recorder.h"
#include "hooks/core/thread.h"

namespace liveset::core {

using channel::EntryType;

std::uint32_t (*stack_source)() = nullptr;

namespace {

// The stacks of late, caller << 36 | frame << 20 | stack in one word each: the dictionary's tables are mostly not in the processor's
// caches.
constexpr unsigned id_bits = 20, frame_bits = 16, recent_bits = 13;
std::atomic<std::uint64_t> recent[1U << recent_bits];

}  // namespace

StackCache* own_stack_cache() {
  Thread* thread = this_thread;
  return thread != nullptr && thread->tid != 0 ? &thread->stacks : nullptr;  // the stand-in of a thread that gets its ring has no number
}

std::uint32_t intern_frame(std::uint32_t function, std::uint32_t file, std::uint32_t line) {
  if (!recording()) return 0;
  const channel::FrameEntry entry{function, file, line, 0, 0};
  return process.dictionary.intern(EntryType::frame, &entry, sizeof entry);
}

std::uint32_t intern_native_frame(std::uint32_t file, std::uint32_t build_id, std::uint64_t offset) {
  if (!recording()) return 0;
  const channel::FrameEntry entry{0, file, 0, build_id, offset};
  return process.dictionary.intern(EntryType::frame, &entry, sizeof entry);
}

std::uint32_t intern_stack(std::uint32_t parent, std::uint32_t frame) {
  if (!recording()) return 0;
  const bool fits = parent >> id_bits == 0 && frame >> frame_bits == 0;
  const std::uint64_t key = static_cast<std::uint64_t>(parent) << frame_bits | frame;
  std::atomic<std::uint64_t>& place = recent[(key * 0x9e3779b97f4a7c15U) >> (64 - recent_bits)];
  const std::uint64_t word = place.load(std::memory_order_acquire);
  if (fits && word >> id_bits == key && word != 0) return static_cast<std::uint32_t>(word & ((1U << id_bits) - 1));
  const channel::StackEntry entry{parent, frame};
  const std::uint32_t stack = process.dictionary.intern(EntryType::stack, &entry, sizeof entry);
  if (fits && stack != 0 && stack >> id_bits == 0) place.store(key << id_bits | stack, std::memory_order_release);
  return stack;
}

std::uint32_t intern_reason(std::uint32_t& slot, const char* why) {
  std::uint32_t stack = __atomic_load_n(&slot, __ATOMIC_ACQUIRE);
  if (stack != 0) return stack;
  const std::uint32_t frame = intern_frame(intern_string(why, static_cast<std::uint32_t>(std::strlen(why))), 0, 0);
  stack = frame != 0 ? intern_stack(0, frame) : 0;
  __atomic_store_n(&slot, stack, __ATOMIC_RELEASE);
  return stack;
}

}  // namespace liveset::core
