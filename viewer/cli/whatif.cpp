// `liveset whatif TRACE --policy P`: a recorded step under another policy.
#include <iostream>
#include <nlohmann/json.hpp>

#include "viewer/cli/commands.h"
#include "viewer/cli/step_options.h"
#include "viewer/cli/traces.h"
#include "viewer/report/whatif_report.h"

namespace liveset::cli {
namespace {

struct Options : StepOptions {
  std::string trace, settings;
  std::vector<std::string> policies;
  std::optional<model::CounterKind> counter;
};

Status run(const Options& options, Context& context) {
  const model::CounterKind counter = options.counter.value_or(model::CounterKind::requested);
  if (options.counter && context.format != Format::json)
    return Error{
        ErrorKind::usage, "", {}, "--counter chooses the peak that JSON puts first", "give --format json; the table has each counter"};
  std::vector<model::Policy> policies;
  for (const std::string& text : options.policies) {
    Result<model::Policy> policy = model::parse_policy(text);
    if (!policy) return policy.take_error();
    policies.push_back(std::move(*policy));
  }
  const Result<trace::TraceFile> file = open_shown(options.trace);
  if (!file) return file.error();
  Result<model::RecordedStep> step = recorded_step(*file, options, context);
  if (!step) return step.take_error();
  report::WhatIfReport report;
  report.trace = file->path();
  report.step = std::move(*step);
  report.counter = counter;
  model::Physical& physical = report.step.model.physical;
  if (!options.settings.empty() && !physical.caching_allocator)
    return Error{ErrorKind::usage,
                 file->path(),
                 {},
                 "--alloc-conf is for the heap of a caching allocator, and heap " + report.step.heap + " has none",
                 "fragmentation --alloc-conf simulates one for any heap"};
  if (!options.settings.empty()) physical.allocator_settings = options.settings;
  if (policies.empty()) policies = model::usual_policies(report.step.model);
  for (const model::Policy& policy : policies) {
    Result<model::Outcome> outcome = model::outcome(report.step.model, policy);
    if (!outcome) return outcome.take_error();
    report.outcomes.push_back(std::move(*outcome));
  }
  if (model::counter_peak(report.outcomes.front().counters, counter) == nullptr)
    return Error{ErrorKind::usage,
                 file->path(),
                 {},
                 "heap " + report.step.heap + " has no " + std::string(model::counter_name(counter)) + " bytes",
                 "its blocks come from no caching allocator; give --counter requested"};
  if (context.format == Format::json)
    print_json(report::whatif_json(report));
  else if (context.format == Format::table)
    std::cout << report::whatif_text(report, style_of(context));
  else
    std::cout << report::whatif_table(report, table_format(context), style_of(context));
  report_health(*file, context);
  return Done{};
}

constexpr const char* what_it_says =
    R"(The step must have been recorded without checkpointing. Layers are its repeated
modules that hold most (a transformer's blocks), each call one of them; --unit
names others.

Requested bytes follow the recorded allocations; allocated, active and reserved
come from a simulation of the CUDA caching allocator, through all that the job
did before, its earlier steps under the policy. Extra time is what the layers
that run again took in the recorded forward; of offload, copies to the host and
back are not in it.

In JSON `event` and `memory_event` are rows of the predicted curve (`liveset
model TRACE`, then predict --curve), no events of the trace; `forward_time_ns`
is one forward without what runs again.

Policies: )";
constexpr const char* how_regions_run = R"(
Regions run again as torch.utils.checkpoint(use_reentrant=False) does.
regions:NAME is every call of that module in the step, NAME#2 the second one.
segment:K has K layers in a segment, the last one too (checkpoint_sequential
takes the number of segments, and leaves the last one as it is).
)";

}  // namespace

void add_whatif(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("whatif", "a recorded step under another checkpointing policy: its peak and its extra time");
  command->footer(what_it_says + std::string(model::policy_forms()) + how_regions_run);
  const auto options = std::make_shared<Options>();
  command->add_option("TRACE", options->trace, "a *.liveset file; of a run with several, the others are found beside it")
      ->required()
      ->option_text(" ");
  command->add_option("--policy", options->policies, "one or more, as in --policy full --policy segment:2; default: the usual ones")
      ->option_text("POLICY")
      ->allow_extra_args(false);
  add_step_options(*command, *options);
  command
      ->add_option("--alloc-conf", options->settings,
                   "of a CUDA heap: PYTORCH_CUDA_ALLOC_CONF of the simulated allocator (default: expandable segments where the trace has "
                   "them)")
      ->option_text("TEXT");
  add_choice<model::CounterKind>(*command, "--counter",
                                 {{"requested", model::CounterKind::requested},
                                  {"allocated", model::CounterKind::allocated},
                                  {"active", model::CounterKind::active},
                                  {"reserved", model::CounterKind::reserved}},
                                 "of --format json: which peak stands first (default requested)",
                                 [options](model::CounterKind kind) { options->counter = kind; });
  add_output_options(*command, context);
  add_strict_option(*command, context);
  on_parse(*command, options, context, run);
}

}  // namespace liveset::cli
