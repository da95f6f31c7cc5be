// `liveset plan MODEL|TRACE --budget BYTES`: the policy that fits, and how far another one is from it.
#include <iostream>
#include <nlohmann/json.hpp>

#include "viewer/cli/commands.h"
#include "viewer/cli/step_options.h"
#include "viewer/cli/traces.h"
#include "viewer/report/plan_report.h"

namespace liveset::cli {
namespace {

struct Options : StepOptions {
  std::string model;
  std::optional<std::uint64_t> budget;
  std::vector<std::string> policies;
  bool sweep = false;
};

// The step that a model file describes, or that a trace recorded.
struct Subject {
  model::Model model;
  std::optional<trace::TraceFile> trace;
};
Result<Subject> subject_of(const Options& options, const Context& context) {
  Subject subject;
  if (is_model_file(options.model)) {
    if (Status status = refuse_step_options(options, options.model, "this is a model file"); !status) return status.take_error();
    if (context.strict) return Error{ErrorKind::usage, options.model, {}, "--strict is for a trace, and this is a model file", ""};
    Result<model::Model> model = model::read_model(options.model);
    if (!model) return model.take_error();
    subject.model = std::move(*model);
    return subject;
  }
  Result<trace::TraceFile> file = open_shown(options.model);
  if (!file) return file.take_error();
  Result<model::RecordedStep> step = recorded_step(*file, options, context);
  if (!step) return step.take_error();
  subject.model = std::move(step->model);
  subject.trace = std::move(*file);
  return subject;
}

Status run(const Options& options, Context& context) {
  model::SearchOptions wanted;
  for (const std::string& text : options.policies) {
    Result<model::Policy> policy = model::parse_policy(text);
    if (!policy) return policy.take_error();
    wanted.given.push_back(std::move(*policy));
  }
  const Result<Subject> subject = subject_of(options, context);
  if (!subject) return subject.error();
  ProgressBar bar("planning " + options.model);
  wanted.budget = options.budget;
  wanted.progress = bar.callback();
  Result<model::SearchResult> result = model::search(subject->model, wanted);
  if (!result) return result.take_error();
  report::PlanReport report;
  report.model = options.model;
  report.estimate = subject->model.estimate;
  report.layers = subject->model.units.size();
  report.budget = options.budget;
  report.times = subject->model.costs_are_times();
  report.result = std::move(*result);
  if (context.format == Format::json)
    print_json(report::plan_json(report));
  else if (context.format == Format::table)
    std::cout << report::plan_text(report, options.sweep, style_of(context));
  else
    std::cout << report::plan_table(report, table_format(context), style_of(context));
  if (subject->trace) report_health(*subject->trace, context);
  if (report.budget && !report.result.best) context.status = exit_difference;
  return Done{};
}

constexpr const char* what_it_says =
    R"(The peak is that of requested bytes, statics included; the extra cost is what
runs again, in the model's unit (nanoseconds of a recorded step; JSON:
`cost_unit`, null where it is the model's own). What is called an estimate says
why.

frontier: bytes against extra cost; nothing that was tried beats a line in both.
Rotor chains are optimal among persistent schedules (where their sizes have to
be rounded, nearly); chains of up to 12 layers are searched exactly, over every
schedule, and 'found by' marks what that found. Of other models, and of recorded
steps, sets of modules of the whole tree are tried, no region inside of another:
all of them where they are few, else the best that was found is listed; and
operators whose outputs all layers keep. Each is a policy that predict and
whatif take.

Beside it stand rules of thumb (full, sqrt, segment:5, segment:10, over:10MB,
under:5ms) and what --policy names: above frontier is the extra cost beyond that
of the fastest plan that is as small ('all of it' where that plan has none),
bytes above those beyond the smallest plan that is as fast.

'infeasible, least is N': nothing of what is named behind it needs less; 'least
found is N': there may be something that does.

Regions of numbered modules are printed as a range, regions:GPT.bs.0..5, which
every command takes. A long policy ends in 'and N others' in the table of the
frontier: that is no policy, csv, md and json have all of it. In csv and md
`list` says whether a row fits the budget, is of the frontier, or is a given
policy.

  liveset plan m.textproto --budget 24GiB
  liveset plan none.liveset --sweep --policy selective:addmm

The exit status is 1 when nothing fits.
)";

}  // namespace

void add_plan(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("plan", "the checkpointing policy that fits a budget of bytes, and the whole frontier");
  command->footer(what_it_says);
  const auto options = std::make_shared<Options>();
  command->add_option("MODEL", options->model, "model file (proto/MODEL.md tells its format), or the trace of a step without checkpointing")
      ->required()
      ->option_text(" ");
  add_size_option(
      *command, "--budget", "bytes that the peak may have: 24GiB, 80 GB, 1000", [options](std::uint64_t bytes) { options->budget = bytes; },
      0);
  command->add_flag("--sweep", options->sweep, "list the whole frontier (default without --budget)");
  command->add_option("--policy", options->policies, "set this policy beside the frontier; may be given several times")
      ->option_text("POLICY")
      ->allow_extra_args(false);
  add_step_options(*command, *options);
  add_output_options(*command, context);
  add_strict_option(*command, context);
  on_parse(*command, options, context, run);
}

}  // namespace liveset::cli
