// What counts as a layer: each call of a module that recorded a graph.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "viewer/model/model.h"
#include "viewer/model/module_tree.h"
#include "viewer/model/policy.h"
#include "viewer/model/predict.h"
#include "viewer/model/repeated_modules.h"

namespace liveset::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Four linear ops in a row, a block of two that is called twice, behind an evaluation; `more` stands at the third of them.
std::string two_calls(const std::string& more, const std::string& unit = "unit: 'Net.*'") {
  const auto op = [](const std::string& id, const std::string& module, const std::string& reads, const std::string& rest) {
    return "op { id: '" + id + "' module: '" + module + "' reads: '" + reads + "' writes: '" + id + "' saves: '" + reads + "' " + rest +
           " backward {} }\n";
  };
  std::string text =
      "conventions { rerun: EARLY_STOP boundary: PHYSICAL_COPY }\ngeneral { " + unit + "\ntensor { id: 'x' bytes: 10 given: true }\n";
  for (const char* id : {"e", "a", "b", "c", "d"}) text += std::string("tensor { id: '") + id + "' bytes: 10 }\n";
  return text + "op { id: 'e' module: 'Net.0.l' reads: 'x' writes: 'e' no_graph: true }\n" + op("a", "Net.0.l", "x", "") +
         op("b", "Net.0.m", "a", "") + op("c", "Net.0.l", "b", more) + op("d", "Net.0.m", "c", "") +
         "op { id: 'loss' phase: 'loss' reads: 'd' } }\n";
}

std::vector<std::string> ranges(const std::vector<Unit>& units) {
  std::vector<std::string> out;
  for (const Unit& unit : units) out.push_back(unit.name + " " + std::to_string(unit.begin) + ".." + std::to_string(unit.end));
  return out;
}

TEST(Layers, ACallThatFollowsAnotherOfTheSameModuleIsALayerOfItsOwn) {
  const Result<Model> model = parse_model(two_calls("enters: 'Net.0'"), "calls");
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_THAT(ranges(model->units), ElementsAre("Net.0 1..3", "Net.0#2 3..5"));
  // What is called anew lies in the module, which is called once.
  EXPECT_THAT(ranges(units_of(*model, "Net")), ElementsAre("Net 1..5"));
  EXPECT_THAT(ranges(parse_model(two_calls("enters: 'Net'"), "")->units), ElementsAre("Net.0 1..3", "Net.0#2 3..5"));
  EXPECT_THAT(ranges(parse_model(two_calls("enters: 'Net.0.l'"), "")->units), ElementsAre("Net.0 1..5"));
  EXPECT_THAT(ranges(parse_model(two_calls(""), "")->units), ElementsAre("Net.0 1..5"));
  EXPECT_THAT(ranges(parse_model(model_text(*model), "again")->units), ElementsAre("Net.0 1..3", "Net.0#2 3..5"));
}

TEST(Layers, ModulesOfPoliciesAreCallsToo) {
  const Result<Model> model = parse_model(two_calls("enters: 'Net.0'", ""), "calls");
  ASSERT_TRUE(model) << model.error().message();
  const NamedRuns runs(*model);
  const auto run = [&](std::string_view name) {
    const std::vector<std::uint32_t> found = runs.find(name);
    std::string text;
    for (const std::uint32_t each : found)
      text += (text.empty() ? "" : " ") + std::to_string(runs.all()[each].begin) + ".." + std::to_string(runs.all()[each].end);
    return text;
  };
  EXPECT_EQ(run("Net"), "1..5");         // the evaluation is none
  EXPECT_EQ(run("Net.0"), "1..3 3..5");  // every call
  EXPECT_EQ(run("0"), "1..3 3..5");
  EXPECT_EQ(run("Net.0#1"), "1..3");
  EXPECT_EQ(run("*.0#2"), "3..5");
  EXPECT_EQ(run("Net.0#3"), "");
  EXPECT_EQ(run("Net.0#2"), "3..5");
  EXPECT_EQ(run("Net.0.m#2"), "4..5");
}

// A ModuleList, or a list of them, is no module that is called: what its modules do is no layer.
TEST(Layers, WhatIsNotCalledIsNone) {
  const Result<Model> called = parse_model(two_calls("enters: 'Net.0'"), ""),
                      listed = parse_model(two_calls("", "unit: 'Net.0.*' container: 'Net.0'"), "");
  ASSERT_TRUE(called && listed) << listed.error().message();
  EXPECT_THAT(ranges(listed->units), ElementsAre("Net.0.l 1..2", "Net.0.m 2..3", "Net.0.l#2 3..4", "Net.0.m#2 4..5"));
  EXPECT_THAT(ranges(units_of(*listed, "Net.0")), ElementsAre());
  EXPECT_THAT(ranges(parse_model(model_text(*listed), "again")->units),
              ElementsAre("Net.0.l 1..2", "Net.0.m 2..3", "Net.0.l#2 3..4", "Net.0.m#2 4..5"));
  std::string two = two_calls("", "unit: ''");
  for (const char* name : {"Net.0.m", "Net.0.m"}) two.replace(two.rfind(name), 7, "Net.1.m");
  for (std::size_t at = 0; (at = two.find("Net.", at)) != std::string::npos; at += 6) two.insert(at + 4, "bs.");
  EXPECT_EQ(repeated_modules(*parse_model(two, "")), "Net.bs.*");
  two.insert(two.find("unit:"), "container: 'Net.bs.0' container: 'Net.bs.1' ");
  EXPECT_EQ(repeated_modules(*parse_model(two, "")), "Net.*");
}

// Blocks that the program calls itself have no parent with numbers.
TEST(Layers, ARootThatIsCalledInARowIsTheLayer) {
  std::string text = two_calls("enters: 'Block'", "");
  for (std::size_t at = 0; (at = text.find("Net.0", at)) != std::string::npos;) text.replace(at, 5, "Block");
  EXPECT_EQ(repeated_modules(*parse_model(text, "")), "Block");
  text.erase(text.find("enters: 'Block'"), 15);
  EXPECT_EQ(repeated_modules(*parse_model(text, "")), "Block.*");
}

TEST(Layers, EachCallIsRunAgainOnItsOwn) {
  const auto regions = [](const std::string& text, const std::string& policy) {
    const Result<Model> model = parse_model(text, "calls");
    EXPECT_TRUE(model) << model.error().message();
    const Result<Prediction> found = predict(*model, *parse_policy(policy));
    const Result<Regions> decided = regions_of(*model, *parse_policy(policy));
    std::vector<std::string> out = {std::to_string(found->memory.peak_bytes)};
    for (const Region& region : decided->recomputed) out.push_back(std::to_string(region.begin) + ".." + std::to_string(region.end));
    return out;
  };
  const std::string by_hand = " region { op: ['a', 'b'] } region { op: ['c', 'd'] }";
  EXPECT_EQ(regions(two_calls("enters: 'Net.0'"), "full"), regions(two_calls("") + by_hand, "by-hand"));
  EXPECT_EQ(regions(two_calls("enters: 'Net.0'"), "full").size(), 3U);
}

TEST(Layers, WithoutNamesEveryForwardOpThatRecordsAGraphIsOne) {
  const Result<Model> model = parse_model(two_calls("", ""), "");
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_THAT(ranges(model->units), ElementsAre("a 1..2", "b 2..3", "c 3..4", "d 4..5"));
  EXPECT_EQ(model_text(*parse_model(model_text(*model), "again")), model_text(*model));
  for (const std::string& text :
       {two_calls("", "layer { name: 'e' first: 'e' last: 'a' }"), two_calls("", "") + "region { op: ['e', 'a'] }"}) {
    const Result<Model> refused = parse_model(text, "m.textproto");
    ASSERT_FALSE(refused) << text;
    EXPECT_THAT(refused.error().message(), HasSubstr("'e' is no forward op that records a graph"));
  }
}

TEST(Layers, AModelMayHaveNone) {
  const Result<Model> model = parse_model("general { op { id: 'L' phase: 'loss' } }", "m");
  ASSERT_TRUE(model) << model.error().message();
  const Result<Regions> regions = regions_of(*model, *parse_policy("regions:x"));
  ASSERT_FALSE(regions);
  EXPECT_THAT(regions.error().message(), HasSubstr("the model has no layer and no module 'x' (it has none)"));
}

TEST(Layers, WhatIsWrongIsSaid) {
  const Result<Model> elsewhere = parse_model(two_calls("enters: 'Net.1'"), "m.textproto");
  ASSERT_FALSE(elsewhere);
  EXPECT_THAT(elsewhere.error().message(), HasSubstr("enters 'Net.1' is no module that the op's module lies in"));
  const Result<Model> loss = parse_model("general { op { id: 'l' phase: 'optimizer' no_graph: true } }", "m.textproto");
  ASSERT_FALSE(loss);
  EXPECT_THAT(loss.error().message(), HasSubstr("no_graph stands at an op that is no forward op"));
}

}  // namespace
}  // namespace liveset::model
