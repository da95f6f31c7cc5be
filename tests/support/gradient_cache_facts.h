// How a case of gradient_cache.json is run, and how what comes out is compared with it.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

namespace liveset::test {

inline std::string gradient_cache_arguments(const nlohmann::json& fact) {
  return "--seed " + fact.at("seed").dump() + " --chunk " + fact.at("chunk").dump() + " --dropout " + fact.at("dropout").dump() +
         " --restore " + (fact.at("restore") == true ? "on" : "off");
}

// Numbers, or arrays of them of the same shape, within an absolute tolerance.
inline void expect_close(const nlohmann::json& actual, const nlohmann::json& fact, double tolerance) {
  if (!fact.is_array()) {
    ASSERT_TRUE(actual.is_number()) << actual;
    EXPECT_LE(std::abs(actual.get<double>() - fact.get<double>()), tolerance) << actual << " against " << fact;
    return;
  }
  ASSERT_EQ(actual.size(), fact.size());
  for (std::size_t i = 0; i < fact.size(); ++i) expect_close(actual[i], fact[i], tolerance);
}

inline void expect_chunk_event(const nlohmann::json& actual, const nlohmann::json& fact) {
  SCOPED_TRACE(fact.dump());
  for (const auto& [key, value] : fact.items()) {
    if (key == "index") continue;
    ASSERT_TRUE(actual.contains(key)) << key;
    if (key.rfind("dL_", 0) == 0)
      expect_close(actual.at(key), value, 1e-15);
    else
      EXPECT_EQ(actual.at(key), value) << key;
  }
}

}  // namespace liveset::test
