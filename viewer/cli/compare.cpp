// `liveset compare TRACE MODEL|TRACE`: what was recorded beside what a model predicts, or beside another recording (a dry run). Exit
// status 1 where they differ by more than --max-error.
#include <charconv>
#include <iostream>
#include <nlohmann/json.hpp>

#include "viewer/cli/commands.h"
#include "viewer/cli/logical_output.h"
#include "viewer/cli/traces.h"
#include "viewer/compare/logical_compare.h"
#include "viewer/compare/peaks.h"
#include "viewer/ledger/logical_trace.h"
#include "viewer/model/recorded_step.h"
#include "viewer/report/compare_report.h"
#include "viewer/report/estimates.h"
#include "viewer/report/gap_report.h"

namespace liveset::cli {
namespace {

struct Options : ModelOptions {
  std::string trace, max_error = "0", range, heap, counter, samples;
  bool held_only = false, has_policy = false;
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

// "8", or "8,12" where the two runs have other batches.
struct Samples {
  std::optional<std::uint64_t> measured, predicted;
};
Result<Samples> parse_samples(const std::string& text) {
  Samples samples;
  if (text.empty()) return samples;
  const std::size_t comma = text.find(',');
  const auto number = [](std::string_view part, std::optional<std::uint64_t>& out) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end != part.data() + part.size() || value == 0) return false;
    out = value;
    return true;
  };
  const bool good = number(std::string_view(text).substr(0, comma), samples.measured) &&
                    (comma == std::string::npos || number(std::string_view(text).substr(comma + 1), samples.predicted));
  if (!good)
    return Error{ErrorKind::usage, "", {}, "--samples '" + text + "' is no number of samples a step", "give 8, or 8,12 for the two runs"};
  if (!samples.predicted) samples.predicted = samples.measured;
  return samples;
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

// Says of a side whether its trace is of a dry run, and how exact that is.
Status label(report::SideLabel& out, const trace::TraceFile& file, const compare::Side& side) {
  Result<std::optional<report::DryRun>> dry_run = report::find_dry_run(file);
  if (!dry_run) return dry_run.take_error();
  out.is_dry_run = dry_run->has_value();
  if (out.is_dry_run) out.label = report::label_of(**dry_run, side.heap, side.counter);
  return Done{};
}

compare::TraceOptions trace_options(const Options& options, const ledger::Range& range, ProgressBar& bar) {
  return {options.heap, options.counter, range, bar.callback()};
}

// The step that the second trace recorded, under another policy.
Result<compare::PeakComparison> compare_with_recorded_step(const Options& options, const Reading& measured, const Reading& recorded) {
  Result<model::Policy> policy = model::parse_policy(options.policy);
  if (!policy) return policy.take_error();
  if (Status status = refuse_snapshot(recorded.file); !status) return status.take_error();
  ProgressBar bar("reading " + options.trace + " and " + options.model);
  model::RecordedStepOptions wanted;
  wanted.heap = options.heap;
  wanted.progress = bar.callback();
  Result<model::RecordedStep> step = model::model_of_step(recorded.file, wanted);
  if (!step) return step.take_error();
  return compare::compare_with_model(measured.file, trace_options(options, measured.range, bar), step->model, *policy, options.model);
}

Status run_traces(const Options& options, double max_error, const Samples& samples, Context& context) {
  if (options.held_only) return Error{ErrorKind::usage, options.model, {}, "--held is for a model file, and this is a trace", ""};
  Result<Reading> measured = open_reading(options.trace, options.range);
  if (!measured) return measured.take_error();
  Result<Reading> predicted = open_reading(options.model, options.has_policy ? "" : options.range);
  if (!predicted) return predicted.take_error();
  Result<compare::PeakComparison> found = [&] {
    if (options.has_policy) return compare_with_recorded_step(options, *measured, *predicted);
    ProgressBar bar("reading " + options.trace + " and " + options.model);
    return compare::compare_traces(measured->file, trace_options(options, measured->range, bar), predicted->file,
                                   trace_options(options, predicted->range, bar));
  }();
  if (!found) return found.take_error();
  if (found->measured_pace) found->measured_pace->samples_per_step = samples.measured;
  if (found->predicted_pace) found->predicted_pace->samples_per_step = samples.predicted;
  report::GapReport shown{std::move(*found), {}, {"", options.has_policy ? options.policy : ""}};
  if (Status status = label(shown.measured, measured->file, shown.found.measured); !status) return status;
  if (!options.has_policy)
    if (Status status = label(shown.predicted, predicted->file, shown.found.predicted); !status) return status;

  const report::Style style = style_of(context);
  const bool differ = !shown.found.is_meaningful() || shown.found.error() > max_error;
  switch (context.format) {
    case Format::table: std::cout << report::gap_text(shown, style); break;
    case Format::md: std::cout << report::gap_markdown(shown, style); break;
    case Format::csv: std::cout << report::gap_csv(shown); break;
    case Format::json: {
      nlohmann::ordered_json json{{"schema", "liveset.compare/1"},
                                  {"trace", options.trace},
                                  {"range", options.range},
                                  {"max_error", max_error},
                                  {"equal", shown.found.is_meaningful() && shown.found.error() == 0}};
      json.update(report::gap_json(shown));
      print_json(json);
    }
  }
  if (differ) context.status = exit_difference;
  report_health(measured->file, context);
  report_health(predicted->file, context);
  return Done{};
}

// Why peaks were not compared; empty: they were.
struct PhysicalPart {
  std::optional<report::GapReport> found;
  std::string reason;
};

Result<PhysicalPart> physical_part(const Options& options, const Predicted& predicted, const trace::TraceFile& file) {
  PhysicalPart part;
  if (options.held_only) {
    part.reason = "only what is held when backward begins was compared";
    return part;
  }
  Result<ledger::Range> range = ledger::resolve_range(file, options.range);
  if (!range) return range.take_error();
  Result<compare::PeakComparison> found = [&] {
    ProgressBar bar("reading " + file.path());
    return compare::compare_with_model(file, trace_options(options, *range, bar), predicted.described, predicted.policy, options.model);
  }();
  if (!found) {
    // A trace of values alone and a model of ids alone can still be compared as ledgers.
    const bool asked_for_bytes = !options.counter.empty() || !options.heap.empty();
    if (asked_for_bytes || !compare::has_no_peak(found.error())) return found.take_error();
    part.reason = found.error().message();
    return part;
  }
  report::GapReport shown{std::move(*found), {}, {estimate_label(predicted.described), predicted.policy.text}};
  if (Status status = label(shown.measured, file, shown.found.measured); !status) return status.take_error();
  part.found = std::move(shown);
  return part;
}

// The fields of the comparison of peaks. `predicted.peak` keeps what it has of the logical ledger: ids, and where their peaks are.
void add_physical(const PhysicalPart& part, nlohmann::ordered_json& json) {
  if (!part.found) {
    json["measured"] = {{"peak", nullptr}};
    json["difference"] = json["gap"] = json["values"] = nullptr;
    json["verdict"] = part.reason;
    return;
  }
  nlohmann::ordered_json physical = report::gap_json(*part.found);
  nlohmann::ordered_json predicted = physical["predicted"];
  physical.erase("predicted");
  json.update(physical);
  json["predicted"]["logical_peak"] = json["predicted"]["peak"];
  for (const auto& [key, value] : predicted["peak"].items())
    if (key != "event") json["predicted"]["peak"][key] = value;
  json["predicted"]["peak"]["memory_event"] = predicted["peak"]["event"];
  predicted.erase("peak");
  json["predicted"].update(predicted);
}

Status run_model(const Options& options, double max_error, Context& context) {
  if (!options.samples.empty())
    return Error{ErrorKind::usage, options.model, {}, "--samples is for two traces, and this is a model, which takes no time", ""};
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
  Result<PhysicalPart> physical = physical_part(options, *predicted, *file);
  if (!physical) return physical.take_error();
  const bool peaks_compared = physical->found && physical->found->found.is_meaningful();
  // Of --held everyone knows.
  const std::string not_compared =
      physical->found || options.held_only ? "" : "peaks are not compared: " + report::printable(physical->reason, style_of(context));
  if (context.format == Format::json) {
    const nlohmann::ordered_json head{{"schema", "liveset.compare/1"}, {"trace", options.trace},           {"range", chosen},
                                      {"model", options.model},        {"policy", predicted->policy.text}, {"max_error", max_error}};
    report::write_comparison_json(std::cout, prediction.ledger, *recorded, comparison, head,
                                  [&](nlohmann::ordered_json& json) { add_physical(*physical, json); });
  } else if (context.format == Format::csv && peaks_compared) {
    std::cout << report::gap_csv(*physical->found);  // one table; the ledgers' events are in the JSON
  } else if (context.format != Format::table) {
    if (context.format == Format::csv) {
      const std::string why = physical->found ? report::verdict_text(*physical->found) : not_compared;
      if (!why.empty()) std::cerr << "liveset: " << why << '\n';
    } else if (physical->found) {
      std::cout << report::gap_markdown(*physical->found, style_of(context)) << '\n';
    } else if (!not_compared.empty()) {
      std::cout << "- " << not_compared << "\n\n";
    }
    report::write_comparison_table(std::cout, prediction.ledger, *recorded, comparison, table_format(context), style_of(context));
  } else {
    if (physical->found) std::cout << report::gap_text(*physical->found, style_of(context)) << "\nLOGICAL LEDGERS\n";
    if (!not_compared.empty()) std::cout << report::wrapped(not_compared, style_of(context), 2) << "\n\n";
    if (!chosen.empty()) std::cout << "of the trace: " << chosen << '\n';
    report::write_comparison_text(std::cout, prediction.ledger, *recorded, comparison, style_of(context));
  }
  // Where the program does not name its values, the ledgers can be compared by size alone, and the peaks say more.
  const double error = !peaks_compared            ? comparison.error
                       : recorded->names_values() ? std::max(comparison.error, physical->found->found.error())
                                                  : physical->found->found.error();
  const bool is_another_network = physical->found && !physical->found->found.is_meaningful();
  if (is_another_network || error > max_error) context.status = exit_difference;
  report_health(*file, context);
  return Done{};
}

// The model is the second one.
Status check_order(const Options& options) {
  if (!is_model_file(options.trace) || !model::read_model(options.trace)) return Done{};
  const bool other_is_model = is_model_file(options.model);
  return Error{ErrorKind::usage,
               options.trace,
               {},
               "is a model file, and what stands first must be a trace",
               other_is_model ? "predict shows what a model predicts; compare takes a trace to set beside it"
                              : "the other way round: liveset compare " + options.model + " " + options.trace};
}

Status run(const Options& options, Context& context) {
  Result<double> max_error = parse_share(options.max_error);
  if (!max_error) return max_error.take_error();
  Result<Samples> samples = parse_samples(options.samples);
  if (!samples) return samples.take_error();
  if (Status status = check_order(options); !status) return status;
  return is_model_file(options.model) ? run_model(options, *max_error, context) : run_traces(options, *max_error, *samples, context);
}

constexpr const char* what_it_says =
    R"(The difference of the peaks, first - second, is split into classes that sum to
it: extra values (that backward needs and only the first side holds) and missing
ones (only the second), by name, resized values, the working set of recomputes,
temporaries, gradients, static (parameters, buffers, optimizer states, inputs),
communication, over-retention (beyond the last use), rounding, cached (reserved,
in no block), outside the allocator (of device, by library), unattributed.

A model predicts, and a dry run what was recorded: the second side is then
called predicted, and the first measured, or dry run where it is one. Two
recordings, two dry runs, and a recording behind a dry run are first and second.

  liveset compare none.liveset block.liveset
      two recordings of one network
  liveset compare snapshot.pickle dry.liveset
      a real GPU's memory snapshot beside a dry run of the same job
  liveset compare real.liveset dry.liveset --counter device --max-error 5%
      what the device gave out, as a gate
  liveset compare real.liveset none.liveset --policy full
      beside a recorded step under another policy

Exit status 1: they differ by more than --max-error. --format csv: a row for
each name in each class.
)";

}  // namespace

void add_compare(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("compare", "a recorded step beside what a model predicts, or beside another recording");
  auto options = std::make_shared<Options>();
  command->add_option("TRACE", options->trace, "a *.liveset file; of a run with several, the others are found beside it")
      ->required()
      ->option_text(" ");
  command->add_option("MODEL", options->model, "model file, or the trace of another run (a dry run)")->required()->option_text(" ");
  command
      ->add_option_function<std::string>(
          "--policy",
          [options](const std::string& text) {
            options->policy = text;
            options->has_policy = true;
          },
          "of a model: save-all (default), full, segment:K, ...; of a second trace: the step that it recorded, under this policy")
      ->option_text("POLICY");
  add_choice<std::string>(
      *command, "--counter",
      {{"requested", "requested"}, {"allocated", "allocated"}, {"active", "active"}, {"reserved", "reserved"}, {"device", "device"}},
      "which peaks: requested, allocated, active, reserved, or device: what all libraries took from the driver, without the context; "
      "default: allocated, of a memory snapshot requested",
      [options](const std::string& counter) { options->counter = counter; });
  command->add_option("--heap", options->heap, "of the traces, by name: cuda:0; default: the one that summary shows")->option_text("NAME");
  command->add_option("--max-error", options->max_error, "largest relative difference that is no failure: 0 (default), 0.05 or 5%")
      ->option_text("SHARE");
  command
      ->add_option("--range", options->range, "step:A..B, TIME..TIME or event:A..B; the ledger of a model is compared with the first step")
      ->option_text("RANGE");
  command
      ->add_option("--samples", options->samples,
                   "of two traces: samples a step, of both runs or of each: 8 or 8,12; then samples a second are shown")
      ->option_text("N");
  command->add_flag("--held", options->held_only, "of a model: compare only what is held when backward begins")
      ->excludes("--counter")
      ->excludes("--heap");
  command->footer(what_it_says);
  add_output_options(*command, context);
  add_strict_option(*command, context);
  on_parse(*command, options, context, run);
}

}  // namespace liveset::cli
