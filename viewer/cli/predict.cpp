// `liveset predict MODEL --policy P`: the logical ledger of a model file, without running anything.
#include <algorithm>
#include <iostream>

#include "viewer/cli/commands.h"
#include "viewer/cli/logical_output.h"
#include "viewer/cli/traces.h"
#include "viewer/model/expectations.h"
#include "viewer/report/expect_report.h"
#include "viewer/report/model_report.h"
#include "viewer/report/or_null.h"

namespace liveset::cli {
namespace {

// Nobody reads on where a model has a million layers, and the figures that most people ask for stand above.
constexpr std::size_t shown_events = 10'000;

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

struct Options : ModelOptions {
  bool expect = false, curve = false, live = false;
};

nlohmann::ordered_json head_of(const Options& options, const model::Model& model) {
  return {{"schema", "liveset.predict/1"},
          {"model", {{"file", options.model}, {"name", model.name}, {"layers", model.units.size()}}},
          {"estimate", report::or_null(model.estimate)},
          {"cost_unit", report::or_null(model.cost_unit)}};
}

Status check_expected(const Options& options, Context& context) {
  const Result<model::Model> model = model::read_model(options.model);
  if (!model) return model.error();
  Result<std::vector<model::CheckedExpectation>> checked = model::check_expectations(*model);
  if (!checked) {
    Error error = checked.take_error();
    error.file = options.model;
    return error;
  }
  if (context.format == Format::json) {
    nlohmann::ordered_json json = head_of(options, *model);
    json["expect"] = report::expect_json(*checked);
    print_json(json);
  } else {
    std::cout << report::expect_table(*checked, table_format(context), style_of(context));
    if (context.format == Format::table) std::cout << report::expect_summary(*checked) << '\n';
  }
  if (!std::all_of(checked->begin(), checked->end(), [](const model::CheckedExpectation& each) { return each.holds(); }))
    context.status = exit_difference;
  return Done{};
}

Status run(const Options& options, Context& context) {
  if (Status status = check_live_option(options.live, context); !status) return status;
  if (Status status = refuse_trace(options.model); !status) return status;
  if (options.expect) return check_expected(options, context);
  const Result<Predicted> predicted = predict(options);
  if (!predicted) return predicted.error();
  const auto& [policy, model, prediction] = *predicted;
  nlohmann::ordered_json head = head_of(options, model);
  head["policy"] = policy.text;
  head["boundaries"] = prediction.boundaries;
  head["conventions"] = conventions_json(model.conventions);
  head["forward_cost"] = prediction.forward_cost;
  const Result<model::Outcome> outcome = model::outcome(model, policy, prediction);
  if (!outcome) return outcome.error();
  head["memory"] = report::outcome_json(*outcome, model::CounterKind::requested, false);
  const std::string title = "predicted       " + (model.name.empty() ? options.model : model.name) + ", " +
                            std::to_string(model.units.size()) + " layers, policy " + policy.text +
                            (model.estimate.empty() ? "" : ", an estimate");
  // What most people ask for stands above the ledger, which may be long.
  if (context.format == Format::table)
    if (const std::string text = report::memory_text(*outcome, style_of(context)); !text.empty()) std::cout << text << '\n';
  if (!options.curve)
    print_logical(prediction.ledger, head, title, options.live, context, shown_events);
  else if (context.format == Format::json)
    report::write_curve_json(std::cout, model, prediction, head);
  else
    report::write_curve(std::cout, model, prediction, table_format(context), style_of(context));
  return Done{};
}

constexpr const char* what_it_says =
    R"(The ledger counts values; what was offloaded is still live in it. Memory is
bytes of one step on the device, statics included; what is called an estimate
says why. Costs are in the model's unit; copies to the host and back are in
none.

JSON numbers two lists: `peak.event`, `peak.bytes_event` and `events[].index`
are the ledger's; `event` and `memory_event` inside of `memory` are rows of
--curve. `forward_cost` has the re-runs in it, `extra_cost` is the re-runs, both
in `cost_unit` (null: the model's own); `live_left_out` is what `live` does not
list.
The table lists what an event reads and what lives only where names are short,
and up to 10,000 events; csv, md and json list all.

  liveset predict m.textproto --policy full --curve --format csv
      the memory of the step, event by event
  liveset predict m.textproto --expect
      exit status 1 where one is off

Policies: )";
constexpr const char* how_regions_run = R"(
rotor:BYTES bounds what the stages hold; statics and gradients of parameters
come on top (plan --budget bounds all). Regions run again as
torch.utils.checkpoint(use_reentrant=False) does.
regions:NAME is every call of that module in the step, NAME#2 the second one.
segment:K has K layers in a segment, the last one too (checkpoint_sequential
takes the number of segments, and leaves the last one as it is).
)";

}  // namespace

void add_predict(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("predict", "what a model file says will be live: peak, forward layers, every event, memory");
  command->footer(what_it_says + std::string(model::policy_forms()) + how_regions_run);
  auto options = std::make_shared<Options>();
  CLI::Option* policy = add_model_options(*command, *options);
  CLI::Option* curve =
      command->add_flag("--curve", options->curve, "the memory curve instead of the ledger: a row for each allocation and free");
  command->add_flag("--expect", options->expect, "check what the file itself expects: expect { policy counter value tolerance }")
      ->excludes(policy)
      ->excludes(curve);
  add_live_option(*command, options->live)->excludes("--curve")->excludes("--expect");
  add_output_options(*command, context);
  on_parse(*command, options, context, run);
}

}  // namespace liveset::cli
