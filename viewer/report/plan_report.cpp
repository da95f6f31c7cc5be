#include "viewer/report/plan_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace liveset::report {
namespace {

using model::Candidate;
using nlohmann::ordered_json;

ordered_json candidate_json(const PlanReport& report, const Candidate& candidate) {
  ordered_json json{{"policy", candidate.policy}, {"peak", {{"bytes", candidate.peak_bytes}}}, {"extra_cost", candidate.extra_cost}};
  if (report.result.backward_cost) json["makespan"] = candidate.forward_cost + *report.result.backward_cost;
  json["forward_cost"] = candidate.forward_cost;
  json["operations"] = candidate.operations;
  return json;
}

// The fastest of the frontier that needs no more bytes; null: none.
const Candidate* as_small(const PlanReport& report, const Candidate& given) {
  const Candidate* found = nullptr;
  for (const Candidate& candidate : report.result.frontier)
    if (candidate.peak_bytes <= given.peak_bytes) found = &candidate;
  return found;
}
// The smallest of the frontier that is no slower.
const Candidate* as_fast(const PlanReport& report, const Candidate& given) {
  for (const Candidate& candidate : report.result.frontier)
    if (candidate.extra_cost <= given.extra_cost) return &candidate;
  return nullptr;
}

}  // namespace

ordered_json plan_json(const PlanReport& report) {
  const model::SearchResult& result = report.result;
  ordered_json json{{"schema", "liveset.plan/1"}, {"model", report.model}, {"layers", report.layers}};
  json["estimate"] = report.estimate.empty() ? ordered_json(nullptr) : ordered_json(report.estimate);
  if (report.budget) {
    json["budget"] = *report.budget;
    json["feasible"] = result.best.has_value();
    if (result.best) json.update(candidate_json(report, *result.best));
  }
  json["least_budget"] = result.least_budget;
  json["least_budget_exact"] = result.least_is_exact;
  json["lower_bound"] = result.lower_bound;
  json["tried"] = result.tried;
  json["frontier"] = ordered_json::array();
  for (const Candidate& candidate : result.frontier) json["frontier"].push_back(candidate_json(report, candidate));
  json["policies"] = ordered_json::array();
  for (const Candidate& given : report.given) {
    ordered_json each = candidate_json(report, given);
    const Candidate* const small = as_small(report, given);
    const Candidate* const fast = as_fast(report, given);
    each["cost_above_frontier"] =
        small != nullptr ? ordered_json(given.extra_cost - std::min(given.extra_cost, small->extra_cost)) : nullptr;
    each["bytes_above_frontier"] =
        fast != nullptr ? ordered_json(given.peak_bytes - std::min(given.peak_bytes, fast->peak_bytes)) : nullptr;
    json["policies"].push_back(std::move(each));
  }
  return json;
}

std::string plan_table(const PlanReport& report, TableFormat format, const Style& style) {
  Table table({{"peak", true}, {"extra", true}, {"of forward", true}, {"policy", false, 0, true}}, format, style);
  for (const Candidate& candidate : report.result.frontier)
    table.row({Cell::bytes(candidate.peak_bytes), Cell::count(candidate.extra_cost),
               Cell::percent(candidate.extra_cost, std::max<std::uint64_t>(candidate.forward_cost - candidate.extra_cost, 1)),
               Cell::words(candidate.policy)});
  return table.render();
}

std::string plan_text(const PlanReport& report, bool sweep, const Style& style) {
  const model::SearchResult& result = report.result;
  const auto bytes = [&](std::uint64_t number) { return format_bytes(number, style.exact_bytes); };
  std::string text;
  if (report.budget && result.best) {
    const Candidate& best = *result.best;
    text += "policy        " + printable(best.policy, style) + "\npeak          " + bytes(best.peak_bytes) + " of " +
            bytes(*report.budget) + "\nextra cost    " + format_count(best.extra_cost) + " (" +
            format_percent(best.extra_cost, std::max<std::uint64_t>(best.forward_cost - best.extra_cost, 1)) + " of a forward)\n";
    if (!best.operations.empty()) {
      std::string operations;
      for (const std::string& operation : best.operations) operations += (operations.empty() ? "" : " ") + operation;
      text += "operations    " + wrapped(operations, style, 14) + "\n";
    }
  } else if (report.budget) {
    text += "infeasible, least is " + bytes(result.least_budget) + (result.least_is_exact ? "" : " (the least that was found)") + "\n";
  }
  if (sweep || !report.budget) {
    text += (text.empty() ? "" : "\n") + std::string("frontier\n") + plan_table(report, TableFormat::text, style);
    text += "lower bound   " + bytes(result.lower_bound) + ": no schedule needs less\n";
  }
  if (!report.given.empty()) {
    text += "\n";
    Table table({{"policy"}, {"peak", true}, {"extra", true}, {"bytes above", true}, {"cost above", true}}, TableFormat::text, style);
    for (const Candidate& given : report.given) {
      const Candidate* const small = as_small(report, given);
      const Candidate* const fast = as_fast(report, given);
      table.row({Cell::words(given.policy), Cell::bytes(given.peak_bytes), Cell::count(given.extra_cost),
                 fast != nullptr ? Cell::bytes(given.peak_bytes - std::min(given.peak_bytes, fast->peak_bytes)) : Cell::words("-"),
                 small != nullptr ? Cell::count(given.extra_cost - std::min(given.extra_cost, small->extra_cost)) : Cell::words("-")});
    }
    text += table.render();
  }
  if (!report.estimate.empty()) text += "\nestimate      " + wrapped(report.estimate, style, 14) + "\n";
  return text;
}

}  // namespace liveset::report
