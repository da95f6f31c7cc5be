// The sample's own numbers against the acceptance facts: 24 cases.
#include <gtest/gtest.h>

#include "tests/support/acceptance.h"
#include "tests/support/gradient_cache_facts.h"
#include "tests/support/run_program.h"

namespace liveset::test {
namespace {

using nlohmann::json;

TEST(GradientCache, TwentyFourCases) {
  const json facts = acceptance("gradient_cache");
  ASSERT_EQ(facts.at("cases").size(), 24U);
  for (const json& fact : facts.at("cases")) {
    SCOPED_TRACE(fact.at("name"));
    const Ran ran = run_program("gradient_cache " + gradient_cache_arguments(fact));
    ASSERT_EQ(ran.status, 0) << ran.err;
    const json step = json::parse(ran.out);
    expect_close(step.at("loss"), fact.at("loss"), 1e-15);
    expect_close(step.at("gradient_w1"), fact.at("dL_dW1"), 1e-15);
    expect_close(step.at("gradient_w2"), fact.at("dL_dW2"), 1e-15);
    expect_close(step.at("reference_gradient_w1"), fact.at("ref_dL_dW1"), 1e-15);
    expect_close(step.at("reference_gradient_w2"), fact.at("ref_dL_dW2"), 1e-15);
    if (fact.at("restore") == true || fact.at("dropout") == 0.0)
      EXPECT_EQ(step.at("max_difference"), 0.0);
    else
      expect_close(step.at("max_difference"), fact.at("max_abs_diff"), 1e-13);
    EXPECT_EQ(step.at("rng_after_pass_1"), fact.at("rng_after_pass1"));
    EXPECT_EQ(step.at("rng_at_end"), fact.at("rng_step_end"));
    EXPECT_EQ(step.at("hidden_peak"), fact.at("hidden_vectors_peak"));
    EXPECT_EQ(step.at("hidden_peak"), 3 * fact.at("chunk").get<int>());
    EXPECT_EQ(step.at("reference_hidden_peak"), 24);
    ASSERT_EQ(step.at("events").size(), fact.at("events").size());
    for (std::size_t i = 0; i < fact.at("events").size(); ++i) expect_chunk_event(step.at("events")[i], fact.at("events")[i]);
  }
}

TEST(GradientCache, RefusesBadArguments) {
  for (const char* arguments : {"--chunk 0", "--chunk 5", "--chunk 1.5", "--dropout 1", "--dropout -0.1", "--dropout x", "--restore maybe",
                                "--seed 4294967296", "--seed", "--what 3"}) {
    const Ran ran = run_program(std::string("gradient_cache ") + arguments);
    EXPECT_EQ(ran.status, 2) << arguments;
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(ran.err.rfind("gradient_cache: ", 0), 0U) << ran.err;
  }
}

}  // namespace
}  // namespace liveset::test
