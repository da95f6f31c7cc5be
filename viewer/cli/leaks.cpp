// `liveset leaks`: what lives longer than backward needs it.
#include "viewer/report/leaks.h"

#include <iostream>
#include <limits>
#include <memory>

#include "viewer/cli/commands.h"
#include "viewer/cli/traces.h"

namespace liveset::cli {
namespace {

struct Options : ReadOptions {
  std::uint64_t min_bytes = report::LeaksOptions{}.min_bytes;
  double min_delay_ms = 0;
  std::size_t top = 10;
  bool fail = false;
};

Status run(const Options& options, Context& context) {
  const Result<Reading> reading = open_reading(options.trace, options.range);
  if (!reading) return reading.error();
  const trace::TraceFile& file = reading->file;
  Result<report::LeaksReport> report = [&] {
    ProgressBar bar("reading " + file.path());
    report::LeaksOptions wanted;
    wanted.range = reading->range;
    wanted.min_bytes = options.min_bytes;
    wanted.min_delay_ns = static_cast<std::uint64_t>(options.min_delay_ms * 1e6);
    wanted.progress = bar.callback();
    return report::build_leaks(file, wanted);
  }();
  if (!report) return report.take_error();
  const report::Style style = style_of(context);
  switch (context.format) {
    case Format::table: std::cout << report::leaks_text(*report, options.top, style); break;
    case Format::md: std::cout << report::leaks_markdown(*report, style); break;
    case Format::csv: std::cout << report::leaks_csv(*report); break;
    case Format::json: report::write_leaks_json(std::cout, *report); break;
  }
  report_health(file, context);
  if (options.fail && !report->empty() && context.status == exit_ok) context.status = exit_difference;
  return Done{};
}

}  // namespace

void add_leaks(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("leaks", "what lives longer than backward needs it, and what every step leaves more of");
  command->footer(
      "  too long  from the end of the last node of backward that used the value until it was freed, or until the trace ends; the longest\n"
      "  value     module, node of backward and slot that saved it; bytes are those of its storage, of the largest\n"
      "  held by   what run --who-holds found; perhaps: a guess, by when and where the value was freed\n"
      "  unused    values that were saved for nodes which backward never ran, in a graph that a backward began in; a graph that no\n"
      "            backward ever begins in is not seen\n"
      "  growth    blocks made in a step that outlive the next one, in each of the last steps\n"
      "What waits for a stream (record_stream) is no leak, and is shown apart. csv and json list values one by one, and say of each "
      "whether it "
      "was saved by the graph (retained), made by a recompute (remade), given up by a checkpoint region or read by it (region_input).\n");
  const auto options = std::make_shared<Options>();
  add_read_options(*command, *options);
  command->add_option("--min-bytes", options->min_bytes, "leave out smaller values (default 1024; growth is always listed)")
      ->option_text("N");
  command->add_option("--min-delay", options->min_delay_ms, "leave out values that lived on for less milliseconds (default 0)")
      ->option_text("MS")
      ->check(CLI::Range(0.0, 1e12));
  add_top_option(*command, options->top, "how many of each to list");
  command->add_flag("--fail", options->fail, "exit status 1 when something is listed");
  add_output_options(*command, context);
  add_strict_option(*command, context);
  on_parse(*command, options, context, run);
}

}  // namespace liveset::cli
