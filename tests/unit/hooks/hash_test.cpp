// Digests of strided tensors against the xxHash library, and figures against plain loops.
#include "hooks/python/hash.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace liveset::python {
namespace {

struct Shape {
  std::vector<std::uint64_t> sizes, strides;
};

Strided strided(const void* data, std::uint64_t item_bytes, const Shape& shape) {
  Strided tensor;
  tensor.data = static_cast<const unsigned char*>(data);
  tensor.item_bytes = item_bytes;
  tensor.dimensions = static_cast<int>(shape.sizes.size());
  for (std::size_t each = 0; each < shape.sizes.size(); ++each) {
    tensor.sizes[each] = shape.sizes[each];
    tensor.strides[each] = shape.strides[each];
  }
  return tensor;
}

// Element by element, by the definition of strides.
std::vector<unsigned char> gathered(const unsigned char* data, std::uint64_t item_bytes, const Shape& shape, std::size_t dimension = 0) {
  if (dimension == shape.sizes.size()) return {data, data + item_bytes};
  std::vector<unsigned char> bytes;
  for (std::uint64_t index = 0; index < shape.sizes[dimension]; ++index) {
    const auto inner = gathered(data + index * shape.strides[dimension] * item_bytes, item_bytes, shape, dimension + 1);
    bytes.insert(bytes.end(), inner.begin(), inner.end());
  }
  return bytes;
}

std::vector<unsigned char> noise(std::size_t bytes) {
  std::mt19937_64 random(7);
  std::vector<unsigned char> made(bytes);
  for (unsigned char& each : made) each = static_cast<unsigned char>(random());
  return made;
}

TEST(Hash, IsXxh64OfEveryLength) {
  const std::vector<unsigned char> bytes = noise(300);
  for (std::uint64_t length = 0; length <= bytes.size(); ++length)
    EXPECT_EQ(hash(strided(bytes.data(), 1, {{length}, {1}})), XXH64(bytes.data(), length, 0)) << length;
}

TEST(Hash, TakesElementsInTheOrderOfTheirIndices) {
  const std::vector<unsigned char> bytes = noise(1 << 20);
  const std::vector<Shape> shapes = {
      {{}, {}},                                     // a scalar
      {{0, 5}, {5, 1}},                             // empty
      {{7, 11}, {11, 1}},                           // contiguous
      {{11, 7}, {1, 11}},                           // transposed
      {{3, 1, 5}, {5, 99, 1}},                      // a stride that says nothing
      {{4, 6}, {0, 1}},                             // expanded
      {{5, 7, 3}, {100, 1, 13}},                    // padded and permuted
      {{2, 3, 4, 5}, {60, 20, 5, 1}},               // contiguous, of four
      {{2, 3, 4, 5}, {60, 1, 15, 3}},               // channels last
      {{9000}, {3}},                                // more than fits the buffer
      {{2, 2, 2, 2, 2, 2}, {1, 64, 2, 128, 4, 32}}  //
  };
  for (const Shape& shape : shapes) {
    for (const std::uint64_t item_bytes : {1, 2, 4, 8, 16}) {
      const auto expected = gathered(bytes.data(), item_bytes, shape);
      EXPECT_EQ(hash(strided(bytes.data(), item_bytes, shape)), XXH64(expected.data(), expected.size(), 0)) << item_bytes;
    }
  }
}

TEST(Hash, ElementsAreWrittenInTheSameOrder) {
  const std::vector<unsigned char> bytes = noise(1 << 18);
  const std::vector<Shape> shapes = {{{0, 5}, {5, 1}}, {{7, 11}, {11, 1}}, {{11, 7}, {1, 11}}, {{4, 6}, {0, 1}}, {{9000}, {3}}};
  for (const Shape& shape : shapes) {
    for (const std::uint64_t item_bytes : {1, 4, 8}) {
      const auto expected = gathered(bytes.data(), item_bytes, shape);
      std::FILE* file = std::tmpfile();
      ASSERT_NE(file, nullptr);
      EXPECT_TRUE(write_elements(strided(bytes.data(), item_bytes, shape), fileno(file)));
      std::rewind(file);
      std::vector<unsigned char> found(expected.size() + 1);
      found.resize(std::fread(found.data(), 1, found.size(), file));
      std::fclose(file);
      EXPECT_EQ(found, expected) << item_bytes;
    }
  }
  EXPECT_FALSE(write_elements(strided(bytes.data(), 1, {{9}, {1}}), -1));
}

TEST(Figures, CountWhatIsNotFiniteApart) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> wide = {3, -4, infinity, -infinity, std::nan(""), 0};
  const Figures found = figures(strided(wide.data(), 8, {{6}, {1}}), 8);
  EXPECT_TRUE(found.known);
  EXPECT_EQ(found.sum_of_squares, 25);
  EXPECT_EQ(found.max_abs, 4);
  EXPECT_EQ(found.not_finite, 3U);
  const std::vector<float> narrow = {1, 2, 3, 4};
  EXPECT_EQ(figures(strided(narrow.data(), 4, {{2}, {2}}), 7).sum_of_squares, 10);   // every second
  EXPECT_EQ(figures(strided(narrow.data(), 8, {{2}, {1}}), 10).sum_of_squares, 30);  // two complex numbers
  EXPECT_FALSE(figures(strided(narrow.data(), 1, {{2}, {1}}), 24).known);
  EXPECT_FALSE(figures(strided(narrow.data(), 1, {{0}, {1}}), 24).known);  // nor of none
  EXPECT_TRUE(figures(strided(narrow.data(), 4, {{0}, {1}}), 7).known);
}

TEST(Figures, ReadShortFloatsByTheirBits) {
  // float16: 1, -2, 65504, 2^-24 (the smallest), infinity; bfloat16: 1, -2, NaN
  const std::vector<std::uint16_t> halves = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x7c00};
  const Figures half = figures(strided(halves.data(), 2, {{5}, {1}}), 6);
  EXPECT_EQ(half.max_abs, 65504);
  EXPECT_EQ(half.not_finite, 1U);
  EXPECT_EQ(figures(strided(halves.data() + 3, 2, {{1}, {1}}), 6).max_abs, std::ldexp(1.0, -24));
  const std::vector<std::uint16_t> brains = {0x3f80, 0xc000, 0x7fc0};
  const Figures brain = figures(strided(brains.data(), 2, {{3}, {1}}), 16);
  EXPECT_EQ(brain.sum_of_squares, 5);
  EXPECT_EQ(brain.not_finite, 1U);
  const std::vector<std::int8_t> whole = {-128, 127};
  EXPECT_EQ(figures(strided(whole.data(), 1, {{2}, {1}}), 2).max_abs, 128);
}

}  // namespace
}  // namespace liveset::python
