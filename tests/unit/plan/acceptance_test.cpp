// The planners against values that other programs worked out: exhaustive searches, published formulas, PyTorch's own tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <set>

#include "tests/support/acceptance.h"
#include "tests/unit/plan/rotor_chains.h"
#include "viewer/plan/frontier.h"
#include "viewer/plan/knapsack.h"
#include "viewer/plan/revolve.h"
#include "viewer/plan/rotor.h"
#include "viewer/plan/segments.h"

namespace liveset::plan {
namespace {

using nlohmann::json;
using test::acceptance;

// So that every test on the project's own copy is one on the files beside it.
TEST(PlanAcceptance, OwnCopiesAreTheFilesBeside) {
  for (const char* name : {"segment_frontier", "revolve", "rotor", "torch_ac"}) {
    std::ifstream file(std::string(LIVESET_SOURCE_DIR) + "/../shared/acceptance/" + name + ".json");
    if (!file) GTEST_SKIP() << "no ../shared/acceptance beside this checkout";
    EXPECT_EQ(json::parse(file), acceptance(name)) << name;
  }
}

Figures figures_of(const Result<Figures>& result) {
  EXPECT_TRUE(result) << result.error().message();
  return result ? *result : Figures{};
}

TEST(PlanAcceptance, ExactFrontierOfEveryLength) {
  const json& file = acceptance("segment_frontier");
  ASSERT_EQ(file.at("frontier").size(), 12U);
  for (const json& row : file.at("frontier")) {
    const Chain chain = uniform_chain(row.at("n"));
    SCOPED_TRACE(chain.layers());
    EXPECT_EQ(least_peak(chain), row.at("least_feasible_peak"));
    const Result<Frontier> frontier = exact_frontier(chain);
    ASSERT_TRUE(frontier) << frontier.error().message();
    EXPECT_TRUE(frontier->complete);
    for (const json& point : row.at("points")) {
      const std::uint64_t budget = point.at("peak");
      const auto within = cheapest_within(chain, budget);
      ASSERT_TRUE(within) << within.error().message();
      json found;
      if (*within) found = (*within)->cost;
      EXPECT_EQ(found, point.at("least_forward_layers")) << "budget " << budget;
      // The frontier's answer: its last point within the budget.
      json listed;
      for (const FrontierPoint& each : frontier->points) {
        if (each.peak <= budget) listed = each.cost;
      }
      EXPECT_EQ(listed, point.at("least_forward_layers")) << "budget " << budget;
    }
    for (const FrontierPoint& point : frontier->points) {
      const Figures replayed = figures_of(replay(chain, point.moves));
      EXPECT_EQ(replayed.peak, point.peak);
      EXPECT_EQ(replayed.cost, point.cost);
    }
  }
}

// The file's own move lists reach what they say.
TEST(PlanAcceptance, WitnessesReplay) {
  std::size_t witnesses = 0;
  for (const json& row : acceptance("segment_frontier").at("frontier")) {
    for (const json& point : row.at("points")) {
      if (!point.contains("witness")) continue;
      ++witnesses;
      std::vector<Move> moves;
      std::istringstream words(point.at("witness").get<std::string>());
      for (std::string word; words >> word;) {
        const auto kind = word[0] == 'f' ? Move::Kind::forward : word[0] == 'd' ? Move::Kind::drop : Move::Kind::reverse;
        moves.push_back({kind, static_cast<std::uint32_t>(std::stoul(word.substr(1)))});
      }
      EXPECT_EQ(text_of(moves), point.at("witness"));
      const Figures replayed = figures_of(replay(uniform_chain(row.at("n")), moves));
      EXPECT_EQ(replayed.cost, point.at("least_forward_layers"));
      EXPECT_EQ(replayed.peak, point.at("peak"));
    }
  }
  EXPECT_GT(witnesses, 20U);
}

TEST(PlanAcceptance, EveryCompositionHasItsClosedForm) {
  const json& rows = acceptance("segment_frontier").at("compositions");
  ASSERT_EQ(rows.size(), 255U);
  for (const json& row : rows) {
    const std::vector<std::uint64_t> lengths = row.at("lengths");
    const Chain chain = uniform_chain(row.at("n"));
    const Figures whole = figures_of(segment_figures(chain, lengths));
    EXPECT_EQ(whole.peak, row.at("peak")) << row;
    EXPECT_EQ(whole.cost, row.at("forward_layers")) << row;
    SegmentRules kept;
    kept.rerun_boundary = false;
    EXPECT_EQ(figures_of(segment_figures(chain, lengths, kept)).cost, row.at("forward_layers_boundary_not_rerun")) << row;
    const Result<std::vector<Move>> moves = segment_moves(lengths);
    ASSERT_TRUE(moves);
    const Figures replayed = figures_of(replay(chain, *moves));
    EXPECT_EQ(replayed.peak, row.at("peak")) << row;
    EXPECT_EQ(replayed.cost, row.at("forward_layers_boundary_not_rerun")) << row;
  }
}

TEST(PlanAcceptance, EqualSegments) {
  const json& rows = acceptance("segment_frontier").at("equal_segments").at("rows");
  ASSERT_EQ(rows.size(), 280U);
  for (const json& row : rows)
    EXPECT_EQ(figures_of(segment_figures(uniform_chain(row[0]), equal_segments(row[0], row[1]))).peak, row[2]) << row;
}

TEST(PlanAcceptance, BestOneLevel) {
  const json& rows = acceptance("segment_frontier").at("best_one_level_peak").at("rows");
  ASSERT_EQ(rows.size(), 64U);
  for (const json& row : rows) {
    EXPECT_EQ(best_one_level_peak(row[0]), row[1]);
    const Chain chain = uniform_chain(row[0]);
    const Result<std::vector<std::uint64_t>> lengths = best_one_level(chain);
    ASSERT_TRUE(lengths);
    EXPECT_EQ(figures_of(segment_figures(chain, *lengths)).peak, row[1]) << row;
  }
}

TEST(PlanAcceptance, RevolveOfEveryEntry) {
  const json& file = acceptance("revolve");
  ASSERT_EQ(file.at("t").size(), 200U);
  for (const json& row : file.at("t")) {
    for (std::uint64_t snapshots = 1; snapshots <= 10; ++snapshots) {
      const Result<std::uint64_t> advances = revolve_advances(row[0], snapshots);
      ASSERT_TRUE(advances);
      EXPECT_EQ(*advances, row[snapshots]) << row[0] << " steps, " << snapshots << " snapshots";
    }
  }
  ASSERT_EQ(file.at("repetition_number").size(), 200U);
  for (const json& row : file.at("repetition_number")) {
    for (std::uint64_t snapshots = 1; snapshots <= 10; ++snapshots) EXPECT_EQ(revolve_repeats(row[0], snapshots), row[snapshots]);
  }
}

TEST(PlanAcceptance, RotorOfEveryBudget) {
  const json& file = acceptance("rotor");
  ASSERT_EQ(file.at("chains").size(), 10U);
  std::size_t breakpoints = 0, probes = 0;
  for (const json& entry : file.at("chains")) {
    SCOPED_TRACE(entry.at("name").get<std::string>());
    const RotorChain chain = test::rotor_chain(entry);
    const std::uint64_t keep_all = entry.at("no_recompute_budget");
    Result<RotorTable> table = RotorTable::make(chain, 2 * keep_all);
    ASSERT_TRUE(table) << table.error().message();
    EXPECT_TRUE(table->exact());
    EXPECT_EQ(table->least_budget(), entry.at("least_feasible_budget"));
    EXPECT_EQ(figures_of(replay(chain, rotor_keep_all(chain.stages()))).peak, keep_all);
    EXPECT_EQ(table->cost(keep_all), entry.at("no_recompute_makespan").get<std::uint64_t>());

    json steps = json::array({json::array({0, nullptr})});
    for (const RotorTable::Step& step : table->steps()) steps.push_back({step.budget, step.cost});
    json expected = json::array();
    for (const json& point : entry.at("breakpoints")) {
      ++breakpoints;
      expected.push_back({point.at("budget"), point.at("makespan")});
      if (point.at("operations").is_null()) continue;
      // The file's sequence, run by the file's rules, and by ours.
      const test::RotorRun listed = test::run_rotor(chain, point.at("operations"));
      EXPECT_EQ(listed.wrong, "");
      EXPECT_EQ(listed.time, point.at("makespan"));
      EXPECT_LE(listed.peak, point.at("budget"));
    }
    EXPECT_EQ(steps, expected);

    const auto compare = [&](std::uint64_t budget, const json& makespan) {
      const std::optional<RotorPlan> plan = table->plan(budget);
      EXPECT_EQ(plan.has_value(), !makespan.is_null()) << budget;
      EXPECT_EQ(table->cost(budget).has_value(), plan.has_value());
      if (!plan) return;
      EXPECT_EQ(plan->figures.cost, makespan) << budget;
      EXPECT_TRUE(plan->exact);
      const test::RotorRun run = test::run_rotor(chain, text_of(plan->operations));
      EXPECT_EQ(run.wrong, "") << text_of(plan->operations);
      EXPECT_EQ(run.time, makespan);
      EXPECT_EQ(run.peak, plan->figures.peak);
      EXPECT_LE(run.peak, budget);
    };
    for (const json& row : entry.at("probes").at("rows")) {
      ++probes;
      compare(row[0], row[1]);
    }
    std::size_t at = 0;
    const json& points = entry.at("breakpoints");
    for (std::uint64_t budget = 0; budget <= keep_all + 2; ++budget) {
      while (at + 1 < points.size() && points[at + 1].at("budget") <= budget) ++at;
      compare(budget, points[at].at("makespan"));
    }
  }
  EXPECT_EQ(breakpoints, 84U);
  EXPECT_EQ(probes, 68U);
}

// ---- PyTorch's tests ----------------------------------------------------------------------------------------------------

// torch.compile's activation memory budget: at 1 the default partition; below it a knapsack over the results that are expensive to make
// again, within budget x the memory of the default partition. All else is made again, at no counted cost.
struct Kept {
  std::uint64_t memory = 0, extra_cost = 0;
  std::vector<bool> kept;
};
Kept budgeted(const std::vector<std::uint64_t>& memory, const std::vector<std::uint64_t>& flops, std::uint64_t eager,
              std::uint64_t numerator, std::uint64_t denominator) {
  if (numerator == denominator) return {eager, 0, std::vector<bool>(memory.size(), true)};
  std::vector<KnapsackItem> items;
  for (std::size_t i = 0; i < memory.size(); ++i) items.push_back({memory[i], flops[i]});
  const Result<KnapsackAnswer> answer = knapsack(items, eager * numerator / denominator);
  EXPECT_TRUE(answer) << answer.error().message();
  EXPECT_TRUE(answer->exact);
  return {answer->memory, std::accumulate(flops.begin(), flops.end(), std::uint64_t{0}) - answer->value, answer->kept};
}

void expect_budget(const std::vector<std::uint64_t>& memory, const std::vector<std::uint64_t>& flops, std::uint64_t eager,
                   std::uint64_t numerator, std::uint64_t denominator, double bytes, std::uint64_t extra) {
  const Kept kept = budgeted(memory, flops, eager, numerator, denominator);
  EXPECT_EQ(static_cast<double>(kept.memory), bytes) << numerator << "/" << denominator;
  EXPECT_EQ(kept.extra_cost, extra) << numerator << "/" << denominator;
}

std::uint64_t tenths(const json& budget) { return static_cast<std::uint64_t>(std::lround(budget.get<double>() * 10)); }

TEST(TorchAcceptance, MemoryBudgetOfChains) {
  const json& budget = acceptance("torch_ac").at("memory_budget");
  // cos of the input is made again at no counted cost, so there is nothing to choose.
  for (const json& row : budget.at("cheap").at("rows").at("rows"))
    expect_budget({}, {}, 1, row[0].is_null() ? 10 : tenths(row[0]), 10, row[1], row[2]);
  const json& even = budget.at("even_chain");
  ASSERT_EQ(even.at("rows").at("rows").size(), 11U);
  for (const json& row : even.at("rows").at("rows"))
    expect_budget(even.at("items").at("mem"), even.at("items").at("flops"), even.at("eager_mem"), tenths(row[0]), 10, row[1], row[2]);
  // The same program with measured runtimes: five equal ones, whatever they are.
  for (const json& row : budget.at("profile_estimator").at("rows").at("rows")) {
    expect_budget({1, 1, 1, 1, 1}, {173, 173, 173, 173, 173}, 10, tenths(row[0]), 10, row[1], 173 * row[2].get<std::uint64_t>());
  }
  for (const json& entry : budget.at("uneven_chain").at("cases")) {
    const std::vector<std::uint64_t> widths = entry.at("widths");
    for (const json& row : entry.at("budgets").at("rows"))
      expect_budget(widths, widths, entry.at("eager_mem"), row[0], entry.at("eager_mem"), row[0], row[1]);
  }
}

TEST(TorchAcceptance, MemoryBudgetOfPairsAndAttention) {
  const json& budget = acceptance("torch_ac").at("memory_budget");
  for (const json& entry : budget.at("pairs").at("cases")) {
    std::vector<std::uint64_t> memory, flops;
    std::uint64_t all_flops = 0;  // backward has two products for each forward one
    for (const json& pair : entry.at("pairs")) {
      const std::uint64_t a = pair[0], b = pair[1];
      memory.push_back(a * b);
      flops.push_back(a * a * b);
      all_flops += 2 * flops.back();
    }
    EXPECT_EQ(static_cast<double>(all_flops), entry.at("eager_flops"));
    for (const json& row : entry.at("rows").at("rows")) expect_budget(memory, flops, entry.at("eager_mem"), row[0], row[1], row[2], row[3]);
  }
  for (const json& row : budget.at("attention_vs_linear").at("rows").at("rows")) {
    const std::uint64_t s = row[0], d = row[1];
    const Kept kept = budgeted({s * d, s * d}, {s * d * d, 2 * s * s * d}, 2 * s * d, 6, 10);
    EXPECT_EQ(kept.memory, s * d);
    EXPECT_EQ(kept.extra_cost, row[3]) << row;
    EXPECT_EQ(kept.kept, (std::vector<bool>{row[2] == "attn", row[2] == "mm"})) << row;
  }
}

// torch.distributed._tools.sac_ilp: the operators of a module that save the most runtime within a budget. Views are not saved, random
// operators all or none, one that works in place (operator, parent) as its parent is, and always where it is its own parent.
TEST(TorchAcceptance, SelectiveCheckpointingOfOneModule) {
  const json& file = acceptance("torch_ac").at("sac_per_module");
  const json& operators = file.at("operators").at("rows");
  std::vector<std::size_t> group(operators.size());  // what is saved together goes by its first operator
  std::iota(group.begin(), group.end(), std::size_t{0});
  const auto join = [&group](std::size_t a, std::size_t b) {
    std::replace(group.begin(), group.end(), std::max(group[a], group[b]), std::min(group[a], group[b]));
  };
  std::set<std::size_t> saved, views;
  ASSERT_FALSE(file.at("force_store_random").get<bool>());
  for (const json& op : file.at("random")) join(op, file.at("random")[0]);
  for (const json& pair : file.at("inplace")) join(pair[0], pair[1]);
  for (const json& op : file.at("view_like")) views.insert(group[op]);
  for (const json& pair : file.at("inplace"))
    if (pair[0] == pair[1]) saved.insert(group[pair[0]]);
  std::vector<KnapsackItem> together(operators.size());  // what is saved in any case and views stay empty
  std::uint64_t always = 0;
  for (std::size_t op = 0; op < operators.size(); ++op) {
    const std::uint64_t memory = operators[op][2], runtime = operators[op][1];
    if (saved.contains(group[op])) always += memory;
    if (saved.contains(group[op]) || views.contains(group[op])) continue;
    together[group[op]].memory += memory;
    together[group[op]].value += runtime;
  }
  ASSERT_EQ(file.at("rows").at("rows").size(), 7U);
  for (const json& row : file.at("rows").at("rows")) {
    ASSERT_GE(row[0].get<std::uint64_t>(), always);
    const Result<KnapsackAnswer> answer = knapsack(together, row[0].get<std::uint64_t>() - always);
    ASSERT_TRUE(answer) << answer.error().message();
    std::vector<int> kept;
    for (const std::size_t of : group) kept.push_back(saved.contains(of) || (!views.contains(of) && answer->kept[of]));
    EXPECT_EQ(json(kept), row[1]) << row[0];
    EXPECT_TRUE(answer->exact);
  }
}

// The decisions for a whole transformer rest on memory and time measured module by module. The file holds none, so there is nothing to
// compute; what it says must at least be possible: the fourth ratio follows from the sum.
TEST(TorchAcceptance, SelectiveCheckpointingOfATransformerNeedsMeasurements) {
  const json& file = acceptance("torch_ac").at("sac_transformer");
  const json& row = file.at("rows")[0];
  const double three = row.at("sorted_discard_ratio_first_three"), fourth = row.at("sum_of_discard_ratios").get<double>() - 3 * three;
  EXPECT_GE(fourth, three);
  EXPECT_LE(fourth, 1);
  std::printf("not shown: %zu decisions of sac_transformer: the file has neither memory nor runtime of the modules\n",
              file.at("rows").size());
}

}  // namespace
}  // namespace liveset::plan
