#include "viewer/report/plan_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "viewer/report/model_report.h"
#include "viewer/report/or_null.h"

namespace liveset::report {
namespace {

using model::Candidate;
using nlohmann::ordered_json;

constexpr const char* exact_search = "exact search";

ordered_json candidate_json(const PlanReport& report, const Candidate& candidate) {
  ordered_json json{{"policy", candidate.policy},
                    {"peak", {{"bytes", candidate.peak_bytes}, {"estimate", !report.estimate.empty() || candidate.is_estimate()}}},
                    {"extra_cost", candidate.extra_cost}};
  if (report.result.backward_cost) json["makespan"] = candidate.forward_cost + *report.result.backward_cost;
  json["forward_cost"] = candidate.forward_cost;
  json["operations"] = candidate.operations;
  json["exact_search"] = candidate.searched;
  return json;
}

// How far a policy is from the frontier; null: the frontier has nothing as small, or nothing as fast.
struct Distance {
  std::optional<std::uint64_t> cost, bytes;
  std::uint64_t frontier_cost = 0;  // of the fastest that is as small
};
Distance distance_of(const model::SearchResult& result, const Candidate& given) {
  Distance distance;
  if (const Candidate* const small = model::as_small_as(result, given.peak_bytes)) {
    distance.frontier_cost = small->extra_cost;
    distance.cost = given.extra_cost - std::min(given.extra_cost, small->extra_cost);
  }
  if (const Candidate* const fast = model::as_fast_as(result, given.extra_cost))
    distance.bytes = given.peak_bytes - std::min(given.peak_bytes, fast->peak_bytes);
  return distance;
}

ordered_json listed_json(const PlanReport& report, const model::Listed& listed) {
  if (!listed.refused.empty()) return {{"policy", listed.candidate.policy}, {"refused", listed.refused}};
  ordered_json json = candidate_json(report, listed.candidate);
  const Distance distance = listed.copies() ? Distance() : distance_of(report.result, listed.candidate);
  json["cost_above_frontier"] = or_null(distance.cost);
  json["cost_above_percent"] = nullptr;
  if (distance.cost && (*distance.cost == 0 || distance.frontier_cost != 0))
    json["cost_above_percent"] =
        *distance.cost == 0 ? 0.0 : 100 * static_cast<double>(*distance.cost) / static_cast<double>(distance.frontier_cost);
  json["bytes_above_frontier"] = or_null(distance.bytes);
  json["copies"] =
      listed.copies()
          ? ordered_json{{"to_host_bytes", listed.to_host_bytes}, {"to_device_bytes", listed.to_device_bytes}, {"time_ns", nullptr}}
          : ordered_json(nullptr);
  return json;
}

std::string extra_title(const PlanReport& report) { return report.times ? "extra time" : "extra cost"; }
// In a table: plan_text says below it what costs are counted in.
std::string cost_text(const PlanReport& report, std::uint64_t cost) { return report.times ? format_time(cost) : format_count(cost); }
std::string cost_with_unit(const PlanReport& report, std::uint64_t cost) {
  return cost_text(report, cost) + (report.times ? "" : cost == 1 ? " unit of the model's cost" : " units of the model's cost");
}
Cell cost_cell(const PlanReport& report, TableFormat format, std::uint64_t cost) {
  return report.times && format != TableFormat::csv ? Cell::words(format_time(cost)) : Cell::count(cost);
}

// Of hundreds of regions the first are shown, and how many there are; what is left out is in JSON and csv.
std::string policy_text(const std::string& policy) {
  constexpr std::size_t most = 240;
  std::string text = model::in_ranges(policy);
  if (text.size() <= most) return text;
  const std::size_t end = text.rfind(',', most);
  if (end == std::string::npos) return text;
  const auto left_out = std::count(text.begin() + static_cast<std::ptrdiff_t>(end), text.end(), ',');
  return text.substr(0, end) + " and " + counted(static_cast<std::uint64_t>(left_out), "other") + ": --format json";
}

// "2.00 MiB, an estimate"
std::string peak_text(const Candidate& candidate, const Style& style) {
  return format_bytes(candidate.peak_bytes, style.exact_bytes) + (candidate.peak_is_estimate ? ", an estimate" : "");
}
// For people. In a machine's table the number stays alone, and a column beside it says whether it is an estimate.
Cell peak_cell(const Candidate& candidate, TableFormat format, const Style& style) {
  const bool in_words = format == TableFormat::text && candidate.peak_is_estimate;
  return in_words ? Cell::words(peak_text(candidate, style)) : Cell::bytes(candidate.peak_bytes);
}

// "12.5%" above the extra time that the frontier needs for the same peak.
std::string above_text(const Distance& distance) {
  if (!distance.cost) return "-";
  if (*distance.cost == 0) return "0%";
  return distance.frontier_cost == 0 ? "all of it" : format_percent(*distance.cost, distance.frontier_cost);
}

std::string listed_table(const PlanReport& report, const std::string& title, const std::vector<model::Listed>& all, const Style& style) {
  Table table({{title}, {"peak", true}, {extra_title(report), true}, {"above frontier", true}, {"bytes above", true}}, TableFormat::text,
              style);
  std::string below;
  for (const model::Listed& listed : all) {
    const Candidate& candidate = listed.candidate;
    if (!listed.refused.empty()) {
      below += "  " + printable(candidate.policy, style) + ": no row, " + printable(listed.refused, style) + "\n";
      continue;
    }
    if (listed.names_no_layer) below += "  " + printable(candidate.policy, style) + " " + std::string(no_layer_reason) + "\n";
    const Distance distance = listed.copies() ? Distance() : distance_of(report.result, candidate);
    table.row({Cell::words(model::in_ranges(candidate.policy)), peak_cell(candidate, TableFormat::text, style),
               Cell::words(cost_text(report, candidate.extra_cost) + (listed.copies() ? " + copies" : "")),
               Cell::words(listed.copies() ? "not known" : above_text(distance)),
               distance.bytes ? Cell::bytes(*distance.bytes) : Cell::words("-")});
  }
  return "\n" + table.render() + below;
}

// `all`: the whole frontier and the rules of thumb are shown, too.
bool shows(const model::SearchResult& result, bool all, bool Candidate::*mark) {
  const auto of_listed = [mark](const model::Listed& listed) { return listed.candidate.*mark; };
  if (std::any_of(result.given.begin(), result.given.end(), of_listed)) return true;
  if (!all) return result.best ? *result.best.*mark : !result.frontier.empty() && result.frontier.front().*mark;
  return std::any_of(result.frontier.begin(), result.frontier.end(), [mark](const Candidate& candidate) { return candidate.*mark; }) ||
         std::any_of(result.rules.begin(), result.rules.end(), of_listed);
}

}  // namespace

ordered_json plan_json(const PlanReport& report) {
  const model::SearchResult& result = report.result;
  ordered_json json{{"schema", "liveset.plan/1"}, {"model", report.model}, {"layers", report.layers}};
  json["estimate"] = report.estimate.empty() ? ordered_json(nullptr) : ordered_json(report.estimate);
  json["cost_unit"] = report.times ? ordered_json("ns") : ordered_json(nullptr);
  if (report.budget) {
    json["budget"] = *report.budget;
    json["feasible"] = result.best.has_value();
    if (result.best) json.update(candidate_json(report, *result.best));
  }
  json["least_budget"] = result.least_budget;
  json["least_budget_exact"] = result.least_is_exact;
  json["least_budget_of"] = result.least_of.empty() ? ordered_json(nullptr) : ordered_json(result.least_of);
  json["lower_bound"] = result.lower_bound;
  json["lower_bound_estimate"] = result.lower_bound_is_rounded;
  json["tried"] = result.tried;
  json["modules"] = result.modules;
  json["frontier"] = ordered_json::array();
  for (const Candidate& candidate : result.frontier) json["frontier"].push_back(candidate_json(report, candidate));
  json["policies"] = ordered_json::array();
  for (const model::Listed& given : result.given) json["policies"].push_back(listed_json(report, given));
  json["rules_of_thumb"] = ordered_json::array();
  for (const model::Listed& rule : result.rules) json["rules_of_thumb"].push_back(listed_json(report, rule));
  json["absent"] = ordered_json::array();
  for (const model::Absent& absent : result.absent) json["absent"].push_back({{"planner", absent.planner}, {"reason", absent.why}});
  return json;
}

std::string plan_table(const PlanReport& report, TableFormat format, const Style& style) {
  const bool csv = format == TableFormat::csv, text = format == TableFormat::text;
  const std::vector<Candidate>& frontier = report.result.frontier;
  const bool found_by = !text || std::any_of(frontier.begin(), frontier.end(), [](const Candidate& each) { return each.searched; });
  std::vector<Column> columns{
      {"peak", true}, {csv ? report.times ? "extra_ns" : "extra_cost" : extra_title(report), true}, {"of forward", true}};
  if (!text) columns.push_back({"estimate"});
  if (found_by) columns.push_back({"found by"});
  columns.push_back({"policy", false, 0, true});
  if (!text) columns.push_back({"list"});
  Table table(columns, format, style);
  const auto add = [&](const Candidate& candidate, std::string_view list) {
    std::vector<Cell> row{peak_cell(candidate, format, style), cost_cell(report, format, candidate.extra_cost),
                          Cell::percent(candidate.extra_cost, std::max<std::uint64_t>(candidate.forward_cost - candidate.extra_cost, 1))};
    if (!text) row.push_back(Cell::words(!report.estimate.empty() || candidate.is_estimate() ? "yes" : ""));
    if (found_by) row.push_back(Cell::words(candidate.searched ? exact_search : ""));
    row.push_back(Cell::words(text ? policy_text(candidate.policy) : candidate.policy));
    if (!text) row.push_back(Cell::words(list));
    table.row(std::move(row));
  };
  if (!text && report.result.best) add(*report.result.best, "budget");
  for (const Candidate& candidate : frontier) add(candidate, "frontier");
  if (!text)
    for (const model::Listed& given : report.result.given)
      if (given.refused.empty()) add(given.candidate, given.copies() ? "policy, its copies take time" : "policy");
  return table.render();
}

std::string plan_text(const PlanReport& report, bool sweep, const Style& style) {
  const model::SearchResult& result = report.result;
  const bool all = sweep || !report.budget;
  const auto bytes = [&](std::uint64_t number) { return format_bytes(number, style.exact_bytes); };
  std::string text;
  if (report.budget && result.best) {
    const Candidate& best = *result.best;
    text += "policy        " + printable(model::in_ranges(best.policy), style) + "\npeak          " + bytes(best.peak_bytes) + " of " +
            bytes(*report.budget) + (best.peak_is_estimate ? ", an estimate" : "") + "\nextra cost    " +
            cost_with_unit(report, best.extra_cost) + " (" +
            format_percent(best.extra_cost, std::max<std::uint64_t>(best.forward_cost - best.extra_cost, 1)) + " of a forward)\n";
    if (best.searched) text += "found by      " + std::string(exact_search) + "\n";
    if (!best.operations.empty() && !best.policy.starts_with("moves:")) {
      std::string operations;
      for (const std::string& operation : best.operations) operations += (operations.empty() ? "" : " ") + operation;
      text += "operations    " + wrapped(operations, style, 14) + "\n";
    }
  } else if (report.budget) {
    text += "infeasible, least " + std::string(result.least_is_exact ? "is " : "found is ") + bytes(result.least_budget) +
            (result.frontier.front().peak_is_estimate ? ", an estimate" : "") +
            (result.least_is_exact ? " (of " + result.least_of + ")" : "") + "\n";
  }
  if (all) {
    text += (text.empty() ? "" : "\n") + std::string("frontier\n") + plan_table(report, TableFormat::text, style);
    text += "lower bound   " + bytes(result.lower_bound) + ": no schedule " +
            (result.lower_bound_is_rounded ? "is predicted to need" : "needs") + " less\n";
  }
  if (!result.given.empty()) text += listed_table(report, "policy", result.given, style);
  if (all) text += listed_table(report, "rule of thumb", result.rules, style);
  if (!report.times && (all || !result.given.empty()) && !result.frontier.empty())
    text += "\ncosts are in units of the model's own; a forward without re-runs takes " +
            format_count(result.frontier.front().forward_cost - result.frontier.front().extra_cost) + "\n";
  for (const model::Absent& absent : result.absent)
    text += (&absent == result.absent.data() ? "\n" : "") + wrapped(absent.planner + " left out: " + absent.why, style, 2) + "\n";
  if (shows(result, all, &Candidate::peak_is_estimate)) text += "\n" + wrapped(std::string(reason_of()), style, 2) + "\n";
  if (shows(result, all, &Candidate::peak_is_rounded) || (all && result.lower_bound_is_rounded))
    text += "\n" + wrapped(std::string(rounded_reason), style, 2) + "\n";
  if (!report.estimate.empty()) text += "\nestimate      " + wrapped(printable(report.estimate, style), style, 14) + "\n";
  return text;
}

}  // namespace liveset::report
