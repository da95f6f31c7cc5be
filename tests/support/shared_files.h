// Reference files that lie beside a checkout and are no part of it: LIVESET_SHARED, or ../shared. Tests that need them are skipped where
// they are not.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace liveset::test {

inline std::string shared_file(const std::string& name) {
  const char* named = std::getenv("LIVESET_SHARED");
  const std::string root = named != nullptr ? named : std::string(LIVESET_SOURCE_DIR) + "/../shared";
  const std::string path = root + "/" + name;
  return std::filesystem::exists(path) ? path : "";
}

// A table of tab-separated values with titles, row by row.
inline std::vector<std::map<std::string, std::string>> read_table(const std::string& path) {
  std::vector<std::map<std::string, std::string>> rows;
  std::ifstream file(path);
  std::vector<std::string> titles;
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> cells;
    std::istringstream text(line);
    for (std::string cell; std::getline(text, cell, '\t');) cells.push_back(cell);
    if (titles.empty()) {
      titles = cells;
      continue;
    }
    auto& row = rows.emplace_back();
    for (std::size_t i = 0; i < titles.size() && i < cells.size(); ++i) row[titles[i]] = cells[i];
  }
  return rows;
}

}  // namespace liveset::test
