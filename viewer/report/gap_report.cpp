#include "viewer/report/gap_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "viewer/ledger/counter.h"
#include "viewer/report/model_report.h"
#include "viewer/report/or_null.h"

namespace liveset::report {
namespace {

using compare::Gap;
using compare::gap_classes;
using compare::GapClass;
using compare::GapPart;
using compare::GapRow;
using compare::Moment;
using compare::Pace;
using compare::PeakComparison;
using compare::Side;
using compare::Verdict;
using ledger::size_of;
using nlohmann::ordered_json;

// What the two sides are called. Only a model predicts, or a dry run what it stands in for; of two recordings neither does.
struct SideNames {
  std::string first, second;
  bool second_predicts = false;
};
// "the measured peak", "the peak of the second"
std::string peak_of(const std::string& side, bool is_adjective) {
  return is_adjective ? "the " + side + " peak" : "the peak of the " + side;
}
SideNames names_of(const GapReport& report) {
  const bool predicts = report.found.predicted.is_model || (report.predicted.is_dry_run && !report.measured.is_dry_run);
  if (!predicts) return {"first", "second", false};
  return {report.measured.is_dry_run ? "dry run" : "measured", "predicted", true};
}

ordered_json place_json(const ledger::Place& place) {
  return {{"step", place.step ? ordered_json(*place.step) : ordered_json(nullptr)},
          {"phase", trace::phase_name(place.phase)},
          {"module", or_null(place.module)},
          {"node", or_null(place.node)},
          {"node_number", place.node_number == 0 ? ordered_json(nullptr) : ordered_json(place.node_number)}};
}

ordered_json moment_json(const Moment& moment, const std::string& counter) {
  ordered_json json = {{"counter", counter},
                       {"bytes", or_null(moment.bytes)},
                       {"event", moment.event == ledger::no_event ? ordered_json(nullptr) : ordered_json(moment.event)},
                       {"time_ns", or_null(moment.time_ns)}};
  json.update(place_json(moment.place));
  json["block_bytes"] = moment.block_bytes;
  return json;
}

ordered_json pace_json(const std::optional<Pace>& pace) {
  if (!pace || pace->median_ns == 0) return nullptr;
  return {{"steps", pace->steps},
          {"median_step_ns", pace->median_ns},
          {"only_the_first", pace->only_the_first},
          {"steps_per_second", 1e9 / static_cast<double>(pace->median_ns)},
          {"samples_per_second", or_null(pace->samples_per_second())}};
}

ordered_json side_json(const Side& side, const SideLabel& label, const std::optional<Pace>& pace) {
  ordered_json json = {{"file", side.file}, {"kind", side.is_model ? "model" : "trace"}, {"heap", or_null(side.heap)}};
  if (side.is_model) json["policy"] = label.policy;
  json["label"] = or_null(label.label);
  json["peak"] = moment_json(side.peak, side.counter);
  json["peak"]["moment_known"] = side.peak_moment_known;
  if (side.is_model) json["peak"]["estimate"] = !label.label.empty() || side.peak_is_estimate || side.peak_is_rounded;
  json["counters"] = ordered_json::object();
  for (const compare::KnownCounter& counter : side.counters)
    json["counters"][counter.name] = {{"peak", counter.bytes}, {"sampled", counter.sampled}};
  json["outside_allocator"] = or_null(side.outside_allocator);
  json["phases"] = ordered_json::object();
  for (std::size_t phase = 0; phase < side.phase_peaks.size(); ++phase)
    if (side.phase_peaks[phase])
      json["phases"][std::string(trace::phase_name(static_cast<trace::Phase>(phase)))] = *side.phase_peaks[phase];
  json["composition"] = {{"own_peak", held_classes_json(side.peak.classes)}, {"other_peak", nullptr}};
  if (side.at_other) {
    ordered_json other = moment_json(*side.at_other, side.counter);
    other["found_by"] = ledger::found_by_name(side.at_other->found_by);
    other["classes"] = held_classes_json(side.at_other->classes);
    json["composition"]["other_peak"] = std::move(other);
  }
  json["pace"] = pace_json(pace);
  return json;
}

ordered_json rows_json(const GapPart& part) {
  ordered_json rows = ordered_json::array();
  for (const GapRow& row : part.rows)
    rows.push_back(
        {{"name", row.name}, {"bytes", row.bytes}, {"measured", row.measured}, {"predicted", row.predicted}, {"blocks", row.blocks}});
  return rows;
}

std::string signed_text(std::int64_t bytes, const Style& style) { return format_change(bytes, style.exact_bytes); }

std::string fixed(double number, const char* form) {
  char text[64];
  std::snprintf(text, sizeof text, form, number);
  return text;
}

// "+12.50%"; what rounds to nothing has no sign.
std::string percent_change(double percent, const char* form) {
  const std::string text = fixed(percent, form);
  return text.find_first_of("123456789") == std::string::npos ? text.substr(1) : text;
}

// "step 1, backward, GeluBackward0 #4, GPT.bs.0"
std::string place_text(const ledger::Place& place) {
  std::string text = place.step ? "step " + std::to_string(*place.step) + ", " : "";
  text += trace::phase_name(place.phase);
  if (place.node_number != 0) text += ", " + place.node + (place.node_number > 1 ? " #" + std::to_string(place.node_number) : "");
  if (!place.module.empty()) text += ", " + place.module;
  return text;
}

// "about 320 B requested on cuda:0 (estimate)"
std::string peak_text(const Side& side, const SideLabel& label, const Style& style) {
  std::string text = (side.peak_is_estimate || side.peak_is_rounded ? "about " : "") +
                     format_bytes(side.peak.bytes.value_or(0), style.exact_bytes) + (style.exact_bytes ? " B " : " ") + side.counter;
  if (!side.heap.empty()) text += " on " + side.heap;
  return label.label.empty() ? text : text + " (" + label.label + ")";
}

std::string headline(std::string title, const Side& side, const SideLabel& label, const Style& style) {
  constexpr std::size_t indent = 12;
  std::transform(title.begin(), title.end(), title.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  std::string text = title + std::string(indent - title.size(), ' ');
  text += peak_text(side, label, style) + ", " + side.file + (label.policy.empty() ? "" : " --policy " + label.policy);
  std::string place = place_text(side.peak.place);
  if (!side.peak_moment_known)
    place = "composition of the peak of allocated (" + place + "): when " + side.counter + " was highest is not known";
  if (side.is_model && side.peak.event == ledger::no_event) place = "nothing is higher than what lives all the time";
  if (side.peak_is_estimate) place += "; " + std::string(reason_of(side.peak_has_new_states));
  if (side.peak_is_rounded) place += "; " + std::string(rounded_reason);
  return wrapped(text, style, indent) + "\n" + std::string(indent, ' ') + wrapped(place, style, indent) + "\n";
}

// The name of the largest, and how many others there are.
std::string mostly(const GapPart& part) {
  std::string text;
  if (!part.rows.empty()) text = part.rows.front().name;
  if (part.all_rows > 1) text += " +" + format_count(part.all_rows - 1);
  return text;
}

std::string title_of(GapClass gap_class) {
  std::string title(compare::gap_class_name(gap_class));
  std::replace(title.begin(), title.end(), '_', ' ');
  return title;
}

// Falling by size.
std::vector<GapClass> shown_classes(const Gap& gap) {
  std::vector<GapClass> shown;
  for (std::size_t i = 0; i < gap_classes; ++i)
    if (gap.parts[i].bytes != 0 || !gap.parts[i].rows.empty()) shown.push_back(static_cast<GapClass>(i));
  std::stable_sort(shown.begin(), shown.end(),
                   [&](GapClass a, GapClass b) { return size_of(gap.part(a).bytes) > size_of(gap.part(b).bytes); });
  return shown;
}

Table gap_table(const Gap& gap, TableFormat format, const Style& style) {
  Table table({{"bytes", true}, {"of the difference"}, {"mostly"}}, format, style);
  for (const GapClass gap_class : shown_classes(gap))
    table.row({Cell::words(signed_text(gap.part(gap_class).bytes, style)), Cell::words(title_of(gap_class)),
               Cell::words(mostly(gap.part(gap_class)))});
  table.row({Cell::words(signed_text(gap.difference, style)), Cell::words("in all"), Cell::words("")});
  return table;
}

Cell bytes_or_nothing(std::uint64_t bytes) { return bytes == 0 ? Cell::words("-") : Cell::bytes(bytes); }

// Which moment of a side stands for the other one's peak.
std::string moment_text(const std::optional<Moment>& moment) {
  if (!moment) return "no such moment of it is known";
  switch (moment->found_by) {
    case ledger::FoundBy::node: return "when its backward runs the same autograd node";
    case ledger::FoundBy::module: return "its fullest moment in the same module";
    case ledger::FoundBy::phase: return "its fullest moment in the same phase";
    default: return "its fullest moment in the step";
  }
}

// What lives on both sides at the peak of one of them: a table and its title.
struct Composition {
  std::string title;
  Table table;
};
std::vector<Composition> compositions(const GapReport& report, TableFormat format, const Style& style) {
  const PeakComparison& found = report.found;
  const SideNames names = names_of(report);
  const auto table = [&](const ledger::ClassBytes& first, const ledger::ClassBytes& second) {
    Table made({{names.first, true}, {names.second, true}, {"holds"}}, format, style);
    for (std::size_t i = 1; i < trace::class_count; ++i)
      if (first[i] + second[i] != 0)
        made.row(
            {bytes_or_nothing(first[i]), bytes_or_nothing(second[i]), Cell::words(trace::class_name(static_cast<trace::MemoryClass>(i)))});
    return made;
  };
  const auto classes_of = [](const std::optional<Moment>& moment) { return moment ? moment->classes : ledger::ClassBytes{}; };
  const ledger::ClassBytes &first = found.measured.peak.classes, &second = found.predicted.peak.classes;
  const ledger::ClassBytes first_there = classes_of(found.measured.at_other), second_there = classes_of(found.predicted.at_other);
  if (found.measured.at_other && found.predicted.at_other && first == first_there && second == second_there)
    return {{"Live at both peaks", table(first, second)}};
  const auto title = [](const std::string& peak, const std::string& other, const std::optional<Moment>& moment) {
    return "Live at " + peak + " (" + other + ": " + moment_text(moment) + ")";
  };
  const bool measures = names.second_predicts && !report.measured.is_dry_run;
  return {{title(peak_of(names.first, measures), names.second, found.predicted.at_other), table(first, second_there)},
          {title(peak_of(names.second, names.second_predicts), names.first, found.measured.at_other), table(first_there, second)}};
}

std::string percent_of(std::int64_t difference, std::uint64_t whole) {
  if (whole == 0) return "-";
  return percent_change(100.0 * static_cast<double>(difference) / static_cast<double>(whole), "%+.2f%%");
}

Table steps_table(const GapReport& report, TableFormat format, const Style& style) {
  constexpr std::size_t shown = 6;
  const PeakComparison& found = report.found;
  const SideNames names = names_of(report);
  Table table({{"step", true}, {names.first, true}, {names.second, true}, {"difference", true}, {"", true}}, format, style);
  for (std::size_t i = 0; i < found.steps.size(); ++i) {
    if (format == TableFormat::text && found.steps.size() > shown && i >= shown / 2 && i + shown / 2 < found.steps.size()) continue;
    const compare::StepRow& step = found.steps[i];
    const std::int64_t difference =
        ledger::wrapping_difference(static_cast<std::int64_t>(step.measured), static_cast<std::int64_t>(step.predicted));
    table.row({Cell::words(std::to_string(step.number)), Cell::bytes(step.measured), Cell::bytes(step.predicted),
               Cell::words(signed_text(difference, style)), Cell::words(percent_of(difference, step.predicted))});
  }
  return table;
}

std::string pace_text(const GapReport& report, const Style& style) {
  const PeakComparison& found = report.found;
  const SideNames names = names_of(report);
  const std::optional<Pace>&a = found.measured_pace, &b = found.predicted_pace;
  if (!a || !b || a->median_ns == 0 || b->median_ns == 0) return "";
  const double ratio = static_cast<double>(a->median_ns) / static_cast<double>(b->median_ns);
  std::string text = "TIME        " + format_time(a->median_ns) + " a step (" + names.first + "), " + format_time(b->median_ns) + " (" +
                     names.second + "), " + percent_change((ratio - 1) * 100, "%+.1f%%") + "; median of " + format_count(a->steps) +
                     " and " + counted(b->steps, "step");
  if (a->only_the_first || b->only_the_first) text += "; a first step warms up";
  if (const auto left = a->samples_per_second(), right = b->samples_per_second(); left && right)
    text += "; " + fixed(*left, "%.4g") + " and " + fixed(*right, "%.4g") + " samples a second (" +
            percent_change((*left / *right - 1) * 100, "%+.1f%%") + ")";
  return wrapped(text, style, 12) + "\n";
}

std::string difference_text(const GapReport& report, const Style& style) {
  const PeakComparison& found = report.found;
  const std::int64_t difference = found.gap.difference;
  if (difference == 0) return "none";
  return signed_text(difference, style) + ", " + percent_of(difference, found.predicted.peak.bytes.value_or(0)) + " of the " +
         (names_of(report).second_predicts ? "prediction" : "second");
}

std::string difference_line(const GapReport& report, const Style& style) { return "DIFFERENCE  " + difference_text(report, style) + "\n"; }

// What of the figures is no measurement, and what they can not be read as.
std::string notes_markdown(const GapReport& report) {
  const PeakComparison& found = report.found;
  std::string text;
  if (found.predicted.peak_is_estimate) text += "- predicted: " + std::string(reason_of(found.predicted.peak_has_new_states)) + "\n";
  if (found.predicted.peak_is_rounded) text += "- predicted: " + std::string(rounded_reason) + "\n";
  if (const std::string verdict = verdict_text(report); !verdict.empty()) text += "- verdict: " + verdict + "\n";
  return text;
}

std::string values_text(const GapReport& report, const Style& style) {
  const compare::ValueCounts& values = report.found.gap.values;
  const SideNames names = names_of(report);
  if (values.matched + values.missing + values.extra == 0) return "";
  std::string text =
      "VALUES      " + format_count(values.matched) + " in both (" + format_bytes(values.matched_bytes, style.exact_bytes) + ")";
  if (values.resized != 0) text += ", " + format_count(values.resized) + " of them in another size";
  text += ", " + format_count(values.missing) + " missing (only " + names.second + ": " +
          format_bytes(values.missing_bytes, style.exact_bytes) + "), " + format_count(values.extra) + " extra (only " + names.first +
          ": " + format_bytes(values.extra_bytes, style.exact_bytes) + ")";
  return wrapped(text, style, 12) + "\n";
}

std::vector<std::string> warnings_of(const PeakComparison& found) {
  std::vector<std::string> warnings;
  if (found.gap.paired_by_size != 0)
    warnings.push_back("one side names none of its blocks: " + format_count(found.gap.paired_by_size) +
                       " were paired by size and order alone, so of equal sizes it is not known which one differs");
  for (const Side* side : {&found.measured, &found.predicted})
    for (const std::vector<std::string>* of : {&side->peak_warnings, &side->warnings})
      for (const std::string& warning : *of) warnings.push_back(side->file + ": " + warning);
  return warnings;
}

}  // namespace

std::string verdict_text(const GapReport& report) {
  const PeakComparison& found = report.found;
  const SideNames names = names_of(report);
  switch (found.verdict) {
    case Verdict::comparable: return "";
    case Verdict::another_network:
      return "they share no value names: not the same network (or one whose modules are called otherwise), so their difference means "
             "nothing";
    case Verdict::no_values: return "neither side tells of values: the difference is by class alone";
    case Verdict::no_values_on_one_side:
      return "only the " + (found.measured.tells_of_values ? names.first : names.second) +
             " side tells of values: which of them the other one holds is not known";
  }
  return "";
}

ordered_json gap_json(const GapReport& report) {
  const PeakComparison& found = report.found;
  ordered_json json = {{"measured", side_json(found.measured, report.measured, found.measured_pace)},
                       {"predicted", side_json(found.predicted, report.predicted, found.predicted_pace)}};
  const compare::ValueCounts& values = found.gap.values;
  json["same_network"] = found.verdict == Verdict::another_network ? ordered_json(false)
                         : found.verdict == Verdict::comparable    ? ordered_json(true)
                                                                   : ordered_json(nullptr);
  json["verdict"] = or_null(verdict_text(report));
  for (const char* field : {"difference", "peak_error", "gap", "gap_rows"}) json[field] = nullptr;
  json["values"] = {{"matched", values.matched},
                    {"resized", values.resized},
                    {"missing", values.missing},
                    {"extra", values.extra},
                    {"matched_bytes", values.matched_bytes},
                    {"missing_bytes", values.missing_bytes},
                    {"extra_bytes", values.extra_bytes}};
  json["paired_by_size"] = found.gap.paired_by_size;
  if (found.is_meaningful()) {
    json["difference"] = found.gap.difference;
    json["peak_error"] = found.error();
    json["gap"] = ordered_json::object();
    json["gap_rows"] = ordered_json::object();
    for (std::size_t i = 0; i < gap_classes; ++i) {
      const std::string name(compare::gap_class_name(static_cast<GapClass>(i)));
      json["gap"][name] = found.gap.parts[i].bytes;
      json["gap_rows"][name] = rows_json(found.gap.parts[i]);
    }
  }
  json["steps"] = ordered_json::array();
  for (const compare::StepRow& step : found.is_meaningful() ? found.steps : std::vector<compare::StepRow>())
    json["steps"].push_back(
        {{"step", step.number},
         {"measured", step.measured},
         {"predicted", step.predicted},
         {"difference", ledger::wrapping_difference(static_cast<std::int64_t>(step.measured), static_cast<std::int64_t>(step.predicted))}});
  json["warnings"] = warnings_of(found);
  return json;
}

std::string gap_text(const GapReport& report, const Style& style) {
  const PeakComparison& found = report.found;
  const SideNames names = names_of(report);
  std::string text =
      headline(names.first, found.measured, report.measured, style) + headline(names.second, found.predicted, report.predicted, style);
  const std::string verdict = verdict_text(report);
  if (!verdict.empty()) text += wrapped("VERDICT     " + verdict, style, 12) + "\n";
  if (!found.is_meaningful()) return text;
  text += difference_line(report, style);
  const bool has_gap = !shown_classes(found.gap).empty();
  if (has_gap) text += "\n" + gap_table(found.gap, TableFormat::text, style).render();
  text += "\n" + values_text(report, style) + pace_text(report, style);
  for (const Composition& each : compositions(report, TableFormat::text, style))
    text += "\n" + wrapped(each.title, style, 0) + "\n" + each.table.render();
  if (found.steps.size() > 1) text += "\n" + steps_table(report, TableFormat::text, style).render();
  for (const std::string& warning : warnings_of(found)) text += "\nWARNING  " + wrapped(warning, style, 9);
  return text.back() == '\n' ? text : text + "\n";
}

ordered_json prediction_json(const GapReport& report) {
  const PeakComparison& found = report.found;
  ordered_json json = {{"model", found.predicted.file},
                       {"policy", report.predicted.policy},
                       {"counter", found.predicted.counter},
                       {"bytes", or_null(found.predicted.peak.bytes)},
                       {"estimate", !report.predicted.label.empty() || found.predicted.peak_is_estimate || found.predicted.peak_is_rounded},
                       {"difference", nullptr},
                       {"error", nullptr},
                       {"verdict", or_null(verdict_text(report))}};
  if (!found.is_meaningful()) return json;
  json["difference"] = found.gap.difference;
  json["error"] = found.error();
  return json;
}

std::string prediction_text(const GapReport& report, const Style& style) {
  const PeakComparison& found = report.found;
  std::string text = headline("predicted", found.predicted, report.predicted, style);
  const std::string verdict = verdict_text(report);
  if (!verdict.empty()) text += wrapped("VERDICT     " + verdict, style, 12) + "\n";
  return found.is_meaningful() ? text + difference_line(report, style) : text;
}

std::string gap_markdown(const GapReport& report, const Style& style) {
  const PeakComparison& found = report.found;
  const SideNames names = names_of(report);
  std::string text = names.first + ": " + printable(peak_text(found.measured, report.measured, style), style) + "; " + names.second + ": " +
                     printable(peak_text(found.predicted, report.predicted, style), style) + "\n\n";
  if (const std::string notes = notes_markdown(report); !notes.empty()) text += notes + "\n";
  if (found.is_meaningful()) text += gap_table(found.gap, TableFormat::md, style).render() + "\n";
  bool is_first = true;
  for (const Composition& each : compositions(report, TableFormat::md, style)) {
    text += (is_first ? "" : "\n") + each.title + "\n\n" + each.table.render();
    is_first = false;
  }
  if (found.is_meaningful() && found.steps.size() > 1) text += "\n" + steps_table(report, TableFormat::md, style).render();
  const std::vector<std::string> warnings = warnings_of(found);
  if (!warnings.empty()) text += "\n";
  for (const std::string& warning : warnings) text += "- warning: " + printable(warning, style) + "\n";
  return text;
}

std::string prediction_markdown(const GapReport& report, const Style& style) {
  const PeakComparison& found = report.found;
  std::string text = "Predicted: **" + printable(peak_text(found.predicted, report.predicted, style), style) + "**, `" +
                     printable(found.predicted.file, style) + "`";
  if (!report.predicted.policy.empty()) text += " --policy " + printable(report.predicted.policy, style);
  if (found.is_meaningful()) text += "; measured - predicted: " + difference_text(report, style);
  text += "\n";
  if (const std::string notes = notes_markdown(report); !notes.empty()) text += "\n" + notes;
  return text;
}

std::string gap_csv(const GapReport& report) {
  const Gap& gap = report.found.gap;
  Table table({{"class"}, {"name"}, {"bytes", true}, {"measured", true}, {"predicted", true}, {"blocks", true}}, TableFormat::csv, {});
  if (!report.found.is_meaningful()) {
    const auto peak = [](const Side& side) { return Cell::words(side.peak.bytes ? std::to_string(*side.peak.bytes) : ""); };
    table.row({Cell::words("peak"), Cell::words(report.found.measured.counter), Cell::words(""), peak(report.found.measured),
               peak(report.found.predicted), Cell::words("")});
    table.row(
        {Cell::words("verdict"), Cell::words(verdict_text(report)), Cell::words(""), Cell::words(""), Cell::words(""), Cell::words("")});
    return table.render();
  }
  for (std::size_t i = 0; i < gap_classes; ++i) {
    const GapPart& part = gap.parts[i];
    const std::string_view name = compare::gap_class_name(static_cast<GapClass>(i));
    std::int64_t rest = part.bytes;
    for (const GapRow& row : part.rows) {
      rest = ledger::wrapping_difference(rest, row.bytes);
      table.row({Cell::words(name), Cell::words(row.name), Cell::words(std::to_string(row.bytes)),
                 Cell::words(std::to_string(row.measured)), Cell::words(std::to_string(row.predicted)),
                 Cell::words(std::to_string(row.blocks))});
    }
    if (rest != 0)
      table.row({Cell::words(name), Cell::words(""), Cell::words(std::to_string(rest)), Cell::words(""), Cell::words(""), Cell::words("")});
  }
  return table.render();
}

}  // namespace liveset::report
