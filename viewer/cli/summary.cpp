// `liveset summary`: the peak, what it consists of, and whether the trace can be trusted.
#include "viewer/cli/summary.h"

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "viewer/cli/commands.h"
#include "viewer/cli/flat_csv.h"
#include "viewer/cli/logical_output.h"
#include "viewer/compare/peaks.h"
#include "viewer/report/gap_report.h"
#include "viewer/report/summary.h"

namespace liveset::cli {
namespace {

nlohmann::ordered_json trace_json(const trace::TraceFile& file) {
  const trace::Process& process = file.header().process;
  return {{"file", file.path()},
          {"pid", process.pid},
          {"command", process.command},
          {"events", file.events()},
          {"lost_events", file.health().lost_events},
          {"truncated", file.health().truncated}};
}

std::string other_traces(const std::vector<trace::TraceFile>& files, const report::Style& style) {
  report::Table table({{"pid", true}, {"events", true}, {"other traces of this run"}}, report::TableFormat::text, style);
  constexpr std::size_t shown = 8;
  for (std::size_t i = 1; i < std::min(files.size(), shown + 1); ++i)
    table.row({report::Cell::words(std::to_string(files[i].header().process.pid)), report::Cell::count(files[i].events()),
               report::Cell::words(files[i].path())});
  std::string text = "\n" + table.render();
  if (files.size() > shown + 1) text += "  (" + std::to_string(files.size() - shown - 1) + " more)\n";
  return text;
}

// The peak that a model predicts, and how far the measured one is from it.
Result<report::GapReport> prediction_of(const SummaryOptions& options, const trace::TraceFile& file, const ledger::Range& range) {
  Result<Predicted> predicted = predict({options.model, options.policy});
  if (!predicted) return predicted.take_error();
  ProgressBar bar("reading " + file.path());
  Result<compare::PeakComparison> found = compare::compare_with_model(file, {options.heap, options.counter, range, bar.callback()},
                                                                      predicted->described, predicted->policy, options.model);
  if (!found) return found.take_error();
  return report::GapReport{std::move(*found), {}, {estimate_label(predicted->described), predicted->policy.text}};
}

}  // namespace

Status show_summary(const SummaryOptions& options, Context& context) {
  Result<ledger::RangeSpec> spec = ledger::parse_range(options.range);  // before the file: a typo costs no waiting
  if (!spec) return spec.take_error();
  if (Status status = options.model.empty() ? Status(Done{}) : refuse_trace(options.model); !status) return status;
  Result<std::vector<trace::TraceFile>> files = open_run(options.trace);
  if (!files) return files.take_error();
  const trace::TraceFile& file = files->front();
  Result<ledger::Range> range = ledger::resolve_range(file, *spec);
  if (!range) return range.take_error();

  Result<report::Summary> summary = [&] {
    ProgressBar bar("reading " + file.path());
    return report::summarize(file, {options.heap, options.counter, *range, bar.callback(), options.job_status});
  }();
  if (!summary) return summary.take_error();
  std::optional<report::GapReport> prediction;
  if (!options.model.empty()) {
    Result<report::GapReport> found = prediction_of(options, file, *range);
    if (!found) return found.take_error();
    prediction = std::move(*found);
  }
  const report::Style style = style_of(context);
  if (context.format == Format::table) {
    std::cout << report::summary_text(*summary, style) << (prediction ? "\n" + report::prediction_text(*prediction, style) : "")
              << (files->size() > 1 ? other_traces(*files, style) : "");
  } else if (context.format == Format::md) {
    std::cout << report::summary_markdown(*summary, style) << (prediction ? "\n" + report::prediction_markdown(*prediction, style) : "");
  } else {
    nlohmann::ordered_json json = report::summary_json(*summary);
    json["traces"] = nlohmann::ordered_json::array();
    for (const trace::TraceFile& each : *files) json["traces"].push_back(trace_json(each));
    if (prediction) json["prediction"] = report::prediction_json(*prediction);
    context.format == Format::json ? print_json(json) : print_flat(json);
  }
  for (const trace::TraceFile& each : *files) report_health(each, context);
  return Done{};
}

void add_summary(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("summary", "the peak, what it consists of, and whether the trace can be trusted");
  const auto options = std::make_shared<SummaryOptions>();
  add_read_options(*command, *options);
  add_peak_options(*command, options->heap, options->counter);
  command
      ->add_option("--model", options->model, "model file: its prediction is shown beside the measured peak; compare splits the difference")
      ->option_text("MODEL");
  command->add_option("--policy", options->policy, "of the model: save-all (default), full, segment:K, ...")
      ->option_text("POLICY")
      ->needs("--model");
  add_output_options(*command, context);
  add_strict_option(*command, context);
  on_parse(*command, options, context, show_summary);
}

}  // namespace liveset::cli
