#include <memory>

#include "profiler/launch/run.h"
#include "viewer/cli/commands.h"
#include "viewer/cli/job_options.h"
#include "viewer/cli/out_of_memory.h"

namespace liveset::cli {

void add_run(CLI::App& app, Context& context) {
  auto options = std::make_shared<launch::RunOptions>();
  CLI::App* command = app.add_subcommand("run", "start a job and record it: liveset run [-o OUT] -- python train.py");
  command->footer(
      "OUT is <program>-<pid>.liveset in the current folder unless -o names it. It is the trace of the first process that records; each "
      "further one gets OUT.d/<seq>-<pid>-<start time>.liveset. No file is made when no process records anything.\n"
      "Each thread of the job has a buffer of LIVESET_RING_BYTES (4 MiB), all together LIVESET_RING_TOTAL (256 MiB); set them in the "
      "environment when events are lost to full buffers.\n"
      "The exit status is the job's, 128 + N when signal N killed it, 2 when the program cannot be recorded and was not started.");
  add_job_options(*command, *options);
  command->callback([options, command, &context] {
    if (!take_job(*command, *options, context)) return;
    const launch::RunResult result = launch::run(*options);
    context.status = result.status;
    if (result.status != 0 && !options->quiet && !result.output.empty()) explain_out_of_memory(result.output, context);
  });
}

}  // namespace liveset::cli
