// The sample's own numbers against the acceptance facts.
#include <gnu/libc-version.h>
#include <gtest/gtest.h>

#include "tests/support/acceptance.h"
#include "tests/support/run_program.h"

namespace liveset::test {
namespace {

using nlohmann::json;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

// The facts' tanh is glibc 2.36's: the same bits there; another libm may differ by 1e-13 relative.
void expect_near(double actual, double fact, const char* what) {
  static const bool same_libm = std::string(gnu_get_libc_version()) == "2.36";
  EXPECT_LE(std::abs(actual - fact), same_libm ? 0 : 1e-13 * std::abs(fact)) << what;
}

void expect_step(const json& step, const json& fact) {
  expect_near(step.at("loss"), fact.at("loss"), "loss");
  expect_near(step.at("input_gradient"), fact.at("dL_dh0"), "dL/dh0");
  ASSERT_EQ(step.at("gradients").size(), fact.at("dL_dw").size());
  for (std::size_t i = 0; i < fact.at("dL_dw").size(); ++i) expect_near(step.at("gradients")[i], fact.at("dL_dw")[i], "dL/dw");
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
    expect_step(step, policy);
    EXPECT_EQ(step.at("max_difference_to_save_all"), 0.0);
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
      expect_step(step, chain);
      EXPECT_EQ(step.at("max_difference_to_save_all"), 0.0);
      EXPECT_EQ(step.at("forward_layers"), policy.at("forward_layers"));
    }
  }
}

TEST(TanhChain, UnequalSegments) {
  const json step = run_chain("--policy segments:3,2,1");
  expect_step(step, acceptance("chain_ledgers").at("policies")[0]);
  EXPECT_EQ(step.at("max_difference_to_save_all"), 0.0);
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
