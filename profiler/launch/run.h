// `liveset run`: starts a job with the preload in it and a collector beside it, and waits for both.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "profiler/launch/collector_process.h"

namespace liveset::launch {

struct RunOptions {
  std::vector<std::string> command;
  std::string output;               // empty: <program>-<pid>.liveset in the current folder
  bool quiet = false;               // no line at the end
  bool fingerprint_values = false;  // write whole tensors beside the trace
  bool wait_when_full = true;
  bool kernel_launches = false;                                  // record them, too
  LogOptions log;                                                // of the collector
  std::vector<std::pair<std::string, std::string>> environment;  // variables set for the job
};

struct RunResult {
  int status = 2;      // the job's own, 128 + N when signal N killed it, or 2 when it was not started (said on stderr)
  std::string output;  // the trace that was made; empty when there is none
  std::string line;    // what `run` says at the end; empty when the job was not started
};

RunResult run(const RunOptions& options);
class HeldSignals;
// For a caller that holds the signals already, because it made something that must be removed afterwards.
RunResult run(const RunOptions& options, const HeldSignals& signals);

}  // namespace liveset::launch
