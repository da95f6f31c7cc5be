// Planners of chains against brute force, on random chains.
#include <gtest/gtest.h>

#include <set>

#include "tests/support/schedule_search.h"
#include "tests/support/train_pattern.h"
#include "viewer/plan/frontier.h"
#include "viewer/plan/revolve.h"
#include "viewer/plan/segments.h"

namespace liveset::plan {
namespace {

using test::Random;
using Lengths = std::vector<std::uint64_t>;

Chain random_chain(Random& random, std::uint64_t layers) {
  Chain chain;
  const std::uint64_t largest = random.below(3) == 0 ? 1 : 1 + random.below(12);
  for (std::uint64_t i = 0; i <= layers; ++i) chain.bytes.push_back(random.below(8) == 0 ? 0 : 1 + random.below(largest));
  for (std::uint64_t i = 0; i < layers; ++i) chain.cost.push_back(random.below(8) == 0 ? 0 : 1 + random.below(9));
  return chain;
}

template <class T>
T good(Result<T> result) {
  EXPECT_TRUE(result) << result.error().message();
  return result ? std::move(*result) : T();
}

std::vector<Lengths> all_splits(std::uint64_t layers) {
  std::vector<Lengths> all;
  for (std::uint64_t cuts = 0; cuts < std::uint64_t{1} << (layers - 1); ++cuts) {
    Lengths lengths{1};
    for (std::uint64_t i = 0; i + 1 < layers; ++i) {
      if (cuts >> i & 1U)
        lengths.push_back(1);
      else
        ++lengths.back();
    }
    all.push_back(lengths);
  }
  return all;
}

TEST(PlanProperty, TheFrontierIsWhatTryingEverythingFinds) {
  Random random(1);
  for (int round = 0; round < 60; ++round) {
    const Chain chain = random_chain(random, 1 + random.below(6));
    const test::LayerGraph graph = test::chain_graph(chain.bytes, chain.cost);
    const Frontier frontier = good(exact_frontier(chain));
    std::uint64_t all = 0;
    for (const std::uint64_t bytes : chain.bytes) all += bytes;
    ASSERT_FALSE(frontier.points.empty());
    EXPECT_EQ(frontier.points.front().peak, least_peak(chain));
    for (std::uint64_t budget = 0; budget <= all; ++budget) {
      const std::optional<std::uint64_t> cheapest = test::cheapest_schedule(graph, budget);
      EXPECT_EQ(cheapest.has_value(), budget >= least_peak(chain)) << budget;
      const std::optional<FrontierPoint> point = good(cheapest_within(chain, budget));
      ASSERT_EQ(point.has_value(), cheapest.has_value()) << budget;
      if (!point) continue;
      EXPECT_EQ(point->cost, *cheapest);
      EXPECT_LE(point->peak, budget);
      const Figures replayed = good(replay(chain, point->moves));
      EXPECT_EQ(replayed.peak, point->peak);
      EXPECT_EQ(replayed.cost, point->cost);
      std::optional<std::uint64_t> listed;
      for (const FrontierPoint& each : frontier.points) {
        if (each.peak <= budget) listed = each.cost;
      }
      EXPECT_EQ(listed, cheapest);
    }
    for (std::size_t i = 1; i < frontier.points.size(); ++i) {
      EXPECT_GT(frontier.points[i].peak, frontier.points[i - 1].peak);
      EXPECT_LT(frontier.points[i].cost, frontier.points[i - 1].cost);
    }
  }
}

// A graph of layers is no worse off than the chain of the same values: more reads only forbid moves. And keeping everything is always
// possible.
TEST(PlanProperty, TheSearchOfGraphsKnowsItsEnds) {
  Random random(2);
  for (int round = 0; round < 40; ++round) {
    const std::uint64_t layers = 2 + random.below(4);
    const Chain chain = random_chain(random, layers);
    test::LayerGraph graph = test::chain_graph(chain.bytes, chain.cost);
    std::uint64_t bytes = 0, cost = 0;
    for (const std::uint64_t each : chain.bytes) bytes += each;
    for (const std::uint64_t each : chain.cost) cost += each;
    for (std::uint32_t i = 1; i < layers; ++i) {
      if (random.below(2) == 0) graph.reads[i].push_back(static_cast<std::uint32_t>(random.below(i)));
    }
    EXPECT_EQ(test::cheapest_schedule(graph, bytes), cost);
    for (std::uint64_t budget = least_peak(chain); budget < bytes; ++budget) {
      const auto of_graph = test::cheapest_schedule(graph, budget);
      const auto of_chain = good(cheapest_within(chain, budget));
      if (of_graph) {
        EXPECT_GE(*of_graph, of_chain->cost);
      }
    }
  }
}

TEST(PlanProperty, OneLevelIsTheBestOfAllSplits) {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t layers = 1 + random.below(10);
    const Chain chain = random_chain(random, layers);
    std::uint64_t best = ~std::uint64_t{0};
    for (const Lengths& lengths : all_splits(layers)) best = std::min(best, good(segment_figures(chain, lengths)).peak);
    EXPECT_EQ(good(segment_figures(chain, good(best_one_level(chain)))).peak, best);
    EXPECT_GE(best, least_peak(chain));
    for (const Lengths& other : {good(best_greedy_segments(chain)), sqrt_segments(layers), good(greedy_segments(chain, random.below(40)))})
      EXPECT_GE(good(segment_figures(chain, other)).peak, best);
  }
}

// One pass, event by event: what is live is a list of sizes, summed anew at every event.
Figures run_segments(const Chain& chain, const Lengths& lengths, const SegmentRules& rules) {
  Figures figures;
  std::multiset<std::uint64_t> live;  // ids
  const auto settle = [&] {
    std::uint64_t sum = 0;
    for (const std::uint64_t id : live) sum += id == 0 && !rules.count_input ? 0 : chain.bytes[id];
    figures.peak = std::max(figures.peak, sum);
  };
  const auto create = [&](std::uint64_t id) {
    live.insert(id);
    figures.cost += chain.cost[id - 1];
    settle();
  };
  const auto merge = [&](std::uint64_t id) {  // the second copy of a value that lives: gone at once, or only when the value is released
    if (rules.copy_boundary) return create(id);
    figures.cost += chain.cost[id - 1];
  };
  live.insert(0);
  settle();
  std::uint64_t begin = 0;
  std::vector<std::uint64_t> begins;
  for (std::size_t j = 0; j < lengths.size(); begin += lengths[j++]) {
    const bool keeps = j + 1 == lengths.size() && !rules.checkpoint_last_segment;
    for (std::uint64_t id = begin + 1; id <= begin + lengths[j]; ++id) {
      create(id);
      if (id - 1 > begin && !keeps) live.erase(id - 1);
    }
    begins.push_back(begin);
  }
  for (std::size_t j = lengths.size(); j-- > 0;) {
    const std::uint64_t end = begins[j] + lengths[j];
    if (j + 1 < lengths.size() || rules.checkpoint_last_segment) {
      for (std::uint64_t id = begins[j] + 1; id < end; ++id) create(id);
      if (rules.rerun_boundary) merge(end);
    }
    for (std::uint64_t id = end; id > begins[j]; --id) live.erase(id);
  }
  return figures;
}

TEST(PlanProperty, ClosedFormsAreWhatEventsAddUpTo) {
  Random random(4);
  for (int round = 0; round < 300; ++round) {
    const std::uint64_t layers = 1 + random.below(9);
    const Chain chain = random_chain(random, layers);
    const std::vector<Lengths> splits = all_splits(layers);
    const Lengths lengths = splits[random.below(splits.size())];
    SegmentRules rules;
    rules.count_input = random.below(4) != 0;
    rules.checkpoint_last_segment = random.below(3) != 0;
    rules.rerun_boundary = random.below(2) == 0;
    rules.copy_boundary = random.below(2) == 0;
    const Figures figures = good(segment_figures(chain, lengths, rules)), run = run_segments(chain, lengths, rules);
    EXPECT_EQ(figures.peak, run.peak);
    EXPECT_EQ(figures.cost, run.cost);

    const Figures moved = good(replay(chain, good(segment_moves(lengths))));
    SegmentRules as_moves;
    as_moves.rerun_boundary = false;
    const Figures expected = good(segment_figures(chain, lengths, as_moves));
    EXPECT_EQ(moved.peak, expected.peak);
    EXPECT_EQ(moved.cost, expected.cost);
    const Figures save_all = good(save_all_figures(chain));
    EXPECT_EQ(save_all.cost, test::cheapest_schedule(test::chain_graph(chain.bytes, chain.cost), save_all.peak));
  }
}

TEST(PlanProperty, RevolveIsItsRecurrence) {
  constexpr std::uint64_t longest = 90, most = 9;
  std::vector<std::vector<std::uint64_t>> t(longest + 1, std::vector<std::uint64_t>(most + 1, 0));
  for (std::uint64_t l = 2; l <= longest; ++l) {
    t[l][1] = l * (l - 1) / 2;
    for (std::uint64_t c = 2; c <= most; ++c) {
      t[l][c] = ~std::uint64_t{0};
      for (std::uint64_t m = 1; m < l; ++m) t[l][c] = std::min(t[l][c], m + t[l - m][c - 1] + t[m][c]);
    }
  }
  for (std::uint64_t l = 1; l <= longest; ++l) {
    for (std::uint64_t c = 1; c <= most; ++c) {
      EXPECT_EQ(good(revolve_advances(l, c)), t[l][c]) << l << " " << c;
      // Run the schedule: states are numbers.
      std::set<std::uint32_t> snapshots;
      std::uint32_t present = 0;
      std::uint64_t advances = 0, turn = l;
      for (const auto& [kind, from, to] : good(revolve_schedule(l, c))) {
        using Kind = RevolveOperation::Kind;
        if (kind == Kind::restore) {
          ASSERT_EQ(snapshots.count(from), 1U);
          present = from;
        } else if (kind == Kind::discard) {
          ASSERT_EQ(snapshots.erase(from), 1U);
        } else {
          ASSERT_EQ(present, from);
          if (kind == Kind::snapshot) {
            ASSERT_TRUE(snapshots.insert(from).second);
          }
          if (kind == Kind::reverse) {
            ASSERT_EQ(to, turn--);
            ASSERT_EQ(from + 1, to);
          }
          if (kind == Kind::advance) {
            advances += to - from;
            present = to;
          }
        }
        ASSERT_LE(snapshots.size(), c);
      }
      EXPECT_EQ(turn, 0U);
      EXPECT_TRUE(snapshots.empty());
      EXPECT_EQ(advances, t[l][c]);
    }
  }
}

TEST(PlanProperty, RevolveOnAChainStaysWithinItsSnapshots) {
  for (std::uint64_t l = 1; l <= 40; ++l) {
    for (std::uint64_t c = 1; c <= 8; ++c) {
      const Chain chain = uniform_chain(l);
      const Figures figures = good(replay(chain, revolve_moves(good(revolve_schedule(l, c)))));
      EXPECT_LE(figures.peak, c + 2);
      EXPECT_LE(figures.cost, good(revolve_advances(l, c)) + l);
      EXPECT_GE(figures.peak, least_peak(chain));
      if (c >= l) {
        EXPECT_EQ(figures.cost, l);  // everything is kept
      }
      if (l > 10) continue;
      EXPECT_GE(figures.cost, good(cheapest_within(chain, figures.peak))->cost);
    }
  }
}

TEST(PlanProperty, LongSchedulesAreWrittenWithoutRecursion) {
  const auto schedule = good(revolve_schedule(1'000'000, 1'000'000));
  EXPECT_EQ(good(replay(uniform_chain(1'000'000), revolve_moves(schedule))).cost, 1'000'000U);
  const Chain chain = uniform_chain(1'000'000);
  EXPECT_EQ(good(segment_figures(chain, good(best_one_level(chain)))).peak, best_one_level_peak(1'000'000));
}

}  // namespace
}  // namespace liveset::plan
