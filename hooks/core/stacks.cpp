#include "hooks/core/stacks.h"

#include <cstring>

#include "hooks/core/process.h"
#include "hooks/core/recorder.h"
#include "hooks/core/thread.h"

namespace liveset::core {

using channel::EntryType;

std::uint32_t (*stack_source)() = nullptr;

StackCache* own_stack_cache() {
  Thread* thread = this_thread;
  return thread != nullptr && thread->tid != 0 ? &thread->stacks : nullptr;  // the stand-in of a thread that gets its ring has no number
}

std::uint32_t intern_frame(std::uint32_t function, std::uint32_t file, std::uint32_t line) {
  if (!recording()) return 0;
  const channel::FrameEntry entry{function, file, line};
  return process.dictionary.intern(EntryType::frame, &entry, sizeof entry);
}

std::uint32_t intern_stack(std::uint32_t parent, std::uint32_t frame) {
  if (!recording()) return 0;
  const channel::StackEntry entry{parent, frame};
  return process.dictionary.intern(EntryType::stack, &entry, sizeof entry);
}

std::uint32_t intern_reason(std::uint32_t& slot, const char* why) {
  std::uint32_t stack = __atomic_load_n(&slot, __ATOMIC_RELAXED);
  if (stack != 0) return stack;
  const std::uint32_t frame = intern_frame(intern_string(why, static_cast<std::uint32_t>(std::strlen(why))), 0, 0);
  stack = frame != 0 ? intern_stack(0, frame) : 0;
  __atomic_store_n(&slot, stack, __ATOMIC_RELAXED);
  return stack;
}

}  // namespace liveset::core
