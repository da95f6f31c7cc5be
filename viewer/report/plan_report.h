// What fits a budget, for people and as JSON ("liveset.plan/1").
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "viewer/model/search.h"
#include "viewer/report/text.h"

namespace liveset::report {

struct PlanReport {
  std::string model;
  std::string estimate;  // why figures are estimates; empty: they are not
  std::uint64_t layers = 0;
  std::optional<std::uint64_t> budget;
  bool times = false;  // costs are nanoseconds
  model::SearchResult result;
};

nlohmann::ordered_json plan_json(const PlanReport& report);
std::string plan_text(const PlanReport& report, bool sweep, const Style& style);
// The frontier. Of csv and md, which have no lines of words, also what fits the budget and the policies that were given: see `list`.
std::string plan_table(const PlanReport& report, TableFormat format, const Style& style);

}  // namespace liveset::report
