// The driver's state of this process and of its threads, and the steps that every function begins with.
#pragma once
#include <memory>
#include <utility>

#include "hooks/standin/driver/types.h"
#include "hooks/standin/interface.h"
#include "hooks/standin/model/machine.h"

namespace standin {

// Null before cuInit succeeded, and in a child of fork, where a driver does not work either.
Machine* machine();
Error initialize();
// What LIVESET_STANDIN says; null when it is not set. One that is not understood ends the process.
const Configuration* configuration();

struct ThreadState {
  static constexpr int most = 64;
  Context* contexts[most];
  int depth;
  int capture_mode;  // what the thread forbids itself: 0 global, 1 of this thread, 2 relaxed
};
ThreadState& thread_state();

// The machine and the thread's current context, or the error of a function that needs them.
struct Here {
  Machine* machine = nullptr;
  Context* context = nullptr;
  Error error = success;

  int device() const { return context->device; }
  StreamReference stream(void* handle) const { return {handle, context->device}; }
};
Here here();
// The machine and a device by number, which needs no context.
Here at_device(int device);

// Frees memory of whatever kind has this address as its own.
Error free_any(Machine& all, Address address);

// Does `run` now, or makes it a node when the stream captures.
template <class Run>
Error enqueue(const Here& place, void* stream, NodeType type, Run&& run, const char* name = "") {
  if (place.error != success) return place.error;
  bool capturing = false;
  if (auto error = place.machine->streams.enter(place.stream(stream), &capturing); error != success) return error;
  if (!capturing) {
    run();
    return success;
  }
  auto node = std::make_unique<Node>();
  node->type = type;
  node->name = name;
  node->run = std::forward<Run>(run);
  return place.machine->streams.add_node(place.stream(stream), std::move(node));
}

// Ends the process when the job cannot be simulated: one line on standard error, status 2.
[[noreturn]] void refuse(const char* why, const char* what);
// Ends the process so when NVIDIA's own libraries are mapped beside the stand-ins.
void refuse_real_libraries();

// Says in the trace what a dry run simulates, once per process: when its first context is made.
void announce_device();

}  // namespace standin
