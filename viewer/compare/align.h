// Aligns two sequences of keys: the fewest removals and insertions (Myers, O((n + m) d)), up to a limit of differences.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace liveset::compare {

// Pairs of indices in order; ~0 where only one side has an entry. When there are more than `max_differences`, what lies between the
// common head and the common tail is taken as removed and inserted as a whole.
using Alignment = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
Alignment align(const std::vector<std::uint32_t>& left, const std::vector<std::uint32_t>& right, std::int64_t max_differences = 2000);

}  // namespace liveset::compare
