#include "viewer/model/selective_search.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "viewer/plan/knapsack.h"

namespace liveset::model {
namespace {

constexpr std::uint64_t max_states = 100'000;  // of a knapsack: what is close to the best is as good a proposal

}  // namespace

std::vector<std::string> selective_policies(const Model& model, std::uint64_t points) {
  std::map<std::string_view, plan::KnapsackItem> operators;
  std::vector<bool> seen(model.tensors.size());
  for (const Unit& unit : model.units) {
    std::string_view name;
    for (std::uint32_t index = unit.begin; index < unit.end; ++index) {
      const Op& op = model.ops[index];
      if (!op.continues || index == unit.begin) name = op.name;
      if (name.empty() || name.find(',') != std::string_view::npos) continue;  // no policy can name it
      plan::KnapsackItem& item = operators[name];
      item.value += op.cost;
      for (const std::uint32_t tensor : model.list(op.writes)) {
        if (model.tensors[tensor].value && !seen[tensor]) item.memory += model.tensors[tensor].bytes;
        seen[tensor] = true;
      }
    }
  }
  std::erase_if(operators, [](const auto& each) { return each.second.memory == 0; });
  std::vector<std::string_view> names;
  std::vector<plan::KnapsackItem> items;
  std::uint64_t all = 0;
  for (const auto& [name, item] : operators) {
    names.push_back(name);
    items.push_back(item);
    all += item.memory;
  }
  std::vector<std::string> policies;
  for (std::uint64_t point = 1; point <= points && !items.empty(); ++point) {
    const auto capacity = static_cast<std::uint64_t>(static_cast<unsigned __int128>(all) * point / points);
    const Result<plan::KnapsackAnswer> chosen = plan::knapsack(items, capacity, plan::KnapsackOptions{max_states});
    if (!chosen) break;  // sizes beyond what planners add up
    std::string policy;
    for (std::size_t i = 0; i < items.size(); ++i)
      if (chosen->kept[i]) policy += (policy.empty() ? "selective:" : ",") + std::string(names[i]);
    if (!policy.empty() && (policies.empty() || policies.back() != policy)) policies.push_back(std::move(policy));
  }
  return policies;
}

}  // namespace liveset::model
