#include "viewer/ledger/quantity.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>

namespace liveset::ledger {
namespace {

using Wide = unsigned __int128;

struct MeasureUnit {
  std::string_view word;
  std::uint64_t factor = 1;
};
constexpr std::uint64_t max_quantity = std::uint64_t{1} << 62;

constexpr std::array byte_units{MeasureUnit{"B", 1},
                                MeasureUnit{"KB", 1000},
                                MeasureUnit{"MB", 1000'000},
                                MeasureUnit{"GB", 1000'000'000},
                                MeasureUnit{"TB", 1000'000'000'000},
                                MeasureUnit{"KiB", std::uint64_t{1} << 10},
                                MeasureUnit{"MiB", std::uint64_t{1} << 20},
                                MeasureUnit{"GiB", std::uint64_t{1} << 30},
                                MeasureUnit{"TiB", std::uint64_t{1} << 40}};
constexpr std::array time_units{MeasureUnit{"ns", 1}, MeasureUnit{"us", 1000}, MeasureUnit{"ms", 1000'000}, MeasureUnit{"s", 1000'000'000}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool same_word(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

Error wrong(std::string what) { return {ErrorKind::usage, "", {}, std::move(what), ""}; }

Result<std::uint64_t> parse_quantity(std::string_view text, std::span<const MeasureUnit> units) {
  constexpr Wide most_digits = Wide{1} << 62;                                               // times 10 and a unit of 2^40 it still fits
  constexpr Wide most_parts = Wide{1'000'000'000'000'000'000} * 1'000'000'000'000'000'000;  // times 10 it still fits
  Wide digits = 0, parts = 1;                                                               // the number is digits / parts
  std::size_t at = 0, count = 0;
  bool point = false, too_large = false;
  for (; at < text.size() && (is_digit(text[at]) || (text[at] == '.' && !point)); ++at) {
    if (text[at] == '.') {
      point = true;
      continue;
    }
    ++count;
    if (digits > most_digits || parts > most_parts) {
      too_large = too_large || !point;  // further decimals say less than one of any unit
      continue;
    }
    digits = 10 * digits + static_cast<Wide>(text[at] - '0');
    if (point) parts *= 10;
  }
  if (count == 0) return wrong("must be a number");
  std::string_view rest = text.substr(at);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const auto unit = std::find_if(units.begin(), units.end(), [&](const MeasureUnit& each) { return same_word(each.word, rest); });
  if (!rest.empty() && unit == units.end()) return wrong("has the unknown unit '" + std::string(rest) + "'");
  const Wide number = digits * (rest.empty() ? 1 : unit->factor) / parts;
  if (too_large || number > max_quantity) return wrong("is too large, at most " + std::to_string(max_quantity));
  return static_cast<std::uint64_t>(number);
}

}  // namespace

Result<std::uint64_t> parse_byte_size(std::string_view text) { return parse_quantity(text, byte_units); }
Result<std::uint64_t> parse_duration(std::string_view text) { return parse_quantity(text, time_units); }

}  // namespace liveset::ledger
