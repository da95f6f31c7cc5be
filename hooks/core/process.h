// The recorder's state of this process: whether it records, its region, its way to the collector.
//
// Nothing is opened before the first event. The preload reaches many programs that never record one (a single torch.compile
// starts some fifty): they pay for reading one environment variable.
#pragma once
#include <atomic>
#include <cstdint>

#include "hooks/core/dictionary.h"
#include "hooks/core/lock.h"
#include "profiler/channel/clock.h"
#include "profiler/channel/layout.h"

namespace liveset::core {

// Values of the flag. It lives in a page that the kernel empties in forked children.
inline constexpr std::uint32_t flag_off = 0, flag_wanted = 1, flag_on = 2;

class Process {
 public:
  // Reads the environment: LIVESET_SOCKET (path of the collector's socket; absent: off), LIVESET_ON_FULL (wait or drop),
  // LIVESET_RING_BYTES, LIVESET_RING_TOTAL (numbers), LIVESET_STACKS (python, native or both: blocks get their stacks). Called before
  // anything else, once.
  void start();

  std::uint32_t flag() const { return flag_.load(std::memory_order_acquire)->load(std::memory_order_acquire); }
  const std::atomic<std::uint32_t>* flag_address() const { return flag_.load(std::memory_order_acquire); }
  // Connects when that was not tried yet. True when this process is recorded.
  bool connect();
  // The collector is gone, or this is a forked child: from now on everything is off.
  void turn_off();

  // Hands a ring to the collector. False when it could not be.
  bool send_ring(int descriptor, std::uint64_t bytes);
  // Wakes the collector. False when there is none any more.
  bool collector_lives();

  // The process is about to end in an orderly way.
  void say_exiting() {
    if (flag() == flag_on) control_->exiting.store(1, std::memory_order_relaxed);
  }
  // A thread is about to stamp an event that has no ring yet; see Control::attaching. After connect(). Gives what the end wants.
  std::uint32_t begin_attaching() {
    const std::uint32_t generation = control_->generation.load(std::memory_order_relaxed) & 1;
    control_->attaching[generation].fetch_add(1, std::memory_order_seq_cst);
    return generation;
  }
  void end_attaching(std::uint32_t generation) { control_->attaching[generation].fetch_sub(1, std::memory_order_release); }
  void count_lost(channel::LossReason reason);

  Dictionary dictionary;
  channel::ClockKind clock = channel::ClockKind::unknown;
  bool wait_when_full = true;
  bool python_stacks = false, native_stacks = false;
  std::uint64_t ring_bytes = 4U << 20, ring_total = 256U << 20;

 private:
  bool open_region();
  bool say_hello(int descriptor);
  int open_socket();
  bool send(int descriptor, const channel::Message& message, const char* text);
  static void after_fork_in_child();

  std::atomic<std::uint32_t> first_flag_{flag_off};  // until the first event
  std::atomic<std::atomic<std::uint32_t>*> flag_{&first_flag_};
  channel::Control* control_ = nullptr;
  std::uint64_t token_ = 0;
  std::uint64_t region_bytes_ = 16U << 20;
  long pid_ = 0;
  SpinLock lock_;
  char socket_path_[108] = {};
};

extern Process process;

// Where the API's table keeps a pointer to the flag (hooks/api); set again when the flag moves.
extern void (*flag_moved)(const std::atomic<std::uint32_t>* flag);

}  // namespace liveset::core
