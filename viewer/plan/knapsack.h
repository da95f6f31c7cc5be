// Which results to keep: the exact 0-1 knapsack.
//
// Solved by lists of states that no other state beats (Nemhauser and Ullmann): (memory, value), one list after each item. Exact for any
// sizes. A list has at most capacity / gcd + 1 states, and no more than there are distinct sums; O(items x list). Items come densest first,
// so a state whose free memory, filled at the next item's density, stays below an answer at hand is left out: that keeps lists short where
// sums are many. When they would exceed `max_states` all the same, states are left out evenly over the capacity: the answer still fits, and
// `bound` (the optimum with items that can be cut, Dantzig) says how much better an exact one could be.
#pragma once
#include <optional>

#include "viewer/plan/chain.h"

namespace liveset::plan {

struct KnapsackItem {
  std::uint64_t memory = 0;
  std::uint64_t value = 0;  // what keeping it saves
};

struct KnapsackAnswer {
  std::vector<bool> kept;
  std::uint64_t memory = 0;  // of what is kept; the least among the answers of this value that were seen
  std::uint64_t value = 0;
  bool exact = true;
  std::uint64_t bound = 0;  // no answer has a higher value; the value itself when exact
};

inline constexpr std::uint64_t max_knapsack_items = 1'000'000;

struct KnapsackOptions {
  std::uint64_t max_states = 8'000'000;  // in all lists together; 24 bytes each
};

// Most value within the capacity. Items without memory are always kept. Errors: totals above max_total, too many items for max_states.
Result<KnapsackAnswer> knapsack(std::span<const KnapsackItem> items, std::uint64_t capacity, const KnapsackOptions& options = {});

}  // namespace liveset::plan
