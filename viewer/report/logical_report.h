// Logical ledgers as JSON and as text. The same writer serves predictions and recordings, so their fields cannot drift apart.
#pragma once
#include <iosfwd>
#include <limits>
#include <nlohmann/json.hpp>

#include "viewer/ledger/logical.h"
#include "viewer/report/text.h"

namespace liveset::report {

// One JSON object, written event by event: `head`'s fields first (schema, policy, ...), then
//   forward_layers is null where the trace names no values (a PyTorch graph);
//   peak {ids, bytes, event, bytes_event}   event: the first with the most ids; bytes_event: the first with the most bytes
//   forward_layers, held_at_loss[], held_at_loss_bytes, events[] {index, phase, kind, value, layer, reads[], live[], live_ids, live_bytes,
//   forward_layers} and groups{}, live_at_end[], broken_rules {count, first[]}.
//   away_bytes in events[]: of live_bytes, what is offloaded; only where some value is
//   live_listed: whether events[] tell live[]; where it is false they are null there
// Events of a trace also have trace_event and, inside a step, step; region events have their attributes and `<group>_live`.
void write_logical_json(std::ostream& out, const ledger::LogicalLedger& ledger, const nlohmann::ordered_json& head,
                        bool live_listed = true);

// A live set at every event is quadratic in the ledger: this many names. A person's table has as many as fit, whatever `live_listed` says.
std::uint64_t live_names(const ledger::LogicalLedger& ledger);
inline constexpr std::uint64_t max_live_names = 1'000'000;

// `shown`: how many events a person's table lists; a line says how many more there are.
void write_logical_events(std::ostream& out, const ledger::LogicalLedger& ledger, TableFormat format, const Style& style,
                          bool live_listed = true, std::size_t shown = std::numeric_limits<std::size_t>::max());
// The few lines above the table.
void write_logical_summary(std::ostream& out, const ledger::LogicalLedger& ledger, const Style& style);

nlohmann::ordered_json names_json(const ledger::LogicalLedger& ledger, const std::vector<std::uint32_t>& ids);

}  // namespace liveset::report
