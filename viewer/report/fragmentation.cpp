#include "viewer/report/fragmentation.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "viewer/ledger/live_block.h"
#include "viewer/report/or_null.h"
#include "viewer/report/trace_info.h"

namespace liveset::report {
namespace {

using allocator::FragmentedSegment;
using allocator::Pin;
using nlohmann::ordered_json;

constexpr int cuda_device = 1;

// Takes the pins out of the segment, and keeps the largest.
SegmentFigure figure_of(FragmentedSegment&& segment, const ledger::PhysicalLedger& ledger, std::size_t top) {
  SegmentFigure figure;
  std::vector<Pin> pins = std::move(segment.pins);
  segment.pins.clear();
  figure.segment = std::move(segment);
  figure.pins = pins.size();
  std::stable_sort(pins.begin(), pins.end(), [](const Pin& a, const Pin& b) { return a.size > b.size; });
  if (pins.size() > top) pins.resize(top);
  for (const Pin& pin : pins) {
    const ledger::Block* const block = ledger.blocks.find(pin.id);
    figure.largest.push_back({pin, block != nullptr ? block->birth : 0});
  }
  return figure;
}

// What the listed pins are; of what has been freed and waits for a stream nothing more is known.
Status name_pins(const trace::TraceFile& file, ledger::PhysicalLedger& ledger, const FragmentationOptions& options,
                 FragmentationReport& report) {
  Result<ledger::Attribution> attribution = ledger::attribute_blocks(file, ledger, {report.moment.event, options.progress});
  if (!attribution) return attribution.take_error();
  std::unordered_map<std::uint64_t, PinFigure*> listed;
  for (SegmentFigure& segment : report.segments) {
    for (PinFigure& pin : segment.largest) listed[pin.pin.id] = &pin;
  }
  return ledger::for_each_live_block(file, ledger, *attribution, report.moment.event, [&](ledger::LiveBlock&& block) {
    const auto found = listed.find(block.detail.ordinal);
    if (found == listed.end()) return;
    PinFigure& pin = *found->second;
    pin.memory_class = block.memory_class;
    pin.name = std::move(block.name);
    pin.module = std::move(block.module);
    pin.op = std::move(block.op);
    pin.names = std::move(block.names);
  });
}

Error no_layout(const trace::TraceFile& file, const std::string& what, std::string hint) {
  return {ErrorKind::usage, file.path(), std::nullopt, what, std::move(hint)};
}

}  // namespace

Result<FragmentationReport> build_fragmentation(const trace::TraceFile& file, const FragmentationOptions& options) {
  Result<allocator::Settings> settings = allocator::parse_settings(options.settings);
  if (!settings) return settings.take_error();
  Result<ledger::PhysicalLedger> ledger = read_physical(file, options.heap, options.range, options.progress);
  if (!ledger) return ledger.take_error();
  const ledger::HeapLedger& heap = ledger->shown();
  FragmentationReport report;
  report.file = file.path();
  report.is_peak = !options.at;
  report.settings = options.settings;
  add_file_warnings(file.health(), report.warnings);
  add_import_warnings(ledger->imported, report.warnings);
  if (ledger->sums_off_after_holes != 0)
    report.warnings.push_back("events are missing in the file: blocks freed there still count as live");
  report.is_recorded = heap.segments.known && !options.simulate;
  report.is_empty = heap.allocations == 0 && !report.is_recorded;
  if (report.is_empty && report.is_peak) return report;
  if (options.at && *options.at >= ledger->events)
    return no_layout(file, "the trace has no event " + std::to_string(*options.at),
                     "its last one is " + std::to_string(ledger->events - 1));

  std::vector<FragmentedSegment> segments;
  const bool blocks_are_requests = ledger->block_counter == "requested";
  std::optional<std::uint64_t> at = options.at;
  if (!at && !ledger->peak_is_known) {
    at = ledger->events - 1;  // a file that tells its end alone
    report.is_peak = false;
  }
  std::uint64_t event = at.value_or(ledger::no_event);
  if (report.is_recorded) {
    report.of_requests = report.has_requested = blocks_are_requests;
    if (!at) event = heap.reserved_and_fullest;
    if (event == ledger::no_event) return no_layout(file, "the heap takes no memory in this range", "a wider --range, or --at EVENT");
    Result<allocator::RecordedLayout> layout = allocator::recorded_layout(file, *ledger, heap.heap, event);
    if (!layout) return layout.take_error();
    report.counters = layout->fragmentation.counters;
    if (report.of_requests) report.counters.requested = report.counters.allocated;
    segments = std::move(layout->fragmentation.segments);
    if (heap.baseline_bytes > 0)
      report.warnings.push_back(format_bytes(static_cast<std::uint64_t>(heap.baseline_bytes), false) +
                                " were allocated before the recording began: where they lie is not known, and in a recorded segment they "
                                "count as free");
    if (layout->outside_blocks != 0)
      report.warnings.push_back(counted(layout->outside_blocks, "block") + " (" + format_bytes(layout->outside_bytes, false) +
                                ") in segments that the trace does not show: taken before the recording began");
  } else {
    allocator::SimulatedOptions simulated;
    simulated.heap = heap.heap;
    simulated.settings = *settings;
    simulated.device.capacity = options.capacity;
    simulated.device.order = options.falling_addresses ? allocator::AddressOrder::falling : allocator::AddressOrder::rising;
    simulated.at = at;
    simulated.range = options.range;
    simulated.progress = options.progress;
    Result<allocator::SimulatedLayout> layout = allocator::simulated_layout(file, *ledger, simulated);
    if (!layout) return layout.take_error();
    event = layout->fragmentation.event;
    if (event == ledger::no_event) return no_layout(file, "the heap allocates nothing in this range", "a wider --range, or --at EVENT");
    report.counters = layout->fragmentation.counters;
    report.peaks = layout->peaks;
    report.statistics = layout->statistics;
    segments = std::move(layout->fragmentation.segments);
    const std::vector<trace::Heap>& heaps = file.dictionary().heaps;
    report.has_requested = blocks_are_requests || heap.heap >= heaps.size() || heaps[heap.heap].device_type != cuda_device;
    if (!report.has_requested) report.peaks.requested = {};
  }
  for (FragmentedSegment& segment : segments) {
    report.free_bytes += segment.free_bytes;
    report.largest_free = std::max(report.largest_free, segment.largest_free);
    report.unpinned_bytes += segment.used == 0 ? segment.free_bytes : 0;
    report.segments.push_back(figure_of(std::move(segment), *ledger, options.top));
  }
  // What something lives in and is not full comes first: nothing else keeps memory from everybody.
  const auto rank = [](const SegmentFigure& figure) {
    const FragmentedSegment& segment = figure.segment;
    return std::pair(segment.used != 0 && segment.free_bytes != 0, segment.free_bytes);
  };
  std::stable_sort(report.segments.begin(), report.segments.end(),
                   [&](const SegmentFigure& a, const SegmentFigure& b) { return rank(a) > rank(b); });
  report.moment.event = event;
  if (Status status = name_pins(file, *ledger, options, report); !status) return status.take_error();
  Result<PeakFigure> moment = moment_at(file, *ledger, event);
  if (!moment) return moment.take_error();
  report.moment = std::move(*moment);
  report.moment.counter = "reserved";
  report.moment.bytes = report.counters.reserved;
  report.moment.is_known = options.at || ledger->peak_is_known;
  return report;
}

namespace {

const char* source_of(const FragmentationReport& report) { return report.is_recorded ? "recorded" : "simulated"; }

std::string shortage_text(const FragmentationReport& report) {
  if (report.statistics.out_of_memory == 0) return "";
  return "the simulated device has no memory for " + counted(report.statistics.out_of_memory, "allocation") +
         ": what they would have held is not in these figures";
}

// What a segment is taken for; empty: an expandable one of a trace, which does not tell.
std::string pool_of(const FragmentationReport& report, const FragmentedSegment& segment) {
  if (report.is_recorded && segment.expandable) return "";
  return segment.small ? "small" : "large";
}

std::string pin_text(const PinFigure& pin) {
  if (pin.pin.pending) return "freed, waits for another stream";
  if (!pin.name.empty()) return pin.name;
  std::string text = pin.module.empty() ? "-" : pin.module;
  if (!pin.names.empty())
    text += " <- " + pin.names.front();
  else if (!pin.op.empty())
    text += " " + pin.op;
  return text;
}

ordered_json pin_json(const FragmentationReport& report, const PinFigure& pin) {
  ordered_json json = {{"bytes", pin.pin.size},     {"address", pin.pin.address},     {"class", trace::class_name(pin.memory_class)},
                       {"name", or_null(pin.name)}, {"module", or_null(pin.module)},  {"op", or_null(pin.op)},
                       {"names", pin.names},        {"birth_event", pin.birth_event}, {"pending", pin.pin.pending}};
  json["requested"] = report.of_requests     ? ordered_json(pin.pin.size)
                      : report.has_requested ? ordered_json(pin.pin.requested)
                                             : ordered_json(nullptr);
  return json;
}

ordered_json peak_of_counter(const allocator::Peak& peak) {
  return peak.event == allocator::Peak::no_event ? ordered_json(nullptr) : ordered_json{{"bytes", peak.bytes}, {"event", peak.event}};
}

std::string share_text(std::uint64_t bytes, const Style& style) { return format_bytes(bytes, style.exact_bytes); }

Table segments_table(const FragmentationReport& report, TableFormat format, const Style& style, std::size_t top) {
  std::vector<Column> columns = {{"segment", true},      {"pool"},        {"bytes", true}, {"used", true}, {"free", true},
                                 {"largest free", true}, {"blocks", true}};
  if (format == TableFormat::csv) {
    columns.push_back({"address", true});
    columns.push_back({"stream", true});
    columns.push_back({"expandable"});
    columns.push_back({"free_is_at_most"});
  }
  if (report.of_requests && format != TableFormat::csv) {
    columns[3].title = "requested";
    columns[4].title = "free at most";
    columns[5].title = "largest free";
  }
  Table table(std::move(columns), format, style);
  for (std::size_t i = 0; i < std::min(top, report.segments.size()); ++i) {
    const FragmentedSegment& segment = report.segments[i].segment;
    const std::string pool = format != TableFormat::csv && segment.expandable ? "expandable" : pool_of(report, segment);
    std::vector<Cell> cells = {Cell::words(std::to_string(segment.number)),
                               Cell::words(pool),
                               Cell::bytes(segment.size),
                               Cell::bytes(segment.used),
                               Cell::bytes(segment.free_bytes),
                               Cell::bytes(segment.largest_free),
                               Cell::count(report.segments[i].pins)};
    if (format == TableFormat::csv) {
      cells.push_back(Cell::words(std::to_string(segment.address)));
      cells.push_back(Cell::words(std::to_string(segment.stream)));
      cells.push_back(Cell::words(segment.expandable ? "yes" : "no"));
      cells.push_back(Cell::words(report.of_requests ? "yes" : "no"));
    }
    table.row(std::move(cells));
  }
  return table;
}

Table pins_table(const FragmentationReport& report, TableFormat format, const Style& style, std::size_t top) {
  constexpr std::size_t shown_pins = 3;
  Table table({{"segment", true}, {"bytes", true}, {"class"}, {"born", true}, {"value"}}, format, style);
  for (std::size_t i = 0; i < std::min(top, report.segments.size()); ++i) {
    const SegmentFigure& segment = report.segments[i];
    if (segment.segment.free_bytes == 0) continue;
    for (std::size_t pin = 0; pin < std::min(shown_pins, segment.largest.size()); ++pin) {
      const PinFigure& shown = segment.largest[pin];
      table.row({Cell::words(std::to_string(segment.segment.number)), Cell::bytes(shown.pin.size),
                 Cell::words(trace::class_name(shown.memory_class)), Cell::words(std::to_string(shown.birth_event)),
                 Cell::words(pin_text(shown))});
    }
  }
  return table;
}

}  // namespace

ordered_json fragmentation_json(const FragmentationReport& report) {
  ordered_json json = {
      {"schema", "liveset.fragmentation/1"}, {"file", report.file}, {"layout", source_of(report)}, {"is_peak", report.is_peak}};
  json["settings"] = report.is_recorded ? ordered_json(nullptr) : ordered_json(report.settings);
  if (report.is_empty) {
    for (const char* key : {"heap", "event", "time_ns", "step", "phase", "module"}) json[key] = nullptr;
  } else {
    json["heap"] = report.moment.heap;
    json["event"] = report.moment.event;
    json["time_ns"] = report.moment.time_ns;
    json["step"] = or_null(report.moment.step);
    json["phase"] = trace::phase_name(report.moment.phase);
    json["module"] = or_null(report.moment.module);
  }
  json["counters"] = {{"requested", report.has_requested ? ordered_json(report.counters.requested) : ordered_json(nullptr)},
                      {"allocated", report.of_requests ? ordered_json(nullptr) : ordered_json(report.counters.allocated)},
                      {"active", report.of_requests ? ordered_json(nullptr) : ordered_json(report.counters.active)},
                      {"reserved", report.counters.reserved}};
  json["free_is_at_most"] = report.of_requests;
  json["free_bytes"] = report.free_bytes;
  json["largest_free"] = report.largest_free;
  json["unpinned_bytes"] = report.unpinned_bytes;
  if (!report.is_recorded) {
    json["peaks"] = {{"requested", peak_of_counter(report.peaks.requested)},
                     {"allocated", peak_of_counter(report.peaks.allocated)},
                     {"active", peak_of_counter(report.peaks.active)},
                     {"reserved", peak_of_counter(report.peaks.reserved)}};
    json["device"] = {{"mallocs", report.statistics.device_mallocs},
                      {"frees", report.statistics.device_frees},
                      {"retries", report.statistics.retries},
                      {"out_of_memory", report.statistics.out_of_memory}};
  }
  json["segments"] = ordered_json::array();
  for (const SegmentFigure& figure : report.segments) {
    const FragmentedSegment& segment = figure.segment;
    ordered_json row = {{"segment", segment.number},
                        {"pool", or_null(pool_of(report, segment))},
                        {"expandable", segment.expandable},
                        {"stream", segment.stream},
                        {"address", segment.address},
                        {"bytes", segment.size},
                        {"used", segment.used},
                        {"free_bytes", segment.free_bytes},
                        {"largest_free", segment.largest_free},
                        {"blocks", figure.pins}};
    row["pinned_by"] = ordered_json::array();
    for (const PinFigure& pin : figure.largest) row["pinned_by"].push_back(pin_json(report, pin));
    json["segments"].push_back(std::move(row));
  }
  json["warnings"] = report.warnings;
  if (const std::string shortage = shortage_text(report); !shortage.empty()) json["warnings"].insert(json["warnings"].begin(), shortage);
  return json;
}

std::string fragmentation_text(const FragmentationReport& report, std::size_t top, const Style& style) {
  std::string text;
  if (report.is_empty) {
    text = "FRAGMENTATION  none: the trace has no allocation\n";
  } else {
    std::string headline = peak_headline(report.moment, style);
    if (!report.is_peak && report.moment.is_known) headline.replace(headline.find("PEAK"), 4, "HELD");
    if (const std::string shortage = shortage_text(report); !shortage.empty())
      text += "OUT OF MEMORY  " + wrapped(shortage, style, 15) + "\n";
    text += headline;
    text += report.is_recorded
                ? "      layout: the allocator's own segments, as recorded\n"
                : "      layout: simulated, PyTorch's CUDA caching allocator" +
                      (report.settings.empty() ? std::string(", default settings") : ", " + printable(report.settings, style)) + "\n";
    text += "\n  ";
    if (report.has_requested) text += share_text(report.counters.requested, style) + " requested, ";
    if (!report.of_requests) text += share_text(report.counters.allocated, style) + " allocated, ";
    if (!report.of_requests && report.counters.active != report.counters.allocated)
      text += share_text(report.counters.active, style) + " active, ";
    text += share_text(report.counters.reserved, style) + " reserved in " + counted(report.segments.size(), "segment") + "\n";
    const std::string at_most = report.of_requests ? "at most " : "";
    text += "  free: " + at_most + share_text(report.free_bytes, style) + " (" +
            format_percent(report.free_bytes, report.counters.reserved) + " of reserved), of it " +
            share_text(report.unpinned_bytes, style) + " in segments that nothing lives in\n  largest free run: " + at_most +
            share_text(report.largest_free, style) + "\n";
    if (report.of_requests) text += "  (the blocks are as they were asked for: what they are rounded up by counts as free)\n";
    text += "\n";
    text += segments_table(report, TableFormat::text, style, top).render();
    text += more_line(report.segments.size(), std::min(top, report.segments.size()), "segments");
    if (const Table pins = pins_table(report, TableFormat::text, style, top); !pins.empty())
      text += "\nWhat pins them: the largest three of each (born: event of the allocation)\n" + pins.render();
  }
  for (const std::string& warning : report.warnings) text += "\nWARNING  " + printable(warning, style);
  return report.warnings.empty() ? text : text + "\n";
}

std::string fragmentation_markdown(const FragmentationReport& report, const Style& style) {
  const std::string shortage = shortage_text(report);
  return (shortage.empty() ? "" : "- out of memory: " + shortage + "\n\n") +
         segments_table(report, TableFormat::md, style, report.segments.size()).render() + "\n" +
         pins_table(report, TableFormat::md, style, report.segments.size()).render();
}

std::string fragmentation_csv(const FragmentationReport& report) {
  return segments_table(report, TableFormat::csv, {}, report.segments.size()).render();
}

}  // namespace liveset::report
