// A comparison of ledgers as JSON and as text.
#pragma once
#include <functional>
#include <iosfwd>
#include <nlohmann/json.hpp>

#include "viewer/compare/logical_compare.h"
#include "viewer/report/logical_report.h"

namespace liveset::report {

// `head`'s fields first, then equal, error, errors{}, predicted{} and recorded{} (peak, forward_layers, events, held_at_loss),
// held{only_predicted, only_recorded, of_the_loss}, differences{count, predicted_only, recorded_only, live_differs} and events[]: the
// aligned rows {predicted, recorded} as indices or null, with `what` where they differ. `add` adds fields before the rows.
void write_comparison_json(std::ostream& out, const ledger::LogicalLedger& predicted, const ledger::LogicalLedger& recorded,
                           const compare::LogicalComparison& comparison, const nlohmann::ordered_json& head,
                           const std::function<void(nlohmann::ordered_json&)>& add = {});
// Verdict, peaks, then the events side by side: all of them when they are few, else where they differ.
void write_comparison_text(std::ostream& out, const ledger::LogicalLedger& predicted, const ledger::LogicalLedger& recorded,
                           const compare::LogicalComparison& comparison, const Style& style);
// csv and md: every aligned row with both sides' figures.
void write_comparison_table(std::ostream& out, const ledger::LogicalLedger& predicted, const ledger::LogicalLedger& recorded,
                            const compare::LogicalComparison& comparison, TableFormat format, const Style& style);

}  // namespace liveset::report
