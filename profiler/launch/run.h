// `liveset run`: starts a job with the preload in it and a collector beside it, and waits for both.
#pragma once
#include <string>
#include <vector>

#include "profiler/launch/collector_process.h"

namespace liveset::launch {

struct RunOptions {
  std::vector<std::string> command;
  std::string output;  // empty: <program>-<pid>.liveset in the current folder
  bool quiet = false;  // no line at the end
  bool wait_when_full = true;
  LogOptions log;  // of the collector
};

// The exit status of `liveset run`: the job's own, 128 + N when signal N killed it, or 2 when it was not started (said on stderr).
int run(const RunOptions& options);

}  // namespace liveset::launch
