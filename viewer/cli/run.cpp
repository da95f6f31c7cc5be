#include <memory>

#include "profiler/launch/run.h"
#include "viewer/cli/commands.h"

namespace liveset::cli {

void add_run(CLI::App& app, Context& context) {
  auto options = std::make_shared<launch::RunOptions>();
  CLI::App* command = app.add_subcommand("run", "start a job and record it: liveset run [-o OUT] -- python train.py");
  command->prefix_command();
  command->footer(
      "OUT is <program>-<pid>.liveset in the current folder unless -o names it. It is the trace of the first process that records;\n"
      "each further one gets OUT.d/<seq>-<pid>-<start time>.liveset. No file is made when no process records anything.\n"
      "Each thread of the job has a buffer of LIVESET_RING_BYTES (4 MiB), all together LIVESET_RING_TOTAL (256 MiB); set them in the\n"
      "environment when events are lost to full buffers.\n"
      "The exit status is the job's, 128 + N when signal N killed it, 2 when the program cannot be recorded and was not started.");
  command->add_flag("-q,--quiet", options->quiet, "no line on stderr at the end");
  CLI::Option* output =
      command->add_option("-o,--output", options->output, "trace file to write; a trace there is replaced")->option_text("OUT");
  command
      ->add_option_function<std::string>(
          "--on-full", [options](const std::string& what) { options->wait_when_full = what == "wait"; },
          "when a thread's buffer is full: wait (default; at most 10 ms an event, then count the loss) or drop (count at once)")
      ->check(CLI::IsMember({"wait", "drop"}))
      ->option_text("wait|drop");
  command
      ->add_option("--log-level", options->log.level,
                   "of the collector's log: trace, debug, info (default with --log-file), warning, error or off (default)")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "critical", "off"}))
      ->option_text("LEVEL");
  command->add_option("--log-file", options->log.file, "where the collector logs; default standard error")->option_text("FILE");
  command->callback([options, output, command, &context] {
    if (output->count() != 0 && options->output.empty())
      return context.fail({ErrorKind::usage, "", std::nullopt, "run: -o is empty", "name a file, or leave -o out"});
    options->command = command->remaining();  // the "--" was forgotten
    if (!options->command.empty() && options->command.front().compare(0, 1, "-") == 0)
      return context.fail({ErrorKind::usage, "", std::nullopt, "run: unknown option " + options->command.front(), "liveset run --help"});
    if (!options->command.empty() && !context.job.empty()) options->command.push_back("--");  // one of the job's own
    options->command.insert(options->command.end(), context.job.begin(), context.job.end());
    if (options->command.empty())
      return context.fail({ErrorKind::usage, "", std::nullopt, "run: no program is named", "liveset run [-o OUT] -- python train.py"});
    context.status = launch::run(*options);
  });
}

}  // namespace liveset::cli
