#include "viewer/report/peak.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace liveset::report {
namespace {

using nlohmann::ordered_json;

// Name of the innermost scope of kind op.
std::string op_of(const trace::Dictionary& names, std::uint32_t scope) {
  for (int depth = 0; scope != 0 && scope < names.scopes.size() && depth < 256; ++depth, scope = names.scopes[scope].parent) {
    if (names.scopes[scope].kind == trace::ScopeKind::op) return std::string(names.string(names.scopes[scope].name));
  }
  return "";
}

std::string group_of(const LiveBlock& block, GroupBy by) {
  switch (by) {
    case GroupBy::memory_class: return std::string(trace::class_name(block.memory_class));
    // Parameters and what the optimizer keeps are made in no module: their class says more than "none".
    case GroupBy::module: return block.module.empty() ? "(" + std::string(trace::class_name(block.memory_class)) + ")" : block.module;
    case GroupBy::op: return block.op.empty() ? "(no op)" : block.op;
    case GroupBy::phase: return std::string(trace::phase_name(block.detail.phase));
    case GroupBy::step: return block.detail.step ? "step " + std::to_string(*block.detail.step) : "(no step)";
    case GroupBy::size: return std::to_string(block.detail.bytes) + " bytes";
  }
  return "";
}

const char* by_name(GroupBy by) {
  constexpr const char* names[] = {"class", "module", "op", "phase", "step", "size"};
  return names[static_cast<int>(by)];
}

std::string name_of(const trace::Dictionary& names, const ledger::BlockName& name) {
  const std::uint32_t id = name.value != 0 && name.value < names.values.size() ? names.values[name.value].name : name.name;
  return std::string(names.string(id));
}

// A module path at birth costs a walk up the scope tree; live sets repeat few scopes.
class ScopeNames {
 public:
  explicit ScopeNames(const trace::Dictionary& names) : names_(names) {}
  const std::pair<std::string, std::string>& of(std::uint32_t scope) {
    const auto found = known_.find(scope);
    if (found != known_.end()) return found->second;
    return known_[scope] = {names_.module_path(scope), op_of(names_, scope)};
  }

 private:
  const trace::Dictionary& names_;
  std::map<std::uint32_t, std::pair<std::string, std::string>> known_;
};

Result<std::vector<LiveBlock>> live_set(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger,
                                        const ledger::Attribution& attribution, std::uint64_t event) {
  const std::vector<std::uint32_t> ordinals = ledger::live_blocks(ledger, ledger.shown_heap, event);
  Result<std::vector<ledger::BlockDetail>> details = ledger::describe_blocks(file, ledger, ordinals);
  if (!details) return details.take_error();
  ScopeNames scopes(file.dictionary());
  std::vector<LiveBlock> blocks;
  blocks.reserve(details->size());
  for (const ledger::BlockDetail& detail : *details) {
    LiveBlock block;
    block.detail = detail;
    block.memory_class = ledger::class_of(*ledger.blocks.find(detail.ordinal));
    std::tie(block.module, block.op) = scopes.of(detail.scope);
    if (const auto names = attribution.details.find(detail.ordinal); names != attribution.details.end()) {
      for (const ledger::BlockName& name : names->second.names) block.names.push_back(name_of(file.dictionary(), name));
    }
    blocks.push_back(std::move(block));
  }
  return blocks;
}

std::vector<Group> group(const std::vector<LiveBlock>& blocks, GroupBy by) {
  std::map<std::string, Group> groups;
  for (const LiveBlock& block : blocks) {
    Group& group = groups[group_of(block, by)];
    group.bytes += block.detail.bytes;
    ++group.blocks;
  }
  std::vector<Group> sorted;
  for (auto& [name, group] : groups) sorted.push_back({name, group.bytes, group.blocks});
  std::stable_sort(sorted.begin(), sorted.end(), [](const Group& a, const Group& b) { return a.bytes > b.bytes; });
  return sorted;
}

void add_warnings(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger, PeakReport& report) {
  const trace::Health& health = file.health();
  if (health.truncated || health.damaged_packets != 0) report.warnings.push_back("the file is incomplete: " + health.note);
  if (health.lost_events != 0) report.warnings.push_back(format_count(health.lost_events) + " events were lost");
  if (ledger.sums_off_after_holes != 0) report.warnings.push_back("events are missing in the file: blocks freed there still count as live");
}

}  // namespace

Result<PeakReport> build_peak(const trace::TraceFile& file, const PeakOptions& options) {
  ledger::PhysicalOptions physical;
  physical.range = options.range;
  physical.progress = options.progress;
  if (!options.heap.empty()) {
    Result<std::uint32_t> heap = ledger::find_heap(file, options.heap);
    if (!heap) return heap.take_error();
    physical.heap = *heap;
  }
  Result<ledger::PhysicalLedger> ledger = ledger::build_physical(file, physical);
  if (!ledger) return ledger.take_error();

  // The moment comes first, so that the second pass keeps the names of what lives then; its classes only after that
  // pass.
  const bool is_peak = options.at == ledger::no_event;
  const auto look = [&] { return is_peak ? peak_of(file, *ledger, options.counter) : moment_at(file, *ledger, options.at); };
  PeakReport report;
  report.file = file.path();
  report.is_peak = is_peak;
  report.by = options.by;
  add_warnings(file, *ledger, report);
  Result<std::vector<OutOfMemoryFigure>> out_of_memory = out_of_memory_in(file, *ledger, options.range);
  if (!out_of_memory) return out_of_memory.take_error();
  report.out_of_memory = std::move(*out_of_memory);
  report.is_empty = !ledger->shown().allocated.known && options.counter == "allocated";
  report.peak.counter = options.counter;
  if (report.is_empty && is_peak) return report;
  Result<PeakFigure> moment = look();
  if (!moment) return moment.take_error();
  Result<ledger::Attribution> attribution = ledger::attribute_blocks(file, *ledger, {moment->event, options.progress});
  if (!attribution) return attribution.take_error();
  moment = look();
  if (!moment) return moment.take_error();
  Result<std::vector<LiveBlock>> blocks = live_set(file, *ledger, *attribution, moment->event);
  if (!blocks) return blocks.take_error();

  report.peak = std::move(*moment);
  Result<std::optional<DryRun>> dry_run = find_dry_run(file);
  if (!dry_run) return dry_run.take_error();
  if (*dry_run) label_peak(**dry_run, report.peak);
  report.groups = group(*blocks, options.by);
  std::stable_sort(blocks->begin(), blocks->end(), [](const LiveBlock& a, const LiveBlock& b) { return a.detail.bytes > b.detail.bytes; });
  if (blocks->size() > options.top) blocks->resize(options.top);
  report.largest = std::move(*blocks);
  return report;
}

ordered_json peak_report_json(const PeakReport& report) {
  ordered_json json = {{"schema", "liveset.peak/1"}, {"file", report.file}, {"is_peak", report.is_peak}};
  json.update(peak_json(report.peak));
  if (report.is_empty) {  // there is no such place
    for (const char* key : {"heap", "phase"}) json[key] = nullptr;
    if (report.is_peak) json["event"] = json["time_ns"] = nullptr;
  }
  json["out_of_memory"] = out_of_memory_json(report.out_of_memory);
  json["by"] = by_name(report.by);
  json["groups"] = ordered_json::array();
  for (const Group& group : report.groups)
    json["groups"].push_back({{"name", group.name}, {"bytes", group.bytes}, {"blocks", group.blocks}});
  json["largest"] = ordered_json::array();
  for (const LiveBlock& block : report.largest) {
    const ledger::BlockDetail& detail = block.detail;
    ordered_json entry = {{"bytes", detail.bytes},
                          {"class", trace::class_name(block.memory_class)},
                          {"address", detail.address},
                          {"birth_event", detail.birth},
                          {"birth_time_ns", detail.birth_time_ns},
                          {"phase", trace::phase_name(detail.phase)},
                          {"module", block.module.empty() ? ordered_json(nullptr) : ordered_json(block.module)},
                          {"op", block.op.empty() ? ordered_json(nullptr) : ordered_json(block.op)},
                          {"names", block.names}};
    entry["death_event"] = detail.death == ledger::no_event ? ordered_json(nullptr) : ordered_json(detail.death);
    entry["step"] = detail.step ? ordered_json(*detail.step) : ordered_json(nullptr);
    json["largest"].push_back(std::move(entry));
  }
  json["warnings"] = report.warnings;
  return json;
}

namespace {

Table groups_table(const PeakReport& report, TableFormat format, const Style& style, std::size_t top) {
  Table table({{"bytes", true}, {"", true}, {"blocks", true}, {by_name(report.by)}}, format, style);
  if (format == TableFormat::csv)
    table = Table({{"bytes", true}, {"percent", true}, {"blocks", true}, {by_name(report.by)}}, format, style);
  for (std::size_t i = 0; i < std::min(top, report.groups.size()); ++i) {
    const Group& group = report.groups[i];
    table.row({Cell::bytes(group.bytes), Cell::percent(group.bytes, report.peak.allocated_bytes), Cell::count(group.blocks),
               Cell::words(group.name)});
  }
  return table;
}

std::string where(const LiveBlock& block) {
  std::string text = block.module.empty() ? "-" : block.module;
  if (!block.op.empty()) text += " " + block.op;
  if (!block.names.empty()) {
    text += " <- " + block.names.front();
    if (block.names.size() > 1) text += " +" + std::to_string(block.names.size() - 1);
  }
  return text;
}

Table largest_table(const PeakReport& report, TableFormat format, const Style& style) {
  Table table({{"bytes", true}, {"class"}, {"born", true}, {"in"}, {"module <- named by"}}, format, style);
  for (const LiveBlock& block : report.largest)
    table.row({Cell::bytes(block.detail.bytes), Cell::words(trace::class_name(block.memory_class)),
               Cell::words(std::to_string(block.detail.birth)), Cell::words(trace::phase_name(block.detail.phase)),
               Cell::words(where(block))});
  return table;
}

}  // namespace

std::string peak_text(const PeakReport& report, std::size_t top, const Style& style) {
  std::string text = out_of_memory_text(report.out_of_memory, style);
  if (!text.empty()) text += "\n";
  if (report.is_empty) {
    text += report.is_peak ? "PEAK  none: the trace has no allocation\n" : "LIVE  nothing: the trace has no allocation\n";
    for (const std::string& warning : report.warnings) text += "\nWARNING  " + printable(warning, style);
    return report.warnings.empty() ? text : text + "\n";
  }
  std::string headline = peak_headline(report.peak, style);
  if (!report.is_peak) headline.replace(headline.find("PEAK"), 4, "LIVE");
  text +=
      headline + "      " + format_count(report.peak.blocks) + (report.peak.blocks == 1 ? " block is" : " blocks are") + " live then\n\n";
  text += groups_table(report, TableFormat::text, style, std::max<std::size_t>(top, 10)).render();
  const std::size_t shown = std::min(std::max<std::size_t>(top, 10), report.groups.size());
  if (shown < report.groups.size()) text += "  (" + format_count(report.groups.size() - shown) + " more groups; --top shows more)\n";
  if (report.peak.allocated_bytes < report.peak.bytes)
    text += "  (" + format_bytes(report.peak.bytes - report.peak.allocated_bytes, style.exact_bytes) +
            " in no block: kept by the allocator for later)\n";
  if (!report.largest.empty())
    text += "\nThe largest blocks (born: event of the allocation)\n" + largest_table(report, TableFormat::text, style).render();
  for (const std::string& warning : report.warnings) text += "\nWARNING  " + printable(warning, style);
  return report.warnings.empty() ? text : text + "\n";
}

std::string peak_markdown(const PeakReport& report, const Style& style) {
  return groups_table(report, TableFormat::md, style, report.groups.size()).render() + "\n" +
         largest_table(report, TableFormat::md, style).render();
}

std::string peak_csv(const PeakReport& report) { return groups_table(report, TableFormat::csv, {}, report.groups.size()).render(); }

}  // namespace liveset::report
