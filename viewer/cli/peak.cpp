// `liveset peak`: the live set at the peak or at any event.
#include "viewer/report/peak.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "viewer/cli/commands.h"
#include "viewer/cli/traces.h"

namespace liveset::cli {
namespace {

struct Options : ReadOptions, report::PeakOptions {
  std::string range_text() const { return ReadOptions::range; }
  std::string rules_file;
  bool by_given = false;
};

bool no_ops(const report::PeakReport& report) { return report.by == report::GroupBy::op && !report.has_ops && !report.is_empty; }

Status run(Options& options, Context& context) {
  if (!options.rules_file.empty()) {
    Result<report::Rules> rules = report::read_rules(options.rules_file);
    if (!rules) return rules.take_error();
    options.rules = std::move(*rules);
    if (!options.by_given) options.by = report::GroupBy::category;
  } else if (options.by == report::GroupBy::category) {
    return Error{ErrorKind::usage, "", std::nullopt, "--by category needs --rules FILE, which says what the categories are",
                 R"({"rules": [{"category": "attention", "module": "*.attn*"}]})"};
  }
  Result<Reading> reading = open_reading(options.trace, options.range_text());
  if (!reading) return reading.take_error();
  trace::TraceFile& file = reading->file;
  file.name_native_frames();
  report::PeakOptions wanted = options;
  wanted.range = reading->range;
  Result<report::PeakReport> report = [&] {
    ProgressBar bar("reading " + file.path());
    wanted.progress = bar.callback();
    return report::build_peak(file, wanted);
  }();
  if (!report) return report.take_error();
  const report::Style style = style_of(context);
  switch (context.format) {
    case Format::table:
      std::cout << report::peak_text(*report, options.top, style);
      if (no_ops(*report))
        std::cout << "\nNone of these blocks was made in an op that the trace names: PyTorch jobs record modules, --by module.\n";
      break;
    case Format::md: std::cout << report::peak_markdown(*report, style); break;
    case Format::csv: std::cout << report::peak_csv(*report); break;
    case Format::json: print_json(report::peak_report_json(*report)); break;
  }
  report_health(file, context);
  return Done{};
}

}  // namespace

void add_peak(CLI::App& app, Context& context) {
  using report::GroupBy;
  CLI::App* command = app.add_subcommand("peak", "the live set at the peak or at any event");
  const auto options = std::make_shared<Options>();
  add_read_options(*command, *options);
  command
      ->add_option_function<std::string>(
          "--at", [options](const std::string& text) { options->at = parse_number("--at", text); },
          "what lives after this event, instead of the peak")
      ->option_text("EVENT");
  add_choice<GroupBy>(*command, "--by",
                      {{"class", GroupBy::memory_class},
                       {"module", GroupBy::module},
                       {"op", GroupBy::op},
                       {"dtype", GroupBy::dtype},
                       {"phase", GroupBy::phase},
                       {"step", GroupBy::step},
                       {"size", GroupBy::size},
                       {"stack", GroupBy::stack},
                       {"category", GroupBy::category}},
                      "group by class (default), module, op (autograd node), dtype, phase, step, size, stack or category",
                      [options](GroupBy by) {
                        options->by = by;
                        options->by_given = true;
                      });
  command->add_option("--rules", options->rules_file, "your own categories, as JSON: the first rule that fits a block names its category")
      ->option_text("FILE");
  add_top_option(*command, options->top, "how many of the largest blocks to list");
  add_peak_options(*command, options->heap, options->counter);
  add_output_options(*command, context);
  add_strict_option(*command, context);
  on_parse(*command, options, context, run);
}

}  // namespace liveset::cli
