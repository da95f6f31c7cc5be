// Expressions of model files: their values by hand, and where a bad one is bad.
#include "viewer/model/expression.h"

#include <gtest/gtest.h>

namespace liveset::model {
namespace {

const Dims dims{{"N", 4194304}, {"s", 10}, {"t", 4}, {"_a1", 7}, {"big", INT64_MAX}};

std::string evaluated(std::string_view text) {
  const Result<std::int64_t> value = evaluate(text, dims);
  return value ? std::to_string(*value) : value.error().what;
}

TEST(Expression, ValuesByHand) {
  EXPECT_EQ(evaluated("4*N"), "16777216");
  EXPECT_EQ(evaluated("1 + 2 * 3"), "7");
  EXPECT_EQ(evaluated("(1 + 2) * 3"), "9");
  EXPECT_EQ(evaluated("10 - 4 - 3"), "3");
  EXPECT_EQ(evaluated("24 / 4 / 3"), "2");
  EXPECT_EQ(evaluated("s % t"), "2");
  EXPECT_EQ(evaluated("-3 + -_a1"), "-10");
  EXPECT_EQ(evaluated("--3"), "3");
  EXPECT_EQ(evaluated("ceil(s, t)"), "3");
  EXPECT_EQ(evaluated("ceil(8, t)"), "2");
  EXPECT_EQ(evaluated("ceil(0, t)"), "0");
  EXPECT_EQ(evaluated("max(min(s, t), 3)"), "4");
  EXPECT_EQ(evaluated("\t 1 "), "1");
  EXPECT_EQ(evaluated("big"), "9223372036854775807");
}

TEST(Expression, NothingOverflowsInSilence) {
  EXPECT_EQ(evaluated("9223372036854775808"), "at character 1: the number is above 2^63");
  EXPECT_EQ(evaluated("4611686018427387904*2"), "at character 20: the product is above 2^63");
  EXPECT_EQ(evaluated("big + 1"), "at character 5: the sum is above 2^63");
  EXPECT_EQ(evaluated("-big - 2"), "at character 6: the difference is below -2^63");
  EXPECT_EQ(evaluated("-(-big - 1)"), "at character 1: the result is above 2^63");
  EXPECT_EQ(evaluated("(-big - 1) / -1"), "at character 12: the quotient is above 2^63");
  EXPECT_EQ(evaluated("N*N*N"), "at character 4: the product is above 2^63");  // 2^66
}

TEST(Expression, DivisionsThatMeanNothing) {
  EXPECT_EQ(evaluated("1/0"), "at character 2: division by zero");
  EXPECT_EQ(evaluated("s % (t - 4)"), "at character 3: division by zero");
  EXPECT_EQ(evaluated("1 + ceil(s, 0)"), "at character 5: division by zero");
  EXPECT_EQ(evaluated("7/2"), "at character 2: 7 / 2 is no whole number; ceil(a, b) rounds up");
  EXPECT_EQ(evaluated("ceil(-1, 2)"), "at character 1: ceil takes no negative numbers");
}

TEST(Expression, SaysWhereItIsWrong) {
  EXPECT_EQ(evaluated("4*M"), "at character 3: unknown name 'M'");
  EXPECT_EQ(evaluated(""), "at character 1: is empty");
  EXPECT_EQ(evaluated("1 +"), "at character 4: a number or a name is missing");
  EXPECT_EQ(evaluated("(1"), "at character 3: ')' is missing");
  EXPECT_EQ(evaluated("1)"), "at character 2: ')' is not expected");
  EXPECT_EQ(evaluated("2 N"), "at character 3: 'N' is not expected");
  EXPECT_EQ(evaluated("max(1)"), "at character 6: ',' is missing");
  EXPECT_EQ(evaluated("1.5"), "at character 2: '.' is not expected");
}

TEST(Expression, DepthAndLengthAreBounded) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '(') + "1" + std::string(depth, ')'); };
  EXPECT_EQ(evaluated(nested(63)), "1");
  EXPECT_EQ(evaluated(nested(64)), "at character 65: is nested too deeply");
  EXPECT_EQ(evaluated(std::string(62, '-') + "1"), "1");
  EXPECT_EQ(evaluated(std::string(4000, '-') + "1"), "at character 65: is nested too deeply");
  EXPECT_EQ(evaluated(std::string(4097, ' ')), "is longer than 4096 characters");
}

TEST(Expression, NamesOfDimensions) {
  for (const char* good : {"N", "_", "a1", "ceiling", "min_"}) EXPECT_TRUE(is_dim_name(good)) << good;
  for (const char* bad : {"", "1a", "a-b", "ceil", "min", "max", "a b", "\xc3\xa9"}) EXPECT_FALSE(is_dim_name(bad)) << bad;
}

}  // namespace
}  // namespace liveset::model
