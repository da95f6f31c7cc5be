#include "viewer/report/whatif_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace liveset::report {
namespace {

bool is_estimate_of(const model::Outcome& outcome, model::CounterKind kind) { return outcome.is_estimate[static_cast<std::size_t>(kind)]; }
bool is_estimate(const model::Outcome& outcome) { return is_estimate_of(outcome, model::CounterKind::requested); }
bool is_estimate_in_cache(const model::Outcome& outcome) {
  return outcome.counters.reserved && outcome.counters.cache_estimate.empty() && is_estimate_of(outcome, model::CounterKind::reserved);
}

}  // namespace

using nlohmann::ordered_json;

ordered_json whatif_json(const WhatIfReport& report) {
  ordered_json json{{"schema", "liveset.whatif/1"},
                    {"trace", report.trace},
                    {"step", report.step.step},
                    {"heap", report.step.heap},
                    {"unit", report.step.unit},
                    {"layers", report.step.model.units.size()},
                    {"recorded_peak_bytes", report.step.peak_bytes},
                    {"notes", report.step.notes}};
  json.update(outcome_json(report.outcomes.front(), report.counter, true));
  json["policies"] = ordered_json::array();
  for (const model::Outcome& outcome : report.outcomes) json["policies"].push_back(outcome_json(outcome, report.counter, true));
  return json;
}

std::string whatif_table(const WhatIfReport& report, TableFormat format, const Style& style) {
  const bool simulated = report.outcomes.front().counters.reserved.has_value();
  std::vector<Column> columns{{"policy"}, {"requested", true}};
  if (simulated)
    for (const char* const name : {"allocated", "reserved"}) columns.push_back({name, true});
  columns.push_back({"peak in"});
  columns.push_back({format == TableFormat::csv ? "extra_ns" : "extra time", true});
  columns.push_back({format == TableFormat::csv ? "extra_percent_of_forward" : "of forward", true});
  if (format == TableFormat::csv) columns.insert(columns.end(), {{"estimate"}, {"to_host_bytes", true}, {"to_device_bytes", true}});
  Table table(columns, format, style);
  for (const model::Outcome& outcome : report.outcomes) {
    std::vector<Cell> row{Cell::words(outcome.policy), Cell::bytes(outcome.counters.requested.bytes)};
    if (simulated) {
      row.push_back(Cell::bytes(outcome.counters.allocated->bytes));
      row.push_back(Cell::bytes(outcome.counters.reserved->bytes));
    }
    const bool estimate = is_estimate(outcome), in_cache = !outcome.counters.cache_estimate.empty(), rounded = outcome.peak_is_rounded;
    row.push_back(Cell::words(std::string(trace::phase_name(outcome.counters.requested.phase)) +
                              (estimate && format != TableFormat::csv ? ", an estimate" : "") +
                              (in_cache && format != TableFormat::csv ? "; allocated, reserved estimates" : "")));
    row.push_back(format == TableFormat::csv ? Cell::count(outcome.extra_cost)
                                             : Cell::words(format_time(outcome.extra_cost) + (outcome.copies() ? " + copies" : "")));
    row.push_back(Cell::percent(outcome.extra_cost, std::max<std::uint64_t>(outcome.single_forward_cost(), 1)));
    if (format == TableFormat::csv)
      row.insert(row.end(), {Cell::words(estimate || in_cache || rounded || is_estimate_in_cache(outcome) ? "yes" : ""),
                             Cell::count(outcome.offloaded_bytes), Cell::count(outcome.prefetched_bytes)});
    table.row(std::move(row));
  }
  return table.render();
}

std::string whatif_text(const WhatIfReport& report, const Style& style) {
  const model::RecordedStep& step = report.step;
  std::string text = "step " + std::to_string(step.step) + " of " + printable(report.trace, style) + ", heap " +
                     printable(step.heap, style) + ": recorded peak " + format_bytes(step.peak_bytes, style.exact_bytes) + " (allocated)\n";
  text += "layers: " + counted(step.model.units.size(), step.unit.empty() ? "operator" : "module") + (step.unit.empty() ? "" : " ") +
          printable(step.unit, style) + "\n\n";
  text += whatif_table(report, TableFormat::text, style);
  const auto add_note = [&](const std::string& note) { text += "\n" + wrapped("note: " + note, style, 2) + "\n"; };
  if (report.outcomes.size() == 1) {
    text += "\n" + memory_text(report.outcomes.front(), style);
  } else {
    if (std::any_of(report.outcomes.begin(), report.outcomes.end(), is_estimate)) add_note(std::string(reason_of()));
    if (std::any_of(report.outcomes.begin(), report.outcomes.end(), is_estimate_in_cache))
      add_note("reserved with regions is " + std::string(reason_of()));
    if (std::any_of(report.outcomes.begin(), report.outcomes.end(), [](const model::Outcome& outcome) { return outcome.peak_is_rounded; }))
      add_note(std::string(rounded_reason));
    for (const model::Outcome& outcome : report.outcomes)
      if (!outcome.counters.cache_estimate.empty()) add_note(outcome.policy + ": " + std::string(outcome.counters.cache_estimate));
    for (const model::Outcome& outcome : report.outcomes)
      if (outcome.copies()) add_note(outcome.policy + " " + copies_text(outcome, style) + ", and is in no time above");
    for (const model::Outcome& outcome : report.outcomes)
      if (outcome.names_no_layer) add_note(outcome.policy + " " + std::string(no_layer_reason));
  }
  for (const std::string& note : step.notes) add_note(note);
  return text;
}

}  // namespace liveset::report
