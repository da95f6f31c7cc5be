// What a model file expects beside what the model predicts, for people and as JSON.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "viewer/model/expectations.h"
#include "viewer/report/text.h"

namespace liveset::report {

// policy, counter, expected, predicted, difference, tolerance, ok.
nlohmann::ordered_json expect_json(const std::vector<model::CheckedExpectation>& checked);
std::string expect_table(const std::vector<model::CheckedExpectation>& checked, TableFormat format, const Style& style);
// "5 of 6 as expected".
std::string expect_summary(const std::vector<model::CheckedExpectation>& checked);

}  // namespace liveset::report
