// What the other hooks need to know of the c10 hook.
#pragma once
#include <cstdint>

#include "hooks/core/recorder.h"

namespace liveset::c10_hook {

// The heap of a device's PyTorch allocator; 0 when the device has no memory of its own ("meta") or is out of range.
std::uint32_t heap_of(int device_type, int device_index);

// `heap`, or the heap of mapped memory when the storage at `address` of a CPU tensor is a mapping.
std::uint32_t heap_holding(std::uint32_t heap, std::uint64_t address);

// Phase of the calling thread as autograd sees it; Phase::other where the recorder's own holds.
core::Phase phase_now();

// A backward with create_graph=True keeps grad mode on, and so looks like a recompute; between these two calls grad
// mode is not trusted. Process-wide, since the backward may run on autograd's own threads.
void create_graph_backward(int change);

// Called after every report that was recorded, until it answers false; set before the first one.
extern bool (*after_report)();

// Whether any report of an allocator has reached us.
bool any_report();

}  // namespace liveset::c10_hook
