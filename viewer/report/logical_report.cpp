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

constexpr std::size_t reads_limit = 12, value_limit = 40;

// A PyTorch graph names no reads and no layers: for people those columns are left out, the other forms keep theirs.
bool shows_reads(const LogicalLedger& ledger, TableFormat format) { return format != TableFormat::text || !ledger.reads.empty(); }
bool shows_layers(const LogicalLedger& ledger, TableFormat format) { return format != TableFormat::text || ledger.counts_layers(); }

// Widths are fixed before the first row, so that a long ledger is printed as it is walked.
std::vector<Column> columns_of(const LogicalLedger& ledger, TableFormat format, const Style& style) {
  if (format != TableFormat::text) {
    std::vector<Column> all{{"event", true}, {"phase"},       {"kind"},         {"value"}, {"reads"},
                            {"ids", true},   {"bytes", true}, {"layers", true}, {"live"}};
    if (ledger.moves) all.push_back({"away", true});
    return all;
  }
  std::size_t value = 5;
  for (const ledger::LogicalValue& named : ledger.values) value = std::max(value, std::min(named.name.size(), value_limit));
  for (const ledger::LogicalRegion& region : ledger.regions) value = std::max(value, std::min(region.name.size(), value_limit));
  const auto width = [](std::uint64_t number, std::size_t least) { return std::max(format_count(number).size(), least); };
  std::vector<Column> columns{{"event", true, width(ledger.events.size(), 5)},
                              {"phase", false, 9},
                              {"kind", false, ledger.moves ? 8U : 7U},
                              {"value", false, value}};
  if (shows_reads(ledger, format)) columns.push_back({"reads", false, reads_limit});
  columns.push_back({"ids", true, width(ledger.peak_ids, 4)});
  const std::size_t bytes = style.exact_bytes ? width(ledger.peak_bytes, 5) : ledger.peak_bytes < 1024 ? 6U : 11U;
  columns.push_back({"bytes", true, bytes});
  if (ledger.moves) columns.push_back({"away", true, bytes});
  if (shows_layers(ledger, format)) columns.push_back({"layers", true, width(ledger.forward_layers, 6)});
  columns.push_back({"live", false, 8});
  return columns;
}

// Columns that the last one may take.
std::size_t rest_of_line(const std::vector<Column>& columns, const Style& style) {
  std::size_t used = 2;
  for (std::size_t i = 0; i + 1 < columns.size(); ++i) used += columns[i].width + 2;
  return style.columns > used + 8 ? style.columns - used : 8;
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

void write_logical_events(std::ostream& out, const LogicalLedger& ledger, TableFormat format, const Style& style, bool live_listed) {
  constexpr std::size_t unlimited = ~std::size_t{0};
  const bool text = format == TableFormat::text, reads = shows_reads(ledger, format), layers = shows_layers(ledger, format);
  const std::vector<Column> columns = columns_of(ledger, format, style);
  const std::size_t rest = text ? rest_of_line(columns, style) : unlimited;
  const Table table(columns, format, style);
  out << table.render_titles();
  ledger::LiveSet live(ledger);
  for (std::size_t i = 0; i < ledger.events.size(); ++i) {
    const LogicalEvent& event = ledger.events[i];
    if (text || live_listed) live.apply(event);
    std::vector<Cell> cells{Cell::count(i), Cell::words(trace::phase_name(event.phase)), Cell::words(ledger::logical_kind_name(event.kind)),
                            Cell::words(value_cell(ledger, event))};
    if (reads) cells.push_back(Cell::words(joined(ledger, ledger.reads_of(event), text ? reads_limit : unlimited)));
    cells.push_back(Cell::count(event.live_ids));
    cells.push_back(Cell::bytes(event.live_bytes));
    if (text && ledger.moves) cells.push_back(Cell::bytes(event.away_bytes));
    if (layers) cells.push_back(ledger.counts_layers() ? Cell::count(event.forward_layers) : Cell::words(""));
    cells.push_back(Cell::words(text || live_listed ? joined(ledger, live.ids(), rest) : ""));
    if (!text && ledger.moves) cells.push_back(Cell::bytes(event.away_bytes));
    out << table.render_row(cells);
  }
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
