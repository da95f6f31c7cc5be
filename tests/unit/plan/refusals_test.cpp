// What the planners refuse, and that they say why; and replays of schedules that are not possible.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "viewer/plan/frontier.h"
#include "viewer/plan/knapsack.h"
#include "viewer/plan/regions.h"
#include "viewer/plan/revolve.h"
#include "viewer/plan/rotor.h"
#include "viewer/plan/segments.h"

namespace liveset::plan {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t huge = std::uint64_t{1} << 62;

template <class T>
std::string refusal(const Result<T>& result) {
  if (result) return "accepted";
  EXPECT_EQ(result.error().kind, ErrorKind::usage);
  return result.error().message();
}

TEST(PlanRefusals, Chains) {
  EXPECT_THAT(refusal(check(Chain{})), HasSubstr("at least one layer"));
  EXPECT_THAT(refusal(check(Chain{{1, 1}, {1, 1}})), HasSubstr("3 values, not 2"));
  EXPECT_THAT(refusal(check(Chain{{huge, huge, huge}, {1, 1}})), HasSubstr("bytes"));
  EXPECT_THAT(refusal(check(Chain{{1, 1, 1}, {huge, huge}})), HasSubstr("costs"));
  EXPECT_THAT(refusal(exact_frontier(uniform_chain(21))), HasSubstr("at most 20 layers, the chain has 21"));
  EXPECT_THAT(refusal(cheapest_within(uniform_chain(1'000'000), 5)), HasSubstr("at most 20 layers"));
  const Chain six = uniform_chain(6);
  EXPECT_THAT(refusal(segment_figures(six, std::vector<std::uint64_t>{3, 2})), HasSubstr("5 layers, the chain has 6"));
  EXPECT_THAT(refusal(segment_figures(six, std::vector<std::uint64_t>{huge, huge, huge, huge})), HasSubstr("more layers than the chain"));
  EXPECT_THAT(refusal(segment_figures(six, std::vector<std::uint64_t>{6, 0})), HasSubstr("at least one layer"));
  EXPECT_THAT(refusal(segment_moves(std::vector<std::uint64_t>{huge, huge})), HasSubstr("at most 1000000"));
  EXPECT_TRUE(equal_segments(0, 3).empty());
  EXPECT_EQ(equal_segments(3, 0), (std::vector<std::uint64_t>{1, 1, 1}));
  EXPECT_EQ(sqrt_segments(10), (std::vector<std::uint64_t>{4, 4, 2}));
}

TEST(PlanRefusals, MovesThatAreNotPossible) {
  const Chain chain = uniform_chain(2);
  using Kind = Move::Kind;
  const auto moves = [&chain](std::vector<Move> list) { return refusal(replay(chain, list)); };
  EXPECT_THAT(moves({{Kind::forward, 2}}), HasSubstr("move 1, f2, is not possible: its input is not live"));
  EXPECT_THAT(moves({{Kind::forward, 1}, {Kind::forward, 1}}), HasSubstr("its value is live"));
  EXPECT_THAT(moves({{Kind::forward, 1}, {Kind::reverse, 1}}), HasSubstr("another layer"));
  EXPECT_THAT(moves({{Kind::drop, 2}}), HasSubstr("its value is not live"));
  EXPECT_THAT(moves({{Kind::forward, 9}}), HasSubstr("beyond"));
  EXPECT_THAT(moves({{Kind::forward, 0}}), HasSubstr("its input is not live"));
  EXPECT_THAT(moves({{Kind::forward, 1}}), HasSubstr("before layer 2 is reversed"));
}

TEST(PlanRefusals, Revolve) {
  EXPECT_THAT(refusal(revolve_advances(0, 3)), HasSubstr("at least one step"));
  EXPECT_THAT(refusal(revolve_advances(3, 0)), HasSubstr("at least one snapshot"));
  EXPECT_THAT(refusal(revolve_advances(huge, 3)), HasSubstr("at most 2147483648 steps"));
  EXPECT_THAT(refusal(revolve_schedule(1'000'000, 1)), HasSubstr("take more snapshots"));
  EXPECT_EQ(*revolve_advances(max_revolve_steps, 1), max_revolve_steps / 2 * (max_revolve_steps - 1));
  EXPECT_EQ(*revolve_advances(max_revolve_steps, huge), max_revolve_steps - 1);
  EXPECT_EQ(revolve_beta(huge, huge), ~std::uint64_t{0});
  EXPECT_EQ(revolve_beta(60, 3), 39711U);  // 63 x 62 x 61 / 6
}

RotorChain small_rotor() { return {{1, 1, 1}, {2, 2}, {1, 1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}}; }

TEST(PlanRefusals, Rotor) {
  EXPECT_THAT(refusal(RotorTable::make(RotorChain{}, 5)), HasSubstr("at least one stage"));
  RotorChain chain = small_rotor();
  chain.delta.pop_back();
  EXPECT_THAT(refusal(RotorTable::make(chain, 5)), HasSubstr("3 entries in a and delta"));
  chain = small_rotor();
  chain.ob.push_back(0);
  EXPECT_THAT(refusal(RotorTable::make(chain, 5)), HasSubstr("as many entries"));
  chain = small_rotor();
  chain.abar[1] = 0;
  EXPECT_THAT(refusal(RotorTable::make(chain, 5)), HasSubstr("abar of stage 2 is less than its output"));
  chain = small_rotor();
  chain.of[0] = huge;
  EXPECT_THAT(refusal(RotorTable::make(chain, 5)), HasSubstr("sizes"));
  chain = small_rotor();
  chain.uf[0] = (std::uint64_t{1} << 60) - 2;
  EXPECT_THAT(refusal(RotorTable::make(chain, 5)), HasSubstr("times"));
  const std::size_t many = max_rotor_stages + 1;
  const std::vector<std::uint64_t> values(many + 1, 1), stages(many, 1);
  EXPECT_THAT(refusal(RotorTable::make({values, stages, values, stages, stages, stages, stages}, 5)), HasSubstr("several layers together"));
  RotorOptions tiny;
  tiny.max_table_bytes = 8;
  EXPECT_TRUE(RotorTable::make(small_rotor(), huge, tiny));  // nothing lies between least and all: no table
}

TEST(PlanRefusals, ABudgetThatIsTooSmallHasNoPlan) {
  const Result<RotorTable> table = RotorTable::make(small_rotor(), huge);
  ASSERT_TRUE(table);
  EXPECT_GT(table->least_budget(), 1U);
  EXPECT_FALSE(table->plan(table->least_budget() - 1));
  EXPECT_FALSE(table->plan(0));
  EXPECT_TRUE(table->plan(huge));
  const Result<RotorTable> none = RotorTable::make(small_rotor(), 0);
  ASSERT_TRUE(none);
  EXPECT_EQ(none->least_budget(), table->least_budget());
  EXPECT_FALSE(none->plan(0));
  EXPECT_TRUE(none->steps().empty());
  RotorChain weightless = small_rotor();
  for (auto* list : {&weightless.a, &weightless.abar, &weightless.delta}) std::fill(list->begin(), list->end(), 0);
  const Result<RotorTable> free = RotorTable::make(weightless, 0);
  ASSERT_TRUE(free);
  EXPECT_EQ(free->plan(0)->figures.cost, 4U);
  EXPECT_FALSE(*cheapest_within(uniform_chain(4), 2));
}

TEST(PlanRefusals, RotorOperationsThatAreNotPossible) {
  using Kind = RotorOperation::Kind;
  const auto run = [](std::vector<RotorOperation> list) { return refusal(replay(small_rotor(), list)); };
  EXPECT_THAT(run({{Kind::backward, 2}}), HasSubstr("operation 1, B2, is not possible: its input is not there"));
  EXPECT_THAT(run({{Kind::forward_keep_all, 1}, {Kind::backward, 1}}), HasSubstr("its turn has not come"));
  EXPECT_THAT(run({{Kind::forward_keep_input, 1}, {Kind::forward_keep_all, 2}, {Kind::backward, 2}, {Kind::forward, 1}}),
              HasSubstr("kept"));
  EXPECT_THAT(run({{Kind::forward, 1}, {Kind::forward_keep_all, 2}, {Kind::backward, 2}}), HasSubstr("before the backward of stage 1"));
  EXPECT_THAT(run({{Kind::forward, 7}}), HasSubstr("no such stage"));
  EXPECT_THAT(run({{Kind::forward_keep_input, 1}, {Kind::forward_keep_input, 1}}), HasSubstr("its result is there"));
}

TEST(PlanRefusals, Knapsack) { EXPECT_THAT(refusal(knapsack(std::vector<KnapsackItem>{{huge, 1}}, 5)), HasSubstr("2^60")); }

TEST(PlanRefusals, Regions) {
  EXPECT_THAT(refusal(best_regions({}, 5)), HasSubstr("no modules"));
  Module leaf;
  leaf.own = 4;
  leaf.cost = 1;
  std::vector<Module> modules(3, leaf);
  modules[1].parent = 0;
  EXPECT_THAT(refusal(region_figures(modules, std::vector<std::uint32_t>{0, 1})), HasSubstr("inside of a checkpointed one"));
  EXPECT_THAT(refusal(region_figures(modules, std::vector<std::uint32_t>{2, 0})), HasSubstr("does not rise"));
  EXPECT_THAT(refusal(region_figures(modules, std::vector<std::uint32_t>{3})), HasSubstr("no module 3"));
  modules[2].may_checkpoint = false;
  EXPECT_THAT(refusal(region_figures(modules, std::vector<std::uint32_t>{2})), HasSubstr("may not"));
  modules[2].parent = 2;
  EXPECT_THAT(refusal(region_frontier(modules)), HasSubstr("module 2 does not follow its parent"));
  modules[2].parent = no_parent;
  modules.push_back(leaf);
  modules.back().parent = 0;  // the subtree of 0 has ended
  EXPECT_THAT(refusal(regions_least_peak(modules)), HasSubstr("module 3 does not follow its parent"));
  modules.back().parent = no_parent;
  modules.back().working = huge;
  EXPECT_THAT(refusal(check(modules)), HasSubstr("bytes"));
}

// A frontier of more points than asked for spans what is possible.
TEST(Regions, AFrontierOfManyPointsIsTakenEvenly) {
  std::vector<Module> modules(12);
  for (std::uint32_t i = 0; i < modules.size(); ++i) {
    modules[i].own = std::uint64_t{1} << (i + 4);
    modules[i].cost = std::uint64_t{1} << i;
  }
  RegionOptions options;
  options.max_points = 9;
  const Result<RegionFrontier> some = region_frontier(modules, options);
  ASSERT_TRUE(some);
  EXPECT_FALSE(some->complete);
  EXPECT_EQ(some->points.front().figures.peak, *regions_least_peak(modules));
  EXPECT_EQ(some->points.back().figures.cost, 0U);
  EXPECT_LE(some->points.size(), 9U);
  EXPECT_GT(some->points.size(), 5U);
}

}  // namespace
}  // namespace liveset::plan
