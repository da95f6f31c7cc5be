// Signals on their way to a job: the launcher holds them back, passes them on, and the job finds them as the user had them.
#pragma once
#include <csignal>

namespace liveset::launch {

// While it lives no signal ends the launcher (but SIGKILL), so that what it made can be removed. At its end signals are as before;
// those that came meanwhile and nobody took were meant for the job, and are forgotten.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  const sigset_t& watched() const { return watched_; }  // for sigwaitinfo; SIGCHLD is among them
  void as_before() const;                               // in a child, before exec

 private:
  sigset_t watched_, mask_;
  void (*child_)(int);
};

}  // namespace liveset::launch
