// What a tanh chain's step and its ledger are compared with: acceptance/chain_ledgers.json and chain_variants.json.
#pragma once
#include <gnu/libc-version.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

namespace liveset::test {

// The facts' tanh is glibc 2.36's: the same bits there; another libm may differ by 1e-13 relative.
inline void expect_near(double actual, double fact, const char* what) {
  static const bool same_libm = std::string(gnu_get_libc_version()) == "2.36";
  EXPECT_LE(std::abs(actual - fact), same_libm ? 0 : 1e-13 * std::abs(fact)) << what;
}

// `step`: what the program printed.
inline void expect_chain_step(const nlohmann::json& step, const nlohmann::json& fact) {
  expect_near(step.at("loss"), fact.at("loss"), "loss");
  expect_near(step.at("input_gradient"), fact.at("dL_dh0"), "dL/dh0");
  ASSERT_EQ(step.at("gradients").size(), fact.at("dL_dw").size());
  for (std::size_t i = 0; i < fact.at("dL_dw").size(); ++i) expect_near(step.at("gradients")[i], fact.at("dL_dw")[i], "dL/dw");
  EXPECT_EQ(step.at("max_difference_to_save_all"), 0.0);
}

inline nlohmann::json value_names(const nlohmann::json& numbers) {
  nlohmann::json names = nlohmann::json::array();
  for (const nlohmann::json& number : numbers) names.push_back("h" + number.dump());
  return names;
}

// `ledger`: what `ledger --logical` says; `policy`: one of the facts' policies.
inline void expect_chain_ledger(const nlohmann::json& ledger, const nlohmann::json& policy) {
  EXPECT_EQ(ledger.at("schema"), "liveset.ledger/1");
  EXPECT_EQ(ledger.at("peak").at("ids"), policy.at("peak"));
  EXPECT_EQ(ledger.at("peak").at("bytes"), 8 * policy.at("peak").get<int>());
  EXPECT_EQ(ledger.at("peak").at("event"), policy.at("peak_event"));
  EXPECT_EQ(ledger.at("forward_layers"), policy.at("forward_layers"));
  EXPECT_EQ(ledger.at("held_at_loss"), value_names(policy.at("held_at_loss")));
  EXPECT_EQ(ledger.at("broken_rules").at("count"), 0);
  EXPECT_EQ(ledger.at("live_at_end"), nlohmann::json::array());
  ASSERT_EQ(ledger.at("events").size(), policy.at("events").size());
  for (std::size_t i = 0; i < policy.at("events").size(); ++i) {
    const nlohmann::json &fact = policy.at("events")[i], &event = ledger.at("events")[i];
    SCOPED_TRACE(fact.dump());
    EXPECT_EQ(event.at("index"), fact.at("index"));
    EXPECT_EQ(event.at("phase"), fact.at("phase"));
    EXPECT_EQ(event.at("kind"), fact.at("kind"));
    EXPECT_EQ(event.at("value"), "h" + fact.at("layer").dump());
    EXPECT_EQ(event.at("layer"), fact.at("layer"));
    EXPECT_EQ(event.at("reads"), value_names(fact.at("reads")));
    EXPECT_EQ(event.at("live"), value_names(fact.at("live")));
    EXPECT_EQ(event.at("live_ids"), fact.at("live_count"));
    EXPECT_EQ(event.at("live_bytes"), 8 * fact.at("live_count").get<int>());
    EXPECT_EQ(event.at("forward_layers"), fact.at("forward_layers"));
    EXPECT_EQ(event.at("step"), 0);
  }
}

}  // namespace liveset::test
