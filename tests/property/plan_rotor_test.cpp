// Rotor against trying every persistent sequence of operations, on random chains.
#include <gtest/gtest.h>

#include <set>

#include "tests/support/train_pattern.h"
#include "tests/unit/plan/rotor_chains.h"
#include "viewer/plan/rotor.h"

namespace liveset::plan {
namespace {

using test::Random;

RotorChain random_chain(Random& random, std::uint64_t stages, std::uint64_t scale = 1) {
  RotorChain chain;
  const auto size = [&](std::uint64_t limit) { return scale * random.below(limit) + (scale > 1 ? random.below(scale) : 0); };
  const std::uint64_t gradients = random.below(3) * random.below(8), temporaries = random.below(2) * random.below(14);
  for (std::uint64_t l = 0; l <= stages; ++l) {
    chain.a.push_back(size(6));
    chain.delta.push_back(gradients > 0 ? size(gradients) : 0);
    if (l == 0) continue;
    chain.abar.push_back(chain.a.back() + size(8));
    chain.uf.push_back(random.below(6));
    chain.ub.push_back(random.below(6));
    chain.of.push_back(temporaries > 0 ? size(temporaries) : 0);
    chain.ob.push_back(temporaries > 0 ? size(temporaries) : 0);
  }
  // A large gradient at the end weighs on the first sweep only: what runs there and what runs later then have different limits.
  if (random.below(2) == 0) chain.delta.back() = chain.delta.back() * 3 + size(20);
  return chain;
}

// All states that persistent operations lead to, cheapest first.
std::optional<std::uint64_t> cheapest_sequence(const RotorChain& chain, std::uint64_t budget) {
  const std::uint64_t stages = chain.stages();
  struct State {
    std::uint64_t left = 0;
    std::set<std::uint64_t> alone, kept, all;
    auto operator<=>(const State&) const = default;
  };
  const auto held = [&](const State& state) {
    std::uint64_t sum = chain.delta[state.left];
    for (const std::uint64_t l : state.alone) sum += chain.a[l];
    for (const std::uint64_t l : state.all) sum += chain.abar[l - 1];
    return sum;
  };
  std::map<State, std::uint64_t> best;
  std::set<std::pair<std::uint64_t, State>> open;
  const auto reach = [&](const State& state, std::uint64_t cost) {
    const auto [entry, is_new] = best.try_emplace(state, cost);
    if (!is_new && entry->second <= cost) return;
    entry->second = cost;
    open.emplace(cost, state);
  };
  const State start{stages, {0}, {}, {}};
  if (held(start) <= budget) reach(start, 0);
  while (!open.empty()) {
    const auto [cost, state] = *open.begin();
    open.erase(open.begin());
    if (best.at(state) < cost) continue;
    if (state.left == 0) return cost;
    const std::uint64_t now = held(state);
    for (std::uint64_t l = 1; l <= state.left; ++l) {
      const bool alone = state.alone.count(l - 1) > 0;
      if (!alone && state.all.count(l - 1) == 0) continue;
      if (l == state.left && state.all.count(l) > 0 && now + chain.delta[l - 1] + chain.ob[l - 1] <= budget) {
        State after = state;
        after.left = l - 1;
        after.all.erase(l);
        after.alone.erase(l - 1);
        after.kept.erase(l - 1);
        reach(after, cost + chain.ub[l - 1]);
      }
      if (state.all.count(l) > 0) continue;
      if (now + chain.abar[l - 1] + chain.of[l - 1] <= budget) {
        State after = state;
        after.all.insert(l);
        if (alone) after.kept.insert(l - 1);
        reach(after, cost + chain.uf[l - 1]);
      }
      if (state.alone.count(l) > 0 || now + chain.a[l] + chain.of[l - 1] > budget) continue;
      State after = state;
      after.alone.insert(l);
      if (alone) after.kept.insert(l - 1);
      reach(after, cost + chain.uf[l - 1]);  // Fck
      if (!alone || state.kept.count(l - 1) > 0) continue;
      after = state;
      after.alone.insert(l);
      after.alone.erase(l - 1);
      reach(after, cost + chain.uf[l - 1]);  // Fn
    }
  }
  return std::nullopt;
}

std::uint64_t keep_all_peak(const RotorChain& chain) { return replay(chain, rotor_keep_all(chain.stages()))->peak; }

RotorTable table_of(const RotorChain& chain, std::uint64_t budget, std::uint64_t slots, std::uint64_t looks = 0) {
  RotorOptions options;
  options.slots = slots;
  options.max_looks = looks;
  Result<RotorTable> table = RotorTable::make(chain, budget, options);
  EXPECT_TRUE(table) << table.error().message();
  return std::move(*table);
}

void expect_runs(const RotorChain& chain, const RotorPlan& plan, std::uint64_t budget) {
  const test::RotorRun run = test::run_rotor(chain, text_of(plan.operations));
  EXPECT_EQ(run.wrong, "") << text_of(plan.operations);
  EXPECT_EQ(run.time, plan.figures.cost);
  EXPECT_EQ(run.peak, plan.figures.peak);
  EXPECT_LE(run.peak, budget);
}

TEST(RotorProperty, TheTimeIsWhatTryingEverythingFinds) {
  Random random(11);
  for (int round = 0; round < 30; ++round) {
    const RotorChain chain = random_chain(random, 1 + random.below(5));
    const std::uint64_t top = keep_all_peak(chain);
    const RotorTable table = table_of(chain, top, 1000);
    ASSERT_TRUE(table.exact());
    EXPECT_GE(table.least_budget(), *rotor_budget_bound(chain));
    EXPECT_EQ(table.least_budget(), *rotor_least_budget(chain));
    for (std::uint64_t budget = 0; budget <= top + 1; ++budget) {
      const std::optional<std::uint64_t> cheapest = cheapest_sequence(chain, budget);
      EXPECT_EQ(table.cost(budget), cheapest) << "round " << round << ", budget " << budget;
      const std::optional<RotorPlan> plan = table.plan(budget);
      ASSERT_EQ(plan.has_value(), cheapest.has_value());
      EXPECT_EQ(plan.has_value(), budget >= table.least_budget());
      if (!plan) continue;
      EXPECT_TRUE(plan->exact);
      EXPECT_EQ(plan->figures.cost, *cheapest);
      expect_runs(chain, *plan, budget);
    }
  }
}

// Tables made for a smaller budget, and with a common divisor, answer the same.
TEST(RotorProperty, TheTablesBudgetChangesNothingBelowIt) {
  Random random(12);
  for (int round = 0; round < 40; ++round) {
    const RotorChain chain = random_chain(random, 2 + random.below(10));
    RotorChain scaled = chain;
    for (auto* list : {&scaled.a, &scaled.abar, &scaled.delta, &scaled.of, &scaled.ob}) {
      for (std::uint64_t& size : *list) size *= 1048576;
    }
    const std::uint64_t top = keep_all_peak(chain);
    const RotorTable whole = table_of(chain, top, 1000), half = table_of(chain, top / 2, 1000);
    const RotorTable large = table_of(scaled, top * 1048576, 1000);
    EXPECT_TRUE(large.exact());
    for (std::uint64_t budget = 0; budget <= top; ++budget) {
      if (budget <= top / 2) {
        EXPECT_EQ(half.cost(budget), whole.cost(budget));
      }
      EXPECT_EQ(large.cost(budget * 1048576 + 5), whole.cost(budget));
    }
    std::optional<std::uint64_t> listed;
    std::size_t at = 0;
    const std::vector<RotorTable::Step> steps = whole.steps();
    for (std::uint64_t budget = 0; budget <= top; ++budget) {
      if (at < steps.size() && steps[at].budget == budget) listed = steps[at++].cost;
      EXPECT_EQ(listed, whole.cost(budget)) << budget;
    }
    EXPECT_EQ(at, steps.size());
  }
}

// Without slots: the same times, by the places where they change.
TEST(RotorProperty, ListsOfStepsAreTheArray) {
  Random random(15);
  for (int round = 0; round < 80; ++round) {
    const RotorChain chain = random_chain(random, 1 + random.below(9), 1 + 16 * random.below(2));
    const std::uint64_t top = keep_all_peak(chain), budget = top - random.below(top / 2 + 1);
    const RotorTable array = table_of(chain, budget, 1'000'000), lists = table_of(chain, budget, 1, 1'000'000);
    ASSERT_TRUE(array.exact());
    ASSERT_TRUE(lists.exact());
    EXPECT_EQ(lists.slot(), array.slot());
    const auto same = [](const RotorTable::Step& a, const RotorTable::Step& b) { return a.budget == b.budget && a.cost == b.cost; };
    const std::vector<RotorTable::Step> expected = array.steps(), found = lists.steps();
    EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.begin(), expected.end(), same));
    for (std::uint64_t i = 0; i <= 40; ++i) {
      const std::uint64_t asked = budget * i / 40;
      EXPECT_EQ(lists.cost(asked), array.cost(asked));
      const std::optional<RotorPlan> plan = lists.plan(asked);
      ASSERT_EQ(plan.has_value(), array.cost(asked).has_value());
      if (!plan) continue;
      EXPECT_TRUE(plan->exact);
      EXPECT_EQ(plan->figures.cost, *array.cost(asked));
      expect_runs(chain, *plan, asked);
    }
  }
}

TEST(RotorProperty, RoundedTablesKeepTheirBudgetAndSayHowFarTheyMayBe) {
  Random random(13);
  std::size_t inexact = 0;
  for (int round = 0; round < 60; ++round) {
    const RotorChain chain = random_chain(random, 2 + random.below(8), 17);
    const std::uint64_t top = keep_all_peak(chain);
    const RotorTable exact = table_of(chain, top, 100000), rounded = table_of(chain, top, 20 + random.below(40));
    ASSERT_TRUE(exact.exact());
    EXPECT_EQ(rounded.least_budget(), exact.least_budget());
    for (std::uint64_t i = 0; i <= 60; ++i) {
      const std::uint64_t budget = exact.least_budget() + (top - exact.least_budget()) * i / 60;
      const std::optional<RotorPlan> plan = rounded.plan(budget);
      ASSERT_TRUE(plan);
      expect_runs(chain, *plan, budget);
      const std::uint64_t least = *exact.cost(budget);
      EXPECT_GE(plan->figures.cost, least);
      EXPECT_LE(plan->least_cost, least);
      EXPECT_EQ(rounded.cost(budget), plan->figures.cost);
      if (plan->exact) {
        EXPECT_EQ(plan->figures.cost, least);
      }
      inexact += plan->exact ? 0 : 1;
    }
    EXPECT_FALSE(rounded.plan(exact.least_budget() - 1));
    for (const RotorTable::Step& step : rounded.steps()) EXPECT_EQ(rounded.cost(step.budget), step.cost);
  }
  EXPECT_GT(inexact, 100U);  // or nothing was rounded
}

// The sweep over a group holds two of its values at once; here, beside the last gradient, that is the peak.
TEST(RotorProperty, TheSweepOverAGroupCounts) {
  const RotorChain chain{{1, 50, 50, 1, 1}, {50, 50, 1, 1}, {0, 0, 0, 0, 100}, {1, 1, 1, 1}, {1, 1, 1, 1}, {0, 0, 0, 0}, {0, 0, 0, 0}};
  const Result<RotorGroups> groups = group_stages(chain, 2);
  ASSERT_TRUE(groups);
  using Kind = RotorOperation::Kind;
  const std::vector<RotorOperation> operations{
      {Kind::forward_keep_input, 1}, {Kind::forward_keep_all, 2}, {Kind::backward, 2}, {Kind::forward_keep_all, 1}, {Kind::backward, 1}};
  EXPECT_EQ(replay(groups->chain, operations)->peak, 201U);
  const std::vector<RotorOperation> all = ungroup(*groups, operations);
  EXPECT_EQ(text_of(all), "Fck1 Fn2 Fall3 Fall4 B4 B3 Fall1 Fall2 B2 B1");
  EXPECT_EQ(replay(chain, all)->peak, 201U);
}

TEST(RotorProperty, PlansOfGroupsHoldForTheirStages) {
  Random random(14);
  for (int round = 0; round < 80; ++round) {
    const RotorChain chain = random_chain(random, 1 + random.below(14));
    const Result<RotorGroups> groups = group_stages(chain, 1 + random.below(6));
    ASSERT_TRUE(groups) << groups.error().message();
    const std::uint64_t top = keep_all_peak(groups->chain);
    EXPECT_GE(top, keep_all_peak(chain));
    const RotorTable table = table_of(groups->chain, top, 2000), stages = table_of(chain, top, 2000);
    for (std::uint64_t budget = table.least_budget(); budget <= top; ++budget) {
      const std::optional<RotorPlan> plan = table.plan(budget);
      ASSERT_TRUE(plan);
      const test::RotorRun run = test::run_rotor(chain, text_of(ungroup(*groups, plan->operations)));
      EXPECT_EQ(run.wrong, "");
      EXPECT_EQ(run.time, plan->figures.cost);
      EXPECT_LE(run.peak, plan->figures.peak);
      EXPECT_GE(run.time, *stages.cost(budget));
    }
  }
}

}  // namespace
}  // namespace liveset::plan
