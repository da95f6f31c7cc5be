// The acceptance facts of tests/golden/acceptance as JSON.
#pragma once
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace liveset::test {

inline nlohmann::json acceptance(const std::string& name) {
  std::ifstream file(std::string(LIVESET_SOURCE_DIR) + "/tests/golden/acceptance/" + name + ".json");
  return nlohmann::json::parse(file);
}

// "save-all" or "segment-3" of the files, as the command line spells it.
inline std::string policy_argument(const nlohmann::json& row) {
  return row.at("k").is_null() ? "save-all" : "segment:" + std::to_string(row.at("k").get<int>());
}

}  // namespace liveset::test
