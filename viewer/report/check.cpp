#include "viewer/report/check.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace liveset::report {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t most_shown = 160;  // of one name, in text
constexpr std::size_t most_detail = 600;

std::string quoted_place(const Finding& finding, const Style& style) {
  std::string text = printable(finding.kind, style, most_shown);
  if (!finding.region.empty()) text += " in " + printable(finding.region, style, most_shown);
  return text;
}

void add_line(std::string& text, const std::string& title, const std::string& content, const Style& style) {
  if (!content.empty()) text += "      " + title + " " + printable(content, style, most_shown) + "\n";
}

// "replay: ok", "ranks: 2 findings"
std::string verdict_of(const Check& check) {
  if (!check.ok()) return check.name + ": " + counted(check.findings.size() + check.left_out, "finding");
  return check.name + (check.lower_bound ? ": not shown to differ" : ": ok");
}

}  // namespace

ordered_json check_json(const std::vector<Check>& checks) {
  ordered_json json{{"schema", "liveset.check/1"}};
  json["ok"] = std::all_of(checks.begin(), checks.end(), [](const Check& check) { return check.ok(); });
  json["checks"] = ordered_json::array();
  for (const Check& check : checks) {
    ordered_json one{{"name", check.name}, {"ok", check.ok()}, {"findings", ordered_json::array()}};
    for (const Finding& finding : check.findings) {
      ordered_json row{{"kind", finding.kind}, {"region", finding.region}, {"module", finding.module},
                       {"op", finding.op},     {"detail", finding.detail}, {"count", finding.count}};
      if (finding.step >= 0) row["step"] = finding.step;
      if (!finding.file.empty()) row["file"] = finding.file;
      one["findings"].push_back(std::move(row));
    }
    one["lower_bound"] = check.lower_bound;
    one["findings_left_out"] = check.left_out;
    for (const auto& [name, number] : check.coverage) one["coverage"][name] = number;
    one["not_observed"] = check.not_observed;
    one["notes"] = check.notes;
    json["checks"].push_back(std::move(one));
  }
  return json;
}

std::string check_text(const std::vector<Check>& checks, std::size_t top, const Style& style) {
  std::string text;
  for (const Check& check : checks) {
    text += verdict_of(check) + "\n";
    for (std::size_t each = 0; each < std::min(top, check.findings.size()); ++each) {
      const Finding& finding = check.findings[each];
      text += "  " + quoted_place(finding, style);
      if (finding.step >= 0) text += ", step " + std::to_string(finding.step);
      if (finding.count > 1) text += " (" + format_count(finding.count) + " times)";
      text += "\n";
      add_line(text, "module", finding.module, style);
      add_line(text, "op", finding.op, style);
      if (!finding.detail.empty()) text += "      " + wrapped(printable(finding.detail, style, most_detail), style, 6) + "\n";
      add_line(text, "trace", finding.file, style);
    }
    if (check.findings.size() > top) text += "  and " + format_count(check.findings.size() - top) + " more; --top shows more\n";
    if (check.left_out != 0) text += "  and " + format_count(check.left_out) + " more that are not listed\n";
    for (const std::string& note : check.notes) text += "  " + wrapped(note, style, 4) + "\n";
    for (const std::string& what : check.not_observed) text += "  " + wrapped("not observed: " + what, style, 4) + "\n";
  }
  return text;
}

std::string check_table(const std::vector<Check>& checks, TableFormat format, const Style& style) {
  Table table({{"check"}, {"kind"}, {"region"}, {"module"}, {"op"}, {"step", true}, {"count", true}, {"detail"}, {"trace"}}, format, style);
  for (const Check& check : checks) {
    for (const Finding& finding : check.findings) {
      table.row({Cell::words(check.name), Cell::words(finding.kind), Cell::words(finding.region), Cell::words(finding.module),
                 Cell::words(finding.op), Cell::words(finding.step < 0 ? "" : std::to_string(finding.step)), Cell::count(finding.count),
                 Cell::words(finding.detail), Cell::words(finding.file)});
    }
    if (check.left_out != 0)
      table.row({Cell::words(check.name), Cell::words("not_listed"), Cell::words(""), Cell::words(""), Cell::words(""), Cell::words(""),
                 Cell::count(check.left_out), Cell::words("findings that are not listed one by one"), Cell::words("")});
  }
  if (format != TableFormat::md) return table.render();
  std::string text;
  for (const Check& check : checks) text += "- " + verdict_of(check) + "\n";
  return text + "\n" + markdown_part("Findings", table);
}

}  // namespace liveset::report
