// What the recorder knows about the calling thread, and the rings.
//
// A ring belongs to one thread until that thread ends; then the next new thread takes it over. The change of owner is a record in
// the ring, so it need not be drained first: ten thousand short threads share a handful of rings.
#pragma once
#include <cstdint>

#include "hooks/core/process.h"
#include "hooks/core/recorder.h"
#include "hooks/core/stacks.h"
#include "profiler/channel/producer.h"

namespace liveset::core {

inline constexpr std::uint32_t max_depth = 256;  // deeper scopes are events, but nothing is below them

struct Thread {
  channel::Producer ring;
  std::uint32_t scope = 0;
  std::uint8_t phase = 0;
  bool inside = false;         // a call of this library is under way on this thread
  const void* node = nullptr;  // of autograd's, that it runs
  bool node_returned = false;  // and no block since
  // Events that waited for room in vain since the collector was last seen to move, and where it was then.
  std::uint32_t in_vain = 0;
  std::uint64_t stuck_at = 0;
  std::uint32_t scope_depth = 0, phase_depth = 0;
  // What the blocks are that this thread allocates (begin_stating).
  std::uint8_t stated_class = 0;
  std::uint32_t stated_name = 0;
  std::int64_t step_number = 0, microbatch_number = 0;  // of the last begin, for the end
  std::uint64_t said_sequence = no_sequence;            // what its last SEQUENCE in the trace says
  std::uint32_t scopes[max_depth] = {};
  std::uint8_t phases[max_depth] = {};
  Thread* next_free = nullptr;
  std::uint32_t tid = 0;
  StackCache stacks = {};
};

// The one thread-local variable: static TLS is scarce for libraries that are loaded late, and this model needs no call.
extern constinit thread_local Thread* this_thread __attribute__((tls_model("initial-exec")));

// First event of a thread: a ring for it. Null when this process is not recorded; counts the event when no ring can be had.
// `for_event`: the caller records one now.
Thread* attach_thread(bool for_event);

// How long an event waits for room before it is dropped and counted. Tests that must lose nothing on a busy machine wait longer.
extern std::uint64_t wait_limit_ns;

// The ring is full: waits or drops, as told. True when there is room now.
bool wait_for_room(Thread& thread, std::uint32_t units);

// Begins a call: the calling thread, or null: off, no ring, or inside another call. has_room() or leave() ends it.
inline Thread* enter() {
  Thread* thread = this_thread;
  if (thread == nullptr || process.flag() != flag_on) [[unlikely]] {
    thread = attach_thread(true);
    if (thread == nullptr) return nullptr;
  }
  if (thread->inside) [[unlikely]] {  // a signal handler came in between: its event is lost, and counted
    process.count_lost(channel::LossReason::unknown);
    return nullptr;
  }
  thread->inside = true;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return thread;
}

inline void leave(Thread& thread, std::uint32_t units) {
  thread.ring.close(units);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  thread.inside = false;
}

// Room for an event of `units` units? False: the ring is full, the event is counted as lost, and the call has ended.
inline bool has_room(Thread& thread, std::uint32_t units) {
  if (thread.ring.has_space(units) || wait_for_room(thread, units)) [[likely]]
    return true;
  leave(thread, 0);  // attach_thread() left the ring busy
  return false;
}

}  // namespace liveset::core
