// Predictions of random models against brute force, against their certified bounds, and against each other.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/prediction_rules.h"
#include "tests/support/random_model.h"
#include "tests/support/schedule_search.h"
#include "viewer/compare/gap.h"
#include "viewer/compare/model_side.h"
#include "viewer/plan/rotor.h"

namespace liveset::model {
namespace {

Policy policy_of(const std::string& text) {
  Result<Policy> policy = parse_policy(text);
  EXPECT_TRUE(policy) << policy.error().message();
  return std::move(*policy);
}

// A graph of layers twice: for the executor, and for a search that tries everything.
struct RandomGraph {
  RandomGraph(std::mt19937_64& random, std::uint64_t layers, bool is_chain) {
    const std::uint64_t inputs = is_chain ? 1 : 1 + random() % 2;
    std::string text = "graph {";
    const auto bytes = [&] { return random() % 7 == 0 ? 0 : 1 + random() % 9; };
    for (std::uint64_t i = 0; i < inputs; ++i) {
      graph.bytes.push_back(bytes());
      text += " input { id: 'v" + std::to_string(i) + "' bytes: " + std::to_string(graph.bytes.back()) + " }";
    }
    std::vector<bool> read(inputs + layers);
    for (std::uint64_t layer = 0; layer < layers; ++layer) {
      // What nobody has read yet must be read by somebody, so the last layers take what is left.
      std::vector<std::uint32_t> reads{static_cast<std::uint32_t>(inputs + layer - 1)};
      if (!is_chain && random() % 2 == 0) reads.push_back(static_cast<std::uint32_t>(random() % (inputs + layer)));
      if (layer + 1 == layers)
        for (std::uint32_t value = 0; value < inputs + layer; ++value)
          if (!read[value]) reads.push_back(value);
      std::sort(reads.begin(), reads.end());
      reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
      for (const std::uint32_t value : reads) read[value] = true;
      graph.bytes.push_back(bytes());
      graph.cost.push_back(random() % 5);
      text += " layer { id: 'v" + std::to_string(inputs + layer) + "' bytes: " + std::to_string(graph.bytes.back()) +
              " cost: " + std::to_string(graph.cost.back());
      for (const std::uint32_t value : reads) text += " reads: 'v" + std::to_string(value) + "'";
      text += " }";
      graph.reads.push_back(std::move(reads));
    }
    file = text + " }";
    Result<Model> parsed = parse_model(file, "graph");
    EXPECT_TRUE(parsed) << parsed.error().message() << file;
    model = std::move(*parsed);
  }
  std::uint64_t all_bytes() const { return std::accumulate(graph.bytes.begin(), graph.bytes.end(), std::uint64_t{0}); }
  // The least peak of any schedule.
  std::uint64_t least_peak() const {
    std::uint64_t budget = 0;
    while (!test::cheapest_schedule(graph, budget)) ++budget;
    return budget;
  }
  test::LayerGraph graph;
  std::string file;
  Model model;
};

// What a policy predicts can be had: within its peak there is a schedule, and none that is cheaper than the cheapest.
TEST(ModelProperty, NoPolicyBeatsTryingEverything) {
  std::mt19937_64 random(21);
  std::size_t predictions = 0;
  for (int round = 0; round < 60; ++round) {
    const RandomGraph made(random, round % 20 == 19 ? 10 : 2 + random() % 5, random() % 4 == 0);
    SCOPED_TRACE(made.file);
    const std::uint64_t least = made.graph.reads.size() < 10 ? made.least_peak() : 0;
    EXPECT_LE(peak_bound(made.model).bytes, std::max(least, peak_bound(made.model).bytes));
    if (least != 0) {
      EXPECT_LE(peak_bound(made.model).bytes, least);
    }
    std::map<std::uint64_t, std::uint64_t> cheapest;  // by peak
    for (const std::string& text : test::policies_of_every_form(made.model, random)) {
      if (text.substr(0, 7) == "offload") continue;  // moves bytes elsewhere: no schedule of one memory
      const Result<Prediction> prediction = predict(made.model, policy_of(text));
      if (!prediction) continue;
      ++predictions;
      EXPECT_EQ(test::broken_rule(made.model, *prediction), "") << text;
      EXPECT_GE(prediction->memory.peak_bytes, least) << text;
      if (made.graph.reads.size() > 6) continue;
      const auto [found, is_new] = cheapest.try_emplace(prediction->memory.peak_bytes, 0);
      if (is_new) {
        const std::optional<std::uint64_t> cost = test::cheapest_schedule(made.graph, found->first);
        ASSERT_TRUE(cost) << text;
        found->second = *cost;
      }
      EXPECT_GE(prediction->forward_cost, found->second) << text << " within " << found->first << " bytes";
    }
  }
  EXPECT_GT(predictions, 500U);
}

// Of chains every schedule is searched: the frontier is that of brute force. Of other graphs a plan that says it is the least is.
TEST(ModelProperty, PlansAreOptimalWhereTheySaySo) {
  std::mt19937_64 random(22);
  std::size_t exact_graphs = 0;
  for (int round = 0; round < 60; ++round) {
    const bool is_chain = round % 2 == 0;
    const RandomGraph made(random, 2 + random() % 5, is_chain);
    SCOPED_TRACE(made.file);
    const Result<SearchResult> found = search(made.model);
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_LE(found->lower_bound, found->least_budget);
    const std::uint64_t least = made.least_peak();
    EXPECT_LE(found->lower_bound, least);
    EXPECT_GE(found->least_budget, least);
    if (found->least_is_exact) {
      exact_graphs += !is_chain;
      EXPECT_EQ(found->least_budget, least);
    }
    for (const Candidate& candidate : found->frontier) {
      const Result<Prediction> again = predict(made.model, policy_of(candidate.policy));
      ASSERT_TRUE(again) << candidate.policy;
      EXPECT_EQ(again->memory.peak_bytes, candidate.peak_bytes) << candidate.policy;
      EXPECT_EQ(again->extra_cost, candidate.extra_cost) << candidate.policy;
    }
    if (!is_chain) continue;
    EXPECT_TRUE(found->least_is_exact);
    EXPECT_EQ(found->lower_bound, least);
    for (const Candidate& candidate : found->frontier) EXPECT_TRUE(candidate.searched) << candidate.policy;
    for (std::uint64_t budget = 0; budget <= made.all_bytes(); ++budget) {
      SearchOptions options;
      options.budget = budget;
      const Result<SearchResult> within = search(made.model, options);
      const std::optional<std::uint64_t> cheapest = test::cheapest_schedule(made.graph, budget);
      ASSERT_EQ(within->best.has_value(), cheapest.has_value()) << budget;
      if (cheapest) {
        EXPECT_EQ(within->best->forward_cost, *cheapest) << budget;
      }
    }
  }
  EXPECT_GT(exact_graphs, 3U);
}

TEST(ModelProperty, RotorChainsAreAboveTheirCertifiedBoundAndWithinTheirBudget) {
  std::mt19937_64 random(23);
  std::size_t met = 0;
  for (int round = 0; round < 100; ++round) {
    plan::RotorChain chain;
    const auto below = [&](std::uint64_t limit) { return random() % limit; };
    chain.a = {below(9)};
    chain.delta = {below(9)};
    for (std::uint64_t stage = 1 + below(7); stage > 0; --stage) {
      chain.a.push_back(below(9));
      chain.delta.push_back(below(9));
      chain.abar.push_back(chain.a.back() + below(9));
      chain.uf.push_back(below(5));
      chain.ub.push_back(below(5));
      chain.of.push_back(below(5));
      chain.ob.push_back(below(5));
    }
    ModelBuilder builder;
    add_rotor_chain(builder, chain);
    const Result<Model> model = builder.finish();
    ASSERT_TRUE(model) << model.error().message();
    const Result<std::uint64_t> bound = plan::rotor_budget_bound(chain);
    for (const std::string& text : test::policies_of_every_form(*model, random)) {
      const Result<Prediction> prediction = predict(*model, policy_of(text));
      if (!prediction) continue;
      EXPECT_EQ(test::broken_rule(*model, *prediction), "") << text;
      if (text.substr(0, 7) == "offload") continue;
      EXPECT_GE(prediction->memory.peak_bytes, *bound) << text;
      if (text.substr(0, 6) != "rotor:") continue;
      ++met;
      EXPECT_LE(prediction->memory.peak_bytes, std::stoull(text.substr(6))) << text;
    }
  }
  EXPECT_GT(met, 50U);
}

// Whatever a model came from: its text is the model.
TEST(ModelProperty, TextIsTheModel) {
  std::mt19937_64 random(24);
  const auto expect_same = [&](const Model& model, const std::string& what) {
    const Result<Model> again = parse_model(model_text(model), "text");
    ASSERT_TRUE(again) << again.error().message() << what;
    EXPECT_EQ(model_text(*again), model_text(model));
    for (const std::string& text : test::policies_of_every_form(model, random)) {
      const Result<Prediction> one = predict(model, policy_of(text)), other = predict(*again, policy_of(text));
      ASSERT_EQ(static_cast<bool>(one), static_cast<bool>(other)) << text << what;
      EXPECT_EQ(one ? test::difference(*one, *other) : "", "") << text << what;
    }
  };
  for (int round = 0; round < 300; ++round) {
    const std::string text = test::RandomModel(random()).text();
    const Result<Model> model = parse_model(text, "random");
    ASSERT_TRUE(model) << model.error().message() << text;
    expect_same(*model, text);
  }
  for (int round = 0; round < 30; ++round) expect_same(RandomGraph(random, 2 + random() % 9, round % 2 == 0).model, "");
  // Layers that are runs of ops and no modules.
  for (int round = 0; round < 30; ++round) {
    Model model = RandomGraph(random, 6, true).model;
    model.units = {{"first", 0, 2}, {"second", 2, static_cast<std::uint32_t>(3 + random() % 3)}};
    expect_same(model, "");
  }
}

TEST(ModelProperty, ClassesSumToTheDifferenceOfAnyTwoModels) {
  std::mt19937_64 random(25);
  std::size_t pairs = 0;
  for (int round = 0; round < 250; ++round) {
    const std::string text = test::RandomModel(random()).text();
    const Result<Model> one = parse_model(text, "one"),
                        other = round % 2 == 0 ? parse_model(text, "other") : parse_model(test::RandomModel(random()).text(), "other");
    ASSERT_TRUE(one && other);
    for (const char* const counter : {"requested", "allocated", "active", "reserved"}) {
      std::vector<std::string> of_one = test::policies_of_every_form(*one, random), of_other = test::policies_of_every_form(*other, random);
      compare::ModelOptions options;
      options.counter = counter;
      const Result<compare::ModelSide> measured = compare::ModelSide::make(*one, policy_of(of_one[random() % of_one.size()]), options);
      const Result<compare::ModelSide> predicted =
          compare::ModelSide::make(*other, policy_of(of_other[random() % of_other.size()]), options);
      if (!measured || !predicted) continue;
      const compare::Side &a = measured->side, &b = predicted->side;
      ASSERT_TRUE(a.peak.bytes && b.peak.bytes);
      for (const auto& [left, right] : {std::pair(&a, &b), std::pair(&b, &a), std::pair(&a, &a)}) {
        const compare::Gap gap = compare::compare_peaks(*left, *right);
        std::int64_t sum = 0;
        for (const compare::GapPart& part : gap.parts) sum += part.bytes;
        ASSERT_EQ(sum, gap.difference) << counter << text;
        ASSERT_EQ(gap.difference, static_cast<std::int64_t>(*left->peak.bytes) - static_cast<std::int64_t>(*right->peak.bytes));
        if (left != right) continue;
        for (const compare::GapPart& part : gap.parts) ASSERT_EQ(part.bytes, 0) << counter << text;
      }
      ++pairs;
    }
  }
  EXPECT_GT(pairs, 200U);
}

}  // namespace
}  // namespace liveset::model
