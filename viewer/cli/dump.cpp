// `liveset dump`: a trace's events one by one, as they were recorded.
#include <algorithm>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "viewer/cli/commands.h"
#include "viewer/cli/traces.h"
#include "viewer/report/event_rows.h"

namespace liveset::cli {
namespace {

using nlohmann::ordered_json;
using report::Cell;

std::string dump(const ordered_json& json) { return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace); }

// Calls `visit` for the events of `range`, decoding only the chunks that hold some.
Status for_each_in(const trace::TraceFile& file, const ledger::Range& range, const std::function<bool(const trace::Event&)>& visit) {
  const std::vector<trace::ChunkInfo>& chunks = file.chunks();
  const auto first = std::upper_bound(chunks.begin(), chunks.end(), range.first, [](std::uint64_t event, const trace::ChunkInfo& chunk) {
    return event < chunk.first_event + chunk.events;
  });
  return trace::for_each_event(file, static_cast<std::size_t>(first - chunks.begin()), chunks.size(), [&](const trace::Event& event) {
    if (event.index >= range.end) return false;
    return event.index < range.first || visit(event);
  });
}

Status print_json(const trace::TraceFile& file, const ledger::Range& range) {
  std::cout << "{\"schema\":\"liveset.dump/1\",\"file\":" << dump(file.path()) << ",\"events\":[";
  const char* separator = "\n";
  const Status status = for_each_in(file, range, [&](const trace::Event& event) {
    std::cout << separator << dump(report::event_json(file.dictionary(), event));
    separator = ",\n";
    return static_cast<bool>(std::cout);  // a closed pipe ends it
  });
  std::cout << "\n]}\n";
  return status;
}

Status print_table(const trace::TraceFile& file, const ledger::Range& range, const Context& context) {
  report::Style style = style_of(context);
  style.columns = std::numeric_limits<unsigned>::max();  // raw data: better a long line than half a field
  const report::Table table({{"event", true, 9}, {"time_ns", true, 15}, {"kind", false, 14}, {"phase", false, 9}, {"details"}},
                            table_format(context), style);
  std::cout << table.render_titles();
  return for_each_in(file, range, [&](const trace::Event& event) {
    std::string details = report::event_details(file.dictionary(), event);
    if (const std::string scope = file.dictionary().scope_path(event.scope); !scope.empty())
      details += (details.empty() ? "in " : " in ") + scope;
    std::cout << table.render_row({Cell::words(std::to_string(event.index)), Cell::words(std::to_string(event.time_ns)),
                                   Cell::words(trace::kind_name(event.kind)), Cell::words(trace::phase_name(event.phase)),
                                   Cell::words(details)});
    return static_cast<bool>(std::cout);
  });
}

Status run(const ReadOptions& options, Context& context) {
  Result<ledger::RangeSpec> spec = ledger::parse_range(options.range);
  if (!spec) return spec.take_error();
  Result<trace::TraceFile> file = open_trace(options.trace);
  if (!file) return file.take_error();
  file->name_native_frames();
  Result<ledger::Range> range = ledger::resolve_range(*file, *spec);
  if (!range) return range.take_error();
  Status status = context.format == Format::json ? print_json(*file, *range) : print_table(*file, *range, context);
  if (status) report_health(*file, context);
  return status;
}

}  // namespace

void add_dump(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("dump", "the events one by one, as they were recorded");
  const auto options = std::make_shared<ReadOptions>();
  add_read_options(*command, *options);
  command->get_option("TRACE")->description("a *.liveset file; of a run with several, exactly this one");
  add_output_options(*command, context);
  add_strict_option(*command, context);
  on_parse(*command, options, context, run);
}

}  // namespace liveset::cli
