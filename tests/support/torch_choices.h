// The two rules by which PyTorch asks for a knapsack, so that its own tests' answers can be held against plan/knapsack.h.
#pragma once
#include <numeric>

#include "viewer/plan/knapsack.h"

namespace liveset::test {

using plan::KnapsackAnswer;
using plan::KnapsackItem;

// floor or ceiling of number x numerator / denominator.
inline Result<std::uint64_t> part_of(std::uint64_t number, std::uint64_t numerator, std::uint64_t denominator, bool up) {
  if (denominator == 0 || numerator > denominator) return plan::detail::refused("a budget is a fraction between 0 and 1");
  const unsigned __int128 product = static_cast<unsigned __int128>(number) * numerator;
  return static_cast<std::uint64_t>((product + (up ? denominator - 1 : 0)) / denominator);
}

// Operators that are saved together, or not.
class Groups {
 public:
  explicit Groups(std::size_t operators) : of_(operators) { std::iota(of_.begin(), of_.end(), 0U); }

  std::uint32_t find(std::uint32_t op) {
    while (of_[op] != op) op = of_[op] = of_[of_[op]];
    return op;
  }
  void join(std::uint32_t a, std::uint32_t b) { of_[find(a)] = find(b); }

 private:
  std::vector<std::uint32_t> of_;
};

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
inline Result<BudgetAnswer> torch_memory_budget(const BudgetProgram& program, std::uint64_t numerator, std::uint64_t denominator) {
  if (program.eager_memory > plan::max_total || program.untouched > program.eager_memory)
    return plan::detail::refused("what the default partition keeps is above 2^60, or less than what explicit regions keep");
  const Result<std::uint64_t> allowed = part_of(program.eager_memory, numerator, denominator, false);
  if (!allowed) return Error(allowed.error());
  BudgetAnswer answer;
  if (numerator == denominator) {
    answer.memory = program.eager_memory;
    answer.kept.assign(program.items.size(), true);
    return answer;
  }
  Result<KnapsackAnswer> chosen = plan::knapsack(program.items, *allowed);
  if (!chosen) return chosen.take_error();
  answer.memory = program.untouched + chosen->memory;
  answer.exact = chosen->exact;
  for (std::size_t i = 0; i < program.items.size(); ++i) answer.extra_cost += chosen->kept[i] ? 0 : program.items[i].value;
  answer.kept = std::move(chosen->kept);
  return answer;
}

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
inline Result<KnapsackAnswer> selective_checkpoint(const SelectiveModule& module, std::uint64_t numerator, std::uint64_t denominator) {
  const std::vector<KnapsackItem>& operators = module.operators;
  const std::size_t count = operators.size();
  std::uint64_t all = 0;
  for (const KnapsackItem& op : operators) all += op.memory;
  const Result<std::uint64_t> allowed = part_of(all, numerator, denominator, true);
  if (!allowed) return Error(allowed.error());

  Groups groups(count);
  std::vector<bool> saved(count, false), dropped(count, false);  // must be
  const auto unknown = [count](std::uint32_t op) {
    return plan::detail::refused("a rule names operator " + std::to_string(op) + ", the module has " + std::to_string(count));
  };
  for (const std::uint32_t op : module.random) {
    if (op >= count) return unknown(op);
    groups.join(op, module.random.front());
    if (module.force_store_random) saved[op] = true;
  }
  for (const std::uint32_t op : module.views) {
    if (op >= count) return unknown(op);
    dropped[op] = true;
  }
  for (const auto& [op, parent] : module.in_place) {
    if (op >= count || parent >= count) return unknown(std::max(op, parent));
    groups.join(op, parent);
    if (op == parent) saved[op] = true;
  }

  std::vector<KnapsackItem> together(count);
  std::vector<bool> group_saved(count, false), group_dropped(count, false);
  for (std::uint32_t op = 0; op < count; ++op) {
    const std::uint32_t group = groups.find(op);
    together[group].memory += operators[op].memory;
    together[group].value += operators[op].value;
    if (saved[op]) group_saved[group] = true;
    if (dropped[op]) group_dropped[group] = true;
  }
  std::uint64_t left = *allowed;
  std::vector<KnapsackItem> items;
  std::vector<std::uint32_t> group_of_item;
  for (std::uint32_t group = 0; group < count; ++group) {
    if (groups.find(group) != group) continue;
    if (group_saved[group] && group_dropped[group])
      return plan::detail::refused("operator " + std::to_string(group) + " must be saved and is bound to one that must not");
    if (group_saved[group]) {
      if (together[group].memory > left)
        return plan::detail::refused("what must be saved is more than the budget of " + std::to_string(*allowed));
      left -= together[group].memory;
    } else if (!group_dropped[group]) {
      items.push_back(together[group]);
      group_of_item.push_back(group);
    }
  }
  Result<KnapsackAnswer> chosen = plan::knapsack(items, left);
  if (!chosen) return chosen.take_error();
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (chosen->kept[i]) group_saved[group_of_item[i]] = true;
  }
  KnapsackAnswer answer;
  answer.exact = chosen->exact;
  answer.kept.resize(count);
  for (std::uint32_t op = 0; op < count; ++op) {
    answer.kept[op] = group_saved[groups.find(op)];
    if (!answer.kept[op]) continue;
    answer.memory += operators[op].memory;
    answer.value += operators[op].value;
  }
  answer.bound = answer.value + (chosen->bound - chosen->value);
  return answer;
}

}  // namespace liveset::test
