#include "profiler/launch/byte_size.h"

#include <gtest/gtest.h>

namespace liveset::launch {
namespace {

TEST(ByteSize, UnitsOfBothKinds) {
  EXPECT_EQ(parse_byte_size("1"), 1);
  EXPECT_EQ(parse_byte_size("8589934592"), 8589934592);
  EXPECT_EQ(parse_byte_size("512B"), 512);
  EXPECT_EQ(parse_byte_size("80GiB"), 85899345920);
  EXPECT_EQ(parse_byte_size("24GB"), 24000000000);
  EXPECT_EQ(parse_byte_size("24 gib"), 25769803776);
  EXPECT_EQ(parse_byte_size("1.5GiB"), 1610612736);
  EXPECT_EQ(parse_byte_size("16kib"), 16384);
  EXPECT_EQ(parse_byte_size("3MB"), 3000000);
  EXPECT_EQ(parse_byte_size("1TiB"), 1099511627776);
}

TEST(ByteSize, WhatIsNoSize) {
  for (const char* text : {"",
                           " ",
                           "0",
                           "0GiB",
                           "0.0",
                           "-1",
                           "-1GiB",
                           "+1",
                           "GiB",
                           "80G",
                           "80Gb b",
                           "80 GiB x",
                           "1e9",
                           "0x10",
                           "nan",
                           "inf",
                           "1,000",
                           "1024TiB",
                           "99999999999999999999",
                           "0.5"}) {
    EXPECT_EQ(parse_byte_size(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace liveset::launch
