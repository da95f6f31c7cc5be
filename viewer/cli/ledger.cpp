// `liveset ledger`: the events one by one, with running counts and bytes.
#include "viewer/cli/ledger.h"

#include <charconv>
#include <memory>
#include <optional>

#include "viewer/cli/commands.h"
#include "viewer/cli/logical_output.h"
#include "viewer/cli/traces.h"

namespace liveset::cli {
namespace {

struct Options : ReadOptions {
  bool logical = false, physical = false, live = false;
  std::string heap, address;
};

// 0x... or decimal.
std::optional<std::uint64_t> parse_address(std::string_view text) {
  const bool hexadecimal = text.substr(0, 2) == "0x" || text.substr(0, 2) == "0X";
  if (hexadecimal) text.remove_prefix(2);
  std::uint64_t address = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), address, hexadecimal ? 16 : 10);
  if (text.empty() || code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return address;
}

Status run(const Options& options, Context& context) {
  std::optional<std::uint64_t> address;
  if (!options.address.empty() && !(address = parse_address(options.address)))
    return Error{ErrorKind::usage, "", std::nullopt, "--at " + options.address + " is not an address", "0x7f12... or a decimal number"};
  if (Status status = check_live_option(options.live, context); !status) return status;
  const Result<Reading> reading = open_reading(options.trace, options.range);
  if (!reading) return reading.error();
  const trace::TraceFile& file = reading->file;
  Status status = address            ? print_address(file, reading->range, *address, context)
                  : options.physical ? print_physical_ledger(file, reading->range, options.heap, context)
                                     : print_logical_ledger(file, reading->range, options.live, context);
  if (status) report_health(file, context);
  return status;
}

}  // namespace

void add_ledger(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("ledger", "the events one by one, with running counts and bytes");
  const auto options = std::make_shared<Options>();
  add_read_options(*command, *options);
  CLI::Option_group* which = command->add_option_group("which ledger");
  which->add_flag("--logical", options->logical, "which values backward holds");
  which->add_flag("--physical", options->physical, "which blocks the allocator holds");
  which->add_option("--at", options->address, "what lived at this address, and when")->option_text("ADDRESS");
  which->require_option(1);
  add_live_option(*command, options->live)->needs("--logical");
  command->footer(
      "A rerun of --logical whose `original` is null made what its region had not given up: a number that the code "
      "writes (the graph keeps the first one), or what a recompute returns and no graph saves.");
  command->add_option("--heap", options->heap, "of --physical: which heap (default: the one that summary shows)")
      ->option_text("NAME")
      ->needs("--physical");
  add_output_options(*command, context);
  add_strict_option(*command, context);
  on_parse(*command, options, context, run);
}

}  // namespace liveset::cli
