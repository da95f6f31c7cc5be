#include <gtest/gtest.h>

#include "tests/unit/standin/machine.h"

namespace standin {
namespace {

struct PoolsTest : testing::Test {
  Machine machine{small_device()};
  Pools& pools = machine.pools;
  Pool* pool = pools.default_of(0);

  std::uint64_t number(PoolAttribute attribute) {
    std::uint64_t value = 0;
    EXPECT_EQ(pools.attribute(pool, attribute, &value), success);
    return value;
  }
  Address allocate(std::size_t bytes) {
    Address address = 0;
    EXPECT_EQ(pools.allocate(pool, bytes, &address), success);
    return address;
  }
};

TEST_F(PoolsTest, ReservesInChunksAndCountsWhatIsUsed) {
  allocate(1000);  // 1024 bytes
  EXPECT_EQ(number(PoolAttribute::used_current), 1024u);
  EXPECT_EQ(number(PoolAttribute::reserved_current), 32 * mebibyte);
  EXPECT_EQ(machine.memory.used(0), 32 * mebibyte);
  allocate(40 * mebibyte);
  EXPECT_EQ(number(PoolAttribute::reserved_current), 96 * mebibyte);
}

TEST_F(PoolsTest, KeepsWhatIsFreedUntilTheProgramWaits) {
  const auto address = allocate(10 * mebibyte);
  EXPECT_EQ(pools.free(address), success);
  EXPECT_EQ(pools.free(address), invalid_value);
  EXPECT_EQ(number(PoolAttribute::reserved_current), 32 * mebibyte);
  EXPECT_EQ(allocate(10 * mebibyte), address);
  EXPECT_EQ(pools.free(address), success);
  pools.synchronized(0);
  EXPECT_EQ(number(PoolAttribute::reserved_current), 0u);
  EXPECT_EQ(machine.memory.used(0), 0u);
  EXPECT_EQ(number(PoolAttribute::used_high), 10 * mebibyte);
  EXPECT_EQ(number(PoolAttribute::reserved_high), 32 * mebibyte);
}

TEST_F(PoolsTest, TheThresholdIsKeptAcrossWaitsAndTrimIsNot) {
  std::uint64_t threshold = UINT64_MAX, zero = 0, one = 1;
  ASSERT_EQ(pools.set_attribute(pool, PoolAttribute::release_threshold, &threshold), success);
  ASSERT_EQ(pools.free(allocate(mebibyte)), success);
  pools.synchronized(0);
  EXPECT_EQ(number(PoolAttribute::reserved_current), 32 * mebibyte);
  EXPECT_EQ(pools.trim(pool, 0), success);
  EXPECT_EQ(number(PoolAttribute::reserved_current), 0u);
  EXPECT_EQ(pools.set_attribute(pool, PoolAttribute::used_high, &one), invalid_value);
  EXPECT_EQ(pools.set_attribute(pool, PoolAttribute::used_high, &zero), success);
  EXPECT_EQ(number(PoolAttribute::used_high), 0u);
}

TEST_F(PoolsTest, AChunkInUseStays) {
  const auto first = allocate(20 * mebibyte), second = allocate(20 * mebibyte);
  EXPECT_EQ(pools.free(first), success);
  pools.synchronized(0);
  EXPECT_EQ(number(PoolAttribute::reserved_current), 32 * mebibyte);
  EXPECT_EQ(pools.free(second), success);
}

TEST_F(PoolsTest, FreedNeighboursBecomeOne) {
  const auto first = allocate(10 * mebibyte), second = allocate(10 * mebibyte), third = allocate(12 * mebibyte);
  EXPECT_EQ(pools.free(first), success);
  EXPECT_EQ(pools.free(third), success);
  EXPECT_EQ(pools.free(second), success);
  EXPECT_EQ(allocate(32 * mebibyte), first);
}

TEST_F(PoolsTest, EndsAtTheDevicesAndAtItsOwnSize) {
  Address address = 0;
  EXPECT_EQ(pools.allocate(pool, device_bytes + 1, &address), out_of_memory);
  Pool* own = nullptr;
  ASSERT_EQ(pools.create(0, 64 * mebibyte, &own), success);
  EXPECT_EQ(pools.allocate(own, 65 * mebibyte, &address), out_of_memory);
  EXPECT_EQ(pools.allocate(own, 64 * mebibyte, &address), success);
  EXPECT_EQ(pools.allocate(own, 1, &address), out_of_memory);
}

TEST_F(PoolsTest, ADestroyedPoolIsGoneWhenItsLastAllocationIs) {
  Pool* own = nullptr;
  ASSERT_EQ(pools.create(0, 0, &own), success);
  ASSERT_EQ(pools.set_current(0, own), success);
  EXPECT_EQ(pools.current_of(0), own);
  Address address = 0;
  ASSERT_EQ(pools.allocate(own, mebibyte, &address), success);
  EXPECT_EQ(pools.destroy(own), success);
  EXPECT_EQ(pools.current_of(0), pool);
  EXPECT_EQ(pools.destroy(own), invalid_value);
  Address none = 0;
  EXPECT_EQ(pools.allocate(own, mebibyte, &none), invalid_value);
  EXPECT_EQ(machine.memory.used(0), 32 * mebibyte);
  EXPECT_EQ(pools.free(address), success);
  EXPECT_EQ(machine.memory.used(0), 0u);
  EXPECT_EQ(pools.destroy(pool), invalid_value);  // a device keeps its default pool
}

// A chunk that went back is no memory any more: nobody may touch what was written there.
TEST_F(PoolsTest, WhatWasWrittenInAChunkIsForgottenWithIt) {
  Address address = 0;
  ASSERT_EQ(machine.pools.allocate(pool, mebibyte, &address), success);
  machine.memory.fill(address, 7, 1, 100);
  ASSERT_EQ(machine.pools.free(address), success);
  ASSERT_EQ(machine.pools.trim(pool, 0), success);
  machine.memory.forget(address, mebibyte);
  EXPECT_EQ(machine.memory.used(0), 0u);
}

}  // namespace
}  // namespace standin
