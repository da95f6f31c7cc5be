#include "viewer/model/name_pattern.h"

namespace liveset::model {
namespace {

bool matches_whole(std::string_view pattern, std::string_view text) {
  // Greedy with one step back, as there is nothing to nest.
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
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

// "aten::mm.default" -> "mm", "MmBackward0" -> "mm", "NativeLayerNormBackward0" -> "nativelayernorm".
std::string bare(std::string_view name) {
  for (const std::string_view prefix : {"torch.ops.", "aten::", "aten."})
    if (name.substr(0, prefix.size()) == prefix) name.remove_prefix(prefix.size());
  if (const auto backward = name.find("Backward"); backward != std::string_view::npos && backward > 0) name = name.substr(0, backward);
  name = name.substr(0, name.find('.'));
  std::string text;
  for (const char c : name)
    if (c != '_') text += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

}  // namespace

bool matches_name(std::string_view pattern, std::string_view path) {
  if (matches_whole(pattern, path)) return true;
  for (auto end = path.find_first_of("./"); end != std::string_view::npos; end = path.find_first_of("./", end + 1))
    if (matches_whole(pattern, path.substr(end + 1))) return true;
  return false;
}

bool matches_operator(std::string_view pattern, std::string_view name) {
  return !name.empty() && (pattern == name || bare(pattern) == bare(name));
}

}  // namespace liveset::model
