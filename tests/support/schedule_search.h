// The cheapest schedule of a small graph of layers within a budget, by trying everything: slow, obvious, and apart from all planners.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace liveset::test {

// Values 0 .. inputs-1 are inputs, value inputs + i is made by layer i from values before it.
struct LayerGraph {
  std::vector<std::uint64_t> bytes;               // of every value
  std::vector<std::vector<std::uint32_t>> reads;  // of every layer
  std::vector<std::uint64_t> cost;                // of every layer

  std::size_t inputs() const { return bytes.size() - reads.size(); }
};

inline LayerGraph chain_graph(const std::vector<std::uint64_t>& bytes, const std::vector<std::uint64_t>& cost) {
  LayerGraph graph{bytes, {}, cost};
  for (std::uint32_t i = 0; i < cost.size(); ++i) graph.reads.push_back({i});
  return graph;
}

// Moves: run a layer whose reads live and whose value does not, not beyond the next layer to reverse; drop any live value; reverse the next
// layer, whose value and reads live, which releases its value. Inputs live at the start. The reversals go from the last layer to the first.
// Nothing when no schedule stays within the budget.
inline std::optional<std::uint64_t> cheapest_schedule(const LayerGraph& graph, std::uint64_t budget) {
  using Live = std::set<std::uint32_t>;
  using State = std::pair<std::size_t, Live>;  // layers still to reverse
  const auto held = [&graph](const Live& live) {
    std::uint64_t sum = 0;
    for (const std::uint32_t value : live) sum += graph.bytes[value];
    return sum;
  };
  std::map<State, std::uint64_t> best;
  std::set<std::pair<std::uint64_t, State>> open;
  const auto reach = [&](State state, std::uint64_t cost) {
    if (held(state.second) > budget) return;
    const auto [entry, is_new] = best.try_emplace(state, cost);
    if (!is_new && entry->second <= cost) return;
    entry->second = cost;
    open.emplace(cost, std::move(state));
  };
  Live start;
  for (std::uint32_t i = 0; i < graph.inputs(); ++i) start.insert(i);
  reach({graph.reads.size(), start}, 0);
  while (!open.empty()) {
    const auto [cost, state] = *open.begin();
    open.erase(open.begin());
    if (best.at(state) < cost) continue;
    const auto& [left, live] = state;
    if (left == 0) return cost;
    const auto lives = [&live = live](std::uint32_t value) { return live.count(value) > 0; };
    for (std::uint32_t layer = 0; layer < left; ++layer) {
      const auto value = static_cast<std::uint32_t>(graph.inputs() + layer);
      const bool readable = std::all_of(graph.reads[layer].begin(), graph.reads[layer].end(), lives);
      if (readable && !lives(value)) {
        Live after = live;
        after.insert(value);
        reach({left, after}, cost + graph.cost[layer]);
      }
      if (readable && lives(value) && layer + 1 == left) {
        Live after = live;
        after.erase(value);
        reach({left - 1, after}, cost);
      }
    }
    for (const std::uint32_t value : live) {
      Live after = live;
      after.erase(value);
      reach({left, after}, cost);
    }
  }
  return std::nullopt;
}

}  // namespace liveset::test
