// `liveset recompute`: what checkpoint regions made again, and from what.
#include "viewer/report/recompute.h"

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "viewer/cli/commands.h"
#include "viewer/cli/traces.h"

namespace liveset::cli {
namespace {

struct Options : ReadOptions {
  std::int64_t step = 0;
  bool has_step = false;
  std::size_t top = 10;
};

Status run(const Options& options, Context& context) {
  Result<ledger::RangeSpec> spec = ledger::parse_range(options.has_step ? "step:" + std::to_string(options.step) : options.range);
  if (!spec) return spec.take_error();
  Result<trace::TraceFile> file = open_shown(options.trace);
  if (!file) return file.take_error();
  Result<ledger::Range> range = ledger::resolve_range(*file, *spec);
  if (!range) return range.take_error();
  Result<report::RecomputeReport> report = [&] {
    ProgressBar bar("reading " + file->path());
    return report::build_recompute(*file, {*range, context.format == Format::json, bar.callback()});
  }();
  if (!report) return report.take_error();
  const report::Style style = style_of(context);
  switch (context.format) {
    case Format::table: std::cout << report::recompute_text(*report, options.top, style); break;
    case Format::md: std::cout << report::recompute_markdown(*report, options.top, style); break;
    case Format::csv: std::cout << report::recompute_csv(*report); break;
    case Format::json:
      std::cout << report::recompute_json(*report).dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
      break;
  }
  report_health(*file, context);
  return Done{};
}

}  // namespace

void add_recompute(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("recompute", "what checkpoint regions made again, from what, and at what price");
  const auto options = std::make_shared<Options>();
  add_read_options(*command, *options);
  command
      ->add_option_function<std::int64_t>(
          "--step",
          [options](std::int64_t step) {
            options->step = step;
            options->has_step = true;
          },
          "only this step: the same as --range step:N")
      ->option_text("N")
      ->excludes("--range");
  command->add_option("--top", options->top, "how many regions, steps and values to list")->option_text("N")->check(CLI::NonNegativeNumber);
  add_output_options(*command, context);
  add_strict_option(*command, context);
  command->callback([options, &context] {
    if (const Status status = run(*options, context); !status) context.fail(status.error());
  });
}

}  // namespace liveset::cli
