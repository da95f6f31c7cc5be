// Knapsack and regions against trying every choice.
#include <gtest/gtest.h>

#include "tests/support/train_pattern.h"
#include "viewer/plan/knapsack.h"
#include "viewer/plan/regions.h"

namespace liveset::plan {
namespace {

using test::Random;

template <class T>
T good(Result<T> result) {
  EXPECT_TRUE(result) << result.error().message();
  return result ? std::move(*result) : T();
}

TEST(KnapsackProperty, TheAnswerIsTheBestOfAllSubsets) {
  Random random(21);
  for (int round = 0; round < 300; ++round) {
    std::vector<KnapsackItem> items(random.below(11));
    const std::uint64_t largest = round % 3 == 0 ? 4 : 1000;
    for (KnapsackItem& item : items) item = {random.below(largest), random.below(largest)};
    std::uint64_t all = 0;
    for (const KnapsackItem& item : items) all += item.memory;
    const std::uint64_t capacity = random.below(all + 2);
    std::uint64_t best = 0;
    for (std::uint32_t subset = 0; subset < 1U << items.size(); ++subset) {
      std::uint64_t memory = 0, value = 0;
      for (std::size_t i = 0; i < items.size(); ++i) {
        if ((subset >> i & 1U) == 0) continue;
        memory += items[i].memory;
        value += items[i].value;
      }
      if (memory <= capacity) best = std::max(best, value);
    }
    for (const std::uint64_t states : {std::uint64_t{1'000'000}, std::uint64_t{40}}) {
      KnapsackOptions options;
      options.max_states = states;
      const KnapsackAnswer answer = good(knapsack(items, capacity, options));
      std::uint64_t memory = 0, value = 0;
      for (std::size_t i = 0; i < items.size(); ++i) {
        memory += answer.kept[i] ? items[i].memory : 0;
        value += answer.kept[i] ? items[i].value : 0;
      }
      EXPECT_EQ(memory, answer.memory);
      EXPECT_EQ(value, answer.value);
      EXPECT_LE(memory, capacity);
      EXPECT_LE(value, best);
      EXPECT_GE(answer.bound, best);
      if (states > 40) {
        EXPECT_TRUE(answer.exact);
      }
      if (answer.exact) {
        EXPECT_EQ(value, best);
      }
    }
  }
}

// ---- regions --------------------------------------------------------------------------------------------------------------

std::vector<Module> random_tree(Random& random, std::uint64_t count) {
  std::vector<Module> modules;
  std::vector<std::uint32_t> open;
  const std::uint64_t largest = random.below(3) == 0 ? 3 : 20;
  for (std::uint32_t i = 0; i < count; ++i) {
    while (!open.empty() && random.below(3) == 0) open.pop_back();
    Module module;
    module.parent = open.empty() ? no_parent : open.back();
    module.own = random.below(largest);
    module.temporary = random.below(3) == 0 ? random.below(largest) : 0;
    module.may_checkpoint = random.below(6) != 0;
    module.boundary = random.below(largest) / 2;
    module.working = random.below(2 * largest);
    module.cost = random.below(9);
    modules.push_back(module);
    open.push_back(i);
  }
  return modules;
}

// The forward pass, recursively, as the header tells it.
struct Pass {
  const std::vector<Module>& modules;
  std::uint32_t chosen;
  std::uint64_t retained = 0, peak = 0, cost = 0;

  void children_of(std::uint32_t parent) {
    for (std::uint32_t i = 0; i < modules.size(); ++i) {
      if (modules[i].parent != parent) continue;
      if (chosen >> i & 1U) {
        retained += modules[i].boundary;
        peak = std::max(peak, retained + modules[i].working);
        cost += modules[i].cost;
      } else {
        retained += modules[i].own;
        children_of(i);
        peak = std::max(peak, retained + modules[i].temporary);
      }
    }
  }
};

// A mask is a choice when what it names may be checkpointed and nothing is inside of something else.
bool allowed(const std::vector<Module>& modules, std::uint32_t chosen) {
  for (std::uint32_t i = 0; i < modules.size(); ++i) {
    if ((chosen >> i & 1U) == 0) continue;
    if (!modules[i].may_checkpoint) return false;
    for (std::uint32_t above = modules[i].parent; above != no_parent; above = modules[above].parent) {
      if (chosen >> above & 1U) return false;
    }
  }
  return true;
}

TEST(RegionsProperty, TheBestSetIsTheBestOfAllSets) {
  Random random(31);
  for (int round = 0; round < 150; ++round) {
    const std::vector<Module> modules = random_tree(random, 1 + random.below(10));
    std::map<std::uint64_t, std::uint64_t> cheapest;  // by peak
    for (std::uint32_t chosen = 0; chosen < 1U << modules.size(); ++chosen) {
      if (!allowed(modules, chosen)) continue;
      Pass pass{modules, chosen};
      pass.children_of(no_parent);
      pass.peak = std::max(pass.peak, pass.retained);
      const auto [entry, is_new] = cheapest.try_emplace(pass.peak, pass.cost);
      entry->second = std::min(entry->second, pass.cost);
      std::vector<std::uint32_t> list;
      for (std::uint32_t i = 0; i < modules.size(); ++i) {
        if (chosen >> i & 1U) list.push_back(i);
      }
      const RegionPlan figures = good(region_figures(modules, list));
      EXPECT_EQ(figures.figures.peak, pass.peak);
      EXPECT_EQ(figures.figures.cost, pass.cost);
      EXPECT_EQ(figures.retained, pass.retained);
    }
    EXPECT_EQ(good(regions_least_peak(modules)), cheapest.begin()->first);

    std::vector<std::pair<std::uint64_t, std::uint64_t>> expected, found;
    for (const auto& [peak, cost] : cheapest) {
      if (expected.empty() || cost < expected.back().second) expected.emplace_back(peak, cost);
    }
    const RegionFrontier frontier = good(region_frontier(modules));
    EXPECT_TRUE(frontier.complete);
    for (const RegionPlan& plan : frontier.points) {
      EXPECT_TRUE(plan.exact);
      found.emplace_back(plan.figures.peak, plan.figures.cost);
    }
    EXPECT_EQ(found, expected);

    RegionOptions few;
    few.max_states = 1;
    for (std::uint64_t budget = 0; budget <= cheapest.rbegin()->first; ++budget) {
      std::optional<std::uint64_t> least;
      for (const auto& [peak, cost] : expected) {
        if (peak <= budget) least = cost;
      }
      const std::optional<RegionPlan> plan = good(best_regions(modules, budget)), rough = good(best_regions(modules, budget, few));
      ASSERT_EQ(plan.has_value(), least.has_value());
      ASSERT_EQ(rough.has_value(), least.has_value());
      if (!least) continue;
      EXPECT_EQ(plan->figures.cost, *least);
      EXPECT_LE(plan->figures.peak, budget);
      EXPECT_LE(rough->figures.peak, budget);
      EXPECT_GE(rough->figures.cost, *least);
      EXPECT_LE(rough->least_cost, *least);
      if (rough->exact) {
        EXPECT_EQ(rough->figures.cost, *least);
      }
    }
  }
}

// The whole tree as one checkpoint retains next to nothing and fits nowhere: prices of bytes alone would choose it. The layers differ, so
// that states are far more than a list may have, and plans are close to what is certified all the same.
TEST(RegionsProperty, ATreeThatFitsNowhereMisleadsNobody) {
  Random random(8);
  std::vector<Module> modules(1);
  std::uint64_t all = 0;
  for (std::uint32_t i = 1; i <= 400; ++i) {
    Module module;
    module.parent = 0;
    module.own = 1000 + random.below(1'000'000);
    module.boundary = module.own / (2 + random.below(20));
    module.working = module.own;
    module.cost = 1 + random.below(100'000);
    all += module.own;
    modules.push_back(module);
  }
  modules[0].boundary = 1;
  modules[0].working = all;
  modules[0].cost = 1;
  RegionOptions options;
  options.max_states = 100'000;
  const std::uint64_t least = good(regions_least_peak(modules));
  for (const std::uint64_t part : {5, 20, 50, 80}) {
    const std::uint64_t budget = least + (all - 1 - least) * part / 100;
    const auto plan = good(best_regions(modules, budget, options));
    ASSERT_TRUE(plan);
    EXPECT_LE(plan->figures.peak, budget);
    EXPECT_LE(plan->figures.cost, plan->least_cost + plan->least_cost / 50) << part;
  }
}

TEST(RegionsProperty, DeepAndWideTreesAreFine) {
  for (const bool deep : {true, false}) {
    std::vector<Module> modules(20'000);
    for (std::uint32_t i = 0; i < modules.size(); ++i) {
      modules[i] = {deep && i > 0 ? i - 1 : no_parent, 3 + i % 7, 1, true, 1 + i % 3, 5, 1 + i % 11};
    }
    const std::uint64_t least = good(regions_least_peak(modules)), most = good(region_figures(modules, {})).figures.peak;
    const auto plan = good(best_regions(modules, least + (most - least) / 2));
    ASSERT_TRUE(plan);
    EXPECT_LE(plan->figures.peak, least + (most - least) / 2);
    EXPECT_LE(plan->least_cost, plan->figures.cost);
    EXPECT_FALSE(good(best_regions(modules, least - 1)));
  }
}

}  // namespace
}  // namespace liveset::plan
