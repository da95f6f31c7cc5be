// Which results to keep: the exact 0-1 knapsack, and the two rules by which PyTorch asks for it.
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

// torch.compile's activation memory budget (torch._functorch.config.activation_memory_budget): at 1 the default partition; below it a
// knapsack over the results that are expensive to make again decides which are kept, within budget x the memory of the default partition.
// Everything else is made again, at no counted cost. What explicit checkpoint regions keep is not touched: it is in `untouched`, and in no
// item.
struct BudgetProgram {
  std::vector<KnapsackItem> items;  // memory of a result; value: its cost to make again
  std::uint64_t eager_memory = 0;
  std::uint64_t untouched = 0;
};
struct BudgetAnswer {
  std::uint64_t memory = 0;
  std::uint64_t extra_cost = 0;
  std::vector<bool> kept;  // by item; all at a budget of 1
  bool exact = true;
};
// The budget is numerator / denominator, between 0 and 1.
Result<BudgetAnswer> torch_memory_budget(const BudgetProgram& program, std::uint64_t numerator, std::uint64_t denominator);

// Selective checkpointing of the operators of one module, as torch.distributed._tools.sac_ilp states it: save operators for the most
// runtime saved, with at most ceil(budget x all memory) saved, where
//   random operators are saved all or none (all with force_store_random); views are not saved;
//   an in-place operator (operator, parent) is saved as its parent is; one that is its own parent is always saved.
struct SelectiveModule {
  std::vector<KnapsackItem> operators;  // memory, runtime
  std::vector<std::uint32_t> views, random;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> in_place;  // (operator, parent)
  bool force_store_random = false;
};
Result<KnapsackAnswer> selective_checkpoint(const SelectiveModule& module, std::uint64_t numerator, std::uint64_t denominator);

}  // namespace liveset::plan
