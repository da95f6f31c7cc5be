// `liveset info`: where a trace comes from, what it covers, and how the file is made up.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "viewer/cli/commands.h"
#include "viewer/cli/flat_csv.h"
#include "viewer/cli/traces.h"
#include "viewer/report/trace_info.h"

namespace liveset::cli {
namespace {

Status run(const std::string& path, Context& context) {
  // Exactly the file that was named: whoever asks about a file means that one.
  Result<trace::TraceFile> file = open_trace(path);
  if (!file) return file.take_error();
  Result<trace::Facts> facts = trace::read_facts(*file);
  if (!facts) return facts.take_error();
  if (context.format == Format::json) {
    print_json(report::info_json(*file, *facts));
  } else if (context.format == Format::csv) {
    print_flat(report::info_json(*file, *facts));
  } else {
    std::cout << report::info_text(*file, *facts, table_format(context), style_of(context));
  }
  report_health(*file, context);
  return Done{};
}

}  // namespace

void add_info(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("info", "where a trace comes from, what it covers, and how the file is made up");
  const auto path = std::make_shared<std::string>();
  command->add_option("TRACE", *path, "a *.liveset file; of a run with several, exactly this one")->required()->option_text(" ");
  add_output_options(*command, context);
  add_strict_option(*command, context);
  on_parse(*command, path, context, run);
}

}  // namespace liveset::cli
