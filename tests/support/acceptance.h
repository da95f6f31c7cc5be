// The acceptance facts of tests/golden/acceptance as JSON.
#pragma once
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace liveset::test {

// By reference to what stays, so that a loop over a part of it is safe.
inline const nlohmann::json& acceptance(const std::string& name) {
  static std::map<std::string, nlohmann::json> files;
  const auto [entry, unread] = files.try_emplace(name);
  if (unread) {
    std::ifstream file(std::string(LIVESET_SOURCE_DIR) + "/tests/golden/acceptance/" + name + ".json");
    entry->second = nlohmann::json::parse(file);
  }
  return entry->second;
}

// "save-all" or "segment-3" of the files, as the command line spells it.
inline std::string policy_argument(const nlohmann::json& row) {
  return row.at("k").is_null() ? "save-all" : "segment:" + std::to_string(row.at("k").get<int>());
}

}  // namespace liveset::test
