#include "viewer/report/leaks.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <tuple>

#include "viewer/ledger/details.h"
#include "viewer/ledger/value_names.h"
#include "viewer/report/json_stream.h"
#include "viewer/report/or_null.h"
#include "viewer/report/trace_info.h"

namespace liveset::report {
namespace {

using ledger::OverdueBlock;
using ledger::Release;
using nlohmann::ordered_json;

constexpr std::size_t most_path = 1024;  // bytes: tens of thousands of values may have one each

class Builder {
 public:
  Builder(const trace::TraceFile& file, const ledger::PhysicalLedger& physical, const ledger::Lineage& lineage)
      : names_(file.dictionary()), physical_(physical), lineage_(lineage) {}

  LeakFigure figure(const OverdueBlock& block) const {
    LeakFigure figure;
    figure.module = names_.module_path(block.scope, most_path);
    figure.slot = names_.string(block.slot);
    figure.kind = block.read_again ? "region_input" : block.region != 0 ? "given_up" : block.remade ? "remade" : "retained";
    figure.name = ledger::incarnation_name(ledger::value_name(figure.module, figure.slot), block.incarnation);
    figure.incarnation = block.incarnation;
    figure.step = ledger::step_at(physical_, physical_.blocks.find(block.block)->birth);
    figure.bytes = block.bytes;
    figure.held_ns = block.held_ns;
    figure.block = block.block;
    figure.freed = block.release != Release::at_the_end;
    how_it_went(block, figure);
    return figure;
  }

 private:
  void how_it_went(const OverdueBlock& block, LeakFigure& figure) const {
    switch (block.release) {
      case Release::at_the_end: figure.evidence = "alive when the trace ended"; break;
      case Release::in_node: {
        const std::string node(names_.string(block.released_in));
        figure.evidence = "freed while " + node + " ran";
        figure.holder = "backward's " + node;
        break;
      }
      case Release::in_module: {
        const std::string module = names_.module_path(block.released_in, most_path);
        figure.evidence = "freed during the forward of " + (module.empty() ? "a region" : module);
        figure.holder = "a reference in " + (module.empty() ? "a region" : module);
        break;
      }
      case Release::many:
        figure.evidence = "freed at once with " + format_count(block.freed_at_once - 1) + " other blocks, outside of modules and backward";
        figure.holder = "a reference cycle";
        break;
      case Release::outside:
        figure.evidence = "freed outside of modules and backward";
        figure.holder = "a variable";
        break;
    }
    if (block.region != 0) {
      const std::string region = names_.scope_path(lineage_.regions[block.region - 1].scope, most_path);
      figure.evidence = (block.read_again ? "read by the recompute of " + region + "; "
                                          : "given up by " + region + ", and alive when that made it again; ") +
                        figure.evidence;
      figure.holder = block.read_again ? "a variable that " + region + " reads" : "the output of " + region;
    }
    figure.guess = !figure.holder.empty();
    if (block.holder == 0) return;
    figure.holder = names_.string(block.holder);
    figure.guess = false;
  }

  const trace::Dictionary& names_;
  const ledger::PhysicalLedger& physical_;
  const ledger::Lineage& lineage_;
};

ordered_json leak_json(const LeakFigure& leak) {
  return {{"name", leak.name},          {"module", leak.module},
          {"slot", or_null(leak.slot)}, {"incarnation", leak.incarnation},
          {"kind", leak.kind},          {"step", leak.step ? ordered_json(*leak.step) : ordered_json(nullptr)},
          {"bytes", leak.bytes},        {"held_ns", leak.held_ns},
          {"freed", leak.freed},        {"holder", or_null(leak.holder)},
          {"guess", leak.guess},        {"evidence", leak.evidence},
          {"block", leak.block}};
}

// Groups that people cannot tell apart are one row.
std::vector<LeakRow> rows_of(const std::vector<ledger::OverdueGroup>& groups, const Builder& builder) {
  std::map<std::tuple<std::string, std::string, std::string>, LeakRow> found;
  for (const ledger::OverdueGroup& group : groups) {
    LeakFigure figure = builder.figure(group.example);
    LeakRow& row = found[{figure.name, figure.kind, figure.holder}];
    if (row.times == 0) row.example = std::move(figure);
    row.times += group.blocks;
    row.most_bytes = std::max(row.most_bytes, group.most_bytes);
    row.longest_ns = std::max(row.longest_ns, group.longest_ns);
    row.byte_seconds += group.byte_seconds;
  }
  std::vector<LeakRow> rows;
  for (auto& [key, row] : found) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(), [](const LeakRow& a, const LeakRow& b) { return a.byte_seconds > b.byte_seconds; });
  return rows;
}

ordered_json row_json(const LeakRow& row) {
  return {{"name", row.example.name},
          {"kind", row.example.kind},
          {"holder", or_null(row.example.holder)},
          {"guess", row.example.guess},
          {"times", row.times},
          {"most_bytes", row.most_bytes},
          {"longest_ns", row.longest_ns},
          {"byte_seconds", row.byte_seconds}};
}

std::string holder_of(const LeakFigure& leak) {
  if (leak.holder.empty()) return leak.evidence;
  return leak.guess ? "perhaps " + leak.holder : leak.holder;
}

Table leaks_table(const std::vector<LeakRow>& rows, std::size_t top, TableFormat format, const Style& style) {
  Table table({{"bytes", true}, {"too long", true}, {"times", true}, {"value"}, {"held by", false, 0, true}}, format, style);
  for (std::size_t i = 0; i < std::min(top, rows.size()); ++i)
    table.row({Cell::bytes(rows[i].most_bytes), Cell::words(format_time(rows[i].longest_ns)), Cell::count(rows[i].times),
               Cell::words(rows[i].example.name), Cell::words(holder_of(rows[i].example))});
  return table;
}

Table dtypes_table(const LeaksReport& report, std::size_t top, TableFormat format, const Style& style) {
  Table table({{"bytes", true}, {"pairs", true}, {"dtypes"}, {"module"}, {"saved as"}}, format, style);
  for (std::size_t i = 0; i < std::min(top, report.two_dtypes.size()); ++i) {
    const TwoDtypesFigure& cast = report.two_dtypes[i];
    table.row({Cell::bytes(cast.bytes), Cell::count(cast.pairs), Cell::words(cast.dtypes[0] + ", " + cast.dtypes[1]),
               Cell::words(cast.module.empty() ? "-" : cast.module), Cell::words(cast.slots[0] + ", " + cast.slots[1])});
  }
  return table;
}

Table growth_table(const LeaksReport& report, std::size_t top, TableFormat format, const Style& style) {
  Table table({{"bytes", true}, {"blocks", true}, {"of", true}, {"steps"}, {"class"}, {"made in"}, {"held by", false, 0, true}}, format,
              style);
  for (std::size_t i = 0; i < std::min(top, report.growth.size()); ++i) {
    const GrowthFigure& growth = report.growth[i];
    table.row({Cell::bytes(growth.bytes), Cell::count(growth.blocks), Cell::bytes(growth.block_bytes),
               Cell::words(std::to_string(growth.first_step) + ".." + std::to_string(growth.last_step)),
               Cell::words(growth.memory_class.empty() ? "-" : growth.memory_class),
               Cell::words(growth.module.empty() ? "-" : growth.module), Cell::words(growth.holder.empty() ? "-" : growth.holder)});
  }
  return table;
}

void add_streams(const trace::TraceFile& file, const ledger::PhysicalLedger& physical, LeaksReport& report) {
  constexpr std::size_t most_names = 16;
  const trace::Dictionary& names = file.dictionary();
  for (const ledger::SampledCounter& counter : physical.counters) {
    if (counter.peak <= 0 || names.string(counter.name) != "waiting_for_streams" || counter.heap >= names.heaps.size()) continue;
    StreamFigure& figure = report.streams.emplace_back();
    figure.heap = names.string(names.heaps[counter.heap].name);
    figure.bytes = static_cast<std::uint64_t>(counter.peak);
    figure.event = counter.peak_event;
    figure.samples = counter.samples;
    // The sample is taken when the step is over, before the next begins.
    for (const ledger::Step& step : physical.steps) {
      if (step.first_event <= counter.peak_event) figure.step = step.number;
    }
  }
  if (report.streams.empty()) return;
  for (const std::string& name : names.strings) {
    if (name.starts_with("stream ") && name.ends_with(", by record_stream") && report.stream_names.size() < most_names)
      report.stream_names.push_back(name);
  }
}

std::string streams_text(const LeaksReport& report, const Style& style) {
  std::string text = "STREAMS  freed by the job, and still waiting for a stream (sampled at the ends of steps)\n";
  for (const StreamFigure& figure : report.streams) {
    text += "  " + printable(figure.heap, style) + "  up to " + format_bytes(figure.bytes, style.exact_bytes);
    if (figure.step) text += ", step " + std::to_string(*figure.step);
    text += "\n";
  }
  for (const std::string& name : report.stream_names) text += "  " + printable(name, style) + "\n";
  return text;
}

}  // namespace

Result<LeaksReport> build_leaks(const trace::TraceFile& file, const LeaksOptions& options) {
  ledger::PhysicalOptions physical_options;
  physical_options.progress = options.progress;
  Result<ledger::PhysicalLedger> physical = ledger::build_physical(file, physical_options);
  if (!physical) return physical.take_error();
  Result<ledger::Lineage> lineage = ledger::trace_lineage(file, *physical, {options.range, options.progress});
  if (!lineage) return lineage.take_error();
  ledger::RetentionOptions wanted{options.range, options.min_bytes, options.min_delay_ns, options.progress};
  Result<ledger::Retention> found = ledger::trace_retention(file, *physical, *lineage, wanted);
  if (!found) return found.take_error();

  LeaksReport report;
  report.file = file.path();
  report.nodes = found->nodes;
  report.overdue = found->overdue_blocks;
  report.never_used = found->unused_blocks;
  const trace::Dictionary& names = file.dictionary();
  const Builder builder(file, *physical, *lineage);
  report.rows = rows_of(found->overdue_groups, builder);
  report.unused_rows = rows_of(found->unused_groups, builder);
  for (const OverdueBlock& block : found->overdue) report.values.push_back(builder.figure(block));
  for (const OverdueBlock& block : found->unused) report.unused.push_back(builder.figure(block));
  for (const ledger::TwoDtypes& cast : found->two_dtypes) {
    if (cast.bytes < options.min_bytes) continue;
    TwoDtypesFigure& figure = report.two_dtypes.emplace_back();
    figure.module = names.module_path(cast.scope, most_path);
    for (int i = 0; i < 2; ++i) {
      figure.slots[i] = names.string(cast.slots[i]);
      figure.dtypes[i] = trace::dtype_name(cast.dtypes[i]);
    }
    figure.bytes = cast.bytes;
    figure.elements = cast.elements;
    figure.pairs = cast.blocks;
    figure.backwards = cast.times;
  }
  for (const ledger::Growth& growth : found->growth) {
    GrowthFigure& figure = report.growth.emplace_back();
    figure.module = names.module_path(growth.scope, most_path);
    if (growth.memory_class != trace::MemoryClass::none) figure.memory_class = trace::class_name(growth.memory_class);
    figure.holder = names.string(growth.holder);
    figure.bytes = growth.bytes;
    figure.block_bytes = growth.block_bytes;
    figure.blocks = growth.blocks;
    figure.first_step = growth.first_step;
    figure.last_step = growth.last_step;
  }
  add_streams(file, *physical, report);
  add_file_warnings(file.health(), report.warnings);
  if (report.values.size() < report.overdue || report.unused.size() < report.never_used)
    report.warnings.push_back("the largest " + format_count(report.values.size() + report.unused.size()) + " of " +
                              format_count(report.overdue + report.never_used) +
                              " values are listed one by one; the sums by name are of all");
  if (found->ungrouped != 0)
    report.warnings.push_back(format_count(found->ungrouped) + " values are in no sum by name: there are too many names");
  if (found->left_out != 0)
    report.warnings.push_back(format_count(found->left_out) +
                              " nodes and slots of graphs are left out, and what they hold: there are too many");
  if (lineage->left_out != 0)
    report.warnings.push_back(format_count(lineage->left_out) +
                              " regions, recomputes, values and names of them are left out: a smaller --range may show them");
  if (!report.nodes && !physical->backwards.empty())
    report.warnings.push_back("the trace does not say which nodes backward ran: last uses are not known, only growth is looked for");
  return report;
}

namespace {

ordered_json dtypes_json(const TwoDtypesFigure& cast) {
  return {{"module", cast.module},
          {"bytes", cast.bytes},
          {"elements", cast.elements},
          {"dtypes", {cast.dtypes[0], cast.dtypes[1]}},
          {"slots", {cast.slots[0], cast.slots[1]}},
          {"pairs", cast.pairs},
          {"backwards", cast.backwards},
          {"guess", true}};
}

ordered_json growth_json(const GrowthFigure& growth) {
  return {{"module", growth.module},       {"class", or_null(growth.memory_class)},
          {"bytes", growth.bytes},         {"block_bytes", growth.block_bytes},
          {"blocks", growth.blocks},       {"first_step", growth.first_step},
          {"last_step", growth.last_step}, {"holder", or_null(growth.holder)}};
}

ordered_json stream_json(const StreamFigure& figure) {
  ordered_json one{{"heap", figure.heap}, {"bytes", figure.bytes}, {"event", figure.event}, {"sampled", true}};
  if (figure.step) one["step"] = *figure.step;
  return one;
}

}  // namespace

void write_leaks_json(std::ostream& out, const LeaksReport& report) {
  JsonStream stream(out);
  stream.members({{"schema", "liveset.leaks/1"},
                  {"file", report.file},
                  {"last_uses_known", report.nodes},
                  {"overdue", report.overdue},
                  {"never_used", report.never_used},
                  {"stream_names", report.stream_names},
                  {"warnings", report.warnings}});
  stream.list("rows", report.rows, row_json);
  stream.list("unused_rows", report.unused_rows, row_json);
  stream.list("values", report.values, leak_json);
  stream.list("unused", report.unused, leak_json);
  stream.list("two_dtypes", report.two_dtypes, dtypes_json);
  stream.list("growth", report.growth, growth_json);
  stream.list("streams", report.streams, stream_json);
}

namespace {

constexpr const char *overdue_title = " lived on after the last use in backward",
                     *unused_title = " saved for nodes that backward did not run",
                     *dtypes_title = "saved twice, if these are casts of each other", *growth_title = "every step leaves more of these";

}  // namespace

std::string leaks_text(const LeaksReport& report, std::size_t top, const Style& style) {
  std::string text;
  if (report.empty()) text = report.nodes ? "LEAKS  none\n" : "LEAKS  none that can be seen\n";
  const auto part = [&](const std::string& title, const Table& table, std::size_t all) {
    text += (text.empty() ? "" : "\n") + title + "\n" + table.render() + more_line(all, top);
  };
  if (!report.values.empty()) {
    const std::vector<LeakRow>& rows = report.rows;
    part("LEAKS  " + counted(report.overdue, "value") + overdue_title, leaks_table(rows, top, TableFormat::text, style), rows.size());
  }
  if (!report.unused.empty()) {
    const std::vector<LeakRow>& rows = report.unused_rows;
    part("UNUSED  " + counted(report.never_used, "value") + unused_title, leaks_table(rows, top, TableFormat::text, style), rows.size());
  }
  if (!report.two_dtypes.empty())
    part(std::string("TWO DTYPES  ") + dtypes_title, dtypes_table(report, top, TableFormat::text, style), report.two_dtypes.size());
  if (!report.growth.empty())
    part(std::string("GROWTH  ") + growth_title, growth_table(report, top, TableFormat::text, style), report.growth.size());
  if (!report.streams.empty()) text += "\n" + streams_text(report, style);
  for (const std::string& warning : report.warnings) text += "\nWARNING  " + printable(warning, style);
  return report.warnings.empty() ? text : text + "\n";
}

std::string leaks_markdown(const LeaksReport& report, const Style& style) {
  if (report.empty()) return report.nodes ? "No leaks.\n" : "No leaks that can be seen.\n";
  const auto all = [](const auto& list) { return list.size(); };
  const std::vector<LeakRow>&rows = report.rows, &unused = report.unused_rows;
  return markdown_part(counted(report.overdue, "value") + overdue_title, leaks_table(rows, all(rows), TableFormat::md, style)) +
         markdown_part(counted(report.never_used, "value") + unused_title, leaks_table(unused, all(unused), TableFormat::md, style)) +
         markdown_part(std::string("Two dtypes: ") + dtypes_title, dtypes_table(report, all(report.two_dtypes), TableFormat::md, style)) +
         markdown_part(std::string("Growth: ") + growth_title, growth_table(report, all(report.growth), TableFormat::md, style));
}

std::string leaks_csv(const LeaksReport& report) {
  Table table({{"name"}, {"module"}, {"kind"}, {"step"}, {"bytes"}, {"held_ns"}, {"holder"}, {"guess"}, {"evidence"}, {"list"}},
              TableFormat::csv, {});
  const auto add_values = [&](const std::vector<LeakFigure>& values, const char* list) {
    for (const LeakFigure& leak : values)
      table.row({Cell::words(leak.name), Cell::words(leak.module), Cell::words(leak.kind),
                 Cell::words(leak.step ? std::to_string(*leak.step) : ""), Cell::bytes(leak.bytes), Cell::count(leak.held_ns),
                 Cell::words(leak.holder), Cell::words(leak.guess ? "true" : "false"), Cell::words(leak.evidence), Cell::words(list)});
  };
  add_values(report.values, "overdue");
  add_values(report.unused, "unused");
  const auto add_sum = [&](const std::string& name, const std::string& module, const std::string& kind, std::uint64_t bytes,
                           const std::string& holder, const std::string& evidence, const char* list) {
    table.row({Cell::words(name), Cell::words(module), Cell::words(kind), Cell::words(""), Cell::bytes(bytes), Cell::words(""),
               Cell::words(holder), Cell::words(""), Cell::words(evidence), Cell::words(list)});
  };
  for (const TwoDtypesFigure& cast : report.two_dtypes)
    add_sum(ledger::value_name(cast.module, cast.slots[0] + ", " + cast.slots[1]), cast.module, cast.dtypes[0] + ", " + cast.dtypes[1],
            cast.bytes, "", counted(cast.pairs, "pair"), "two_dtypes");
  for (const GrowthFigure& growth : report.growth)
    add_sum(growth.module, growth.module, growth.memory_class, growth.bytes, growth.holder,
            counted(growth.blocks, "block") + " of " + std::to_string(growth.block_bytes) + " bytes, steps " +
                std::to_string(growth.first_step) + ".." + std::to_string(growth.last_step),
            "growth");
  return table.render();
}

}  // namespace liveset::report
