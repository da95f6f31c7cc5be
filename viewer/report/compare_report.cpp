#include "viewer/report/compare_report.h"

#include <algorithm>
#include <cstdio>
#include <ostream>

#include "viewer/report/text.h"

namespace liveset::report {
namespace {

using compare::absent;
using compare::AlignedEvent;
using compare::HeldValue;
using compare::LogicalComparison;
using json = nlohmann::ordered_json;
using ledger::LogicalEvent;
using ledger::LogicalLedger;

constexpr std::size_t rows_shown = 200;

json index_json(std::uint64_t index) { return index == absent ? json(nullptr) : json(index); }

json side_json(const LogicalLedger& ledger, const std::vector<HeldValue>& held) {
  json names = json::array();
  for (const HeldValue& value : held) names.push_back(value.name);
  return {{"peak", {{"ids", ledger.peak_ids}, {"bytes", ledger.peak_bytes}, {"event", index_json(ledger.peak_ids_event)}, {"bytes_event", index_json(ledger.peak_bytes_event)}}},
          {"forward_layers", ledger.forward_layers},
          {"events", ledger.events.size()},
          {"held_at_loss", names}};
}

json held_json(const std::vector<HeldValue>& values) {
  json list = json::array();
  for (const HeldValue& value : values) list.push_back({{"value", value.name}, {"bytes", value.bytes}});
  return list;
}

std::string event_text(const LogicalLedger& ledger, std::uint64_t index) {
  if (index == absent) return "-";
  const LogicalEvent& event = ledger.events[index];
  std::string text = std::to_string(index) + " " + std::string(trace::phase_name(event.phase)) + " " +
                     std::string(ledger::logical_kind_name(event.kind)) + " " + ledger.values[event.value].name;
  const auto reads = ledger.reads_of(event);
  for (std::size_t i = 0; i < reads.size(); ++i) text += (i == 0 ? " <" : " ") + ledger.values[reads[i]].name;
  return text;
}

// What differs, as short as a table's last column must be.
std::string live_difference(const LogicalEvent& predicted, const LogicalEvent& recorded, bool exact) {
  if (predicted.live_ids != recorded.live_ids) return std::to_string(predicted.live_ids) + " -> " + std::to_string(recorded.live_ids) + " ids";
  return format_bytes(predicted.live_bytes, exact) + " -> " + format_bytes(recorded.live_bytes, exact);
}

std::string live_text(const LogicalEvent& event) { return std::to_string(event.live_ids) + " ids " + std::to_string(event.live_bytes) + " B"; }

std::string what_differs(const LogicalLedger& predicted, const LogicalLedger& recorded, const AlignedEvent& row) {
  if (row.recorded == absent) return "predicted only: " + event_text(predicted, row.predicted);
  if (row.predicted == absent) return "recorded only: " + event_text(recorded, row.recorded);
  if (!row.same_live) return "live predicted " + live_text(predicted.events[row.predicted]) + ", recorded " + live_text(recorded.events[row.recorded]);
  return "";
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g %%", share * 100);
  return text;
}

std::string names_of(const std::vector<HeldValue>& values) {
  constexpr std::size_t shown = 12;
  std::string text;
  for (std::size_t i = 0; i < values.size() && i < shown; ++i) text += (i == 0 ? "" : ", ") + values[i].name + " (" + std::to_string(values[i].bytes) + " B)";
  text = printable(text, {});
  return values.size() > shown ? text + ", ... " + std::to_string(values.size() - shown) + " more" : text;
}

std::string padded(std::string_view words, std::size_t width) {
  const std::string text = printable(words, {}, width);
  return text + std::string(text.size() < width ? width - text.size() : 0, ' ');
}

void write_pair(std::ostream& out, const char* what, const std::string& predicted, const std::string& recorded) {
  out << padded(what, 16) << padded(predicted, 24) << recorded << (predicted == recorded ? "" : "   differs") << '\n';
}

void write_held(std::ostream& out, const LogicalComparison& comparison) {
  const compare::HeldComparison& held = comparison.held;
  write_pair(out, "held at loss", std::to_string(held.predicted.size()) + " values", std::to_string(held.recorded.size()) + " values");
  if (!held.by_name) out << "                by size: a graph does not name its values as the model does\n";
  if (!held.of_the_loss.empty()) out << "                besides, of the loss expression itself: " << names_of(held.of_the_loss) << '\n';
  if (!held.only_predicted.empty()) out << "                predicted only: " << names_of(held.only_predicted) << '\n';
  if (!held.only_recorded.empty()) out << "                recorded only: " << names_of(held.only_recorded) << '\n';
}

void write_rows(std::ostream& out, const LogicalLedger& predicted, const LogicalLedger& recorded, const LogicalComparison& comparison,
                const Style& style) {
  const bool all = comparison.rows.size() <= rows_shown;
  const std::size_t width = std::max<std::size_t>((style.columns - 20) / 2, 28);
  out << '\n' << padded("predicted", width) << ' ' << padded("recorded", width) << " live\n";
  std::size_t written = 0;
  for (const AlignedEvent& row : comparison.rows) {
    const bool same = row.same_event() && row.same_live;
    if (same && !all) continue;
    if (written++ == rows_shown) break;
    const LogicalEvent& event = row.recorded != absent ? recorded.events[row.recorded] : predicted.events[row.predicted];
    out << padded(event_text(predicted, row.predicted), width) << (same ? ' ' : '!') << padded(event_text(recorded, row.recorded), width) << ' '
        << (row.same_event() && !row.same_live ? live_difference(predicted.events[row.predicted], event, style.exact_bytes) : std::to_string(event.live_ids))
        << '\n';
  }
  if (!all) out << "only rows that differ, at most " << rows_shown << " of " << comparison.rows.size() << "; --format json has all\n";
}

}  // namespace

void write_comparison_json(std::ostream& out, const LogicalLedger& predicted, const LogicalLedger& recorded, const LogicalComparison& comparison,
                           const json& head) {
  json fields = head;
  const compare::RelativeErrors& errors = comparison.errors;
  fields["equal"] = comparison.error == 0;
  fields["error"] = comparison.error;
  fields["errors"] = {{"events", errors.events},     {"peak_ids", errors.peak_ids},     {"peak_bytes", errors.peak_bytes}, {"layers", errors.layers},
                      {"live_ids", errors.live_ids}, {"live_bytes", errors.live_bytes}, {"held", errors.held}};
  fields["compared"] = comparison.held_only ? "held" : "events";
  fields["predicted"] = side_json(predicted, comparison.held.predicted);
  fields["recorded"] = side_json(recorded, comparison.held.recorded);
  fields["held"] = {{"by", comparison.held.by_name ? "name" : "bytes"},
                    {"only_predicted", held_json(comparison.held.only_predicted)},
                    {"only_recorded", held_json(comparison.held.only_recorded)},
                    {"of_the_loss", held_json(comparison.held.of_the_loss)}};
  const std::uint64_t held = comparison.held.only_predicted.size() + comparison.held.only_recorded.size();
  fields["differences"] = {{"count", comparison.predicted_only + comparison.recorded_only + comparison.live_differs + held},
                           {"predicted_only", comparison.predicted_only}, {"recorded_only", comparison.recorded_only},
                           {"live_differs", comparison.live_differs}, {"held", held}};
  out << "{\n";
  for (const auto& [key, value] : fields.items()) out << "  " << json(key) << ": " << value.dump(-1, ' ', false, json::error_handler_t::replace) << ",\n";
  out << "  \"events\": [";
  bool first = true;
  for (const AlignedEvent& row : comparison.rows) {
    json entry{{"predicted", index_json(row.predicted)}, {"recorded", index_json(row.recorded)}};
    if (const std::string what = what_differs(predicted, recorded, row); !what.empty()) entry["what"] = what;
    out << (first ? "\n    " : ",\n    ") << entry.dump(-1, ' ', false, json::error_handler_t::replace);
    first = false;
  }
  out << (first ? "]\n}\n" : "\n  ]\n}\n");
}

void write_comparison_text(std::ostream& out, const LogicalLedger& predicted, const LogicalLedger& recorded, const LogicalComparison& comparison,
                           const Style& style) {
  out << (comparison.error == 0 ? "no difference" : "they differ by " + percent(comparison.error)) << "\n\n";
  out << padded("", 16) << padded("predicted", 24) << "recorded\n";
  if (!comparison.held_only) {
    const auto peak = [&](const LogicalLedger& ledger) {
      return std::to_string(ledger.peak_ids) + " values, " + format_bytes(ledger.peak_bytes, style.exact_bytes);
    };
    write_pair(out, "peak", peak(predicted), peak(recorded));
    write_pair(out, "forward layers", std::to_string(predicted.forward_layers), std::to_string(recorded.forward_layers));
  }
  write_held(out, comparison);
  if (comparison.held_only) return;
  out << padded("events", 16) << comparison.predicted_only << " predicted only, " << comparison.recorded_only << " recorded only, "
      << comparison.live_differs << " with another live set\n";
  write_rows(out, predicted, recorded, comparison, style);
}

}  // namespace liveset::report
