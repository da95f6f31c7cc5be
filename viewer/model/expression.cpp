#include "viewer/model/expression.h"

#include <charconv>

namespace liveset::model {
namespace {

constexpr int max_depth = 64;
constexpr std::size_t max_text = 4096;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Parser {
 public:
  Parser(std::string_view text, const Dims& dims) : text_(text), dims_(dims) {}

  Result<std::int64_t> run() {
    if (text_.size() > max_text) return Error{ErrorKind::unreadable, "", {}, "is longer than 4096 characters", ""};
    const std::int64_t value = sum();
    skip();
    if (wrong_.empty() && at_ != text_.size()) fail(text_.empty() ? "is empty" : "'" + std::string(1, text_[at_]) + "' is not expected");
    if (!wrong_.empty()) return Error{ErrorKind::unreadable, "", {}, wrong_, ""};
    return value;
  }

 private:
  std::int64_t fail(const std::string& what) { return fail_at(at_, what); }
  std::int64_t fail_at(std::size_t at, const std::string& what) {
    if (wrong_.empty()) wrong_ = "at character " + std::to_string(at + 1) + ": " + what;
    return 0;
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(std::string("'") + c + "' is missing");
  }

  std::int64_t sum() {
    if (++depth_ > max_depth) fail("is nested too deeply");
    std::int64_t value = wrong_.empty() ? product() : 0;
    while (wrong_.empty()) {
      const std::size_t at = at_;
      if (take('+')) {
        if (__builtin_add_overflow(value, product(), &value)) fail_at(at, "the sum is above 2^63");
      } else if (take('-')) {
        if (__builtin_sub_overflow(value, product(), &value)) fail_at(at, "the difference is below -2^63");
      } else {
        break;
      }
    }
    --depth_;
    return value;
  }

  std::int64_t product() {
    std::int64_t value = factor();
    while (wrong_.empty()) {
      skip();
      const std::size_t at = at_;
      if (take('*')) {
        if (__builtin_mul_overflow(value, factor(), &value)) fail_at(at, "the product is above 2^63");
      } else if (take('/') || take('%')) {
        const bool remainder = text_[at] == '%';
        value = divided(value, factor(), remainder, at);
      } else {
        break;
      }
    }
    return value;
  }

  std::int64_t divided(std::int64_t value, std::int64_t by, bool remainder, std::size_t at) {
    if (!wrong_.empty()) return 0;
    if (by == 0) return fail_at(at, "division by zero");
    if (value == INT64_MIN && by == -1) return fail_at(at, "the quotient is above 2^63");
    if (remainder) return value % by;
    if (value % by != 0)
      return fail_at(at, std::to_string(value) + " / " + std::to_string(by) + " is no whole number; ceil(a, b) rounds up");
    return value / by;
  }

  std::int64_t factor() {
    skip();
    if (at_ >= text_.size()) return fail(text_.empty() ? "is empty" : "a number or a name is missing");
    if (take('(')) {
      const std::int64_t value = sum();
      expect(')');
      return value;
    }
    if (text_[at_] == '-') {
      const std::size_t at = at_++;
      if (++depth_ > max_depth) return fail("is nested too deeply");
      const std::int64_t value = factor();
      --depth_;
      if (value == INT64_MIN) return fail_at(at, "the result is above 2^63");
      return -value;
    }
    if (is_digit(text_[at_])) return number();
    if (is_letter(text_[at_])) return name();
    return fail("'" + std::string(1, text_[at_]) + "' is not expected");
  }

  std::int64_t number() {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) return fail("the number is above 2^63");
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

  std::int64_t name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word == "ceil" || word == "min" || word == "max") return function(word, begin);
    const auto found = dims_.find(word);
    if (found == dims_.end()) return fail_at(begin, "unknown name '" + std::string(word) + "'");
    return found->second;
  }

  std::int64_t function(std::string_view word, std::size_t begin) {
    expect('(');
    const std::int64_t a = sum();
    expect(',');
    const std::int64_t b = sum();
    expect(')');
    if (!wrong_.empty()) return 0;
    if (word == "min") return a < b ? a : b;
    if (word == "max") return a > b ? a : b;
    if (b == 0) return fail_at(begin, "division by zero");
    if (b < 0 || a < 0) return fail_at(begin, "ceil takes no negative numbers");
    return a / b + (a % b != 0 ? 1 : 0);
  }

  std::string_view text_;
  const Dims& dims_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::string wrong_;
};

}  // namespace

Result<std::int64_t> evaluate(std::string_view text, const Dims& dims) { return Parser(text, dims).run(); }

bool is_dim_name(std::string_view name) {
  if (name.empty() || !is_letter(name.front()) || name == "ceil" || name == "min" || name == "max") return false;
  for (const char c : name)
    if (!is_letter(c) && !is_digit(c)) return false;
  return true;
}

}  // namespace liveset::model
