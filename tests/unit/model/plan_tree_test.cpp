// plan on trees of modules: what it proposes is what the executor finds best.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "viewer/model/module_tree.h"
#include "viewer/model/region_tree.h"
#include "viewer/model/search.h"

namespace liveset::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Model parsed(const std::string& text) {
  Result<Model> model = parse_model(text, "tree");
  EXPECT_TRUE(model) << model.error().message();
  return std::move(*model);
}

// Block 0 with an attention whose scores are large and cheap, and a perceptron; block 1 is small. Backward makes nothing.
Model blocks() {
  return parsed(R"(general {
    unit: "net.b.*"
    tensor { id: "x" bytes: 10 given: true }
    tensor { id: "q" bytes: 20 } tensor { id: "s" bytes: 100 } tensor { id: "a" bytes: 10 } tensor { id: "m" bytes: 40 }
    tensor { id: "h" bytes: 10 } tensor { id: "y" bytes: 10 }
    op { id: "Q" module: "net.b.0.attn.q" reads: "x" writes: "q" saves: "x" saves: "q" cost: 8 backward { } }
    op { id: "S" module: "net.b.0.attn.score" reads: "q" writes: "s" saves: "q" saves: "s" cost: 1 backward { } }
    op { id: "V" module: "net.b.0.attn.score" reads: "s" writes: "a" saves: "s" saves: "a" cost: 2 backward { } }
    op { id: "U" module: "net.b.0.mlp" reads: "a" writes: "m" saves: "a" saves: "m" cost: 9 backward { } }
    op { id: "D" module: "net.b.0.mlp" reads: "m" writes: "h" saves: "m" saves: "h" cost: 9 backward { } }
    op { id: "Y" module: "net.b.1" reads: "h" writes: "y" saves: "h" saves: "y" cost: 5 backward { } }
    op { id: "L" phase: "loss" reads: "y" })"
                "}");
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> points(const SearchResult& found) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> points;
  for (const Candidate& candidate : found.frontier) points.emplace_back(candidate.peak_bytes, candidate.extra_cost);
  return points;
}

TEST(NamedRuns, EveryModuleOfTheTreeHasAName) {
  const Model model = blocks();
  const NamedRuns runs(model);
  std::vector<std::string> names;
  for (const NamedRun& run : runs.all()) names.push_back(run.name() + " " + std::to_string(run.begin) + "-" + std::to_string(run.end));
  EXPECT_THAT(names, ElementsAre("net.b.0 0-5", "net.b.1 5-6", "net 0-6", "net.b 0-6", "net.b.0 0-5", "net.b.0.attn 0-3",
                                 "net.b.0.attn.q 0-1", "net.b.0.attn.score 1-3", "net.b.0.mlp 3-5", "net.b.1 5-6"));
  EXPECT_THAT(runs.find("net.b.0"), ElementsAre(0)) << "a layer comes before the module of its name";
  EXPECT_THAT(runs.find("b.*"), ElementsAre(0, 1));
  EXPECT_THAT(runs.find("attn"), ElementsAre(5));
  EXPECT_THAT(runs.find("attn.*"), ElementsAre(6, 7));
  EXPECT_THAT(runs.find("conv"), ElementsAre());
}

TEST(NamedRuns, AModuleThatRunsTwiceIsTwoRuns) {
  const Model model = parsed(R"(general {
    tensor { id: "x" bytes: 1 given: true } tensor { id: "a" bytes: 1 } tensor { id: "b" bytes: 1 } tensor { id: "c" bytes: 1 }
    op { id: "A" module: "n.head" reads: "x" writes: "a" } op { id: "B" module: "n.body" reads: "a" writes: "b" }
    op { id: "C" module: "n.head" reads: "b" writes: "c" } })");
  const NamedRuns runs(model);
  ASSERT_EQ(runs.find("n.head").size(), 2U);
  EXPECT_EQ(runs.all()[runs.find("n.head").front()].begin, 0U);
  ASSERT_EQ(runs.find("n.head#2").size(), 1U);
  EXPECT_EQ(runs.all()[runs.find("n.head#2").front()].begin, 2U);
  EXPECT_TRUE(runs.find("n.head#3").empty());
}

// Without checkpoints x q s a m h y live at the loss: 200. Of the block as a whole, 29 of cost buy the forward's 190 at most: everything is
// made again at once. The scores alone cost 3 and take 100 away: forward needs x q s a = 140; then m h y come: 100; before the backward of
// the scores x q a live: 40, and s comes back: 140.
TEST(PlanTree, TheModuleInsideOfALayerIsTheOneToRunAgain) {
  const Model model = blocks();
  SearchOptions options;
  options.budget = 150;
  const Result<SearchResult> found = search(model, options);
  ASSERT_TRUE(found) << found.error().message();
  ASSERT_TRUE(found->best);
  EXPECT_EQ(found->best->policy, "regions:net.b.0.attn.score");
  EXPECT_EQ(found->best->peak_bytes, 140U);
  EXPECT_EQ(found->best->extra_cost, 3U);
  EXPECT_EQ(found->modules, 5U) << "net.b.0.attn.q and net.b.1 give back all that they make";
  EXPECT_THAT(points(*found), ElementsAre(std::pair(140, 3), std::pair(200, 0)));
  EXPECT_EQ(found->least_budget, 140U);
  EXPECT_TRUE(found->least_is_exact);
  EXPECT_EQ(found->least_of, "sets of modules");
  options.budget = 139;
  const Result<SearchResult> nothing = search(model, options);
  ASSERT_TRUE(nothing);
  EXPECT_FALSE(nothing->best);
  EXPECT_EQ(nothing->least_budget, 140U);
}

// While t lives, x and the three small values of 10 each do, 240 in all, if every block gave up its 100; one that did not makes it 340. The
// three blocks as one region would come back with 300 at once.
TEST(PlanTree, AWholeFamilyIsNamedByItsPattern) {
  std::string text = "general { tensor { id: 'a0' bytes: 10 given: true } ";
  for (int i = 0; i < 3; ++i) {
    const std::string number = std::to_string(i), after = std::to_string(i + 1), module = "' module: 'net.b." + number + ".score' ";
    text += "tensor { id: 's" + after + "' bytes: 100 } tensor { id: 'a" + after + "' bytes: 10 } op { id: 'S" + number + module +
            "reads: 'a" + number + "' writes: 's" + after + "' saves: ['a" + number + "', 's" + after +
            "'] cost: 1 backward { } } op { id: 'V" + number + module + "reads: 's" + after + "' writes: 'a" + after + "' saves: ['s" +
            after + "', 'a" + after + "'] cost: 2 backward { } } ";
  }
  const Model model = parsed(text +
                             "tensor { id: 't' bytes: 200 } op { id: 'T' module: 'net.tail' reads: 'a3' writes: 't' saves: ['a3', 't'] "
                             "backward { } } op { id: 'L' phase: 'loss' reads: 't' } unit: 'net.tail' }");
  SearchOptions options;
  options.budget = 240;
  for (const std::uint64_t sets : {4096, 0}) {  // of all sets, and of proposals
    options.regions.max_sets = sets;
    const Result<SearchResult> found = search(model, options);
    ASSERT_TRUE(found && found->best);
    EXPECT_EQ(found->best->policy, "regions:net.b.*.score");
    EXPECT_EQ(found->best->peak_bytes, 240U);
    EXPECT_EQ(found->best->extra_cost, 9U);
  }
}

TEST(PlanTree, ARegionInsideOfARegionIsRefused) {
  const Model model = blocks();
  for (const char* const text : {"regions:net.b.0,net.b.0.mlp", "regions:attn.q,attn"}) {
    const Result<Prediction> prediction = predict(model, *parse_policy(text));
    ASSERT_FALSE(prediction);
    EXPECT_EQ(prediction.error().kind, ErrorKind::usage);
    EXPECT_THAT(prediction.error().message(), HasSubstr("lies inside of region"));
  }
  EXPECT_TRUE(predict(model, *parse_policy("regions:attn,mlp,attn,net.b.1")));
}

TEST(PlanTree, RulesOfThumbStandBesideTheFrontier) {
  SearchOptions options;
  options.given = {*parse_policy("full"), *parse_policy("offload:50")};
  const Result<SearchResult> found = search(blocks(), options);
  ASSERT_TRUE(found) << found.error().message();
  std::map<std::string, Listed> rules;
  for (const Listed& rule : found->rules) rules[rule.candidate.policy] = rule;
  ASSERT_EQ(rules.size(), 6U);
  EXPECT_EQ(rules.at("full").candidate.extra_cost, 34U);
  EXPECT_EQ(rules.at("over:10MB").candidate.extra_cost, 0U) << "no layer is that large";
  EXPECT_EQ(rules.at("segment:5").refused, "the model has 2 layers");
  EXPECT_EQ(rules.at("under:5ms").refused, "the model's costs are no times");
  ASSERT_EQ(found->given.size(), 2U);
  EXPECT_EQ(found->given[0].candidate.peak_bytes, rules.at("full").candidate.peak_bytes);
  EXPECT_TRUE(found->given[1].copies()) << "no cost is known of it, so it would beat everything";
  for (const Candidate& candidate : found->frontier) EXPECT_NE(candidate.policy, "offload:50");
  options.given = {*parse_policy("regions:conv")};
  EXPECT_FALSE(search(blocks(), options));
}

// Two layers of a product (10 bytes, costs 50) and a softmax (100 bytes, costs 2) that no module of its own holds. Kept are x, both
// products and both outputs; the softmax's values come back one after the other: x p h p h = 10 + 4 x 10 and 100 more. Made again as a
// whole a layer costs 102.
TEST(PlanTree, OperatorsWhoseOutputsAreKeptAreTried) {
  std::string text = "general { unit: 'net.*' tensor { id: 'h0' bytes: 10 given: true }\n";
  for (int i = 0; i < 2; ++i) {
    const std::string n = std::to_string(i), next = std::to_string(i + 1), module = "module: 'net." + n + "' ";
    text += "tensor { id: 'p" + n + "' bytes: 10 } tensor { id: 's" + n + "' bytes: 100 } tensor { id: 'h" + next + "' bytes: 10 }\n" +
            "op { id: 'P" + n + "' name: 'mm' " + module + "reads: 'h" + n + "' writes: 'p" + n + "' saves: ['h" + n + "', 'p" + n +
            "'] cost: 50 backward {} }\n" + "op { id: 'S" + n + "' name: 'softmax' " + module + "reads: 'p" + n + "' writes: 's" + n +
            "' saves: ['p" + n + "', 's" + n + "'] cost: 2 backward {} }\n" + "op { id: 'O" + n + "' name: 'mm' " + module + "reads: 's" +
            n + "' writes: 'h" + next + "' saves: ['s" + n + "', 'h" + next + "'] cost: 50 backward {} }\n";
  }
  const Model model = parsed(text + "op { id: 'L' phase: 'loss' reads: 'h2' } }");
  SearchOptions options;
  options.budget = 150;
  const Result<SearchResult> found = search(model, options);
  ASSERT_TRUE(found) << found.error().message();
  ASSERT_TRUE(found->best);
  EXPECT_EQ(found->best->policy, "selective:mm");
  EXPECT_EQ(found->best->peak_bytes, 150U);
  EXPECT_EQ(found->best->extra_cost, 4U);
}

// Not the conventions say what a cost is: a step on fake tensors has those of PyTorch, and counts operations.
TEST(PlanTree, CostsAreTimesOnlyWhereTheModelSaysSo) {
  Model model = blocks();
  const auto under = [&]() -> Listed {
    const Result<SearchResult> found = search(model);
    EXPECT_TRUE(found);
    for (const Listed& rule : found->rules)
      if (rule.candidate.policy == "under:5ms") return rule;
    return {};
  };
  model.conventions.drop_at_region_end = true;
  EXPECT_EQ(under().refused, "the model's costs are no times");
  model.conventions.drop_at_region_end = false;
  // Who predicts under it is told the same. A number without a unit is of the model's own.
  const Result<Prediction> in_time = predict(model, *parse_policy("under:5ms"));
  ASSERT_FALSE(in_time);
  EXPECT_EQ(in_time.error().message(),
            "policy 'under:5ms': the model's costs are no times (give a number in their unit, as in under:1000)");
  EXPECT_TRUE(predict(model, *parse_policy("under:5000000")));
  model.cost_unit = "ns";
  EXPECT_TRUE(predict(model, *parse_policy("under:5ms")));
  EXPECT_EQ(under().refused, "");
  EXPECT_GT(under().candidate.extra_cost, 0U) << "every layer takes less than 5 ms";
}

// A policy that the caller names and that fits is never called infeasible.
TEST(PlanTree, AGivenPolicyThatFitsIsAPlan) {
  const Model model = parsed(R"(general {
    tensor { id: "x" bytes: 1 given: true } tensor { id: "a" bytes: 50 } tensor { id: "b" bytes: 50 } tensor { id: "c" bytes: 1 }
    op { id: "A" name: "mul" module: "n" reads: "x" writes: "a" saves: "a" saves: "x" cost: 1 backward { } }
    op { id: "B" name: "mm" module: "n" reads: "a" writes: "b" saves: "b" cost: 1 backward { } }
    op { id: "C" name: "mm" module: "n" reads: "b" writes: "c" saves: "c" saves: "b" cost: 1 backward { } }
    op { id: "L" phase: "loss" reads: "c" }
    unit: "n" })");
  SearchOptions options;
  options.given = {*parse_policy("selective:mm")};
  const Result<SearchResult> found = search(model, options);
  ASSERT_TRUE(found) << found.error().message();
  options.budget = found->given[0].candidate.peak_bytes;
  const Result<SearchResult> again = search(model, options);
  ASSERT_TRUE(again && again->best);
  EXPECT_LE(again->best->extra_cost, found->given[0].candidate.extra_cost);
}

// Where a set has all of a family it is said by its pattern, though a member may be in two of them: net.0.b.0 lies in net.*.b.0 and in
// net.0.b.*.
TEST(PlanTree, ASetIsSaidByTheFamiliesThatItHasAllOf) {
  std::string text = "general { tensor { id: 'a0' bytes: 10 given: true } ";
  for (int i = 0; i < 4; ++i) {
    const std::string after = std::to_string(i + 1);
    const std::string module = "' module: 'net." + std::to_string(i / 2) + ".b." + std::to_string(i % 2) + "' ";
    text += "tensor { id: 's" + after + "' bytes: 100 } tensor { id: 'a" + after + "' bytes: 10 } op { id: 'S" + after + module +
            "reads: 'a" + std::to_string(i) + "' writes: 's" + after + "' saves: 's" + after + "' cost: 1 backward { } } op { id: 'V" +
            after + module + "reads: 's" + after + "' writes: 'a" + after + "' saves: ['s" + after + "', 'a" + after + "'] backward { } } ";
  }
  const Model model = parsed(text + "op { id: 'L' phase: 'loss' reads: 'a4' } unit: 'net.0' }");
  std::set<std::string> said;
  search_regions(model, {}, [&](const std::string& policy) -> std::optional<plan::Figures> {
    EXPECT_TRUE(said.insert(policy).second) << policy;
    const Result<Prediction> prediction = predict(model, *parse_policy(policy));
    EXPECT_TRUE(prediction) << policy;
    return prediction ? std::optional(plan::Figures{prediction->memory.peak_bytes, prediction->extra_cost}) : std::nullopt;
  });
  using ::testing::IsSupersetOf;
  EXPECT_THAT(said, IsSupersetOf({"regions:net.0.b.0", "regions:net.*.b.0", "regions:net.0.b.*", "regions:net.0.b.0,net.1.b.1",
                                  "regions:net.*.b.0,net.0.b.*", "regions:net.*.b.1,net.1.b.*", "regions:net.*.b.0,net.*.b.1"}));
}

// By backward x 100, y 5, gy 20, a 10 made again and ga 100 live: 235. `other` is what the last op before the region left: it waits, 50
// more, where the region tells nothing of what it is called with.
TEST(RegionTree, WaitsForWhatTheExecutorTakesForArguments) {
  const auto planned = [](const std::string& reads, const std::string& saves) {
    const Model model = parsed(
        "conventions { release: LISTED drop: REGION_END rerun: EARLY_STOP boundary: PHYSICAL_COPY } general { tensor { id: 'x' bytes: 100 }"
        " tensor { id: 'other' bytes: 50 } tensor { id: 'a' bytes: 10 } tensor { id: 'y' bytes: 5 } tensor { id: 'gy' bytes: 20 }"
        " tensor { id: 'ga' bytes: 100 } op { id: 'in' writes: 'x' } op { id: 'teach' writes: 'other' }"
        " op { id: 'f' module: 'M' writes: 'a' reads: [" +
        reads + "] saves: [" + saves +
        "] } op { id: 'use' module: 'M' writes: 'y' saves: 'a' }"
        " op { id: 'loss' phase: 'loss' writes: 'gy' frees: 'other' }"
        " op { id: 'back' phase: 'backward' backward_of: 'use' writes: 'ga' frees: ['a', 'y', 'gy'] }"
        " op { id: 'last' phase: 'backward' backward_of: 'f' frees: ['x', 'ga'] } }");
    const NamedRuns runs(model);
    const RegionTree tree = region_tree(model, runs);
    std::vector<std::uint32_t> region;
    for (std::uint32_t i = 0; i < tree.modules.size(); ++i)
      if (tree.modules[i].may_checkpoint && runs.all()[tree.run[i]].name() == "M") region.push_back(i);
    const Result<plan::RegionPlan> plan = plan::region_figures(tree.modules, region);
    EXPECT_TRUE(plan) << plan.error().message();
    const Result<Prediction> prediction = predict(model, *parse_policy("regions:M"));
    EXPECT_TRUE(prediction) << prediction.error().message();
    EXPECT_EQ(plan->figures.peak, prediction->memory.peak_bytes) << "reads " << reads << ", saves " << saves;
    return std::pair(region.size(), plan->figures.peak);
  };
  EXPECT_EQ(planned("", "'x'"), std::pair(std::size_t{1}, std::uint64_t{235})) << "the region saves its argument";
  EXPECT_EQ(planned("'x'", "'a'"), std::pair(std::size_t{1}, std::uint64_t{235})) << "or reads it";
  EXPECT_EQ(planned("", "'x', 'other'"), std::pair(std::size_t{1}, std::uint64_t{285}));
  EXPECT_EQ(planned("", "'a'"), std::pair(std::size_t{1}, std::uint64_t{285})) << "nothing tells what it is called with";
}

// A random tree of up to 8 modules; ops read what the last one made, and now and then something older. With `recorded`, as a recorded step
// tells it: no reads in the forward, frees listed, re-runs that stop early.
class RandomTree {
 public:
  explicit RandomTree(std::uint64_t seed) : random_(seed) {}

  Model make(bool recorded) {
    modules_ = 1;
    grow("m", 0);
    std::string text = "general {\ntensor { id: 't0' bytes: " + number(1, 40) + " given: true }\n";
    for (std::size_t op = 0; op < ops_.size(); ++op) {
      const std::string made = "'t" + std::to_string(op + 1) + "'";
      std::set<std::size_t> reads{op};
      if (below(3) == 0) reads.insert(below(op + 1));
      text += "tensor { id: " + made + " bytes: " + number(1, 60) + " }\ntensor { id: 'g" + std::to_string(op) +
              "' bytes: " + number(0, 30) + " }\nop { id: 'o" + std::to_string(op) + "' module: '" + ops_[op] + "' writes: " + made +
              " cost: " + number(1, 9);
      for (const std::size_t read : reads) text += " reads: 't" + std::to_string(read) + "'";
      if (below(4) != 0) text += " saves: " + made;
      if (below(2) != 0) text += " saves: 't" + std::to_string(op) + "'";
      text += " workspace: " + number(0, 20) + " backward { writes: 'g" + std::to_string(op) + "' } }\n";
    }
    text += "op { id: 'loss' phase: 'loss' reads: 't" + std::to_string(ops_.size()) + "' }\nunit: 'm'\n}\n";
    Model model = parsed(text);
    if (!recorded) return model;
    model.conventions.frees_are_listed = model.conventions.drop_at_region_end = model.conventions.physical_copy = true;
    model.conventions.rerun = Conventions::Rerun::early_stop;
    for (Op& op : model.ops)
      if (op.phase == trace::Phase::forward) op.reads = {};
    return model;
  }

 private:
  void grow(const std::string& path, int depth) {
    for (std::uint64_t i = 0, parts = 1 + below(3); i < parts; ++i) {
      if (depth < 3 && modules_ < 8 && below(3) != 0)
        grow(path + ".c" + std::to_string(modules_++), depth + 1);
      else
        ops_.push_back(path);
    }
  }
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  std::string number(std::uint64_t least, std::uint64_t most) { return std::to_string(least + below(most - least + 1)); }

  std::mt19937_64 random_;
  std::uint64_t modules_ = 1;
  std::vector<std::string> ops_;
};

struct Measured {
  std::uint64_t peak = 0, cost = 0;
};

// Every set of modules through the executor, none inside of another: by names alone, whatever the planner thinks of the tree.
std::vector<Measured> every_set(const Model& model) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> modules;
  const NamedRuns runs(model);
  for (const NamedRun& run : runs.all()) modules[{run.begin, run.end}] = run.name();
  std::vector<std::string> names;
  for (const auto& [range, name] : modules) names.push_back(name);
  EXPECT_LE(names.size(), 40U);
  std::vector<Measured> all;
  std::vector<std::string> chosen;
  const std::function<void(std::size_t)> from = [&](std::size_t first) {
    std::string text = chosen.empty() ? "save-all" : "regions:";
    for (const std::string& name : chosen) text += (text.back() == ':' ? "" : ",") + name;
    const Result<Prediction> prediction = predict(model, *parse_policy(text));
    if (!prediction) return;  // nested
    all.push_back({prediction->memory.peak_bytes, prediction->extra_cost});
    for (std::size_t i = first; i < names.size(); ++i) {
      chosen.push_back(names[i]);
      from(i + 1);
      chosen.pop_back();
    }
  };
  from(0);
  return all;
}

std::uint64_t least_cost(const std::vector<Measured>& all, std::uint64_t budget) {
  std::uint64_t least = ~std::uint64_t{0};
  for (const Measured& each : all)
    if (each.peak <= budget) least = std::min(least, each.cost);
  return least;
}

void expect_true(const Model& model, const SearchResult& found) {
  for (const Candidate& candidate : found.frontier) {
    const Result<Prediction> prediction = predict(model, *parse_policy(candidate.policy));
    ASSERT_TRUE(prediction) << candidate.policy << ": " << prediction.error().message();
    EXPECT_EQ(candidate.peak_bytes, prediction->memory.peak_bytes) << candidate.policy;
    EXPECT_EQ(candidate.extra_cost, prediction->extra_cost) << candidate.policy;
  }
}

TEST(PlanTree, RandomTreesAreAsGoodAsEverySet) {
  std::uint64_t compared = 0, worse = 0, sets = 0, certain = 0, uncertain_elsewhere = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed)
    for (const bool recorded : {false, true}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + (recorded ? ", recorded" : ""));
      const Model model = RandomTree(seed).make(recorded);
      const std::vector<Measured> all = every_set(model);
      if (all.size() > 3000) continue;
      sets += all.size();
      const Result<SearchResult> found = search(model);
      ASSERT_TRUE(found) << found.error().message();
      expect_true(model, *found);
      // A module that gives up nothing needs no less as a region: it is not asked for.
      bool any_estimate = false;
      search_regions(model, {}, [&](const std::string& policy) -> std::optional<plan::Figures> {
        const Result<Prediction> prediction = predict(model, *parse_policy(policy));
        if (!prediction) return std::nullopt;
        any_estimate = any_estimate || prediction->memory.peak_is_estimate;
        return plan::Figures{prediction->memory.peak_bytes, prediction->extra_cost};
      });
      EXPECT_FALSE(found->least_of == "sets of modules" && any_estimate) << "another set may really need less";
      certain += found->least_of == "sets of modules";
      uncertain_elsewhere += found->least_of.empty() && any_estimate && !found->frontier.front().is_estimate();
      std::set<std::uint64_t> budgets;
      for (const Measured& each : all) budgets.insert({each.peak, each.peak - 1});
      for (const std::uint64_t budget : budgets) {
        const std::uint64_t least = least_cost(all, budget);
        const Candidate* const best = as_small_as(*found, budget);
        if (least == ~std::uint64_t{0}) continue;
        ASSERT_NE(best, nullptr) << budget;
        EXPECT_LE(best->extra_cost, least) << budget;
      }
      // The same by proposals and improvements alone, as large trees are planned.
      SearchOptions large;
      large.regions.max_sets = 0;
      const Result<SearchResult> proposed = search(model, large);
      ASSERT_TRUE(proposed);
      expect_true(model, *proposed);
      EXPECT_TRUE(proposed->least_of.empty() || proposed->least_of == "all schedules");
      for (const std::uint64_t budget : budgets) {
        const std::uint64_t least = least_cost(all, budget);
        if (least == ~std::uint64_t{0}) continue;
        const Candidate* const best = as_small_as(*proposed, budget);
        ++compared;
        worse += best == nullptr || best->extra_cost > least;
      }
    }
  EXPECT_GT(sets, 5000U);
  EXPECT_GT(certain, 50U);
  EXPECT_GT(uncertain_elsewhere, 5U);
  EXPECT_EQ(worse, 0U) << "of " << compared;
}

}  // namespace
}  // namespace liveset::model
