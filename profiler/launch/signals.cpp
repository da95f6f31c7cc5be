#include "profiler/launch/signals.h"

namespace liveset::launch {
namespace {

constexpr int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT, SIGTSTP};

}  // namespace

HeldSignals::HeldSignals() {
  sigemptyset(&watched_);
  for (const int each : forwarded) sigaddset(&watched_, each);
  sigaddset(&watched_, SIGCHLD);
  sigprocmask(SIG_BLOCK, &watched_, &mask_);
  child_ = signal(SIGCHLD, SIG_DFL);  // ignored, it would cost us the job's status
}

HeldSignals::~HeldSignals() {
  const timespec at_once{};
  while (sigtimedwait(&watched_, nullptr, &at_once) > 0) {
  }
  as_before();
}

void HeldSignals::as_before() const {
  signal(SIGCHLD, child_);
  sigprocmask(SIG_SETMASK, &mask_, nullptr);
}

}  // namespace liveset::launch
