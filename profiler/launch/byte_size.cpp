#include "profiler/launch/byte_size.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <string>

namespace liveset::launch {
namespace {

std::optional<double> unit_bytes(const std::string& unit) {
  if (unit.empty() || unit == "b") return 1;
  const std::size_t power = std::string_view("kmgt").find(unit[0]);
  if (power == std::string_view::npos) return std::nullopt;
  const auto exponent = static_cast<double>(power + 1);
  if (unit.substr(1) == "ib") return std::pow(1024.0, exponent);
  if (unit.substr(1) == "b") return std::pow(1000.0, exponent);
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> parse_byte_size(std::string_view text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) == 0) return std::nullopt;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc()) return std::nullopt;
  std::string unit;
  for (const char* c = end; c != text.data() + text.size(); ++c) {
    if (*c != ' ' || !unit.empty()) unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
  }
  const std::optional<double> scale = unit_bytes(unit);
  if (!scale) return std::nullopt;
  const double bytes = number * *scale;  // exact: below 2^50, and the units' powers of two and of ten are
  if (bytes < 1 || bytes >= std::pow(2.0, 50)) return std::nullopt;
  return static_cast<std::int64_t>(bytes);
}

}  // namespace liveset::launch
