// Operators whose outputs a policy keeps: which are proposed, and how they are found where there are many.
#include "viewer/model/selective_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "viewer/model/policy.h"

namespace liveset::model {
namespace {

using ::testing::HasSubstr;

struct Operator {
  std::uint64_t bytes = 0, cost = 0;
};

// Operator i is called n<i>; each layer has ten of them.
Model model_of(const std::vector<Operator>& operators) {
  std::string tensors = "tensor { id: 'x' given: true }\n", ops, before = "x";
  for (std::size_t i = 0; i < operators.size(); ++i) {
    const std::string n = std::to_string(i);
    tensors += "tensor { id: 't" + n + "' bytes: " + std::to_string(operators[i].bytes) + " }\n";
    ops += "op { name: 'n" + n + "' module: 'net." + std::to_string(i / 10) + "' cost: " + std::to_string(operators[i].cost) + " reads: '" +
           before + "' writes: 't" + n + "' saves: 't" + n + "' backward {} }\n";
    before = "t" + n;
  }
  Result<Model> model = parse_model("general { unit: 'net.*'\n" + tensors + ops + "op { phase: 'loss' reads: '" + before + "' } }", "");
  EXPECT_TRUE(model) << model.error().message();
  return std::move(*model);
}

std::vector<Operator> any_operators(std::size_t count) {
  std::mt19937 random(5);
  std::vector<Operator> operators(count);
  for (Operator& each : operators) each = {1 + random() % (1U << 30), 1 + random() % (1U << 30)};
  return operators;
}

// Operators that can be cut are worth the most; no proposal need be worse by more than one of them.
TEST(SelectiveSearch, ProposesWhatIsCloseToTheBest) {
  constexpr std::size_t count = 400, points = 16;
  const std::vector<Operator> operators = any_operators(count);
  std::uint64_t all = 0;
  for (const Operator& each : operators) all += each.bytes;
  std::vector<Operator> dense = operators;
  std::sort(dense.begin(), dense.end(), [](const Operator& a, const Operator& b) { return a.cost * b.bytes > b.cost * a.bytes; });
  const std::vector<std::string> policies = selective_policies(model_of(operators), points);
  ASSERT_EQ(policies.size(), points);
  for (std::size_t point = 1; point <= points; ++point) {
    const std::uint64_t capacity = all * point / points;
    std::uint64_t bytes = 0, cost = 0, room = capacity, least = 0;
    const Policy policy = *parse_policy(policies[point - 1]);
    for (const std::string& name : policy.names) {
      const Operator& kept = operators[std::stoul(name.substr(1))];
      bytes += kept.bytes;
      cost += kept.cost;
    }
    for (const Operator& each : dense) {
      if (each.bytes > room) break;
      room -= each.bytes;
      least += each.cost;
    }
    EXPECT_LE(bytes, capacity) << point;
    EXPECT_GE(cost, least) << point;
  }
}

// Names of the policy are not compared with each one of the model's.
TEST(SelectiveSearch, ManyOperatorsAreFound) {
  constexpr std::uint32_t many = 60'000;
  const Model model = model_of(std::vector<Operator>(many, {1, 1}));
  std::string text = "selective:n0";
  for (std::uint32_t i = 2; i < many; i += 2) text += ",aten.N_" + std::to_string(i) + ".default";
  const Result<Regions> regions = regions_of(model, *parse_policy(text));
  ASSERT_TRUE(regions) << regions.error().what;
  std::uint32_t kept = 0;
  for (const Region& region : regions->recomputed)
    for (std::uint32_t op = region.begin; op < region.end; ++op) {
      EXPECT_EQ(region.keeps_outputs[op - region.begin], op % 2 == 0) << op;
      kept += region.keeps_outputs[op - region.begin];
    }
  EXPECT_GE(kept, many / 2 - 5) << "but those of the last layer, which does not run again";
  EXPECT_THAT(regions_of(model, *parse_policy(text + ",n1,conv,pool")).error().what, HasSubstr("the model has no operator 'conv'"));
}

}  // namespace
}  // namespace liveset::model
