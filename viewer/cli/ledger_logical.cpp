// `liveset ledger --logical TRACE`: the values that backward holds, event by event.
#include <iostream>

#include "viewer/cli/ledger.h"
#include "viewer/cli/logical_output.h"

#include "viewer/ledger/logical_trace.h"

namespace liveset::cli {
Status print_logical_ledger(const trace::TraceFile& file, const ledger::Range& range, bool live, Context& context) {
  Result<ledger::LogicalLedger> ledger = ledger::build_logical(file, range);
  if (!ledger) return ledger.take_error();
  if (ledger->events.empty() && context.format == Format::table) {
    std::cout << "no logical events: this trace tells of no values (liveset.h names them; of a PyTorch job they come with its backward)\n";
    return Done{};
  }
  const nlohmann::ordered_json head{{"schema", "liveset.ledger/1"},
                                    {"ledger", "logical"},
                                    {"trace", file.path()},
                                    {"opening",
                                     {{"live", report::names_json(*ledger, ledger->opening_live)},
                                      {"live_ids", ledger->opening_ids},
                                      {"live_bytes", ledger->opening_bytes}}}};
  print_logical(*ledger, head, "recorded        " + file.path(), live, context);
  return Done{};
}

}  // namespace liveset::cli
