// `liveset run`: starts a job with the preload in it and a collector beside it, and waits for both.
#pragma once
#include <string>
#include <vector>

namespace liveset::launch {

struct RunOptions {
  std::vector<std::string> command;
  std::string output;        // empty: <program>-<pid>.liveset in the current folder
  bool quiet = false;        // no line at the end
  bool wait_when_full = true;
  std::string log_level = "off";  // of the collector: spdlog's names
  std::string log_file;           // empty: standard error
};

// The exit status of `liveset run`: the job's own, 128 + N when signal N killed it, or 2 when it was not started (said on stderr).
int run(const RunOptions& options);

}  // namespace liveset::launch
