// Paths of scopes, and other names that repeat from row to row: each text is built once, rows only point at it. A file of a few bytes may
// nest scopes by the thousand, so only the first paths are whole up to Dictionary::max_path_bytes; those behind are cut shorter.
#pragma once
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "viewer/trace/records.h"

namespace liveset::ledger {

class PathNames {
 public:
  static constexpr std::size_t max_bytes_of_whole = std::size_t{64} << 20, max_bytes_behind = 256;

  explicit PathNames(const trace::Dictionary& names) : names_(names) {}

  std::string_view module(std::uint32_t scope) {
    const auto [place, is_new] = modules_.try_emplace(scope);
    if (is_new) place->second = keep(names_.module_path(scope, most()));
    return place->second;
  }
  std::string_view scope(std::uint32_t scope) {
    const auto [place, is_new] = scopes_.try_emplace(scope);
    if (is_new) place->second = keep(names_.scope_path(scope, most()));
    return place->second;
  }
  std::string_view keep(std::string text) {
    const auto [place, is_new] = texts_.insert(std::move(text));
    bytes_ += is_new ? place->size() : 0;
    return *place;
  }

 private:
  std::size_t most() const { return bytes_ < max_bytes_of_whole ? trace::Dictionary::max_path_bytes : max_bytes_behind; }

  const trace::Dictionary& names_;
  std::size_t bytes_ = 0;
  std::unordered_set<std::string> texts_;
  std::unordered_map<std::uint32_t, std::string_view> modules_, scopes_;
};

}  // namespace liveset::ledger
