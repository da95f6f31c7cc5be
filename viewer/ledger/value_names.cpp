#include "viewer/ledger/value_names.h"

#include <algorithm>
#include <utility>

namespace liveset::ledger {

std::string_view OriginalNames::base(const RemadeValue& value) {
  const auto [place, is_new] = bases_.try_emplace(std::uint64_t{value.scope} << 32 | value.slot);
  if (is_new) place->second = paths_.keep(value_name(std::string(paths_.module(value.scope)), dictionary_.string(value.slot)));
  return place->second;
}

void OriginalNames::number(const std::vector<std::uint32_t>& values) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> order;  // original, value
  for (const std::uint32_t i : values)
    if (lineage_.values[i].original != no_block) order.emplace_back(lineage_.values[i].original, i);
  std::sort(order.begin(), order.end());
  std::unordered_map<std::string_view, std::uint32_t> seen;
  std::pair<bool, std::int64_t> step{};
  for (const auto& [original, index] : order) {
    const auto [name, is_new] = originals_.try_emplace(original);
    if (!is_new) continue;
    const RemadeValue& value = lineage_.values[index];
    const CheckpointRegion& region = lineage_.regions[lineage_.rounds[value.round].region];
    if (std::pair(region.has_step, region.step) != step) seen.clear();
    step = {region.has_step, region.step};
    name->second.base = base(value);
    name->second.number = ++seen[name->second.base];
  }
}

OriginalNames::Name OriginalNames::of(const RemadeValue& value) {
  const auto found = originals_.find(value.original);
  return found != originals_.end() ? found->second : Name{base(value), 0};
}

}  // namespace liveset::ledger
