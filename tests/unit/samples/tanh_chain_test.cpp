// The sample's own numbers against the acceptance facts.
#include <gtest/gtest.h>

#include "tests/support/acceptance.h"
#include "tests/support/chain_facts.h"
#include "tests/support/run_program.h"

namespace liveset::test {
namespace {

using nlohmann::json;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

json run_chain(const std::string& arguments) {
  const Ran ran = run_program("tanh_chain " + arguments);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.err, "");
  return json::parse(ran.out);
}

TEST(TanhChain, SixLayersUnderEveryPolicy) {
  const json facts = acceptance("chain_ledgers");
  for (const json& policy : facts.at("policies")) {
    SCOPED_TRACE(policy.at("policy"));
    const json step = run_chain("--policy " + policy_argument(policy));
    expect_chain_step(step, policy);
    EXPECT_EQ(step.at("forward_layers"), policy.at("forward_layers"));
  }
}

TEST(TanhChain, TwelveFurtherChains) {
  const json facts = acceptance("chain_variants");
  const TemporaryFolder folder;
  for (const json& chain : facts.at("chains")) {
    std::string text = number(chain.at("h0"));
    for (const json& weight : chain.at("w")) text += "\n" + number(weight);
    const std::string file = written(folder, "chain", text);
    for (const json& policy : chain.at("policies")) {
      SCOPED_TRACE(chain.at("name").dump() + policy.at("policy").dump());
      const json step = run_chain("--chain " + file + " --policy " + policy_argument(policy));
      expect_chain_step(step, chain);
      EXPECT_EQ(step.at("forward_layers"), policy.at("forward_layers"));
    }
  }
}

TEST(TanhChain, UnequalSegments) {
  const json step = run_chain("--policy segments:3,2,1");
  expect_chain_step(step, acceptance("chain_ledgers").at("policies")[0]);
  EXPECT_EQ(step.at("forward_layers"), 12);
}

TEST(TanhChain, RefusesBadArguments) {
  for (const char* arguments : {"--policy segment:0", "--policy segments:3,2", "--policy segments:7", "--policy keep", "--policy",
                                "--what 3", "--chain /nonexistent"}) {
    const Ran ran = run_program(std::string("tanh_chain ") + arguments);
    EXPECT_EQ(ran.status, 2) << arguments;
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(ran.err.rfind("tanh_chain: ", 0), 0U) << ran.err;
  }
}

}  // namespace
}  // namespace liveset::test
