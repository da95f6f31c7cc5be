#include "viewer/model/name_pattern.h"

#include <algorithm>
#include <limits>

namespace liveset::model {
namespace {

constexpr std::size_t max_parts = 64;

void spend(std::uint64_t& looks, std::size_t characters) { looks -= std::min<std::uint64_t>(looks, characters); }

bool matches_whole(std::string_view pattern, std::string_view text, std::uint64_t& looks) {
  // Greedy with one step back, as there is nothing to nest.
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (looks == 0) return false;
    --looks;
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos && text[resume] != '/' && text[resume] != '.') {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace

bool matches_name(std::string_view pattern, std::string_view path) {
  std::uint64_t looks = std::numeric_limits<std::uint64_t>::max();
  return matches_name(pattern, path, looks);
}

bool matches_name(std::string_view pattern, std::string_view path, std::uint64_t& looks) {
  const auto is_separator = [](char c) { return c == '.' || c == '/'; };
  spend(looks, 4 + pattern.size() / 64);
  if (looks == 0) return false;
  if (pattern.find('*') == std::string_view::npos) {
    if (!path.ends_with(pattern)) return false;
    return path.size() == pattern.size() || is_separator(path[path.size() - pattern.size() - 1]);
  }
  if (matches_whole(pattern, path, looks)) return true;
  spend(looks, path.size() / 4);
  for (std::size_t i = 0; i < path.size(); ++i)
    if (is_separator(path[i]) && matches_whole(pattern, path.substr(i + 1), looks)) return true;
  return false;
}

void ends_of_parts(std::string_view path, std::string_view separators, std::vector<std::size_t>& ends) {
  ends.clear();
  for (auto at = path.find_first_of(separators); at != std::string_view::npos && ends.size() + 1 < max_parts;
       at = path.find_first_of(separators, at + 1))
    ends.push_back(at);
  ends.push_back(path.size());
}

bool lies_in(std::string_view path, std::string_view module) {
  return path.starts_with(module) && (path.size() == module.size() || path[module.size()] == '.' || path[module.size()] == '/');
}

// "aten::mm.default" -> "mm", "MmBackward0" -> "mm", "NativeLayerNormBackward0" -> "nativelayernorm".
std::string operator_key(std::string_view name) {
  for (const std::string_view prefix : {"torch.ops.", "aten::", "aten."})
    if (name.substr(0, prefix.size()) == prefix) name.remove_prefix(prefix.size());
  if (const auto backward = name.find("Backward"); backward != std::string_view::npos && backward > 0) name = name.substr(0, backward);
  name = name.substr(0, name.find('.'));
  std::string text;
  for (const char c : name)
    if (c != '_') text += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

}  // namespace liveset::model
