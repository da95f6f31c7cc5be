// "80GiB", "24 GB", "8589934592".
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace liveset::launch {

// A size in bytes as people write it: a number above 0, whole or with a decimal point, and a unit: none or B, KiB, MiB, GiB, TiB
// (powers of 1024), KB, MB, GB, TB (powers of 1000), in any case. Nothing for all else, and for 1 PiB and more.
std::optional<std::int64_t> parse_byte_size(std::string_view text);

}  // namespace liveset::launch
