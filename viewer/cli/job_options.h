// What `run` and `dryrun` share: the options of a recorded job, and its command.
#pragma once
#include "profiler/launch/run.h"
#include "viewer/cli/command.h"

namespace liveset::cli {

// Adds -q, -o, --on-full and the collector's log to `command`. Both objects must outlive the parsing.
void add_job_options(CLI::App& command, launch::RunOptions& options);

// Puts the job's command together, from what stands behind "--" and what `command` did not know. False when the context says what
// is wrong with it.
bool take_job(const CLI::App& command, launch::RunOptions& options, Context& context);

}  // namespace liveset::cli
