// What the preload tells the driver hook: how the other sources see the same process.
#pragma once
#include <cstdint>

#include "hooks/core/recorder.h"

namespace liveset::driver {

struct Neighbours {
  // The heap of PyTorch's caching allocator for a device: its segments belong there.
  std::uint32_t (*allocator_heap)(int device_type, int device_index);
  // The phase that the calling thread is in; Phase::other: the recorder's own.
  core::Phase (*phase)();
};
// Before the first event.
void start(const Neighbours& neighbours);
// At the end of a process that is recorded: where another hook kept the driver from us, the trace says at least that.
void say_exiting();

}  // namespace liveset::driver
