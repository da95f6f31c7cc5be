#include "viewer/report/whatif_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace liveset::report {
namespace {

using model::CounterKind;
using model::CounterPeak;
using nlohmann::ordered_json;

ordered_json peak_json(const CounterPeak& peak) {
  return {{"bytes", peak.bytes},
          {"event", peak.event == model::never ? ordered_json(nullptr) : ordered_json(peak.event)},
          {"phase", trace::phase_name(peak.phase)}};
}

bool copies(const model::Outcome& outcome) { return outcome.offloaded_bytes + outcome.prefetched_bytes != 0; }

}  // namespace

ordered_json outcome_json(const model::Outcome& outcome, CounterKind counter) {
  ordered_json json{{"policy", outcome.policy}};
  ordered_json peak{{"counter", model::counter_name(counter)}};
  if (const CounterPeak* const found = outcome.counters.of(counter); found != nullptr) peak.update(peak_json(*found));
  json["peak"] = peak;
  json["counters"] = ordered_json::object();
  for (const CounterKind kind : model::counter_kinds)
    if (const CounterPeak* const found = outcome.counters.of(kind); found != nullptr)
      json["counters"][std::string(model::counter_name(kind))] = peak_json(*found);
  json["extra_time_ns"] = outcome.extra_cost;
  json["forward_time_ns"] = outcome.forward_cost;
  json["copies"] =
      copies(outcome)
          ? ordered_json{{"to_host_bytes", outcome.offloaded_bytes}, {"to_device_bytes", outcome.prefetched_bytes}, {"time_ns", nullptr}}
          : ordered_json(nullptr);
  json["phases"] = ordered_json::object();
  for (std::size_t phase = 0; phase < trace::phase_count; ++phase)
    if (outcome.phase_peak[phase] != 0)
      json["phases"][std::string(trace::phase_name(static_cast<trace::Phase>(phase)))] = {{"peak_bytes", outcome.phase_peak[phase]}};
  json["classes"] = ordered_json::object();
  for (std::size_t index = 0; index < outcome.class_bytes.size(); ++index)
    if (outcome.class_bytes[index] != 0)
      json["classes"][std::string(trace::class_name(static_cast<trace::MemoryClass>(index)))] = outcome.class_bytes[index];
  json["parts"] = ordered_json::array();
  for (const model::PeakPart& part : outcome.parts) {
    json["parts"].push_back(
        {{"name", part.name}, {"class", trace::class_name(part.memory_class)}, {"count", part.count}, {"bytes", part.bytes}});
    if (part.formula.formula.empty()) continue;
    json["parts"].back()["formula"] = part.formula.formula;
    json["parts"].back()["source"] = part.formula.source;
  }
  json["live"] = ordered_json::array();
  for (const model::LiveTensor& tensor : outcome.live)
    json["live"].push_back({{"name", tensor.name}, {"class", trace::class_name(tensor.memory_class)}, {"bytes", tensor.bytes}});
  return json;
}

ordered_json whatif_json(const WhatIfReport& report) {
  ordered_json json{{"schema", "liveset.whatif/1"},
                    {"trace", report.trace},
                    {"step", report.step.step},
                    {"heap", report.step.heap},
                    {"unit", report.step.unit},
                    {"layers", report.step.model.units.size()},
                    {"recorded_peak_bytes", report.step.peak_bytes},
                    {"notes", report.step.notes}};
  json.update(outcome_json(report.outcomes.front(), report.counter));
  json["policies"] = ordered_json::array();
  for (const model::Outcome& outcome : report.outcomes) json["policies"].push_back(outcome_json(outcome, report.counter));
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
  Table table(columns, format, style);
  for (const model::Outcome& outcome : report.outcomes) {
    std::vector<Cell> row{Cell::words(outcome.policy), Cell::bytes(outcome.counters.requested.bytes)};
    if (simulated) {
      row.push_back(Cell::bytes(outcome.counters.allocated->bytes));
      row.push_back(Cell::bytes(outcome.counters.reserved->bytes));
    }
    row.push_back(Cell::words(trace::phase_name(outcome.counters.requested.phase)));
    row.push_back(format == TableFormat::csv ? Cell::count(outcome.extra_cost)
                                             : Cell::words(format_time(outcome.extra_cost) + (copies(outcome) ? " + copies" : "")));
    row.push_back(Cell::percent(outcome.extra_cost, std::max<std::uint64_t>(outcome.forward_cost - outcome.extra_cost, 1)));
    table.row(std::move(row));
  }
  return table.render();
}

std::string whatif_text(const WhatIfReport& report, const Style& style) {
  const model::RecordedStep& step = report.step;
  std::string text = "step " + std::to_string(step.step) + " of " + printable(report.trace, style) + ", heap " +
                     printable(step.heap, style) + ": recorded peak " + format_bytes(step.peak_bytes, style.exact_bytes) + " (allocated)\n";
  text += "layers: " + counted(step.model.units.size(), "module") + " " + printable(step.unit, style) + "\n\n";
  text += whatif_table(report, TableFormat::text, style);
  for (const model::Outcome& outcome : report.outcomes)
    if (copies(outcome))
      text += "\n" +
              wrapped("note: " + outcome.policy + " copies " + format_bytes(outcome.offloaded_bytes, style.exact_bytes) +
                          " to the host and " + format_bytes(outcome.prefetched_bytes, style.exact_bytes) +
                          " back; how long that takes is not known and in no time above",
                      style, 2) +
              "\n";
  for (const std::string& note : step.notes) text += "\n" + wrapped("note: " + note, style, 2) + "\n";
  return text;
}

}  // namespace liveset::report
