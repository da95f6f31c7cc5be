// `liveset compare TRACE MODEL --policy P`: what was recorded against what the model says. Exit status 1 where they differ by more
// than --max-error.
#include <charconv>
#include <iostream>

#include "viewer/cli/commands.h"
#include "viewer/cli/logical_output.h"
#include "viewer/cli/traces.h"
#include "viewer/compare/logical_compare.h"
#include "viewer/ledger/logical_trace.h"
#include "viewer/model/predict.h"
#include "viewer/report/compare_report.h"

namespace liveset::cli {
namespace {

struct Options : ModelOptions {
  std::string trace, max_error = "0", range;
  bool held_only = false;
};

// "0.05" or "5%".
Result<double> parse_share(const std::string& text) {
  double share = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), share);
  const std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (error != std::errc() || !(share >= 0) || (!rest.empty() && rest != "%"))
    return Error{ErrorKind::usage, "", {}, "--max-error '" + text + "' is no share", "give 0.05 or 5%"};
  return rest == "%" ? share / 100 : share;
}

// A model describes one step: of a longer trace the first step is taken, unless a range says otherwise.
Result<ledger::Range> choose_range(const trace::TraceFile& file, const std::string& text, std::string& chosen) {
  if (!text.empty()) {
    chosen = text;
    return ledger::resolve_range(file, text);
  }
  std::optional<std::int64_t> first, second;
  const Status status = trace::for_each_event(file, [&](const trace::Event& event) {
    if (event.kind == trace::Kind::step_begin) (first ? second : first) = event.number;
    return !second;
  });
  if (!status) return status.error();
  if (!second) return ledger::Range{};
  chosen = "step:" + std::to_string(*first);
  return ledger::resolve_range(file, chosen);
}

Status run(const Options& options, Context& context) {
  Result<double> max_error = parse_share(options.max_error);
  if (!max_error) return max_error.take_error();
  const Result<Predicted> predicted = predict(options);
  if (!predicted) return predicted.error();
  const model::Prediction& prediction = predicted->prediction;
  Result<trace::TraceFile> file = open_shown(options.trace);
  if (!file) return file.take_error();
  std::string chosen;
  Result<ledger::Range> range = choose_range(*file, options.range, chosen);
  if (!range) return range.take_error();
  Result<ledger::LogicalLedger> recorded = ledger::build_logical(*file, *range);
  if (!recorded) return recorded.take_error();
  if (recorded->events.empty())
    return Error{ErrorKind::unreadable,
                 options.trace,
                 {},
                 "tells of no values, so there is nothing to compare",
                 "values come from liveset.h, or from the backward of a PyTorch job"};

  const compare::LogicalComparison comparison = compare::compare_logical(prediction.ledger, *recorded, options.held_only);
  if (context.format == Format::json) {
    const nlohmann::ordered_json head{{"schema", "liveset.compare/1"}, {"trace", options.trace},           {"range", chosen},
                                      {"model", options.model},        {"policy", predicted->policy.text}, {"max_error", *max_error}};
    report::write_comparison_json(std::cout, prediction.ledger, *recorded, comparison, head);
  } else if (context.format != Format::table) {
    report::write_comparison_table(std::cout, prediction.ledger, *recorded, comparison, table_format(context), style_of(context));
  } else {
    if (!chosen.empty()) std::cout << "of the trace: " << chosen << '\n';
    report::write_comparison_text(std::cout, prediction.ledger, *recorded, comparison, style_of(context));
  }
  if (comparison.error > *max_error) context.status = exit_difference;
  report_health(*file, context);
  return Done{};
}

}  // namespace

void add_compare(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("compare", "a recorded step against what a model says of it");
  auto options = std::make_shared<Options>();
  command->add_option("TRACE", options->trace, "a *.liveset file; of a run with several, the others are found beside it")
      ->required()
      ->option_text(" ");
  add_model_options(*command, *options);
  command->add_option("--max-error", options->max_error, "largest relative difference that is no failure: 0 (default), 0.05 or 5%")
      ->option_text("SHARE");
  command->add_option("--range", options->range, "step:A..B, TIME..TIME or event:A..B; default: the first step")->option_text("RANGE");
  command->add_flag("--held", options->held_only, "compare only what is held when backward begins");
  add_output_options(*command, context);
  add_strict_option(*command, context);
  on_parse(*command, options, context, run);
}

}  // namespace liveset::cli
