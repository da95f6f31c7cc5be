#include "hooks/core/thread.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <new>

#include "hooks/core/old_symbols.h"
#include "hooks/core/shared_memory.h"

namespace liveset::core {

constinit thread_local Thread* this_thread __attribute__((tls_model("initial-exec"))) = nullptr;
constinit std::uint64_t wait_limit_ns = 10'000'000;

namespace {

constexpr std::uint32_t max_rings = 2048;
constexpr std::uint64_t smallest_ring = 64U << 10;
// A collector that is only kept off its processor moves again within this many waits, a second in all. One that is stopped must not
// cost the job 10 ms at every event for ever: then events are dropped at once until it moves.
constexpr std::uint32_t most_waits_in_vain = 100;

struct Rings {
  SpinLock lock;
  Thread* all[max_rings] = {};
  std::uint32_t count = 0;
  std::uint64_t bytes = 0;
  std::uint32_t next_thread_id = 1;
  // No ring could be made: only rings of ended threads from now on, and a new try now and then (descriptors may be back).
  std::atomic<bool> refused{false};
  std::atomic<std::uint32_t> in_vain{0};
  std::atomic<Thread*> free{nullptr};
  bool has_key = false;
  pthread_key_t key = 0;
};
constinit Rings rings;

// Stands for the calling thread while it has no ring: calls from inside are then seen as such.
constinit Thread nobody{.inside = true};

std::uint32_t own_tid() { return static_cast<std::uint32_t>(syscall(SYS_gettid)); }

// Runs when a thread ends, and again when it recorded after that (key destructors run up to four times).
void thread_ended(void* thread_pointer) {
  auto* thread = static_cast<Thread*>(thread_pointer);
  if (process.flag() != flag_on) return;
  const LockGuard guard(rings.lock);
  this_thread = nullptr;
  thread->tid = 0;
  thread->next_free = rings.free.load(std::memory_order_relaxed);
  rings.free.store(thread, std::memory_order_relaxed);
}

// Threads beyond the first half of the budget get smaller rings, so that a few hundred fit.
std::uint64_t next_ring_bytes() {
  const std::uint64_t left = process.ring_total - (rings.bytes < process.ring_total ? rings.bytes : process.ring_total);
  std::uint64_t bytes = process.ring_bytes;
  if (left < process.ring_total / 2) bytes /= 4;
  if (left < process.ring_total / 4) bytes /= 4;
  std::uint64_t rounded = smallest_ring;
  while (rounded * 2 <= bytes) rounded *= 2;
  return rounded + channel::ring_data_offset <= left ? rounded : 0;
}

Thread* make_ring() {
  const std::uint64_t bytes = next_ring_bytes();
  if (bytes == 0 || rings.count == max_rings) return nullptr;
  void* place = mmap(nullptr, sizeof(Thread), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) return nullptr;
  const std::uint64_t file_bytes = bytes + channel::ring_data_offset;
  const SharedMemory memory = make_shared(file_bytes, file_bytes);
  if (memory.memory == nullptr) {
    munmap(place, sizeof(Thread));
    return nullptr;
  }
  channel::format_ring(memory.memory, rings.count, bytes / sizeof(channel::Unit));
  const bool sent = process.send_ring(memory.descriptor, file_bytes);
  close(memory.descriptor);
  if (!sent) {
    munmap(memory.memory, file_bytes);
    munmap(place, sizeof(Thread));
    return nullptr;
  }
  auto* thread = new (place) Thread;
  thread->ring.attach(memory.memory);
  rings.all[rings.count++] = thread;
  rings.bytes += file_bytes;
  return thread;
}

// A thread that ended without its destructor having run (or after its last run) still owns a ring.
Thread* ring_of_a_dead_thread() {
  for (std::uint32_t i = 0; i < rings.count; ++i) {
    Thread* thread = rings.all[i];
    if (thread->tid == 0 || syscall(SYS_tgkill, getpid(), thread->tid, 0) == 0 || errno != ESRCH) continue;
    thread->tid = 0;  // found once only: whoever cannot use it puts it on the free list
    return thread;
  }
  return nullptr;
}

Thread* take_ring() {
  Thread* thread = rings.free.load(std::memory_order_relaxed);
  if (thread != nullptr && thread->ring.waiting() < thread->ring.capacity() / 2) {
    rings.free.store(thread->next_free, std::memory_order_relaxed);
    return thread;
  }
  if (Thread* made = make_ring()) {
    rings.refused = false;
    return made;
  }
  if (Thread* found = ring_of_a_dead_thread()) return found;
  rings.refused = true;
  if (thread != nullptr) rings.free.store(thread->next_free, std::memory_order_relaxed);
  return thread;
}

// Makes `thread` the calling thread's own and says so in the ring.
void begin_ownership(Thread& thread, std::uint64_t asked, bool for_event) {
  const channel::Producer ring = thread.ring;
  new (&thread) Thread;
  thread.ring = ring;
  thread.tid = own_tid();
  const std::uint32_t id = rings.next_thread_id++;
  thread.ring.mark_busy();
  channel::Unit& unit = thread.ring.unit(0);
  unit = {asked, thread.tid, id, 0, channel::kind_thread, 0, static_cast<std::uint16_t>(for_event)};
  auto& name = thread.ring.unit_as<channel::ThreadName>(1);
  std::memset(&name, 0, sizeof name);
  prctl(PR_GET_NAME, name.name);
  thread.ring.close(2);
  // Busy again at once, until the event is written: the collector must not think that nothing as old as `asked` will come.
  if (for_event) thread.ring.mark_busy();
}

Thread* attach_slowly(std::uint64_t asked, bool for_event) {
  const LockGuard guard(rings.lock);
  if (!rings.has_key) {
    if (pthread_key_create(&rings.key, &thread_ended) != 0) return nullptr;
    rings.has_key = true;
  }
  Thread* thread = take_ring();
  if (thread == nullptr) return nullptr;
  if (!thread->ring.has_space(2)) {  // an inherited ring that nobody drains
    thread->next_free = rings.free.load(std::memory_order_relaxed);
    rings.free.store(thread, std::memory_order_relaxed);
    return nullptr;
  }
  begin_ownership(*thread, asked, for_event);
  pthread_setspecific(rings.key, thread);
  return thread;
}

}  // namespace

Thread* attach_thread(bool for_event) {
  const std::uint32_t flag = process.flag();
  if (flag == flag_off) return nullptr;
  if (this_thread != nullptr) return flag == flag_on ? this_thread : nullptr;
  if (rings.refused.load(std::memory_order_relaxed) && rings.free.load(std::memory_order_relaxed) == nullptr &&
      rings.in_vain.fetch_add(1, std::memory_order_relaxed) % 1024 != 1023) {
    process.count_lost(channel::LossReason::no_memory);
    return nullptr;
  }
  const int error = errno;
  this_thread = &nobody;
  Thread* thread = nullptr;
  if (process.connect()) {
    // The stamp first: getting a ring takes a millisecond, in which other threads may record what comes after this event.
    const std::uint32_t generation = process.begin_attaching();
    thread = attach_slowly(channel::read_ticks(process.clock), for_event);
    process.end_attaching(generation);
  }
  this_thread = thread;
  if (thread == nullptr && process.flag() == flag_on) process.count_lost(channel::LossReason::no_memory);
  errno = error;
  return thread;
}

std::uint32_t busy_stack_caches() {
  const LockGuard guard(rings.lock);
  std::uint32_t busy = 0;
  for (std::uint32_t i = 0; i < rings.count; ++i) busy += __atomic_load_n(&rings.all[i]->stacks.busy, __ATOMIC_ACQUIRE) ? 1 : 0;
  return busy;
}

bool wait_for_room(Thread& thread, std::uint32_t units) {
  const int error = errno;
  if (thread.stuck_at != thread.ring.taken()) {
    thread.stuck_at = thread.ring.taken();
    thread.in_vain = 0;
  }
  bool room = false;
  if (process.wait_when_full && thread.in_vain < most_waits_in_vain) {
    const std::uint64_t begin = channel::clock_ns(CLOCK_MONOTONIC);
    do {
      // Asking whether the collector lives wakes it, too.
      if (!process.collector_lives()) {
        process.turn_off();
        break;
      }
      const timespec pause{0, 200'000};
      nanosleep(&pause, nullptr);
      room = thread.ring.has_space(units);
    } while (!room && channel::clock_ns(CLOCK_MONOTONIC) - begin < wait_limit_ns);
    if (!room) ++thread.in_vain;
  }
  if (!room) thread.ring.drop();
  errno = error;
  return room;
}

}  // namespace liveset::core
