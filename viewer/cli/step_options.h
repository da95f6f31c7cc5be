// What commands share that derive a model from a recorded step.
#pragma once
#include <optional>
#include <string>

#include "viewer/cli/command.h"
#include "viewer/model/recorded_step.h"

namespace liveset::cli {

struct StepOptions {
  std::string heap, unit;
  std::optional<std::int64_t> step;
};
void add_step_options(CLI::App& command, StepOptions& options);
// Where no recorded step is to be chosen: an error when one of these options is given. `but`: "this is a model file".
Status refuse_step_options(const StepOptions& options, const std::string& file, const std::string& but);
Result<model::RecordedStep> recorded_step(const trace::TraceFile& file, const StepOptions& options, const Context& context);

}  // namespace liveset::cli
