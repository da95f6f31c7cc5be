#include "viewer/report/logical_report.h"

#include <algorithm>
#include <ostream>

#include "viewer/report/or_null.h"

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

std::string event_text(std::uint64_t event) { return event == ledger::no_event ? "-" : format_count(event); }
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

// The parts of a derived value's name, besides the step.
void add_value(const ledger::LogicalValue& value, json& entry) {
  if (value.memory_class != trace::MemoryClass::none) entry["class"] = trace::class_name(value.memory_class);
  if (!value.derived) return;
  entry["module"] = or_null(value.module);
  entry["op"] = or_null(value.op);
  entry["slot"] = or_null(value.slot);
  entry["microbatch"] = value.microbatch == ledger::no_number ? json(nullptr) : json(value.microbatch);
  entry["incarnation"] = value.incarnation;
}

json event_entry(const LogicalLedger& ledger, std::size_t index, const ledger::LiveSet* live, bool layers_known) {
  const LogicalEvent& event = ledger.events[index];
  json entry;
  entry["index"] = index;
  entry["phase"] = trace::phase_name(event.phase);
  entry["kind"] = ledger::logical_kind_name(event.kind);
  entry["value"] = event.value == ledger::no_index ? json(nullptr) : json(ledger.values[event.value].name);
  entry["layer"] = event.layer == ledger::no_number ? json(nullptr) : json(event.layer);
  entry["reads"] = name_list(ledger, ledger.reads_of(event));
  entry["live"] = live != nullptr ? name_list(ledger, live->ids()) : json(nullptr);
  entry["live_ids"] = event.live_ids;
  entry["live_bytes"] = event.live_bytes;
  if (ledger.moves) entry["away_bytes"] = event.away_bytes;
  entry["forward_layers"] = layers_known ? json(event.forward_layers) : json(nullptr);
  if (event.trace_event != ledger::no_event) {
    entry["trace_event"] = event.trace_event;
    entry["step"] = event.step == ledger::no_number ? json(nullptr) : json(event.step);
    if (event.value != ledger::no_index) add_value(ledger.values[event.value], entry);
    if (event.value != ledger::no_index && event.kind == ledger::LogicalKind::rerun && ledger.values[event.value].derived)
      entry["original"] = event_number(ledger.values[event.value].original_event);
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
  for (const ledger::LogicalGroup& group : ledger.groups)
    groups[group.name] = {{"peak_ids", group.peak_ids}, {"peak_bytes", group.peak_bytes}};
  return groups;
}

constexpr std::size_t reads_width = 12, least_value = 24;

// Columns of the ledger's table, and their widths, which are fixed before the first row, so that a long ledger is printed as it is walked.
struct Layout {
  bool text = false;
  bool reads = true, layers = true, live = true;  // have a column
  std::size_t value_width = 0, live_width = ~std::size_t{0};
  std::vector<Column> columns;
};

std::size_t line_width(const std::vector<Column>& columns) {
  std::size_t width = 0;
  for (const Column& column : columns) width += column.width + 2;
  return width;
}

// For people: a graph of PyTorch names no reads and no layers, and lists of its long names would be cut to "+5". They have no column, and
// the value's name has the room.
Layout layout_for_people(const LogicalLedger& ledger, const Style& style) {
  std::size_t longest = 5;
  for (const ledger::LogicalValue& named : ledger.values) longest = std::max(longest, named.name.size());
  const std::size_t longest_value = longest;
  for (const ledger::LogicalRegion& region : ledger.regions) longest = std::max(longest, region.name.size());
  Layout layout;
  layout.text = true;
  layout.reads = !ledger.reads.empty() && longest_value <= reads_width;
  layout.layers = ledger.counts_layers();
  const auto width = [](std::uint64_t number, std::size_t least) { return std::max(format_count(number).size(), least); };
  layout.columns = {
      {"event", true, width(ledger.events.size(), 5)}, {"phase", false, 9}, {"kind", false, ledger.moves ? 8U : 7U}, {"value", false, 0}};
  if (layout.reads) layout.columns.push_back({"reads", false, reads_width});
  layout.columns.push_back({"ids", true, width(ledger.peak_ids, 4)});
  const std::size_t bytes = style.exact_bytes ? width(ledger.peak_bytes, 5) : ledger.peak_bytes < 1024 ? 6U : 11U;
  layout.columns.push_back({"bytes", true, bytes});
  if (ledger.moves) layout.columns.push_back({"away", true, bytes});
  if (layout.layers) layout.columns.push_back({"layers", true, width(ledger.forward_layers, 6)});
  const std::size_t others = line_width(layout.columns);
  const std::size_t room = style.columns > others + least_value ? style.columns - others : least_value;
  const std::size_t one_name = longest_value + 6;  // and how many more there are
  layout.live = longest + one_name + 2 <= room;
  layout.value_width = layout.columns[3].width = std::min(longest, room);
  layout.live_width = room - layout.value_width - (layout.live ? 2 : 0);
  if (layout.live) layout.columns.push_back({"live", false, std::min<std::size_t>(8, layout.live_width)});
  return layout;
}

Layout layout_of(const LogicalLedger& ledger, TableFormat format, const Style& style) {
  if (format == TableFormat::text) return layout_for_people(ledger, style);
  Layout layout;
  layout.columns = {{"event", true}, {"phase"}, {"kind"}, {"value"}, {"reads"}, {"ids", true}, {"bytes", true}, {"layers", true}, {"live"}};
  if (ledger.moves) layout.columns.push_back({"away", true});
  return layout;
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
    if (text.size() + space + name.size() + (last ? 0 : more.size() + 1) > limit) {
      if (!text.empty() || limit < least_value) return text + (text.empty() ? "" : " ") + more;
      text = short_name(name, limit - (last ? 0 : more.size() + 1));  // one is better than none
      ++count;
      continue;
    }
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

std::uint64_t live_names(const LogicalLedger& ledger) {
  std::uint64_t names = 0;
  for (const LogicalEvent& event : ledger.events) names += event.live_ids;
  return names;
}

void write_logical_json(std::ostream& out, const LogicalLedger& ledger, const json& head, bool live_listed) {
  const bool layers_known = ledger.counts_layers();
  json fields = head;
  fields["peak"] = {{"ids", ledger.peak_ids},
                    {"bytes", ledger.peak_bytes},
                    {"event", event_number(ledger.peak_ids_event)},
                    {"bytes_event", event_number(ledger.peak_bytes_event)}};
  fields["forward_layers"] = layers_known ? json(ledger.forward_layers) : json(nullptr);
  fields["held_at_loss"] = name_list(ledger, ledger.held_at_loss);
  fields["held_at_loss_bytes"] = ledger.held_at_loss_bytes;
  fields["groups"] = group_peaks(ledger);
  fields["live_at_end"] = name_list(ledger, ledger.live_at_end);
  fields["broken_rules"] = broken_rules(ledger);
  fields["live_listed"] = live_listed;
  out << "{\n";
  for (const auto& [key, value] : fields.items()) out << "  " << json(key) << ": " << text_of(value) << ",\n";
  out << "  \"events\": [";
  ledger::LiveSet live(ledger);
  for (std::size_t i = 0; i < ledger.events.size(); ++i) {
    if (live_listed) live.apply(ledger.events[i]);
    out << (i == 0 ? "\n    " : ",\n    ") << text_of(event_entry(ledger, i, live_listed ? &live : nullptr, layers_known));
  }
  out << (ledger.events.empty() ? "]\n}\n" : "\n  ]\n}\n");
}

void write_logical_events(std::ostream& out, const LogicalLedger& ledger, TableFormat format, const Style& style, bool live_listed,
                          std::size_t shown) {
  constexpr std::size_t unlimited = ~std::size_t{0};
  const Layout layout = layout_of(ledger, format, style);
  const bool text = layout.text;
  const Table table(layout.columns, format, style);
  out << table.render_titles();
  ledger::LiveSet live(ledger);
  const std::size_t listed = text ? std::min(shown, ledger.events.size()) : ledger.events.size();
  for (std::size_t i = 0; i < listed; ++i) {
    const LogicalEvent& event = ledger.events[i];
    if (text || live_listed) live.apply(event);
    std::vector<Cell> cells{Cell::count(i), Cell::words(trace::phase_name(event.phase)), Cell::words(ledger::logical_kind_name(event.kind)),
                            Cell::words(text ? short_name(value_cell(ledger, event), layout.value_width) : value_cell(ledger, event))};
    if (layout.reads) cells.push_back(Cell::words(joined(ledger, ledger.reads_of(event), text ? reads_width : unlimited)));
    cells.push_back(Cell::count(event.live_ids));
    cells.push_back(Cell::bytes(event.live_bytes));
    if (text && ledger.moves) cells.push_back(Cell::bytes(event.away_bytes));
    if (layout.layers) cells.push_back(ledger.counts_layers() ? Cell::count(event.forward_layers) : Cell::words(""));
    if (layout.live) cells.push_back(Cell::words(text || live_listed ? joined(ledger, live.ids(), layout.live_width) : ""));
    if (!text && ledger.moves) cells.push_back(Cell::bytes(event.away_bytes));
    out << table.render_row(cells);
  }
  if (listed < ledger.events.size()) out << "  (" << counted(ledger.events.size() - listed, "more event") << "; --format csv lists all)\n";
}

void write_logical_summary(std::ostream& out, const LogicalLedger& ledger, const Style& style) {
  const std::size_t rest = style.columns > 60 ? style.columns - 40 : 40;
  const auto bytes = [&](std::uint64_t number) { return format_bytes(number, style.exact_bytes) + (style.exact_bytes ? " B" : ""); };
  out << "peak            " << format_count(ledger.peak_ids) << (ledger.peak_ids == 1 ? " value" : " values") << " at event "
      << event_text(ledger.peak_ids_event) << ", " << bytes(ledger.peak_bytes) << " at event " << event_text(ledger.peak_bytes_event)
      << '\n';
  if (ledger.counts_layers()) out << "forward layers  " << format_count(ledger.forward_layers) << " executed, re-runs included\n";
  const auto counted = static_cast<std::size_t>(
      std::count_if(ledger.held_at_loss.begin(), ledger.held_at_loss.end(), [&](std::uint32_t id) { return ledger.values[id].counted; }));
  const std::size_t others = ledger.held_at_loss.size() - counted;
  out << "held at loss    " << counted;
  if (others != 0) out << " + " << others << (others == 1 ? " input" : " inputs") << ", not counted";
  out << ": " << printable(joined(ledger, ledger.held_at_loss, rest), style) << '\n';
  for (const ledger::LogicalGroup& group : ledger.groups)
    out << "group           " << printable(group.name, style) << ": at most " << group.peak_ids << " live, " << bytes(group.peak_bytes)
        << '\n';
  if (ledger.broken_count != 0)
    out << "broken rules    " << format_count(ledger.broken_count) << ", first at event " << format_count(ledger.broken.front().event)
        << ": " << wrapped(ledger.broken.front().what, style, 16) << '\n';
}

}  // namespace liveset::report
