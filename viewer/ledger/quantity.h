// "80GiB", "24 GB", "8589934592", "5ms": sizes and times as people write them.
#pragma once
#include <cstdint>
#include <string_view>

#include "viewer/trace/result.h"

namespace liveset::ledger {

// A number, whole or with a decimal point (then rounded down), and a unit, in any case. Errors (usage) say what is wrong, to stand behind
// the name of what it is: "must be a number", "has the unknown unit 'x'", "is too large, at most .." (2^62).
//
// Units: none or B, KiB, MiB, GiB, TiB (powers of 1024), KB, MB, GB, TB (powers of 1000).
Result<std::uint64_t> parse_byte_size(std::string_view text);
// Units: none or ns, us, ms, s.
Result<std::uint64_t> parse_duration(std::string_view text);

}  // namespace liveset::ledger
