// Numbers of originals: names repeat in a step (a module that is called twice, a node of each type), and are numbered in the order in
// which originals were made.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "viewer/ledger/lineage.h"

namespace liveset::ledger {

// For each original of these values, by block: its name without a number, as base(value) gives it, and the number, from 1. Of a step
// all values or none must be among these.
template <class Base>
auto number_originals(const Lineage& lineage, const std::vector<std::uint32_t>& values, Base base) {
  using Name = std::decay_t<decltype(base(lineage.values[0]))>;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> order;  // original, value
  for (const std::uint32_t i : values)
    if (lineage.values[i].original != no_block) order.emplace_back(lineage.values[i].original, i);
  std::sort(order.begin(), order.end());
  std::unordered_map<std::uint32_t, std::pair<Name, std::uint32_t>> found;
  std::unordered_map<Name, std::uint32_t> seen;
  std::pair<bool, std::int64_t> step{};
  for (const auto& [original, index] : order) {
    if (found.contains(original)) continue;
    const RemadeValue& value = lineage.values[index];
    const CheckpointRegion& region = lineage.regions[lineage.rounds[value.round].region];
    if (std::pair(region.has_step, region.step) != step) seen.clear();
    step = {region.has_step, region.step};
    Name name = base(value);
    const std::uint32_t number = ++seen[name];
    found.try_emplace(original, std::move(name), number);
  }
  return found;
}

}  // namespace liveset::ledger
