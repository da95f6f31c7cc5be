// What every step leaves more of: blocks made in one step that live on beyond the end of the next.
#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <tuple>

#include "viewer/ledger/retention.h"

namespace liveset::ledger {
namespace {

using trace::MemoryClass;

// The latest steps whose survivors can be known: all but the last. Growth shows in each of them, or in the last few of many.
constexpr std::uint32_t steps_looked_at = 5, fewest_steps = 2;

struct Group {
  std::int64_t net[steps_looked_at] = {};  // blocks more or less at the ends of the steps that are looked at
  std::uint32_t example = 0;
};

}  // namespace

std::vector<Growth> find_growth(const PhysicalLedger& ledger, const Range& range, const std::vector<std::uint32_t>& scopes,
                                const std::vector<std::pair<std::uint32_t, MemoryClass>>& stated) {
  const std::vector<Step>& steps = ledger.steps;
  std::size_t complete = steps.size();
  while (complete != 0 && steps[complete - 1].end_event == no_event) --complete;
  if (complete < fewest_steps + 1) return {};
  const auto last = static_cast<std::uint32_t>(complete - 2);  // the last step that another one follows
  const std::uint32_t first = last + 1 > steps_looked_at ? last + 1 - steps_looked_at : 0;

  // The end of the last step may take the end of the job along, which frees all: what counts is the last allocation.
  std::uint64_t last_allocation = 0;
  if (ledger.blocks.end() != 0) last_allocation = ledger.blocks.find(ledger.blocks.end() - 1)->birth;
  const auto end_of = [&](std::size_t step) {
    return step + 1 == steps.size() ? std::min(steps[step].end_event, last_allocation + 1) : steps[step].end_event;
  };
  using Key = std::tuple<std::uint32_t, MemoryClass, std::uint64_t>;  // scope, class, bytes
  absl::flat_hash_map<Key, Group> groups;
  std::size_t step = 0, next_stated = 0;
  ledger.blocks.for_each([&](std::uint32_t ordinal, const Block& block) {
    if (!block.in_step() || !range.contains(block.birth)) return;
    while (step < complete && steps[step].end_event <= block.birth) ++step;
    if (step > last || block.birth < steps[step].first_event || block.death <= end_of(step + 1)) return;
    while (next_stated < stated.size() && stated[next_stated].first < ordinal) ++next_stated;
    const bool is_stated = next_stated < stated.size() && stated[next_stated].first == ordinal;
    const MemoryClass memory_class = is_stated ? stated[next_stated].second : MemoryClass::none;
    Group& group = groups[{ordinal < scopes.size() ? scopes[ordinal] : 0, memory_class, ledger.blocks.bytes(block)}];
    if (step >= first) ++group.net[step - first];
    group.example = ordinal;
    if (!block.freed()) return;
    const auto after = std::upper_bound(steps.begin(), steps.end(), block.death,
                                        [](std::uint64_t event, const Step& each) { return event < each.end_event; });
    const auto gone = static_cast<std::uint32_t>(after - steps.begin());
    if (gone >= first && gone <= last) --group.net[gone - first];
  });

  std::vector<Growth> growing;
  for (auto& [key, group] : groups) {
    const std::span<const std::int64_t> net(group.net, last - first + 1);
    if (std::any_of(net.begin(), net.end(), [](std::int64_t more) { return more <= 0; })) continue;
    const std::int64_t blocks = std::accumulate(net.begin(), net.end(), std::int64_t{0});
    const auto& [scope, memory_class, bytes] = key;
    Growth& growth = growing.emplace_back();
    growth.scope = scope;
    growth.memory_class = memory_class;
    growth.block_bytes = bytes;
    growth.blocks = static_cast<std::uint64_t>(blocks);
    growth.bytes = bytes * growth.blocks;
    growth.first_step = steps[first].number;
    growth.last_step = steps[last].number;
    growth.example = group.example;
  }
  std::sort(growing.begin(), growing.end(), [](const Growth& a, const Growth& b) {
    return std::tuple(b.bytes, a.scope, a.example) < std::tuple(a.bytes, b.scope, b.example);
  });
  if (growing.size() > Retention::max_growth) growing.resize(Retention::max_growth);
  return growing;
}

}  // namespace liveset::ledger
