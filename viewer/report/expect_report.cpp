#include "viewer/report/expect_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace liveset::report {

using model::CheckedExpectation;
using nlohmann::ordered_json;

ordered_json expect_json(const std::vector<CheckedExpectation>& checked) {
  ordered_json json = ordered_json::array();
  for (const CheckedExpectation& each : checked)
    json.push_back({{"policy", each.expected.policy},
                    {"counter", each.expected.counter},
                    {"expected", each.expected.value},
                    {"predicted", each.predicted},
                    {"difference", each.difference()},
                    {"tolerance", each.expected.tolerance},
                    {"ok", each.holds()}});
  return json;
}

std::string expect_table(const std::vector<CheckedExpectation>& checked, TableFormat format, const Style& style) {
  Table table({{"policy"}, {"counter"}, {"expected", true}, {"predicted", true}, {"difference", true}, {"ok"}}, format, style);
  for (const CheckedExpectation& each : checked) {
    const std::int64_t difference = each.difference();
    table.row({Cell::words(each.expected.policy), Cell::words(each.expected.counter), Cell::count(each.expected.value),
               Cell::count(each.predicted), Cell::words((difference > 0 ? "+" : "") + std::to_string(difference)),
               Cell::words(each.holds() ? "yes" : "no")});
  }
  return table.render();
}

std::string expect_summary(const std::vector<CheckedExpectation>& checked) {
  const auto held = std::count_if(checked.begin(), checked.end(), [](const CheckedExpectation& each) { return each.holds(); });
  return std::to_string(held) + " of " + std::to_string(checked.size()) + " as expected";
}

}  // namespace liveset::report
