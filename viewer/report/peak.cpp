#include "viewer/report/peak.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "viewer/report/or_null.h"
#include "viewer/report/stacks.h"
#include "viewer/report/trace_info.h"

namespace liveset::report {
namespace {

using nlohmann::ordered_json;

// What nothing retains, by where it was born.
std::string without_op(const LiveBlock& block, bool has_nodes) {
  using trace::MemoryClass;
  switch (block.memory_class) {
    case MemoryClass::parameter:
    case MemoryClass::buffer:
    case MemoryClass::optimizer_state:
    case MemoryClass::gradient:
    case MemoryClass::input:
    case MemoryClass::unattributed: break;
    default:
      if (has_nodes) return "(" + std::string(trace::phase_name(block.detail.phase)) + ", not retained)";
  }
  return has_nodes ? "(" + std::string(trace::class_name(block.memory_class)) + ")" : "(no op)";
}

// Weights are retained by nodes as well; who owns them says more.
bool is_of_the_model(trace::MemoryClass memory_class) {
  using trace::MemoryClass;
  return memory_class == MemoryClass::parameter || memory_class == MemoryClass::buffer || memory_class == MemoryClass::optimizer_state ||
         memory_class == MemoryClass::gradient;
}

struct Grouping {
  GroupBy by = GroupBy::memory_class;
  const Rules& rules;
  bool has_nodes = false;  // the trace tells of autograd
  std::string without_stack;
};

std::string group_of(const ListedBlock& block, const Grouping& grouping) {
  const std::string memory_class(trace::class_name(block.memory_class));
  switch (grouping.by) {
    case GroupBy::memory_class: return memory_class + (block.is_gathered ? " (gathered)" : block.is_sharded ? " (sharded)" : "");
    // Parameters and what the optimizer keeps are made in no module: their class says more than "none".
    case GroupBy::module: return block.module.empty() ? "(" + memory_class + ")" : block.module;
    case GroupBy::op:
      if (!block.scope_op.empty()) return block.scope_op;
      return block.op.empty() || is_of_the_model(block.memory_class) ? without_op(block, grouping.has_nodes) : block.op;
    case GroupBy::dtype: return block.dtype.empty() ? "(not known)" : block.dtype;
    case GroupBy::phase: return std::string(trace::phase_name(block.detail.phase));
    case GroupBy::step: return block.detail.step ? "step " + std::to_string(*block.detail.step) : "(no step)";
    case GroupBy::size: return std::to_string(block.detail.bytes) + " bytes";
    case GroupBy::stack: return block.stack.empty() ? grouping.without_stack : block.stack;
    case GroupBy::category: return block.category;
  }
  return "";
}

const char* by_name(GroupBy by) {
  constexpr const char* names[] = {"class", "module", "op", "dtype", "phase", "step", "size", "stack", "category"};
  return names[static_cast<int>(by)];
}

// Sums the blocks by group, and keeps the largest ones.
class Collector {
 public:
  Collector(Grouping grouping, std::size_t top) : grouping_(grouping), top_(top) {}

  void add(LiveBlock&& live) {
    ListedBlock block{std::move(live), {}, {}};
    if (grouping_.by == GroupBy::category || !grouping_.rules.empty()) block.category = category_of(grouping_.rules, block);
    Sum& sum = sums_[group_of(block, grouping_)];
    sum.group.bytes += block.detail.bytes;
    ++sum.group.blocks;
    sum.group.guess_bytes += block.guess ? block.detail.bytes : 0;
    has_ops_ |= !block.op.empty();
    auto evidence = sum.evidence.find(block.evidence);
    if (evidence == sum.evidence.end())
      evidence = sum.evidence.try_emplace(sum.evidence.size() < max_evidence ? block.evidence : "(other)").first;
    evidence->second.bytes += block.detail.bytes;
    ++evidence->second.blocks;
    evidence->second.guess |= block.guess;
    largest_.push_back(std::move(block));
    if (largest_.size() >= 2 * top_ + 1024) keep_largest();
  }

  void finish(PeakReport& report) {
    keep_largest();
    report.largest = std::move(largest_);
    report.has_ops = has_ops_;
    for (auto& [name, sum] : sums_) {
      sum.group.name = name;
      sum.group.evidence.assign(sum.evidence.begin(), sum.evidence.end());
      std::stable_sort(sum.group.evidence.begin(), sum.group.evidence.end(),
                       [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
      if (sum.group.evidence.size() > shown_evidence) sum.group.evidence.resize(shown_evidence);
      report.groups.push_back(std::move(sum.group));
    }
    std::stable_sort(report.groups.begin(), report.groups.end(), [](const Group& a, const Group& b) { return a.bytes > b.bytes; });
  }

 private:
  static constexpr std::size_t max_evidence = 256, shown_evidence = 5;
  struct Sum {
    Group group;
    std::map<std::string, EvidenceFigure> evidence;
  };

  void keep_largest() {
    std::stable_sort(largest_.begin(), largest_.end(),
                     [](const ListedBlock& a, const ListedBlock& b) { return a.detail.bytes > b.detail.bytes; });
    if (largest_.size() > top_) largest_.resize(top_);
  }

  Grouping grouping_;
  std::size_t top_;
  std::map<std::string, Sum> sums_;
  std::vector<ListedBlock> largest_;
  bool has_ops_ = false;
};

void add_warnings(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger, PeakReport& report) {
  add_file_warnings(file.health(), report.warnings);
  add_import_warnings(ledger.imported, report.warnings);
  if (ledger.sums_off_after_holes != 0) report.warnings.push_back("events are missing in the file: blocks freed there still count as live");
}

}  // namespace

Result<PeakReport> build_peak(const trace::TraceFile& file, const PeakOptions& options) {
  Result<ledger::PhysicalLedger> ledger = read_physical(file, options.heap, options.range, options.progress);
  if (!ledger) return ledger.take_error();

  // The moment comes first, so that the second pass keeps the names of what lives then; its classes only after that
  // pass.
  const bool is_peak = options.at == ledger::no_event;
  const auto look = [&] { return is_peak ? peak_of(file, *ledger, options.counter) : moment_at(file, *ledger, options.at); };
  PeakReport report;
  report.file = file.path();
  report.is_peak = is_peak;
  report.by = options.by;
  report.has_categories = options.by == GroupBy::category || !options.rules.empty();
  add_warnings(file, *ledger, report);
  Result<std::vector<OutOfMemoryFigure>> out_of_memory = out_of_memory_in(file, *ledger, options.range);
  if (!out_of_memory) return out_of_memory.take_error();
  report.out_of_memory = std::move(*out_of_memory);
  const bool of_blocks = options.counter.empty() || options.counter == ledger->block_counter;
  report.is_empty = !ledger->shown().allocated.known && of_blocks;
  report.peak.counter = of_blocks ? ledger->block_counter : options.counter;
  if (report.is_empty && is_peak) return report;
  Result<PeakFigure> moment = look();
  if (!moment) return moment.take_error();
  Result<ledger::Attribution> attribution = ledger::attribute_blocks(file, *ledger, {moment->event, options.progress});
  if (attribution && attribution->details_left_out)
    report.warnings.push_back("there are too many blocks or slots of regions: of some the names and the regions are not known");
  if (!attribution) return attribution.take_error();
  moment = look();
  if (!moment) return moment.take_error();
  Collector collector({options.by, options.rules, attribution->python, std::string("(") + why_no_stack(file.dictionary()) + ")"},
                      std::min<std::size_t>(options.top, ledger->blocks.end()));
  if (Status status =
          for_each_live_block(file, *ledger, *attribution, moment->event, [&](LiveBlock&& block) { collector.add(std::move(block)); });
      !status)
    return status.take_error();
  collector.finish(report);
  for (ListedBlock& block : report.largest) {
    auto frames = std::make_shared<ordered_json>(ordered_json::object());
    add_frames(file.dictionary(), block.detail.stack, *frames);
    block.frames = std::move(frames);
  }

  report.peak = std::move(*moment);
  Result<std::optional<DryRun>> dry_run = find_dry_run(file);
  if (!dry_run) return dry_run.take_error();
  if (*dry_run) label_peak(**dry_run, report.peak);
  return report;
}

namespace {

ordered_json row_json(const Group& group) {
  ordered_json row = {{"key", group.name}, {"bytes", group.bytes}, {"count", group.blocks}, {"guess_bytes", group.guess_bytes}};
  row["evidence"] = ordered_json::array();
  for (const auto& [text, figure] : group.evidence)
    row["evidence"].push_back({{"evidence", text}, {"bytes", figure.bytes}, {"count", figure.blocks}, {"guess", figure.guess}});
  return row;
}

ordered_json block_json(const ListedBlock& block, bool with_category) {
  const ledger::BlockDetail& detail = block.detail;
  ordered_json entry = {{"bytes", detail.bytes},
                        {"class", trace::class_name(block.memory_class)},
                        {"guess", block.guess},
                        {"evidence", block.evidence},
                        {"address", detail.address},
                        {"birth_event", detail.birth},
                        {"birth_time_ns", detail.birth_time_ns},
                        {"phase", trace::phase_name(detail.phase)},
                        {"name", or_null(block.name)},
                        {"module", or_null(block.module)},
                        {"op", or_null(block.op)},
                        {"slot", or_null(block.slot)},
                        {"dtype", or_null(block.dtype)},
                        {"stack", or_null(block.stack)},
                        {"names", block.names}};
  entry["death_event"] = detail.death == ledger::no_event ? ordered_json(nullptr) : ordered_json(detail.death);
  entry["step"] = or_null(detail.step);
  entry["microbatch"] = or_null(block.microbatch);
  entry["incarnation"] = block.incarnation;
  entry["region"] = or_null(block.region);
  entry["region_slot"] = or_null(block.region_slot);
  if (block.frames != nullptr) entry.update(*block.frames);
  if (with_category) entry["category"] = block.category;
  return entry;
}

}  // namespace

ordered_json peak_report_json(const PeakReport& report) {
  ordered_json json = {{"schema", "liveset.peak/1"}, {"file", report.file}, {"is_peak", report.is_peak && report.peak.is_known}};
  json.update(peak_json(report.peak));
  if (report.is_empty) {  // there is no such place
    for (const char* key : {"heap", "phase"}) json[key] = nullptr;
    if (report.is_peak) json["event"] = json["time_ns"] = nullptr;
  }
  json["out_of_memory"] = out_of_memory_json(report.out_of_memory);
  json["by"] = by_name(report.by);
  json["groups"] = ordered_json::array();
  json["rows"] = ordered_json::array();
  for (const Group& group : report.groups) {
    json["groups"].push_back({{"name", group.name}, {"bytes", group.bytes}, {"blocks", group.blocks}});
    json["rows"].push_back(row_json(group));
  }
  // So that the rows sum to `bytes`.
  if (const std::int64_t other = report.peak.beyond_blocks(); other != 0)
    json["rows"].push_back({{"key", beyond_blocks_name(report.peak)},
                            {"bytes", other},
                            {"count", 0},
                            {"guess_bytes", 0},
                            {"evidence", ordered_json::array()}});
  json["largest"] = ordered_json::array();
  for (const ListedBlock& block : report.largest) json["largest"].push_back(block_json(block, report.has_categories));
  json["warnings"] = report.warnings;
  return json;
}

namespace {

Table groups_table(const PeakReport& report, TableFormat format, const Style& style, std::size_t top) {
  // Only the class of a block is ever guessed; of its module, size or birth the trace knows.
  const bool shows_guesses =
      format != TableFormat::csv && report.by == GroupBy::memory_class &&
      std::any_of(report.groups.begin(), report.groups.end(), [](const Group& group) { return group.guess_bytes != 0; });
  std::vector<Column> columns = {
      {"bytes", true}, {format == TableFormat::csv ? "percent" : "", true}, {"blocks", true}, {by_name(report.by)}};
  if (shows_guesses) columns.push_back({""});
  Table table(std::move(columns), format, style);
  for (std::size_t i = 0; i < std::min(top, report.groups.size()); ++i) {
    const Group& group = report.groups[i];
    std::vector<Cell> cells = {Cell::bytes(group.bytes), Cell::percent(group.bytes, report.peak.allocated_bytes), Cell::count(group.blocks),
                               Cell::words(group.name)};
    if (shows_guesses) cells.push_back(Cell::words(guess_note(group.guess_bytes, group.bytes)));
    table.row(std::move(cells));
  }
  if (report.peak.beyond_blocks() != 0 && format != TableFormat::text) {
    std::vector<Cell> cells = {beyond_blocks_cell(report.peak, format, style), Cell::words(""), Cell::count(0),
                               Cell::words(beyond_blocks_name(report.peak))};
    if (shows_guesses) cells.push_back(Cell::words(""));
    table.row(std::move(cells));
  }
  return table;
}

std::string where(const ledger::LiveBlock& block) {
  std::string text = block.module.empty() ? "-" : block.module;
  if (!block.scope_op.empty()) text += " " + block.scope_op;
  if (!block.names.empty()) {
    text += " <- " + block.names.front();
    if (block.names.size() > 1) text += " +" + std::to_string(block.names.size() - 1);
  } else if (!block.slot.empty()) {  // of a slot that was made again
    text += " <- " + block.op + "." + block.slot;
  }
  return text;
}

Table largest_table(const PeakReport& report, TableFormat format, const Style& style) {
  std::vector<Column> columns = {{"bytes", true}, {"class"}, {"born", true}, {"in"}, {"module <- named by"}};
  if (report.has_categories) columns.push_back({"category"});
  Table table(std::move(columns), format, style);
  for (const ListedBlock& block : report.largest) {
    std::vector<Cell> cells = {Cell::bytes(block.detail.bytes), Cell::words(trace::class_name(block.memory_class)),
                               Cell::words(std::to_string(block.detail.birth)), Cell::words(trace::phase_name(block.detail.phase)),
                               Cell::words(where(block))};
    if (report.has_categories) cells.push_back(Cell::words(block.category));
    table.row(std::move(cells));
  }
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
  if (!report.is_peak && report.peak.is_known) headline.replace(headline.find("PEAK"), 4, "LIVE");
  text +=
      headline + "      " + format_count(report.peak.blocks) + (report.peak.blocks == 1 ? " block is" : " blocks are") + " live then\n\n";
  text += groups_table(report, TableFormat::text, style, std::max<std::size_t>(top, 10)).render();
  const std::size_t shown = std::min(std::max<std::size_t>(top, 10), report.groups.size());
  if (shown < report.groups.size()) text += "  (" + format_count(report.groups.size() - shown) + " more groups; --top shows more)\n";
  if (report.peak.beyond_blocks() != 0)
    text += "  " +
            printable(beyond_blocks_cell(report.peak, TableFormat::text, style).text + " " + beyond_blocks_name(report.peak), style) + "\n";
  if (!report.largest.empty())
    text += "\nThe largest blocks (born: event of the allocation)\n" + largest_table(report, TableFormat::text, style).render();
  for (const std::string& warning : report.warnings) text += "\nWARNING  " + printable(warning, style);
  return report.warnings.empty() ? text : text + "\n";
}

std::string shortage_text(const PeakReport& report, const Style& style) {
  constexpr std::size_t shown_modules = 5;
  std::string text = out_of_memory_text(report.out_of_memory, style) + "\n  what lived then\n" +
                     classes_table(report.peak, TableFormat::text, style).render() + "\n" +
                     groups_table(report, TableFormat::text, style, shown_modules).render();
  if (report.groups.size() > shown_modules) text += "  (" + format_count(report.groups.size() - shown_modules) + " more modules)\n";
  if (!report.largest.empty()) text += "\n" + largest_table(report, TableFormat::text, style).render();
  return text + "\nNext: liveset peak " + printable(quoted(report.file), style) + " --at " + std::to_string(report.peak.event) +
         " --by module\n";
}

std::string peak_markdown(const PeakReport& report, const Style& style) {
  return groups_table(report, TableFormat::md, style, report.groups.size()).render() + "\n" +
         largest_table(report, TableFormat::md, style).render();
}

std::string peak_csv(const PeakReport& report) { return groups_table(report, TableFormat::csv, {}, report.groups.size()).render(); }

}  // namespace liveset::report
