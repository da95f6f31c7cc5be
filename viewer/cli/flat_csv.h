// A report as a spreadsheet can use it: every figure of its JSON form as one line `figure,value`.
#pragma once
#include <nlohmann/json_fwd.hpp>

namespace liveset::cli {

void print_flat(const nlohmann::ordered_json& json);

}  // namespace liveset::cli
