#include "viewer/report/logical_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ostream>

namespace liveset::report {
namespace {

using json = nlohmann::ordered_json;
using ledger::LogicalEvent;
using ledger::LogicalLedger;

std::string text_of(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

template <class Ids>
json name_list(const LogicalLedger& ledger, const Ids& ids) {
  json list = json::array();
  for (const std::uint32_t id : ids) list.push_back(ledger.values[id].name);
  return list;
}

json event_number(std::uint64_t event) { return event == ledger::no_event ? json(nullptr) : json(event); }

void add_region(const LogicalLedger& ledger, const ledger::LogicalRegion& region, json& entry) {
  if (!entry.contains("region")) entry["region"] = region.name;
  for (const auto& [key, text] : region.attributes) {
    json value = json::parse(text, nullptr, false);
    if (value.is_discarded()) value = text;
    if (!entry.contains(key)) entry[key] = std::move(value);
  }
  for (std::size_t group = 0; group < ledger.groups.size(); ++group) entry[ledger.groups[group].name + "_live"] = region.group_live[group];
}

json event_entry(const LogicalLedger& ledger, std::size_t index, const ledger::LiveSet& live) {
  const LogicalEvent& event = ledger.events[index];
  json entry;
  entry["index"] = index;
  entry["phase"] = trace::phase_name(event.phase);
  entry["kind"] = ledger::logical_kind_name(event.kind);
  entry["value"] = event.value == ledger::no_index ? json(nullptr) : json(ledger.values[event.value].name);
  entry["layer"] = event.layer == ledger::no_number ? json(nullptr) : json(event.layer);
  entry["reads"] = name_list(ledger, ledger.reads_of(event));
  entry["live"] = name_list(ledger, live.ids());
  entry["live_ids"] = event.live_ids;
  entry["live_bytes"] = event.live_bytes;
  entry["forward_layers"] = event.forward_layers;
  if (event.trace_event != ledger::no_event) {
    entry["trace_event"] = event.trace_event;
    entry["step"] = event.step == ledger::no_number ? json(nullptr) : json(event.step);
    if (event.value != ledger::no_index && ledger.values[event.value].memory_class != trace::MemoryClass::none)
      entry["class"] = trace::class_name(ledger.values[event.value].memory_class);
  }
  if (event.region != ledger::no_index) add_region(ledger, ledger.regions[event.region], entry);
  return entry;
}

json broken_rules(const LogicalLedger& ledger) {
  json first = json::array();
  for (const ledger::Broken& broken : ledger.broken) first.push_back({{"event", broken.event}, {"what", broken.what}});
  return {{"count", ledger.broken_count}, {"first", first}};
}

json group_peaks(const LogicalLedger& ledger) {
  json groups = json::object();
  for (const ledger::LogicalGroup& group : ledger.groups) groups[group.name] = {{"peak_ids", group.peak_ids}, {"peak_bytes", group.peak_bytes}};
  return groups;
}

using Row = std::array<std::string, 9>;
const Row titles{"event", "phase", "kind", "value", "reads", "live", "bytes", "layers", "live values"};
constexpr std::size_t reads_limit = 12, value_limit = 40;

// Widths of the columns before the last, which takes what is left of the line.
struct Layout {
  std::array<std::size_t, 8> width{};
  std::size_t rest = 0;  // for the last column
};

Layout layout_of(const LogicalLedger& ledger, const TextStyle& style) {
  Layout layout;
  for (std::size_t i = 0; i < layout.width.size(); ++i) layout.width[i] = titles[i].size();
  const auto widen = [&](std::size_t column, std::size_t width) { layout.width[column] = std::max(layout.width[column], width); };
  widen(0, std::to_string(ledger.events.size()).size());
  widen(1, 9);
  widen(2, 7);
  for (const ledger::LogicalValue& value : ledger.values) widen(3, std::min(value.name.size(), value_limit));
  for (const ledger::LogicalRegion& region : ledger.regions) widen(3, std::min(region.name.size(), value_limit));
  if (!ledger.reads.empty()) widen(4, 5);
  widen(5, std::to_string(ledger.peak_ids).size());
  widen(6, bytes_text(ledger.peak_bytes, style.exact_bytes).size());
  widen(7, std::to_string(ledger.forward_layers).size());
  std::size_t used = 0;
  for (const std::size_t width : layout.width) used += width + 1;
  layout.rest = style.columns > used + titles.back().size() ? style.columns - used : titles.back().size();
  return layout;
}

void write_table_row(std::ostream& out, const Row& row, const Layout& layout) {
  std::string line;
  for (std::size_t i = 0; i < layout.width.size(); ++i) {
    const std::string pad(row[i].size() < layout.width[i] ? layout.width[i] - row[i].size() : 0, ' ');
    const bool number = i == 0 || i >= 5;
    line += number ? pad + row[i] : row[i] + pad;
    line += ' ';
  }
  line += row.back();
  line.erase(line.find_last_not_of(' ') + 1);
  out << line << '\n';
}

std::string csv_cell(const std::string& cell) {
  if (cell.find_first_of(",\"\n") == std::string::npos) return cell;
  std::string quoted = "\"";
  for (const char c : cell) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

void write_cells(std::ostream& out, const Row& row, bool csv) {
  for (std::size_t i = 0; i < row.size(); ++i) out << (csv ? (i == 0 ? "" : ",") : "| ") << (csv ? csv_cell(row[i]) : row[i] + " ");
  out << (csv ? "\n" : "|\n");
}

// Cut where it would be longer than `limit`, and says how many more there are.
template <class Ids>
std::string joined(const LogicalLedger& ledger, const Ids& ids, std::size_t limit) {
  std::string text;
  std::size_t count = 0;
  for (const std::uint32_t id : ids) {
    const std::string& name = ledger.values[id].name;
    const std::string more = "+" + std::to_string(ids.size() - count);
    const bool last = count + 1 == ids.size();
    const std::size_t space = text.empty() ? 0 : 1;
    if (text.size() + space + name.size() + (last ? 0 : more.size() + 1) > limit) return text + (text.empty() ? "" : " ") + more;
    text += (text.empty() ? "" : " ") + name;
    ++count;
  }
  return text;
}

std::string value_cell(const LogicalLedger& ledger, const LogicalEvent& event) {
  if (event.region != ledger::no_index) return ledger.regions[event.region].name;
  return event.value == ledger::no_index ? "" : ledger.values[event.value].name;
}

}  // namespace

nlohmann::ordered_json names_json(const LogicalLedger& ledger, const std::vector<std::uint32_t>& ids) { return name_list(ledger, ids); }

std::string value_names(const LogicalLedger& ledger, const std::vector<std::uint32_t>& ids, std::size_t limit) {
  return ids.empty() ? "-" : joined(ledger, ids, limit);
}

std::string bytes_text(std::uint64_t bytes, bool exact) {
  if (exact || bytes < 1024) return std::to_string(bytes) + (exact ? "" : " B");
  static constexpr std::array<const char*, 6> units{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double size = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < units.size(); ++unit) size /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %s", size, units[unit]);
  return text;
}

void write_logical_json(std::ostream& out, const LogicalLedger& ledger, const json& head) {
  json fields = head;
  fields["peak"] = {{"ids", ledger.peak_ids}, {"bytes", ledger.peak_bytes}, {"event", event_number(ledger.peak_ids_event)},
                    {"bytes_event", event_number(ledger.peak_bytes_event)}};
  fields["forward_layers"] = ledger.forward_layers;
  fields["held_at_loss"] = name_list(ledger, ledger.held_at_loss);
  fields["groups"] = group_peaks(ledger);
  fields["live_at_end"] = name_list(ledger, ledger.live_at_end);
  fields["broken_rules"] = broken_rules(ledger);
  out << "{\n";
  for (const auto& [key, value] : fields.items()) out << "  " << json(key) << ": " << text_of(value) << ",\n";
  out << "  \"events\": [";
  ledger::LiveSet live(ledger);
  for (std::size_t i = 0; i < ledger.events.size(); ++i) {
    live.apply(ledger.events[i]);
    out << (i == 0 ? "\n    " : ",\n    ") << text_of(event_entry(ledger, i, live));
  }
  out << (ledger.events.empty() ? "]\n}\n" : "\n  ]\n}\n");
}

void write_logical_events(std::ostream& out, const LogicalLedger& ledger, const TextStyle& style) {
  const bool table = style.kind == TextStyle::Kind::table, csv = style.kind == TextStyle::Kind::csv;
  const Layout layout = layout_of(ledger, style);
  const auto write = [&](const Row& row) { table ? write_table_row(out, row, layout) : write_cells(out, row, csv); };
  constexpr std::size_t unlimited = ~std::size_t{0};
  write(titles);
  if (style.kind == TextStyle::Kind::md) out << "|---|---|---|---|---|---|---|---|---|\n";
  ledger::LiveSet live(ledger);
  for (std::size_t i = 0; i < ledger.events.size(); ++i) {
    const LogicalEvent& event = ledger.events[i];
    live.apply(event);
    write({std::to_string(i), std::string(trace::phase_name(event.phase)), std::string(ledger::logical_kind_name(event.kind)),
           value_cell(ledger, event), joined(ledger, ledger.reads_of(event), table ? reads_limit : unlimited), std::to_string(event.live_ids),
           bytes_text(event.live_bytes, style.exact_bytes || !table), std::to_string(event.forward_layers),
           joined(ledger, live.ids(), table ? layout.rest : unlimited)});
  }
}

void write_logical_summary(std::ostream& out, const LogicalLedger& ledger, const TextStyle& style) {
  out << "peak            " << ledger.peak_ids << " values at event " << event_number(ledger.peak_ids_event).dump() << ", "
      << bytes_text(ledger.peak_bytes, style.exact_bytes) << " at event " << event_number(ledger.peak_bytes_event).dump() << '\n'
      << "forward layers  " << ledger.forward_layers << " executed, re-runs included\n"
      << "held at loss    " << ledger.held_at_loss.size() << ": " << value_names(ledger, ledger.held_at_loss, 50) << '\n';
  for (const ledger::LogicalGroup& group : ledger.groups)
    out << "group           " << group.name << ": at most " << group.peak_ids << " live, " << bytes_text(group.peak_bytes, style.exact_bytes) << '\n';
  if (ledger.broken_count != 0)
    out << "broken rules    " << ledger.broken_count << ", first at event " << ledger.broken.front().event << ": " << ledger.broken.front().what << '\n';
}

}  // namespace liveset::report
