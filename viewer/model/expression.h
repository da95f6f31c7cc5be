// Integer expressions over named dimensions, as model files have them: "4*N*M", "ceil(s*b, t)".
//
//   sum     = product { ("+" | "-") product }        product = factor { ("*" | "/" | "%") factor }
//   factor  = number | name | "(" sum ")" | "-" factor | ("ceil" | "min" | "max") "(" sum "," sum ")"
//
// "/" must come out even: a size that is no whole number is a mistake (ceil(a, b) is a / b rounded up). Everything is checked: results and
// what lies between stay within 63 bits.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "viewer/trace/result.h"

namespace liveset::model {

using Dims = std::map<std::string, std::int64_t, std::less<>>;

// The value, or what is wrong and where in the text ("at character 5: unknown name 'M'"); Error::what only.
Result<std::int64_t> evaluate(std::string_view text, const Dims& dims);

// A letter or '_', then letters, digits and '_'; none of ceil, min, max.
bool is_dim_name(std::string_view name);

}  // namespace liveset::model
