// `liveset predict MODEL --policy P`: the logical ledger of a model file, without running anything.
#include <iostream>

#include "viewer/cli/commands.h"
#include "viewer/cli/logical_output.h"
#include "viewer/model/predict.h"
#include "viewer/report/whatif_report.h"

namespace liveset::cli {
namespace {

nlohmann::ordered_json conventions_json(const model::Conventions& conventions) {
  using Rerun = model::Conventions::Rerun;
  return {{"count_inputs", conventions.count_inputs},
          {"checkpoint_last_segment", conventions.checkpoint_last_segment},
          {"short_segment", conventions.short_segment_first ? "first" : "last"},
          {"rerun", conventions.rerun == Rerun::whole        ? "whole"
                    : conventions.rerun == Rerun::early_stop ? "early-stop"
                                                             : "stop-before-boundary"},
          {"boundary", conventions.physical_copy ? "physical-copy" : "merge"}};
}

Status run(const ModelOptions& options, Context& context) {
  const Result<Predicted> predicted = predict(options);
  if (!predicted) return predicted.error();
  const auto& [policy, model, prediction] = *predicted;
  nlohmann::ordered_json head{{"schema", "liveset.predict/1"},
                              {"model", {{"file", options.model}, {"name", model.name}, {"layers", model.units.size()}}},
                              {"policy", policy.text},
                              {"boundaries", prediction.boundaries},
                              {"conventions", conventions_json(model.conventions)},
                              {"forward_cost", prediction.forward_cost}};
  const Result<model::Outcome> outcome = model::outcome(model, policy, prediction);
  if (!outcome) return outcome.error();
  head["estimate"] = model.estimate.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(model.estimate);
  head["memory"] = report::outcome_json(*outcome, model::CounterKind::requested);
  const std::string title = "predicted       " + (model.name.empty() ? options.model : model.name) + ", " +
                            std::to_string(model.units.size()) + " layers, policy " + policy.text +
                            (model.estimate.empty() ? "" : ", an estimate");
  print_logical(prediction.ledger, head, title, context);
  return Done{};
}

}  // namespace

void add_predict(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("predict", "what a model file says will be live: peak, forward layers, every event");
  auto options = std::make_shared<ModelOptions>();
  add_model_options(*command, *options);
  add_output_options(*command, context);
  on_parse(*command, options, context, run);
}

}  // namespace liveset::cli
