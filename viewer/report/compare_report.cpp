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
  return {{"peak",
           {{"ids", ledger.peak_ids},
            {"bytes", ledger.peak_bytes},
            {"event", index_json(ledger.peak_ids_event)},
            {"bytes_event", index_json(ledger.peak_bytes_event)}}},
          {"forward_layers", ledger.counts_layers() ? json(ledger.forward_layers) : json(nullptr)},
          {"events", ledger.events.size()},
          {"held_at_loss", names}};
}

json held_json(const std::vector<HeldValue>& values) {
  json list = json::array();
  for (const HeldValue& value : values) list.push_back({{"value", value.name}, {"bytes", value.bytes}});
  return list;
}

// `width`: the value's name is shortened for a text of so many columns.
std::string event_text(const LogicalLedger& ledger, std::uint64_t index, std::size_t width = std::string::npos) {
  if (index == absent) return "-";
  const LogicalEvent& event = ledger.events[index];
  std::string text = std::to_string(index) + " " + std::string(trace::phase_name(event.phase)) + " " +
                     std::string(ledger::logical_kind_name(event.kind)) + " ";
  text += short_name(ledger.values[event.value].name, width - std::min(width, text.size()));
  const auto reads = ledger.reads_of(event);
  for (std::size_t i = 0; i < reads.size(); ++i) text += (i == 0 ? " <" : " ") + ledger.values[reads[i]].name;
  return text;
}

// What differs, as short as a table's last column must be.
std::string live_difference(const LogicalEvent& predicted, const LogicalEvent& recorded, bool exact) {
  if (predicted.live_ids != recorded.live_ids)
    return std::to_string(predicted.live_ids) + " -> " + std::to_string(recorded.live_ids) + " ids";
  return format_bytes(predicted.live_bytes, exact) + " -> " + format_bytes(recorded.live_bytes, exact);
}

std::string live_text(const LogicalEvent& event) {
  return std::to_string(event.live_ids) + " ids " + std::to_string(event.live_bytes) + " B";
}

std::string what_differs(const LogicalLedger& predicted, const LogicalLedger& recorded, const AlignedEvent& row) {
  if (row.recorded == absent) return "predicted only: " + event_text(predicted, row.predicted);
  if (row.predicted == absent) return "recorded only: " + event_text(recorded, row.recorded);
  if (!row.same_live)
    return "live predicted " + live_text(predicted.events[row.predicted]) + ", recorded " + live_text(recorded.events[row.recorded]);
  return "";
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g %%", share * 100);
  return text;
}

constexpr std::size_t indent = 16;  // of what stands beside a title

std::string size_text(std::uint64_t bytes, const Style& style) {
  return format_bytes(bytes, style.exact_bytes) + (style.exact_bytes ? " B" : "");
}

std::string names_of(const std::vector<HeldValue>& values, const Style& style) {
  constexpr std::size_t shown = 12;
  std::string text;
  for (std::size_t i = 0; i < values.size() && i < shown; ++i)
    text += (i == 0 ? "" : ", ") + values[i].name + " (" + size_text(values[i].bytes, style) + ")";
  return values.size() > shown ? text + ", ... " + std::to_string(values.size() - shown) + " more" : text;
}

// The figures that differ, each with the share by which it does: `error` is the largest of them.
std::string verdict(const LogicalComparison& comparison) {
  if (comparison.error == 0) return "no difference";
  const compare::RelativeErrors& errors = comparison.errors;
  const std::pair<const char*, double> figures[] = {
      {"events that only one side has", errors.events}, {"values at the peak", errors.peak_ids},
      {"bytes at the peak", errors.peak_bytes},         {"forward layers", errors.layers},
      {"values live at an event", errors.live_ids},     {"bytes live at an event", errors.live_bytes},
      {"values held at the loss", errors.held}};
  std::string text;
  for (const auto& [what, share] : figures) {
    if (share != 0) text += (text.empty() ? "" : ", ") + percent(share) + " in " + what;
  }
  return "they differ by " + percent(comparison.error) + ", the largest of: " + text;
}

std::string padded(std::string_view words, std::size_t width) {
  const std::string text = printable(words, {}, width);
  return text + std::string(text.size() < width ? width - text.size() : 0, ' ');
}

void write_pair(std::ostream& out, const char* what, const std::string& predicted, const std::string& recorded) {
  const std::string space(predicted.size() < 24 ? 24 - predicted.size() : 2, ' ');
  out << padded(what, indent) << predicted << space << recorded << (predicted == recorded ? "" : "   differs") << '\n';
}

std::string values_text(std::uint64_t count) { return format_count(count) + (count == 1 ? " value" : " values"); }

void write_held(std::ostream& out, const LogicalComparison& comparison, const Style& style) {
  const compare::HeldComparison& held = comparison.held;
  const auto also = [&](const std::string& text) { out << std::string(indent, ' ') << wrapped(text, style, indent) << '\n'; };
  write_pair(out, "held at loss", values_text(held.predicted.size()), values_text(held.recorded.size()));
  if (!held.by_name) also("by size: a graph does not name its values as the model does");
  if (!held.of_the_loss.empty()) also("besides, of the loss expression itself: " + names_of(held.of_the_loss, style));
  if (!held.only_predicted.empty()) also("predicted only: " + names_of(held.only_predicted, style));
  if (!held.only_recorded.empty()) also("recorded only: " + names_of(held.only_recorded, style));
}

void write_rows(std::ostream& out, const LogicalLedger& predicted, const LogicalLedger& recorded, const LogicalComparison& comparison,
                const Style& style) {
  const bool all = comparison.rows.size() <= rows_shown;
  const std::size_t width = std::max<std::size_t>((style.columns - 26) / 2, 24);
  out << '\n' << padded("predicted", width) << ' ' << padded("recorded", width) << " live\n";
  std::size_t written = 0;
  for (const AlignedEvent& row : comparison.rows) {
    const bool same = row.same_event() && row.same_live;
    if (same && !all) continue;
    if (written++ == rows_shown) break;
    const LogicalEvent& event = row.recorded != absent ? recorded.events[row.recorded] : predicted.events[row.predicted];
    out << padded(event_text(predicted, row.predicted, width), width) << (same ? ' ' : '!')
        << padded(event_text(recorded, row.recorded, width), width) << ' '
        << (row.same_event() && !row.same_live ? live_difference(predicted.events[row.predicted], event, style.exact_bytes)
                                               : std::to_string(event.live_ids))
        << '\n';
  }
  if (!all) out << "only rows that differ, at most " << rows_shown << " of " << comparison.rows.size() << "; --format json has all\n";
}

std::string index_text(std::uint64_t index) { return index == absent ? "" : std::to_string(index); }

}  // namespace

void write_comparison_table(std::ostream& out, const LogicalLedger& predicted, const LogicalLedger& recorded,
                            const LogicalComparison& comparison, TableFormat format, const Style& style) {
  const Table table({{"predicted", true},
                     {"recorded", true},
                     {"event"},
                     {"predicted ids", true},
                     {"recorded ids", true},
                     {"predicted bytes", true},
                     {"recorded bytes", true},
                     {"difference"}},
                    format, style);
  out << table.render_titles();
  for (const AlignedEvent& row : comparison.rows) {
    const LogicalEvent* left = row.predicted == absent ? nullptr : &predicted.events[row.predicted];
    const LogicalEvent* right = row.recorded == absent ? nullptr : &recorded.events[row.recorded];
    const std::string event = left != nullptr ? event_text(predicted, row.predicted) : event_text(recorded, row.recorded);
    const auto figure = [&](const LogicalEvent* side, bool bytes) {
      if (side == nullptr) return Cell::words("");
      return bytes ? Cell::bytes(side->live_bytes) : Cell::count(side->live_ids);
    };
    const char* difference = right == nullptr ? "predicted only" : left == nullptr ? "recorded only" : row.same_live ? "" : "live";
    out << table.render_row({Cell::words(index_text(row.predicted)), Cell::words(index_text(row.recorded)),
                             Cell::words(event.substr(event.find(' ') + 1)), figure(left, false), figure(right, false), figure(left, true),
                             figure(right, true), Cell::words(difference)});
  }
}

void write_comparison_json(std::ostream& out, const LogicalLedger& predicted, const LogicalLedger& recorded,
                           const LogicalComparison& comparison, const json& head, const std::function<void(json&)>& add) {
  json fields = head;
  const compare::RelativeErrors& errors = comparison.errors;
  fields["equal"] = comparison.error == 0;
  fields["error"] = comparison.error;
  fields["errors"] = {{"events", errors.events}, {"peak_ids", errors.peak_ids}, {"peak_bytes", errors.peak_bytes},
                      {"layers", errors.layers}, {"live_ids", errors.live_ids}, {"live_bytes", errors.live_bytes},
                      {"held", errors.held}};
  fields["compared"] = comparison.held_only ? "held" : "events";
  fields["predicted"] = side_json(predicted, comparison.held.predicted);
  fields["recorded"] = side_json(recorded, comparison.held.recorded);
  fields["held"] = {{"by", comparison.held.by_name ? "name" : "bytes"},
                    {"only_predicted", held_json(comparison.held.only_predicted)},
                    {"only_recorded", held_json(comparison.held.only_recorded)},
                    {"of_the_loss", held_json(comparison.held.of_the_loss)}};
  const std::uint64_t held = comparison.held.only_predicted.size() + comparison.held.only_recorded.size();
  fields["differences"] = {{"count", comparison.predicted_only + comparison.recorded_only + comparison.live_differs + held},
                           {"predicted_only", comparison.predicted_only},
                           {"recorded_only", comparison.recorded_only},
                           {"live_differs", comparison.live_differs},
                           {"held", held}};
  if (add) add(fields);
  out << "{\n";
  for (const auto& [key, value] : fields.items())
    out << "  " << json(key) << ": " << value.dump(-1, ' ', false, json::error_handler_t::replace) << ",\n";
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

void write_comparison_text(std::ostream& out, const LogicalLedger& predicted, const LogicalLedger& recorded,
                           const LogicalComparison& comparison, const Style& style) {
  out << wrapped(verdict(comparison), style, 2) << "\n\n";
  out << padded("", 16) << padded("predicted", 24) << "recorded\n";
  if (!comparison.held_only) {
    const auto peak = [&](const LogicalLedger& ledger) {
      return values_text(ledger.peak_ids) + ", " + size_text(ledger.peak_bytes, style);
    };
    write_pair(out, "peak", peak(predicted), peak(recorded));
    if (predicted.counts_layers() && recorded.counts_layers())
      write_pair(out, "forward layers", std::to_string(predicted.forward_layers), std::to_string(recorded.forward_layers));
  }
  write_held(out, comparison, style);
  if (comparison.held_only) return;
  out << padded("events", 16) << comparison.predicted_only << " predicted only, " << comparison.recorded_only << " recorded only, "
      << comparison.live_differs << " with another live set\n";
  write_rows(out, predicted, recorded, comparison, style);
}

}  // namespace liveset::report
