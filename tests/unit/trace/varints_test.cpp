#include "viewer/trace/varints.h"

#include <gmock/gmock.h>

#include <random>

#include "tests/support/trace_builder.h"

namespace liveset::trace {
namespace {

template <class T>
bool decode(std::string bytes, std::vector<T>& out, std::uint64_t& all) {
  const std::size_t size = bytes.size();
  bytes.append(8, '\xff');  // what lies behind must not matter
  const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return decode_varints(begin, begin + size, out.data(), out.size(), all);
}

TEST(Varints, EveryLengthAtItsBounds) {
  std::vector<std::uint64_t> values{0, ~std::uint64_t{0}};
  for (unsigned bit = 0; bit < 64; ++bit) {
    for (const std::int64_t near : {-1, 0, 1}) values.push_back((std::uint64_t{1} << bit) + static_cast<std::uint64_t>(near));
  }
  std::string bytes;
  for (const std::uint64_t value : values) bytes += test::varint_bytes(value);
  std::vector<std::uint64_t> out(values.size());
  std::uint64_t all = 0;
  ASSERT_TRUE(decode(bytes, out, all));
  EXPECT_EQ(out, values);
}

TEST(Varints, MixedLengthsAtEveryPhaseOfTheEightByteStep) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint64_t> values(round);
    std::string bytes;
    for (std::uint64_t& value : values) {
      value = random() >> (random() % 8 == 0 ? random() % 64 : 57 + random() % 7);
      bytes += test::varint_bytes(value);
    }
    std::vector<std::uint64_t> out(values.size());
    std::uint64_t all = 0;
    ASSERT_TRUE(decode(bytes, out, all));
    EXPECT_EQ(out, values);
  }
}

TEST(Varints, ThatDoNotFillTheirBytesExactly) {
  std::uint64_t all = 0;
  std::vector<std::uint64_t> two(2), one(1);
  EXPECT_FALSE(decode(std::string("\x01", 1), two, all)) << "one number where two are stated";
  EXPECT_FALSE(decode(std::string("\x01\x02", 2), one, all)) << "two numbers where one is stated";
  EXPECT_FALSE(decode(std::string("\x01\x82", 2), two, all)) << "torn";
  EXPECT_FALSE(decode(std::string(9, '\x80') + '\x02', one, all)) << "more than 64 bits";
  EXPECT_FALSE(decode(std::string(11, '\x80'), one, all)) << "endless";
}

TEST(Varints, SayWhenTheyWereCut) {
  std::vector<std::uint32_t> out(1);
  std::uint64_t all = 0;
  ASSERT_TRUE(decode(test::varint_bytes(std::uint64_t{1} << 32), out, all));
  EXPECT_EQ(all >> 32, 1);
}

TEST(Zigzag, IsItsOwnInverseAtTheBounds) {
  for (const std::int64_t value : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1}, INT64_MAX, INT64_MIN}) {
    EXPECT_EQ(proto::unzigzag(proto::zigzag(value)), value);
  }
  EXPECT_EQ(proto::zigzag(-1), 1);
  EXPECT_EQ(proto::zigzag(1), 2);
}

TEST(WireReader, RefusesWhatIsTornOrMalformed) {
  const auto fields = [](const std::string& bytes) {
    WireReader reader({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
    int count = 0;
    while (reader.next()) ++count;
    return reader.ok() ? count : -1;
  };
  EXPECT_EQ(fields(""), 0);
  EXPECT_EQ(fields(std::string("\x08\x01\x12\x02hi", 6)), 2);
  EXPECT_EQ(fields(std::string("\x12\x05hi", 4)), -1) << "length beyond the end";
  EXPECT_EQ(fields(std::string("\x08", 1)), -1) << "number missing";
  EXPECT_EQ(fields(std::string("\x09\x01\x02", 3)), -1) << "fixed64 torn";
  EXPECT_EQ(fields(std::string("\x0b", 1)), -1) << "a group";
  EXPECT_EQ(fields(std::string("\x00\x01", 2)), -1) << "field 0";
  EXPECT_EQ(fields("\x12" + std::string(9, '\xff') + "\x01"), -1) << "a length of nearly 2^64";
}

}  // namespace
}  // namespace liveset::trace
