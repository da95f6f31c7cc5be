#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>

extern "C" {
int cublasLtMatrixLayoutCreate(void**, int, std::uint64_t, std::uint64_t, std::int64_t);
int cublasLtMatrixLayoutDestroy(void*);
int cublasLtMatrixLayoutSetAttribute(void*, int, const void*, std::size_t);
int cublasLtMatrixLayoutGetAttribute(void*, int, void*, std::size_t, std::size_t*);
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, void*, int*);
}

namespace {

TEST(CublasLt, LayoutKeepsItsAttributes) {
  void* layout = nullptr;
  ASSERT_EQ(cublasLtMatrixLayoutCreate(&layout, 14, 300, 200, 320), 0);
  std::uint64_t rows = 0;
  std::size_t written = 0;
  ASSERT_EQ(cublasLtMatrixLayoutGetAttribute(layout, 2, &rows, sizeof rows, &written), 0);
  EXPECT_EQ(rows, 300u);
  EXPECT_EQ(written, 8u);
  const std::int32_t batches = 7;
  ASSERT_EQ(cublasLtMatrixLayoutSetAttribute(layout, 5, &batches, sizeof batches), 0);
  std::int32_t back = 0;
  ASSERT_EQ(cublasLtMatrixLayoutGetAttribute(layout, 5, &back, sizeof back, nullptr), 0);
  EXPECT_EQ(back, 7);
  std::int32_t never_set = -1;
  ASSERT_EQ(cublasLtMatrixLayoutGetAttribute(layout, 1, &never_set, sizeof never_set, nullptr), 0);
  EXPECT_EQ(never_set, 0);
  EXPECT_EQ(cublasLtMatrixLayoutDestroy(layout), 0);
}

// The caller owns room for `requested` results of 96 bytes; only the first one may be written.
TEST(CublasLt, HeuristicGivesOneResult) {
  std::array<unsigned char, 2 * 96> results;
  results.fill(0xaa);
  int count = 0;
  ASSERT_EQ(cublasLtMatmulAlgoGetHeuristic(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 2, results.data(), &count), 0);
  EXPECT_EQ(count, 1);
  int status = -1;
  std::memcpy(&status, &results[72], sizeof status);
  EXPECT_EQ(status, 0);
  for (std::size_t i = 96; i < results.size(); i++) ASSERT_EQ(results[i], 0xaa) << i;
}

}  // namespace
