// Collectives of the stand-in NCCL: results of four ranks with equal data, worked out by hand.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "tests/unit/standin/libraries/fake_driver.h"

struct Identifier {
  char bytes[128];
};

extern "C" {
int ncclCommInitRankConfig(void**, int, Identifier, int, void*);
int ncclCommSplit(void*, int, int, void**, void*);
int ncclCommCount(const void*, int*);
int ncclCommUserRank(const void*, int*);
int ncclCommDestroy(void*);
int ncclGroupStart();
int ncclGroupEnd();
int ncclAllReduce(const void*, void*, std::size_t, int, int, void*, void*);
int ncclReduceScatter(const void*, void*, std::size_t, int, int, void*, void*);
int ncclAllGather(const void*, void*, std::size_t, int, void*, void*);
int ncclAlltoAll(const void*, void*, std::size_t, int, void*, void*);
int ncclSend(const void*, std::size_t, int, int, void*, void*);
int ncclRecv(void*, std::size_t, int, int, void*, void*);
int ncclMemAlloc(void**, std::size_t);
int ncclMemFree(void*);
}

namespace {

constexpr int int32 = 2, float32 = 7;
constexpr int sum = 0, product = 1, maximum = 2, mean = 4;

class Nccl : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(ncclCommInitRankConfig(&world_, 4, {}, 2, nullptr), 0); }
  void TearDown() override { EXPECT_EQ(ncclCommDestroy(world_), 0); }
  void* world_ = nullptr;  // rank 2 of 4
};

TEST_F(Nccl, KnowsRanks) {
  int ranks = 0, rank = -1;
  EXPECT_EQ(ncclCommCount(world_, &ranks), 0);
  EXPECT_EQ(ncclCommUserRank(world_, &rank), 0);
  EXPECT_EQ(ranks, 4);
  EXPECT_EQ(rank, 2);
  void* none = nullptr;
  EXPECT_NE(ncclCommInitRankConfig(&none, 4, {}, 4, nullptr), 0);
}

TEST_F(Nccl, AllReduceOfCounts) {
  const std::array<std::int32_t, 3> counts{1, 5, -2};
  std::array<std::int32_t, 3> result{};
  take_estimates();
  ASSERT_EQ(ncclAllReduce(counts.data(), result.data(), 3, int32, sum, world_, nullptr), 0);
  EXPECT_EQ(result, (std::array<std::int32_t, 3>{4, 20, -8}));
  ASSERT_EQ(ncclAllReduce(counts.data(), result.data(), 3, int32, product, world_, nullptr), 0);
  EXPECT_EQ(result, (std::array<std::int32_t, 3>{1, 625, 16}));
  ASSERT_EQ(ncclAllReduce(counts.data(), result.data(), 3, int32, maximum, world_, nullptr), 0);
  EXPECT_EQ(result, counts);
  EXPECT_EQ(take_estimates(), (std::map<std::string, int>{{"collective: ncclAllReduce", 3}}));
}

TEST_F(Nccl, ReduceInPlace) {
  float value = 1.5F;
  ASSERT_EQ(ncclAllReduce(&value, &value, 1, float32, sum, world_, nullptr), 0);
  EXPECT_EQ(value, 6.0F);
  ASSERT_EQ(ncclAllReduce(&value, &value, 1, float32, mean, world_, nullptr), 0);
  EXPECT_EQ(value, 6.0F);
}

TEST_F(Nccl, GatherAndScatterTouchExactlyTheirParts) {
  const std::array<std::int32_t, 2> mine{7, 8};
  std::array<std::int32_t, 9> all;
  all.fill(-1);
  ASSERT_EQ(ncclAllGather(mine.data(), all.data(), 2, int32, world_, nullptr), 0);
  EXPECT_EQ(all, (std::array<std::int32_t, 9>{7, 8, 7, 8, 7, 8, 7, 8, -1}));

  const std::array<std::int32_t, 8> parts{0, 1, 2, 3, 4, 5, 6, 7};
  std::array<std::int32_t, 3> part{-1, -1, -1};
  ASSERT_EQ(ncclReduceScatter(parts.data(), part.data(), 2, int32, sum, world_, nullptr), 0);
  EXPECT_EQ(part, (std::array<std::int32_t, 3>{16, 20, -1}));  // 4 * {4, 5}: the part of rank 2
  ASSERT_EQ(ncclAlltoAll(parts.data(), all.data(), 2, int32, world_, nullptr), 0);
  EXPECT_EQ(all, (std::array<std::int32_t, 9>{4, 5, 4, 5, 4, 5, 4, 5, -1}));
}

// An all-to-all by sends and receives, as PyTorch does it.
TEST_F(Nccl, ReceivesGetWhatTheOthersWouldSend) {
  const std::array<std::int32_t, 4> parts{10, 11, 12, 13};
  std::array<std::int32_t, 4> received{};
  ASSERT_EQ(ncclGroupStart(), 0);
  for (int peer = 0; peer < 4; peer++) {
    const auto at = static_cast<std::size_t>(peer);
    ASSERT_EQ(ncclSend(&parts[at], 1, int32, peer, world_, nullptr), 0);
    ASSERT_EQ(ncclRecv(&received[at], 1, int32, peer, world_, nullptr), 0);
  }
  ASSERT_EQ(ncclGroupEnd(), 0);
  EXPECT_EQ(received, (std::array<std::int32_t, 4>{12, 12, 12, 12}));
  EXPECT_NE(ncclGroupEnd(), 0);
}

// How many ranks gave the same colour is not known, so a result's other parts are left alone: the buffer may be smaller than four.
TEST_F(Nccl, SplitFillsItsOwnPartOnly) {
  void* pair = nullptr;
  ASSERT_EQ(ncclCommSplit(world_, 3, 1, &pair, nullptr), 0);
  int rank = -1;
  EXPECT_EQ(ncclCommUserRank(pair, &rank), 0);
  EXPECT_EQ(rank, 1);
  const std::int32_t mine = 9;
  std::array<std::int32_t, 3> both{-1, -1, -1};
  ASSERT_EQ(ncclAllGather(&mine, both.data(), 1, int32, pair, nullptr), 0);
  EXPECT_EQ(both, (std::array<std::int32_t, 3>{-1, 9, -1}));
  EXPECT_EQ(ncclCommDestroy(pair), 0);
  void* left_out = &pair;
  ASSERT_EQ(ncclCommSplit(world_, -1, 0, &left_out, nullptr), 0);
  EXPECT_EQ(left_out, nullptr);
}

TEST_F(Nccl, AllocatesThroughTheDriver) {
  void* address = nullptr;
  ASSERT_EQ(ncclMemAlloc(&address, 4096), 0);
  EXPECT_NE(address, nullptr);
  EXPECT_EQ(ncclMemFree(address), 0);
}

}  // namespace
