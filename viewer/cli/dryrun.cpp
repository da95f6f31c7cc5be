// `liveset dryrun`: would this job fit, and what would its memory hold? Runs it without a GPU, then shows the summary.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>

#include "profiler/launch/dry_run.h"
#include "viewer/cli/commands.h"
#include "viewer/cli/job_options.h"
#include "viewer/cli/summary.h"
#include "viewer/report/estimates.h"

namespace liveset::cli {
namespace {

// The stand-in, or the job's own look at its arguments, ended the job before it had a device, and said why.
bool ended_without_a_device(const launch::RunResult& result) {
  if (result.status != exit_usage || result.output.empty()) return result.status == exit_usage;
  const Result<trace::TraceFile> file = open_shown(result.output);
  if (!file) return false;
  const Result<std::optional<report::DryRun>> found = report::find_dry_run(*file);
  return found && !*found;
}

void say_if_no_device_was_used(const std::string& output) {
  const Result<std::vector<trace::TraceFile>> files = open_run(output);
  if (!files || std::any_of(files->begin(), files->end(), report::used_stand_in)) return;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::cerr << "liveset: no CUDA device was used"
            << (visible == nullptr ? "" : " (CUDA_VISIBLE_DEVICES is \"" + report::printable(visible, {}) + "\")") << std::endl;
}

void show(const launch::RunResult& result, Context& context) {
  std::cerr << "liveset: " << result.line << std::endl;
  if (result.output.empty()) return;
  say_if_no_device_was_used(result.output);
  SummaryOptions shown;
  shown.trace = result.output;
  shown.job_status = result.status;
  if (const Status status = show_summary(shown, context); !status) context.fail(status.error());
}

}  // namespace

void add_dryrun(CLI::App& app, Context& context) {
  using launch::Backing;
  auto options = std::make_shared<launch::DryRunOptions>();
  CLI::App* command =
      app.add_subcommand("dryrun", "run a CUDA job without a GPU and record it: liveset dryrun --gpu h100 -- python train.py");
  command->footer(
      "Will it fit, and with which checkpointing? The job's own PyTorch, a build for CUDA 13 or 12, runs on a device that is not "
      "there: its allocator answers its own calls, kernels compute nothing. Numbers that this cannot know exactly are labelled.\n"
      "The whole job runs, so it writes what it writes: checkpoints, logs and metrics, with zeros in them. Give it another output folder.\n"
      "  liveset dryrun -- python train.py                        on an H100\n"
      "  liveset dryrun --gpu rtx4090 -q -o try.liveset -- python train.py --batch 8\n"
      "  liveset dryrun --gpu a100-40 --memory 30GiB -- python train.py\n"
      "  liveset dryrun -- torchrun --nproc-per-node 2 train.py   two ranks\n"
      "  liveset dryrun --world 64 -- python train.py             rank 0 of 64, alone\n"
      "GPUs: a100-40 a100-80 b200 h100 h200 l40s rtx4090, or a JSON file in the format of those (lib/liveset/gpus).\n"
      "The exit status is the job's, 128 + N when signal N killed it, 2 when it cannot be dry-run.");
  add_job_options(*command, options->run);
  command->get_option("--quiet")->description("no line on stderr and no summary at the end");
  command->add_option("--gpu", options->gpu, "which GPU to stand in for (default h100), or a file")->option_text("NAME|FILE");
  add_size_option(*command, "--memory", "its memory, if not the GPU's own: 80GiB, 24GB",
                  [options](std::uint64_t bytes) { options->memory_bytes = static_cast<std::int64_t>(bytes); });
  command->add_option("--python", options->python, "the job's Python, where the command does not show it: a script that activates one, say")
      ->option_text("PATH");
  command->add_option("--world", options->world, "how many ranks the job has; without torchrun or the like only rank 0 runs")
      ->check(CLI::Range(1, 1 << 20))
      ->option_text("N");
  add_choice<Backing>(*command, "--backing", {{"none", Backing::none}, {"small", Backing::small}, {"all", Backing::all}},
                      "which device memory holds real values: none, small (what is copied in small pieces, default) or all (takes as much "
                      "memory here)",
                      [options](Backing backing) { options->backing = backing; });
  add_output_options(*command, context);
  command->callback([options, command, &context] {
    if (!take_job(*command, options->run, context)) return;
    const launch::RunResult result = launch::dry_run(*options);
    if (!options->run.quiet && !ended_without_a_device(result)) show(result, context);
    context.status = result.status;  // the job's, whatever the summary met
  });
}

}  // namespace liveset::cli
