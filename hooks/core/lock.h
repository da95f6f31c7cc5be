// The one lock of the slow paths (first events of threads, new names). Signals are held back while it is held: a handler that
// came in between and recorded on the same thread would wait for itself.
#pragma once
#include <sched.h>

#include <atomic>
#include <csignal>

namespace liveset::core {

class SpinLock {
 public:
  void lock() {
    while (held_.exchange(true, std::memory_order_acquire)) sched_yield();
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

class LockGuard {
 public:
  explicit LockGuard(SpinLock& lock) : lock_(lock) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before_);
    lock_.lock();
  }
  ~LockGuard() {
    lock_.unlock();
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;

 private:
  SpinLock& lock_;
  sigset_t before_;
};

}  // namespace liveset::core
