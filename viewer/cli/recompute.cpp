// `liveset recompute`: what checkpoint regions made again, and from what.
#include "viewer/report/recompute.h"

#include <iostream>
#include <memory>

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
  const Result<Reading> reading = open_reading(options.trace, options.has_step ? "step:" + std::to_string(options.step) : options.range);
  if (!reading) return reading.error();
  const trace::TraceFile& file = reading->file;
  Result<report::RecomputeReport> report = [&] {
    ProgressBar bar("reading " + file.path());
    return report::build_recompute(file, {reading->range, context.format == Format::json, bar.callback()});
  }();
  if (!report) return report.take_error();
  const report::Style style = style_of(context);
  switch (context.format) {
    case Format::table: std::cout << report::recompute_text(*report, options.top, style); break;
    case Format::md: std::cout << report::recompute_markdown(*report, options.top, style); break;
    case Format::csv: report::write_recompute_csv(std::cout, *report); break;
    case Format::json: report::write_recompute_json(std::cout, *report); break;
  }
  report_health(file, context);
  return Done{};
}

}  // namespace

void add_recompute(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("recompute", "what checkpoint regions made again, from what, and at what price");
  command->footer(
      "  times     how often a region ran again\n"
      "  held      what it kept for that: its inputs, random states, what a selective checkpoint keeps; ?: the job does not say\n"
      "  not held  what its forward saved and gave up, and what was freed before it was made again\n"
      "  remade    what the recomputes made again; extra ms: how long they took, by the host's clock\n"
      "  end       early: stopped once the last value that backward needs was there; whole: ran to its end; -: not known\n"
      "  original  the value of the forward that was made again: module, node of backward and slot that saved it, #2 the second of the "
      "name\n"
      "  again     1: made again for the first time\n"
      "  by        position: by the number that the region gives what it saves; order: by size and order of what forward and recompute "
      "made\n"
      "Regions of one step are shown: the last that recomputed. csv lists the regions of all steps, json also every value.\n");
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
  add_top_option(*command, options->top, "how many regions, steps and values to list");
  add_output_options(*command, context);
  add_strict_option(*command, context);
  on_parse(*command, options, context, run);
}

}  // namespace liveset::cli
