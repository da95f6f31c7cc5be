// `liveset recompute` for people.
#include <algorithm>
#include <ostream>

#include "viewer/report/recompute.h"

namespace liveset::report {
namespace {

std::string step_name(const std::optional<std::int64_t>& step) { return step ? "step " + std::to_string(*step) : "outside of steps"; }

// "bfloat16" as people say it in tables: "bf16".
std::string short_dtype(std::string_view dtype) {
  for (const auto& [name, letters] : {std::pair("bfloat", "bf"), {"float", "f"}, {"uint", "u"}, {"int", "i"}, {"complex", "c"}})
    if (dtype.starts_with(name)) return std::string(letters).append(dtype.substr(std::string_view(name).size()));
  return std::string(dtype);
}

// "f32", "bf16, i64*": each once, in order; a star for autocast.
std::string dtypes_of(const RegionFigure& region) {
  if (region.inferred) return "by phase";
  std::string text;
  std::vector<std::string> seen;
  for (const std::string& dtype : region.about->input_dtypes) {
    if (std::find(seen.begin(), seen.end(), dtype) != seen.end()) continue;
    seen.push_back(dtype);
    text += (text.empty() ? "" : ", ") + short_dtype(dtype);
  }
  if (text.empty()) text = "-";
  return region.about->autocast.empty() ? text : text + "*";
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string end_of(const RegionFigure& region) {
  if (region.times == 0) return "-";
  if (region.unfinished != 0) return "unfinished";
  if (!region.early_stopped) return "-";
  return *region.early_stopped ? "early" : "whole";
}

std::string milliseconds(std::uint64_t ns) {
  const std::uint64_t hundredths = (ns + 5000) / 10000;
  const std::string fraction = std::to_string(hundredths % 100);
  return std::to_string(hundredths / 100) + "." + (fraction.size() < 2 ? "0" : "") + fraction;
}

std::string_view place_of(const RegionFigure& region) { return region.module.empty() ? region.scope : region.module; }

Table regions_table(const std::vector<const RegionFigure*>& regions, TableFormat format, const Style& style) {
  Table table({{"times", true}, {"held", true}, {"not held", true}, {"remade", true}, {"extra ms", true}, {"end"}, {"module"}, {"inputs"}},
              format, style);
  for (const RegionFigure* region : regions)
    table.row({Cell::count(region->times), region->held_bytes ? Cell::bytes(*region->held_bytes) : Cell::words("?"),
               Cell::bytes(region->not_held_bytes), Cell::bytes(region->remade_bytes), Cell::words(milliseconds(region->extra_ns)),
               Cell::words(end_of(*region)), Cell::words(place_of(*region)), Cell::words(dtypes_of(*region))});
  return table;
}

Table steps_table(const RecomputeReport& report, std::size_t top, TableFormat format, const Style& style) {
  Table table({{"step", true}, {"regions", true}, {"times", true}, {"not held", true}, {"remade", true}, {"extra ms", true}}, format,
              style);
  for (std::size_t i = 0; i < std::min(top, report.steps.size()); ++i) {
    const StepRecompute& step = report.steps[i];
    table.row({Cell::words(step.step ? std::to_string(*step.step) : "-"), Cell::count(step.regions), Cell::count(step.times),
               Cell::bytes(step.not_held_bytes), Cell::bytes(step.remade_bytes), Cell::words(milliseconds(step.extra_ns))});
  }
  return table;
}

Table values_table(const std::vector<const RemadeFigure*>& values, TableFormat format, const Style& style) {
  Table table({{"bytes", true}, {"again", true}, {"dtype"}, {"original"}, {"by"}}, format, style);
  for (const RemadeFigure* value : values)
    table.row({Cell::bytes(value->bytes), Cell::count(value->incarnation),
               Cell::words(value->dtype.empty() ? "-" : short_dtype(value->dtype)),
               Cell::words(value->original_number == 0 ? "(not found)" : value->original()),
               Cell::words(std::string(value->matched) + (value->guess ? ", a guess" : ""))});
  return table;
}

std::vector<const RegionFigure*> regions_of(const RecomputeReport& report, const std::optional<std::int64_t>& step) {
  std::vector<const RegionFigure*> regions;
  for (const RegionFigure& region : report.regions)
    if (region.step == step) regions.push_back(&region);
  return regions;
}

std::vector<const RemadeFigure*> largest_of(const RecomputeReport& report, const std::optional<std::int64_t>& step, std::size_t top) {
  std::vector<const RemadeFigure*> values;
  for (const RemadeFigure& value : report.values)
    if (value.step == step) values.push_back(&value);
  std::stable_sort(values.begin(), values.end(), [](const auto* a, const auto* b) { return a->bytes > b->bytes; });
  if (values.size() > top) values.resize(top);
  return values;
}

// What the marks in the table mean.
std::string notes_of(const std::vector<const RegionFigure*>& regions, const Style& style) {
  std::vector<std::string> autocasts, nodes;
  const auto add = [](std::vector<std::string>& to, std::string_view word) {
    if (!word.empty() && std::find(to.begin(), to.end(), word) == to.end() && to.size() < 8) to.emplace_back(word);
  };
  for (const RegionFigure* region : regions) {
    add(autocasts, region->about->autocast);
    if (region->inferred) add(nodes, region->scope);
  }
  std::string text;
  if (!autocasts.empty()) text += "  * under autocast: " + printable(joined(autocasts), style) + "\n";
  if (!nodes.empty())
    text += "  by phase: in no region, inferred from what backward allocates in " + printable(joined(nodes), style) + "\n";
  return text;
}

}  // namespace

std::string recompute_text(const RecomputeReport& report, std::size_t top, const Style& style) {
  std::string text;
  if (report.regions.empty()) {
    text = "RECOMPUTE  none: the trace has no checkpoint region and no recompute\n";
  } else {
    const StepRecompute& all = report.all;
    text = "RECOMPUTE  " + format_bytes(all.not_held_bytes, style.exact_bytes) + " not held, " +
           format_bytes(all.remade_bytes, style.exact_bytes) + " made again, " + format_time(all.extra_ns) + " more" +
           (report.device ? " on the host" : "") + "\n           " + counted(all.regions, "region") + " in " +
           counted(report.steps.size(), "step") + ", " + counted(all.times, "recompute") + "; " +
           format_count(report.remade_values - report.unmatched_values) + " of " + format_count(report.remade_values) +
           " remade values have their original\n\n";
    const std::optional<std::int64_t> step = report.shown_step;
    std::vector<const RegionFigure*> regions = regions_of(report, step);
    const std::size_t count = regions.size(), rows = std::max<std::size_t>(top, 10);
    if (count > rows) regions.resize(rows);
    std::string title = step_name(step);
    title[0] = title[0] == 's' ? 'S' : 'O';
    text += title + "\n" + regions_table(regions, TableFormat::text, style).render() + notes_of(regions, style) +
            more_line(count, regions.size(), "regions");
    if (report.steps.size() > 1)
      text += "\nSteps (--step shows another one)\n" + steps_table(report, rows, TableFormat::text, style).render() +
              more_line(report.steps.size(), rows, "steps");
    const auto largest = largest_of(report, step, top);
    if (!largest.empty()) text += "\nThe largest values made again\n" + values_table(largest, TableFormat::text, style).render();
    std::uint64_t still_live = 0;
    for (const RegionFigure* region : regions_of(report, step)) still_live += region->still_live_bytes;
    if (still_live != 0)
      text += "\n  " + format_bytes(still_live, style.exact_bytes) + " that the regions of " + step_name(step) +
              " gave up were still in memory when\n  they were made again: weights, inputs, and what else holds them (liveset leaks)\n";
  }
  for (const std::string& warning : report.warnings) text += "\nWARNING  " + printable(warning, style);
  return report.warnings.empty() ? text : text + "\n";
}

std::string recompute_markdown(const RecomputeReport& report, std::size_t top, const Style& style) {
  if (report.regions.empty()) return "No checkpoint region and no recompute.\n";
  const std::optional<std::int64_t> step = report.shown_step;
  std::string text = markdown_part("Regions of " + step_name(step), regions_table(regions_of(report, step), TableFormat::md, style));
  text += markdown_part("Steps", steps_table(report, report.steps.size(), TableFormat::md, style));
  text += markdown_part("The largest values made again", values_table(largest_of(report, step, top), TableFormat::md, style));
  return text;
}

void write_recompute_csv(std::ostream& out, const RecomputeReport& report) {
  Table table({{"step"},
               {"microbatch"},
               {"region"},
               {"module"},
               {"kind"},
               {"times"},
               {"early_stopped"},
               {"held_bytes"},
               {"not_held_bytes"},
               {"still_live_bytes"},
               {"remade_bytes"},
               {"extra_ns"},
               {"input_dtypes"},
               {"autocast"}},
              TableFormat::csv, {});
  const auto number = [](const auto& value) { return Cell::words(value ? std::to_string(*value) : ""); };
  out << table.render_titles();
  for (const RegionFigure& region : report.regions)
    out << table.render_row({number(region.step), number(region.microbatch), Cell::words(region.scope), Cell::words(region.module),
                             Cell::words(region.about->kind), Cell::count(region.times),
                             Cell::words(region.early_stopped ? (*region.early_stopped ? "true" : "false") : ""), number(region.held_bytes),
                             Cell::bytes(region.not_held_bytes), Cell::bytes(region.still_live_bytes), Cell::bytes(region.remade_bytes),
                             Cell::count(region.extra_ns), Cell::words(joined(region.about->input_dtypes)),
                             Cell::words(region.about->autocast)});
}

}  // namespace liveset::report
