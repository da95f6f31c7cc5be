// `liveset dryrun`: runs a CUDA job on a device that is not there, and records it as `liveset run` does.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "profiler/launch/run.h"

namespace liveset::launch {

enum class Backing { none, small, all };  // which device memory is memory of the host, so that values are real

struct DryRunOptions {
  RunOptions run;
  std::string gpu = "h100";                  // a profile's name, or a file
  std::optional<std::int64_t> memory_bytes;  // instead of the profile's
  std::string python;                        // the job's, where the command does not tell; empty: it does
  int world = 1;                             // ranks of the whole job
  Backing backing = Backing::small;
};

// The job's own status, or 2 when it cannot be dry-run; then stderr has one line that says why, and no job was started. (The stand-in
// ends a started job in the same way when it finds NVIDIA's own code in it.) Says nothing else: RunResult::line is for the caller.
RunResult dry_run(const DryRunOptions& options);

}  // namespace liveset::launch
