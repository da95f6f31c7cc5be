#include "viewer/cli/step_options.h"

#include "viewer/cli/traces.h"

namespace liveset::cli {

void add_step_options(CLI::App& command, StepOptions& options) {
  command.add_option("--step", options.step, "which step; default: the last whole one")->option_text("N");
  command.add_option("--heap", options.heap, "which heap, as in cuda:0; default: the one that people ask about first")->option_text("NAME");
  command.add_option("--unit", options.unit, "modules that are layers, as in 'GPT.bs.*'")->option_text("PATTERN");
}

Status refuse_step_options(const StepOptions& options, const std::string& file, const std::string& but) {
  if (!options.step && options.heap.empty() && options.unit.empty()) return Done{};
  return Error{ErrorKind::usage, file, {}, "--step, --heap and --unit are for a trace, and " + but, ""};
}

Result<model::RecordedStep> recorded_step(const trace::TraceFile& file, const StepOptions& options, const Context& context) {
  if (Status status = refuse_snapshot(file); !status) return status.take_error();
  ProgressBar bar("reading " + file.path());
  model::RecordedStepOptions wanted;
  wanted.step = options.step;
  wanted.heap = options.heap;
  wanted.unit = options.unit;
  wanted.progress = bar.callback();
  Result<model::RecordedStep> step = model::model_of_step(file, wanted);
  if (step || !context.strict || step.error().kind != ErrorKind::unreadable) return step;
  Error error = step.take_error();
  if (file.health().truncated || file.health().damaged_packets != 0) error.kind = ErrorKind::truncated;
  return error;
}

}  // namespace liveset::cli
