// `liveset plan` as a person calls it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/run_program.h"
#include "tests/support/temporary_folder.h"

namespace liveset::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct PlanCommand : testing::Test {
  std::string written(const std::string& text) {
    std::ofstream(folder.file("m.textproto")) << text;
    return folder.file("m.textproto");
  }
  TemporaryFolder folder;
};

// Of six layers of 8 bytes h0, a layer and the one before it are the least.
TEST_F(PlanCommand, SaysWhetherTheLeastIsCertain) {
  const std::string chain = written("chain { length: 6 bytes: 8 }\n");
  const Ran ran = run_program("liveset plan " + chain + " --budget 23");
  EXPECT_EQ(ran.status, 1);
  EXPECT_EQ(ran.out, "infeasible, least is 24 B (of all schedules)\n");
  const json said = json::parse(run_program("liveset plan " + chain + " --budget 23 --format json").out);
  EXPECT_EQ(said["feasible"], false);
  EXPECT_EQ(said["least_budget"], 24);
  EXPECT_EQ(said["least_budget_exact"], true);
  EXPECT_EQ(said["least_budget_of"], "all schedules");
  // The last layer reads the first one again, so it is no chain and only sets of modules are tried.
  const std::string skip = written(
      "graph { input { id: 'x' bytes: 8 } layer { id: 'a' reads: 'x' bytes: 8 } layer { id: 'b' reads: 'a' bytes: 8 }\n"
      "layer { id: 'c' reads: 'b' bytes: 8 } layer { id: 'd' reads: 'c' bytes: 8 } layer { id: 'e' reads: 'd' bytes: 8 }\n"
      "layer { id: 'f' reads: ['a', 'e'] bytes: 8 } }\n");
  const Ran found = run_program("liveset plan " + skip + " --budget 23");
  EXPECT_EQ(found.status, 1);
  EXPECT_THAT(found.out, HasSubstr("infeasible, least found is "));
  EXPECT_EQ(json::parse(run_program("liveset plan " + skip + " --budget 23 --format json").out)["least_budget_exact"], false);
  // A policy that is refused says so in the same words: of six layers all are in rotor's table, of 600 groups of them.
  const std::string six = written("chain { length: 6 bytes: 8 }\n");
  EXPECT_THAT(run_program("liveset predict " + six + " --policy rotor:1").err, HasSubstr("is infeasible, least is 24 bytes"));
  const std::string many = written("chain { length: 600 bytes: 8 }\n");
  EXPECT_THAT(run_program("liveset predict " + many + " --policy rotor:1").err,
              AllOf(HasSubstr("is infeasible, least found is "), HasSubstr(" bytes (with the layers in 40 groups)")));
}

// Costs of a model that says no unit are counted in its own, and said to be. Save-all needs 56 bytes, and at 40 two layers run again; full
// runs all six again and saves nothing, where the frontier has no extra cost.
TEST_F(PlanCommand, CostsSayWhatTheyAreCountedIn) {
  const std::string layers = "chain { length: 6 bytes: 8 cost: 1 }\n", chain = written(layers);
  const std::string text = run_program("liveset plan " + chain + " --budget 40 --policy full").out;
  EXPECT_THAT(text, HasSubstr("extra cost    2 units of the model's cost (33.3% of a forward)\n"));
  EXPECT_THAT(text, HasSubstr("\n  full    56 B           6       all of it         24 B\n\n"
                              "costs are in units of the model's own; a forward without re-runs takes 6\n"));
  EXPECT_EQ(json::parse(run_program("liveset plan " + chain + " --format json").out)["cost_unit"], nullptr);
  EXPECT_EQ(json::parse(run_program("liveset predict " + chain + " --format json").out)["cost_unit"], nullptr);
  const std::string timed = written("cost_unit: 'ns'\n" + layers);
  const std::string times = run_program("liveset plan " + timed + " --budget 40 --policy full").out;
  EXPECT_THAT(times, AllOf(HasSubstr("extra cost    2 ns (33.3% of a forward)\n"), Not(HasSubstr("units"))));
  EXPECT_EQ(json::parse(run_program("liveset plan " + timed + " --format json").out)["cost_unit"], "ns");
  EXPECT_EQ(json::parse(run_program("liveset predict " + timed + " --format json").out)["cost_unit"], "ns");
}

// What a plan is called, predict takes, and says the same of it.
TEST_F(PlanCommand, EveryPolicyOfTheFrontierIsOneThatPredictTakes) {
  const std::string chain = written("chain { length: 6 bytes: 8 }\n");
  const json sweep = json::parse(run_program("liveset plan " + chain + " --format json").out);
  std::size_t moves = 0;
  for (const json& point : sweep["frontier"]) {
    const std::string policy = point["policy"];
    moves += policy.starts_with("moves:");
    EXPECT_EQ(point["exact_search"], true) << policy;
    const json predicted = json::parse(run_program("liveset predict " + chain + " --policy " + policy + " --format json").out);
    EXPECT_EQ(predicted["peak"]["bytes"], point["peak"]["bytes"]) << policy;
    EXPECT_EQ(predicted["forward_layers"], point["forward_cost"]) << policy;
  }
  EXPECT_GT(moves, 0U);
  const Ran table = run_program("liveset plan " + chain + " --format csv");
  EXPECT_THAT(table.out, HasSubstr("found by"));
  EXPECT_THAT(table.out, HasSubstr("exact search,save-all"));
  const Ran best = run_program("liveset plan " + chain + " --budget 40");
  EXPECT_EQ(best.status, 0);
  EXPECT_THAT(best.out, HasSubstr("policy        moves:f1"));
  EXPECT_THAT(best.out, HasSubstr("found by      exact search\n"));
  EXPECT_THAT(best.out, Not(HasSubstr("operations")));
}

TEST_F(PlanCommand, BudgetsAreWrittenAsSizesAre) {
  const std::string chain = written("chain { length: 2 bytes: 1024 }\n");
  for (const char* budget : {"3072", "3KiB", "'3 kib'", "3.5KiB"})
    EXPECT_EQ(run_program("liveset plan " + chain + " --budget " + budget).status, 0) << budget;
  EXPECT_EQ(run_program("liveset plan " + chain + " --budget 0").status, 1);
  for (const char* budget : {"lots", "3KiBs", "-1"}) {
    const Ran ran = run_program("liveset plan " + chain + " --budget=" + budget);
    EXPECT_EQ(ran.status, 2) << budget;
    EXPECT_THAT(ran.err, HasSubstr("--budget: '" + std::string(budget) + "' is no size (as 80GiB, 24GB or a number of bytes)")) << budget;
  }
}

}  // namespace
}  // namespace liveset::test
