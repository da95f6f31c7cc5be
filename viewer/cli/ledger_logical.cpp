// `liveset ledger --logical TRACE`: the values that backward holds, event by event.
#include <iostream>

#include <algorithm>
#include <unordered_map>
#include "viewer/cli/ledger.h"
#include "viewer/cli/logical_output.h"

#include "viewer/ledger/lineage.h"
#include "viewer/ledger/logical_trace.h"

namespace liveset::cli {
namespace {

// Reruns of a PyTorch job's blocks: which block of the forward each replaces, where its region says so.
Status find_originals(const trace::TraceFile& file, ledger::LogicalLedger& logical) {
  using ledger::LogicalKind;
  const auto is_rerun = [&](const ledger::LogicalEvent& event) {
    return event.kind == LogicalKind::rerun && event.value != ledger::no_index && logical.values[event.value].derived;
  };
  if (std::none_of(logical.events.begin(), logical.events.end(), is_rerun)) return Done{};
  Result<ledger::PhysicalLedger> physical = ledger::build_physical(file);
  if (!physical) return physical.take_error();
  const Result<ledger::Lineage> lineage = ledger::trace_lineage(file, *physical);
  if (!lineage) return lineage.error();
  const auto birth_of = [&](std::uint32_t block) {
    const ledger::Block* found = physical->blocks.find(block);
    return found != nullptr ? found->birth : ledger::no_event;
  };
  std::unordered_map<std::uint64_t, std::uint64_t> originals;  // event of the allocation -> that of the original's
  for (const ledger::RemadeValue& value : lineage->values)
    if (value.original != ledger::no_block) originals[birth_of(value.block)] = birth_of(value.original);
  for (const ledger::LogicalEvent& event : logical.events) {
    if (!is_rerun(event)) continue;
    if (const auto original = originals.find(event.trace_event); original != originals.end())
      logical.values[event.value].original_event = original->second;
  }
  return Done{};
}

}  // namespace

Status print_logical_ledger(const trace::TraceFile& file, const ledger::Range& range, Context& context) {
  Result<ledger::LogicalLedger> ledger = ledger::build_logical(file, range);
  if (!ledger) return ledger.take_error();
  if (context.format == Format::json) {
    if (Status status = find_originals(file, *ledger); !status) return status;
  }
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
  print_logical(*ledger, head, "recorded        " + file.path(), context);
  return Done{};
}

}  // namespace liveset::cli
