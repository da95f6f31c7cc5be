#include "viewer/ledger/quantity.h"

#include <gtest/gtest.h>

namespace liveset::ledger {
namespace {

std::string said(const Result<std::uint64_t>& result) { return result ? std::to_string(*result) : result.error().what; }

TEST(Quantity, UnitsOfBothKinds) {
  const std::pair<const char*, std::uint64_t> sizes[] = {{"0", 0},
                                                         {"1", 1},
                                                         {"8589934592", 8589934592},
                                                         {"512B", 512},
                                                         {"80GiB", 85899345920},
                                                         {"24GB", 24000000000},
                                                         {"24 gib", 25769803776},
                                                         {"1.5GiB", 1610612736},
                                                         {".5 KiB", 512},
                                                         {"16kib", 16384},
                                                         {"3MB", 3000000},
                                                         {"3kB", 3000},
                                                         {"1TiB", 1099511627776},
                                                         {"0.5", 0},
                                                         {"1.9999", 1},
                                                         {"4611686018427387904", 4611686018427387904}};
  for (const auto& [text, bytes] : sizes) EXPECT_EQ(said(parse_byte_size(text)), std::to_string(bytes)) << text;
}

// 0.3 and 9007199254740993 are no doubles.
TEST(Quantity, NumbersAreExact) {
  EXPECT_EQ(said(parse_byte_size("9007199254740993")), "9007199254740993");
  EXPECT_EQ(said(parse_byte_size("0.3KB")), "300");
  EXPECT_EQ(said(parse_byte_size("4503599.627370497GB")), "4503599627370497");
  EXPECT_EQ(said(parse_byte_size("1.00000000000000000000000000000000000000000000000000TiB")), "1099511627776");
  EXPECT_EQ(said(parse_byte_size("3.99999999999999999999999999999999999999999999999999")), "3");
}

// However many decimals there are, and wherever the first one that is not 0 stands.
TEST(Quantity, DecimalsWithoutEnd) {
  for (std::size_t zeros = 0; zeros <= 400; ++zeros) {
    const std::string none(zeros, '0');
    const auto is_none = [&](const std::string& number, const std::string& whole) {
      EXPECT_EQ(said(parse_byte_size(number)), whole) << number;
      EXPECT_EQ(said(parse_duration(number)), whole) << number;
      EXPECT_EQ(said(parse_byte_size(number + "B")), whole) << number;
      EXPECT_EQ(said(parse_duration(number + " ns")), whole) << number;
    };
    is_none("0." + none + "7", "0");
    is_none("." + none + "0", "0");
    is_none("42." + none + "9", "42");
    is_none(none + "42.", "42");
    EXPECT_EQ(said(parse_byte_size("0.5" + none + "TiB")), "549755813888");
    EXPECT_EQ(said(parse_byte_size("0." + none + "9TiB")),
              std::to_string(zeros < 12 ? (std::uint64_t{9} << 40) / std::stoull("10" + none) : 0));
    EXPECT_EQ(said(parse_duration("1." + none + "5s")),
              zeros < 9 ? "1" + std::string(zeros, '0') + "5" + std::string(8 - zeros, '0') : "1000000000");
  }
}

TEST(Quantity, Times) {
  EXPECT_EQ(said(parse_duration("5ms")), "5000000");
  EXPECT_EQ(said(parse_duration("0.25us")), "250");
  EXPECT_EQ(said(parse_duration("17")), "17");
  EXPECT_EQ(said(parse_duration("5MB")), "has the unknown unit 'MB'");
}

TEST(Quantity, WhatIsNoSize) {
  for (const char* text : {"", " ", "-1", "-1GiB", "+1", "GiB", ".", ".GiB", "nan", "inf"})
    EXPECT_EQ(said(parse_byte_size(text)), "must be a number") << text;
  for (const char* text : {"80G", "80Gb b", "80 GiB x", "1e9", "0x10", "1,000", "1.2.3", "5ms", "1GiB "})
    EXPECT_NE(said(parse_byte_size(text)).find("has the unknown unit '"), std::string::npos) << text;
  for (const char* text : {"4611686018427387905", "4194305TiB", "99999999999999999999", "1000000000000000000000000000000000000000000000"})
    EXPECT_EQ(said(parse_byte_size(text)), "is too large, at most 4611686018427387904") << text;
}

}  // namespace
}  // namespace liveset::ledger
