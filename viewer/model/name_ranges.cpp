#include "viewer/model/name_ranges.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>

namespace liveset::model {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Digits as numbers are written: "07" is none, for it would come back as 7.
std::optional<std::uint32_t> number_of(std::string_view digits) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || (digits.size() > 1 && digits.front() == '0')) return std::nullopt;
  return number;
}

// A part of a name: text, or a number that is not in a range yet.
struct Part {
  std::string text;
  std::optional<std::uint32_t> number;
};

std::vector<Part> parts_of(std::string_view name) {
  std::vector<Part> parts;
  for (std::size_t at = 0; at < name.size();) {
    std::size_t end = at + 1;
    while (end < name.size() && is_digit(name[end]) == is_digit(name[at])) ++end;
    const std::string_view text = name.substr(at, end - at);
    parts.push_back({std::string(text), number_of(text)});
    at = end;
  }
  return parts;
}

std::string text_of(const std::vector<Part>& parts, std::size_t without = ~std::size_t{0}) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) text += i == without ? std::string(1, '\0') : parts[i].text;
  return text;
}

// Names that differ in this part alone, joined where its numbers follow each other. One that went into a range is left empty.
void join_by(std::size_t part, std::vector<std::vector<Part>>& names) {
  std::map<std::string, std::vector<std::pair<std::uint32_t, std::size_t>>> families;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (part < names[i].size() && names[i][part].number) families[text_of(names[i], part)].emplace_back(*names[i][part].number, i);
  for (auto& [others, members] : families) {
    std::sort(members.begin(), members.end());
    for (std::size_t begin = 0, end = 0; begin < members.size(); begin = end) {
      std::size_t first = members[begin].second;
      for (end = begin + 1; end < members.size() && members[end].first <= members[end - 1].first + 1; ++end)
        first = std::min(first, members[end].second);
      const std::uint32_t from = members[begin].first, to = members[end - 1].first;
      if (from == to) continue;
      for (std::size_t i = begin; i < end; ++i)
        if (members[i].second != first) names[members[i].second].clear();
      names[first][part] = {std::to_string(from) + ".." + std::to_string(to), std::nullopt};
    }
  }
}

}  // namespace

bool add_names(std::string_view name, std::size_t most, std::vector<std::string>& names) {
  for (auto dots = name.find(".."); dots != std::string_view::npos; dots = name.find("..", dots + 1)) {
    std::size_t begin = dots, end = dots + 2;
    while (begin > 0 && is_digit(name[begin - 1])) --begin;
    while (end < name.size() && is_digit(name[end])) ++end;
    const auto from = number_of(name.substr(begin, dots - begin)), to = number_of(name.substr(dots + 2, end - dots - 2));
    if (!from || !to || *from >= *to) continue;
    for (std::uint64_t number = *from; number <= *to; ++number)
      if (!add_names(std::string(name.substr(0, begin)) + std::to_string(number) + std::string(name.substr(end)), most, names))
        return false;
    return true;
  }
  names.emplace_back(name);
  return names.size() <= most;
}

std::vector<std::string> with_ranges(const std::vector<std::string>& names) {
  std::vector<std::vector<Part>> all;
  std::size_t longest = 0;
  for (const std::string& name : names) {
    all.push_back(parts_of(name));
    longest = std::max(longest, all.back().size());
  }
  for (std::size_t part = 0; part < longest; ++part) join_by(part, all);
  std::vector<std::string> out;
  for (const std::vector<Part>& parts : all)
    if (!parts.empty()) out.push_back(text_of(parts));
  return out;
}

}  // namespace liveset::model
