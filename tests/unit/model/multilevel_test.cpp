// revolve and rotor as schedules of a step, against the acceptance facts and against what planners promise.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <sstream>

#include "tests/support/acceptance.h"
#include "viewer/model/multilevel.h"
#include "viewer/model/predict.h"
#include "viewer/model/search.h"

namespace liveset::model {
namespace {

using nlohmann::json;
using test::acceptance;

std::string numbers(const json& list) {
  std::string text;
  for (const json& number : list) text += (text.empty() ? "" : ", ") + std::to_string(number.get<std::uint64_t>());
  return "[" + text + "]";
}

Model rotor_model(const json& chain) {
  std::ostringstream text;
  text << "rotor_chain { ";
  for (const char* const field : {"a", "abar", "delta", "uf", "ub", "of", "ob"}) text << field << ": " << numbers(chain.at(field)) << ' ';
  text << "}";
  Result<Model> model = parse_model(text.str(), "rotor");
  EXPECT_TRUE(model) << model.error().message();
  return std::move(*model);
}

std::uint64_t backward_cost(const json& chain) {
  std::uint64_t sum = 0;
  for (const json& cost : chain.at("ub")) sum += cost.get<std::uint64_t>();
  return sum;
}

TEST(Multilevel, RotorChainsMeetTheirBudgetsInTheLeastTime) {
  const json facts = acceptance("rotor");
  ASSERT_EQ(facts.at("chains").size(), 10U);
  for (const json& chain : facts.at("chains")) {
    SCOPED_TRACE(chain.at("name").get<std::string>());
    const Model model = rotor_model(chain);
    const Result<Prediction> all = predict(model, *parse_policy("save-all"));
    ASSERT_TRUE(all) << all.error().message();
    EXPECT_EQ(all->memory.peak_bytes, chain.at("no_recompute_budget"));
    EXPECT_EQ(all->forward_cost + backward_cost(chain), chain.at("no_recompute_makespan"));
    for (const json& step : chain.at("breakpoints")) {
      const std::uint64_t budget = step.at("budget");
      const Result<Prediction> prediction = predict(model, *parse_policy("rotor:" + std::to_string(budget)));
      if (step.at("makespan").is_null()) {
        ASSERT_FALSE(prediction);
        EXPECT_NE(prediction.error().message().find("least is " + std::to_string(chain.at("least_feasible_budget").get<std::uint64_t>())),
                  std::string::npos)
            << prediction.error().message();
        continue;
      }
      ASSERT_TRUE(prediction) << prediction.error().message();
      EXPECT_EQ(prediction->forward_cost + backward_cost(chain), step.at("makespan")) << budget;
      EXPECT_LE(prediction->memory.peak_bytes, budget);
      EXPECT_EQ(prediction->ledger.broken_count, 0U);
    }
  }
}

TEST(Multilevel, RevolveRunsAsOftenAsItsFormulaSays) {
  const json facts = acceptance("revolve");
  const auto advances = [&](std::uint64_t layers, std::uint64_t snapshots) {
    return facts.at("t")[layers - 1][snapshots].get<std::uint64_t>();
  };
  for (const std::uint64_t layers : {1, 2, 6, 10, 37, 100})
    for (const std::uint64_t snapshots : {1, 2, 3, 5, 10}) {
      SCOPED_TRACE(std::to_string(layers) + " layers, " + std::to_string(snapshots) + " snapshots");
      const Result<Model> model = make_chain(std::vector<std::uint64_t>(layers + 1, 1), std::vector<std::uint64_t>(layers, 1));
      const Result<Prediction> prediction = predict(*model, *parse_policy("revolve:" + std::to_string(snapshots)));
      ASSERT_TRUE(prediction) << prediction.error().message();
      EXPECT_LE(prediction->forward_cost, advances(layers, snapshots) + layers);
      EXPECT_GE(prediction->forward_cost, layers);
      EXPECT_LE(prediction->ledger.peak_ids, snapshots + 2);
      EXPECT_EQ(prediction->ledger.broken_count, 0U);
      EXPECT_TRUE(prediction->ledger.live_at_end.empty());
    }
}

// Of every chain up to 8 layers the exact frontier, move by move.
TEST(Multilevel, ExactSchedulesTakeWhatTheFrontierSays) {
  const json facts = acceptance("segment_frontier");
  std::size_t points = 0;
  for (const json& entry : facts.at("frontier")) {
    const std::uint64_t layers = entry.at("n");
    if (layers > 8) continue;
    const Result<Model> model = make_chain(std::vector<std::uint64_t>(layers + 1, 1), std::vector<std::uint64_t>(layers, 1));
    const Result<SearchResult> found = search(*model);
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_EQ(found->least_budget, entry.at("least_feasible_peak"));
    for (const json& point : entry.at("points")) {
      if (point.at("least_forward_layers").is_null()) continue;
      const auto match = std::find_if(found->frontier.begin(), found->frontier.end(),
                                      [&](const Candidate& candidate) { return candidate.peak_bytes == point.at("peak"); });
      ASSERT_NE(match, found->frontier.end()) << layers << point;
      EXPECT_EQ(match->forward_cost, point.at("least_forward_layers")) << layers << point;
      EXPECT_EQ(match->extra_cost, match->forward_cost - layers);
      ++points;
    }
  }
  EXPECT_GT(points, 20U);
}

// What exact search finds is a policy, and of chains up to 12 layers everything that is said is certain.
TEST(Multilevel, SearchedSchedulesArePolicies) {
  const Result<Model> model = make_chain({9, 4, 7, 1, 8, 3}, {2, 5, 1, 4, 3});
  ASSERT_TRUE(model);
  SearchOptions options;
  options.budget = 19;  // h2, h1 and h0 are 20
  const Result<SearchResult> found = search(*model, options);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_FALSE(found->best);
  EXPECT_EQ(found->least_budget, 20U);
  EXPECT_EQ(found->lower_bound, 20U);
  EXPECT_TRUE(found->least_is_exact);
  EXPECT_EQ(found->least_of, "all schedules");
  std::size_t moves = 0;
  for (const Candidate& candidate : found->frontier) {
    EXPECT_TRUE(candidate.searched) << candidate.policy;
    const Result<Prediction> prediction = predict(*model, *parse_policy(candidate.policy));
    ASSERT_TRUE(prediction) << candidate.policy << ": " << prediction.error().message();
    EXPECT_EQ(prediction->memory.peak_bytes, candidate.peak_bytes) << candidate.policy;
    EXPECT_EQ(prediction->extra_cost, candidate.extra_cost) << candidate.policy;
    moves += candidate.policy.starts_with("moves:");
  }
  EXPECT_EQ(found->frontier.back().policy, "save-all") << "what has a simpler name is called by it";
  EXPECT_GT(moves, 0U);
}

// The bound of a chain is the least of all schedules however long it is: h_i, h_i-1 and h_0.
TEST(Multilevel, TheLeastOfALongChainIsCertain) {
  std::vector<std::uint64_t> bytes(41, 3);
  bytes[0] = 5;
  bytes[20] = 11;
  const Result<Model> model = make_chain(bytes, std::vector<std::uint64_t>(40, 1));
  const Result<SearchResult> found = search(*model);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->lower_bound, 5U + 3 + 11);
  EXPECT_EQ(found->least_budget, 19U);
  EXPECT_TRUE(found->least_is_exact);
}

// Every peak holds the statics: where what one of them asked for is not known, no least is certain.
TEST(Multilevel, NoLeastOfARotorChainIsCertainWithARoundedStatic) {
  for (const bool rounded : {false, true}) {
    const Result<Model> model =
        parse_model("static_storage { id: 'w' bytes: 512 rounded: " + std::string(rounded ? "true" : "false") +
                        " } rotor_chain { a: [1, 1, 1] abar: [2, 2] delta: [1, 1, 1] uf: [1, 1] ub: [1, 1] of: [0, 0] ob: [0, 0] }",
                    "rotor");
    ASSERT_TRUE(model) << model.error().message();
    const Result<SearchResult> found = search(*model);
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_EQ(found->least_is_exact, !rounded);
    EXPECT_EQ(found->least_of, rounded ? "" : "persistent schedules");
    EXPECT_EQ(found->lower_bound_is_rounded, rounded);
    for (const Candidate& candidate : found->frontier) EXPECT_EQ(candidate.is_estimate(), rounded) << candidate.policy;
  }
}

// Sizes have no common divisor to speak of.
plan::RotorChain random_rotor(int stages) {
  plan::RotorChain chain;
  std::uint64_t state = 7;
  const auto next = [&state](std::uint64_t most) {
    return 1 + (state = state * 6364136223846793005U + 1442695040888963407U) / 65536 % most;
  };
  chain.a = {next(1'000'000)};
  chain.delta = {next(1'000'000)};
  for (int stage = 0; stage < stages; ++stage) {
    chain.a.push_back(next(1'000'000));
    chain.delta.push_back(next(1'000'000));
    chain.abar.push_back(chain.a.back() + next(1'000'000));
    chain.uf.push_back(next(1000));
    chain.ub.push_back(next(1000));
    chain.of.push_back(next(100'000));
    chain.ob.push_back(next(100'000));
  }
  return chain;
}
Model model_of(const plan::RotorChain& chain) {
  ModelBuilder builder;
  add_rotor_chain(builder, chain);
  builder.model.rotor = chain;
  Result<Model> model = builder.finish();
  EXPECT_TRUE(model) << model.error().message();
  return std::move(*model);
}

// Sizes that have to be rounded: each budget has a table of its own. What plan says of it is what predict says, and it tells how far it is.
TEST(Multilevel, PlansOfRoundedSizesArePoliciesAndTellTheirProgress) {
  const plan::RotorChain chain = random_rotor(120);
  ASSERT_FALSE(plan::RotorTable::make(chain, std::uint64_t{1} << 59)->exact());
  const Model model = model_of(chain);
  SearchOptions options;
  const std::uint64_t least = *plan::rotor_least_budget(chain);
  options.budget = 2 * least;
  options.max_rotor_work = 0;
  std::size_t told = 0;
  std::uint64_t last = 0;
  options.progress = [&](std::size_t done, std::size_t all) {
    ++told;
    EXPECT_GE(done, last);
    EXPECT_LE(done, all);
    last = done;
  };
  const Result<SearchResult> found = search(model, options);
  ASSERT_TRUE(found && found->best);
  EXPECT_GT(told, 120U);
  EXPECT_EQ(found->least_budget, least);
  EXPECT_EQ(found->least_of, "persistent schedules");
  EXPECT_LE(found->frontier.front().peak_bytes, least);
  EXPECT_EQ(found->best->policy, "rotor:" + std::to_string(2 * least));
  ASSERT_FALSE(found->absent.empty());
  EXPECT_EQ(found->absent.front().planner, "other budgets of rotor");
  for (const Candidate* const candidate : {&*found->best, &found->frontier.front()}) {
    const Result<Prediction> prediction = predict(model, *parse_policy(candidate->policy));
    ASSERT_TRUE(prediction) << candidate->policy;
    EXPECT_EQ(prediction->memory.peak_bytes, candidate->peak_bytes) << candidate->policy;
    EXPECT_EQ(prediction->extra_cost, candidate->extra_cost) << candidate->policy;
  }
}

// Of more stages than rotor takes, groups are the stages of its tables, and those take no time to speak of: of all 32 budgets beside the
// least there is a plan.
TEST(Multilevel, LongRotorChainsAreLookedAtInAllBudgets) {
  const Result<SearchResult> found = search(model_of(random_rotor(1000)));
  ASSERT_TRUE(found) << found.error().message();
  std::set<std::string> rotor;
  for (const Candidate& candidate : found->frontier)
    if (candidate.policy.starts_with("rotor:")) rotor.insert(candidate.policy);
  EXPECT_GT(rotor.size(), 20U) << "some need what a smaller budget gives";
  EXPECT_GE(found->tried, 33U);
  EXPECT_TRUE(found->absent.empty()) << found->absent.front().why;
  ASSERT_TRUE(found->backward_cost);
}

// A chain of which no second schedule can be followed has its makespan all the same.
TEST(Multilevel, TheLongestRotorChainsHaveAMakespan) {
  const plan::RotorChain chain = random_rotor(100);
  SearchOptions options;
  options.max_ops = 2000;  // less than 16 for each of its ops
  const Result<SearchResult> found = search(model_of(chain), options);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->backward_cost, std::accumulate(chain.ub.begin(), chain.ub.end(), std::uint64_t{0}));
  ASSERT_FALSE(found->absent.empty());
  EXPECT_EQ(found->absent.front().planner, "rotor");
  EXPECT_EQ(found->absent.front().why, "schedules of so many layers take long to follow");
}

// Few snapshots on many layers, and a table of everything, take as long as all else together.
TEST(Multilevel, LongChainsArePlannedByWhatIsQuick) {
  constexpr std::uint64_t layers = 100'000;
  const Result<Model> model = make_chain(std::vector<std::uint64_t>(layers + 1, 1), std::vector<std::uint64_t>(layers, 1));
  const Result<SearchResult> found = search(*model);
  ASSERT_TRUE(found);
  // Lengths that fall by one are the best of one level: the least P with P (P - 1) / 2 >= 100,000.
  const Candidate* const level = as_fast_as(*found, layers);
  ASSERT_NE(level, nullptr);
  EXPECT_EQ(level->peak_bytes, 448U);
  EXPECT_LE(found->least_budget, 448U);
}

TEST(Multilevel, MovesThatAreNotPossibleAreRefused) {
  const Result<Model> model = make_chain({1, 1, 1}, {1, 1});
  const std::pair<const char*, const char*> cases[] = {{"moves:f1,f3", "move 2, f3, is not possible: beyond the next layer"},
                                                       {"moves:f2", "move 1, f2, is not possible: its input is not live"},
                                                       {"moves:f1,f2,b2", "the moves end before layer 1 is reversed"},
                                                       {"moves:f1,f2,b2,b1,f1", "move 5, f1, is not possible"},
                                                       {"moves:f0", "move 1, f0, is not possible"},
                                                       {"moves:d4000000000", "move 1, d4000000000, is not possible"}};
  for (const auto& [text, says] : cases) {
    const Result<Prediction> prediction = predict(*model, *parse_policy(text));
    ASSERT_FALSE(prediction) << text;
    EXPECT_EQ(prediction.error().kind, ErrorKind::usage);
    EXPECT_NE(prediction.error().message().find(says), std::string::npos) << prediction.error().message();
  }
  for (const char* text : {"moves:", "moves:f", "moves:f1,,b1", "moves:x1", "moves:f-1", "moves:f1 ", "moves:f4294967296"}) {
    const Result<Policy> policy = parse_policy(text);
    ASSERT_FALSE(policy) << text;
    EXPECT_NE(policy.error().message().find("is none: f1 runs layer 1"), std::string::npos) << policy.error().message();
  }
}

TEST(Multilevel, NoChainIsSaid) {
  const Result<Model> model = parse_model(
      "graph { input { id: 'x' } layer { id: 'a' reads: 'x' } layer { id: 'b' reads: 'a' } layer { id: 'c' reads: ['a', 'b'] } }", "skip");
  ASSERT_TRUE(model) << model.error().message();
  const Result<Prediction> prediction = predict(*model, *parse_policy("revolve:2"));
  ASSERT_FALSE(prediction);
  EXPECT_EQ(prediction.error().kind, ErrorKind::usage);
  EXPECT_NE(prediction.error().message().find("no chain of layers: op 'c' reads 'a'"), std::string::npos) << prediction.error().message();
}

}  // namespace
}  // namespace liveset::model
