// Exact non-negative rational numbers below 2^63: bytes, elements and flops of formulas that divide.
//
// Whatever leaves that range, or divides by zero, makes the value invalid, and an invalid value makes everything computed from it invalid:
// a formula is written down once, and looked at once.
#pragma once
#include <cstdint>
#include <limits>
#include <string>

namespace liveset::model {

class Exact {
 public:
  constexpr Exact() = default;
  constexpr Exact(std::uint64_t whole) : numerator_(whole), denominator_(whole <= limit ? 1 : 0) {}  // NOLINT: numbers are values

  bool valid() const { return denominator_ != 0; }
  bool whole() const { return denominator_ == 1; }
  std::uint64_t numerator() const { return numerator_; }
  std::uint64_t denominator() const { return denominator_; }
  // Rounded up: a part of a byte takes a byte. 0 when invalid.
  std::uint64_t rounded_up() const { return valid() ? (numerator_ + (denominator_ - 1)) / denominator_ : 0; }
  double approximate() const {
    return valid() ? static_cast<double>(numerator_) / static_cast<double>(denominator_) : std::numeric_limits<double>::quiet_NaN();
  }
  std::string text() const {
    if (!valid()) return "out of range";
    return std::to_string(numerator_) + (whole() ? "" : "/" + std::to_string(denominator_));
  }

  friend Exact operator+(const Exact& a, const Exact& b) {
    if (!a.valid() || !b.valid()) return invalid();
    const Wide wide = Wide{a.numerator_} * b.denominator_ + Wide{b.numerator_} * a.denominator_;  // both products are below 2^126
    return reduced(wide, Wide{a.denominator_} * b.denominator_);
  }
  friend Exact operator*(const Exact& a, const Exact& b) {
    if (!a.valid() || !b.valid()) return invalid();
    return reduced(Wide{a.numerator_} * b.numerator_, Wide{a.denominator_} * b.denominator_);
  }
  friend Exact operator/(const Exact& a, const Exact& b) {
    if (!a.valid() || !b.valid() || b.numerator_ == 0) return invalid();
    return reduced(Wide{a.numerator_} * b.denominator_, Wide{a.denominator_} * b.numerator_);
  }
  Exact& operator+=(const Exact& other) { return *this = *this + other; }
  // Reduced fractions are equal when their parts are; invalid ones are equal to nothing.
  friend bool operator==(const Exact& a, const Exact& b) {
    return a.valid() && b.valid() && a.numerator_ == b.numerator_ && a.denominator_ == b.denominator_;
  }
  friend bool operator<(const Exact& a, const Exact& b) {
    return a.valid() && b.valid() && Wide{a.numerator_} * b.denominator_ < Wide{b.numerator_} * a.denominator_;
  }

 private:
  __extension__ typedef unsigned __int128 Wide;
  static constexpr std::uint64_t limit = (std::uint64_t{1} << 63) - 1;

  static Exact invalid() {
    Exact value;
    value.denominator_ = 0;
    return value;
  }
  static Exact reduced(Wide numerator, Wide denominator) {
    Wide a = numerator, b = denominator;
    while (b != 0) {
      const Wide rest = a % b;
      a = b;
      b = rest;
    }
    numerator /= a;
    denominator /= a;
    if (numerator > limit || denominator > limit) return invalid();
    Exact value;
    value.numerator_ = static_cast<std::uint64_t>(numerator);
    value.denominator_ = static_cast<std::uint64_t>(denominator);
    return value;
  }

  std::uint64_t numerator_ = 0;
  std::uint64_t denominator_ = 1;  // 0: invalid
};

}  // namespace liveset::model
