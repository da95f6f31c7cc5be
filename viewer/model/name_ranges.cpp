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

struct Name {
  std::vector<Part> parts;
  std::size_t ranges = 0;
};

Name name_of(std::string_view text) {
  constexpr std::size_t max_parts = 64;  // the last one has all the rest
  Name name;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    while (end < text.size() && (name.parts.size() + 1 == max_parts || is_digit(text[end]) == is_digit(text[at]))) ++end;
    const std::string_view part = text.substr(at, end - at);
    name.parts.push_back({std::string(part), number_of(part)});
    at = end;
  }
  return name;
}

std::string text_of(const Name& name, std::size_t without = ~std::size_t{0}) {
  std::string text;
  for (std::size_t i = 0; i < name.parts.size(); ++i) text += i == without ? std::string(1, '\0') : name.parts[i].text;
  return text;
}

// Names that differ in this part alone, joined where its numbers follow each other. One that went into a range is left empty.
void join_by(std::size_t part, std::vector<Name>& names) {
  std::map<std::string, std::vector<std::pair<std::uint32_t, std::size_t>>> families;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (part < names[i].parts.size() && names[i].parts[part].number && names[i].ranges < RangedName::max_ranges)
      families[text_of(names[i], part)].emplace_back(*names[i].parts[part].number, i);
  for (auto& [others, members] : families) {
    std::sort(members.begin(), members.end());
    for (std::size_t begin = 0, end = 0; begin < members.size(); begin = end) {
      std::size_t first = members[begin].second;
      for (end = begin + 1; end < members.size() && members[end].first <= members[end - 1].first + 1; ++end)
        first = std::min(first, members[end].second);
      const std::uint32_t from = members[begin].first, to = members[end - 1].first;
      if (from == to) continue;
      for (std::size_t i = begin; i < end; ++i)
        if (members[i].second != first) names[members[i].second] = {};
      names[first].parts[part] = {std::to_string(from) + ".." + std::to_string(to), std::nullopt};
      ++names[first].ranges;
    }
  }
}

}  // namespace

RangedName::RangedName(std::string_view name) : name_(name) {
  constexpr std::uint64_t most = ~std::uint64_t{0};
  std::size_t least = 0;  // where the next range may begin
  for (auto dots = name.find(".."); dots != std::string_view::npos && !has_too_many_ranges(); dots = name.find("..", dots + 1)) {
    Range range{dots, dots + 2};
    while (range.begin > least && is_digit(name[range.begin - 1])) --range.begin;
    while (range.end < name.size() && is_digit(name[range.end])) ++range.end;
    const auto from = number_of(name.substr(range.begin, dots - range.begin)), to = number_of(name.substr(dots + 2, range.end - dots - 2));
    if (!from || !to || *from >= *to) continue;
    range.from = *from;
    range.to = *to;
    least = range.end;
    count_ = count_ > most / range.size() ? most : count_ * range.size();
    ranges_.push_back(range);
  }
}

std::string RangedName::at(std::uint64_t index) const {
  std::vector<std::string> numbers;
  for (auto range = ranges_.rbegin(); range != ranges_.rend(); ++range) {
    numbers.push_back(std::to_string(range->from + index % range->size()));
    index /= range->size();
  }
  std::string text;
  std::size_t done = 0;
  for (const Range& range : ranges_) {
    text += name_.substr(done, range.begin - done);
    text += numbers.back();
    numbers.pop_back();
    done = range.end;
  }
  text += name_.substr(done);
  return text;
}

std::vector<std::string> with_ranges(const std::vector<std::string>& names) {
  std::vector<Name> all;
  std::size_t longest = 0;
  for (const std::string& name : names) {
    all.push_back(name_of(name));
    longest = std::max(longest, all.back().parts.size());
  }
  for (std::size_t part = 0; part < longest; ++part) join_by(part, all);
  std::vector<std::string> out;
  for (const Name& name : all)
    if (!name.parts.empty()) out.push_back(text_of(name));
  return out;
}

}  // namespace liveset::model
