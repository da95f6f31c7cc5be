// `liveset peak`: the live set at the peak or at any event.
#include "viewer/report/peak.h"

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "viewer/cli/commands.h"
#include "viewer/cli/traces.h"

namespace liveset::cli {
namespace {

struct Options : ReadOptions, report::PeakOptions {
  std::string range_text() const { return ReadOptions::range; }
  bool has_at = false;
};

Status run(Options& options, Context& context) {
  Result<ledger::RangeSpec> spec = ledger::parse_range(options.range_text());
  if (!spec) return spec.take_error();
  Result<trace::TraceFile> file = open_shown(options.trace);
  if (!file) return file.take_error();
  Result<ledger::Range> range = ledger::resolve_range(*file, *spec);
  if (!range) return range.take_error();
  report::PeakOptions wanted = options;
  wanted.range = *range;
  Result<report::PeakReport> report = [&] {
    ProgressBar bar("reading " + file->path());
    wanted.progress = bar.callback();
    return report::build_peak(*file, wanted);
  }();
  if (!report) return report.take_error();
  const report::Style style = style_of(context);
  switch (context.format) {
    case Format::table: std::cout << report::peak_text(*report, options.top, style); break;
    case Format::md: std::cout << report::peak_markdown(*report, style); break;
    case Format::csv: std::cout << report::peak_csv(*report); break;
    case Format::json:
      std::cout << report::peak_report_json(*report).dump(1, ' ', false,
                                                          nlohmann::ordered_json::error_handler_t::replace)
                << '\n';
      break;
  }
  report_health(*file, context);
  return Done{};
}

}  // namespace

void add_peak(CLI::App& app, Context& context) {
  using report::GroupBy;
  static const std::map<std::string, GroupBy> groups{
      {"class", GroupBy::memory_class}, {"module", GroupBy::module}, {"op", GroupBy::op},
      {"phase", GroupBy::phase},        {"step", GroupBy::step},     {"size", GroupBy::size}};
  CLI::App* command = app.add_subcommand("peak", "the live set at the peak or at any event");
  const auto options = std::make_shared<Options>();
  add_read_options(*command, *options);
  command->add_option("--at", options->at, "what lives after this event, instead of the peak")->option_text("EVENT");
  command->add_option("--by", options->by, "group by class (default), module, op, phase, step or size")
      ->transform(CLI::CheckedTransformer(groups, CLI::ignore_case))
      ->option_text("class|module|op|phase|step|size");
  command->add_option("--top", options->top, "how many of the largest blocks to list")->option_text("N");
  command->add_option("--heap", options->heap, "whose peak (default: the fullest CUDA device, else cpu)")
      ->option_text("NAME");
  command->add_option("--counter", options->counter, "which counter's peak: allocated (default), reserved, ...")
      ->option_text("NAME");
  add_output_options(*command, context);
  command->callback([options, &context] {
    if (const Status status = run(*options, context); !status) context.fail(status.error());
  });
}

}  // namespace liveset::cli
