#include <gtest/gtest.h>

#include "tests/unit/standin/machine.h"

namespace standin {
namespace {

constexpr auto unit = VirtualMemory::granularity;

struct VirtualMemoryTest : testing::Test {
  Machine machine{small_device()};
  VirtualMemory& virtual_memory = machine.virtual_memory;
  Address base = 0;

  void SetUp() override { ASSERT_EQ(virtual_memory.reserve(8 * unit, 0, &base), success); }
  std::uint64_t create(std::size_t bytes) {
    std::uint64_t handle = 0;
    EXPECT_EQ(virtual_memory.create(0, bytes, &handle), success);
    return handle;
  }
};

TEST_F(VirtualMemoryTest, AHandleCostsMemoryUntilItIsReleasedAndUnmapped) {
  const auto handle = create(2 * unit);
  EXPECT_EQ(machine.memory.used(0), 2 * unit);
  ASSERT_EQ(virtual_memory.map(base, 2 * unit, 0, handle), success);
  EXPECT_EQ(virtual_memory.release(handle), success);
  EXPECT_EQ(virtual_memory.release(handle), invalid_value);
  EXPECT_EQ(machine.memory.used(0), 2 * unit);
  EXPECT_EQ(virtual_memory.unmap(base, 2 * unit), success);
  EXPECT_EQ(machine.memory.used(0), 0u);
}

TEST_F(VirtualMemoryTest, AMappedHandleCanBeTakenBackByAddress) {
  const auto handle = create(unit);
  ASSERT_EQ(virtual_memory.map(base, unit, 0, handle), success);
  ASSERT_EQ(virtual_memory.release(handle), success);
  std::uint64_t same = 0;
  ASSERT_EQ(virtual_memory.retain(base + 5, &same), success);
  EXPECT_EQ(same, handle);
  ASSERT_EQ(virtual_memory.unmap(base, unit), success);
  EXPECT_EQ(machine.memory.used(0), unit);
  EXPECT_EQ(virtual_memory.release(same), success);
  EXPECT_EQ(machine.memory.used(0), 0u);
  EXPECT_EQ(virtual_memory.retain(base, &same), invalid_value);
}

TEST_F(VirtualMemoryTest, MappingsKeepToTheirReservationAndApart) {
  const auto handle = create(2 * unit);
  EXPECT_EQ(virtual_memory.map(base + 7 * unit, 2 * unit, 0, handle), invalid_value);  // beyond the end
  EXPECT_EQ(virtual_memory.map(base + 5, unit, 0, handle), invalid_value);
  EXPECT_EQ(virtual_memory.map(base, unit + 1, 0, handle), invalid_value);
  EXPECT_EQ(virtual_memory.map(base, 3 * unit, 0, handle), invalid_value);  // more than the handle has
  EXPECT_EQ(virtual_memory.map(base, unit, 0, handle + 1), invalid_value);
  ASSERT_EQ(virtual_memory.map(base + unit, 2 * unit, 0, handle), success);
  EXPECT_EQ(virtual_memory.map(base + 2 * unit, unit, 0, handle), invalid_value);  // over another
  EXPECT_EQ(virtual_memory.map(base, 2 * unit, 0, handle), invalid_value);
  EXPECT_EQ(virtual_memory.map(base, unit, 0, handle), success);
}

TEST_F(VirtualMemoryTest, OnlyWholeMappingsAreUnmapped) {
  const auto first = create(unit), second = create(2 * unit);
  ASSERT_EQ(virtual_memory.map(base, unit, 0, first), success);
  ASSERT_EQ(virtual_memory.map(base + unit, 2 * unit, 0, second), success);
  EXPECT_EQ(virtual_memory.unmap(base, 2 * unit), invalid_value);
  EXPECT_EQ(virtual_memory.unmap(base + 2 * unit, unit), invalid_value);
  EXPECT_EQ(virtual_memory.set_access(base, 4 * unit, 0, 3), invalid_value);
  EXPECT_EQ(virtual_memory.set_access(base, 3 * unit, 0, 3), success);
  unsigned flags = 9;
  EXPECT_EQ(virtual_memory.access(base + unit, 0, &flags), success);
  EXPECT_EQ(flags, 3u);
  EXPECT_EQ(virtual_memory.unmap(base, 3 * unit), success);
  EXPECT_EQ(virtual_memory.unmap(base, unit), invalid_value);
}

TEST_F(VirtualMemoryTest, AReservationGoesWholeAndEmpty) {
  const auto handle = create(unit);
  ASSERT_EQ(virtual_memory.map(base, unit, 0, handle), success);
  EXPECT_EQ(virtual_memory.unreserve(base, 8 * unit), invalid_value);
  ASSERT_EQ(virtual_memory.unmap(base, unit), success);
  EXPECT_EQ(virtual_memory.unreserve(base, 4 * unit), invalid_value);
  EXPECT_EQ(virtual_memory.unreserve(base, 8 * unit), success);
  EXPECT_EQ(virtual_memory.unreserve(base, 8 * unit), invalid_value);
}

TEST_F(VirtualMemoryTest, SizesAreMultiplesOfTheGranularityAndTheDeviceEnds) {
  std::uint64_t handle = 0;
  Address address = 0;
  EXPECT_EQ(virtual_memory.create(0, unit - 1, &handle), invalid_value);
  EXPECT_EQ(virtual_memory.create(0, 0, &handle), invalid_value);
  EXPECT_EQ(virtual_memory.reserve(unit + 1, 0, &address), invalid_value);
  EXPECT_EQ(virtual_memory.create(0, device_bytes + unit, &handle), out_of_memory);
  create(device_bytes);
  EXPECT_EQ(virtual_memory.create(0, unit, &handle), out_of_memory);
}

}  // namespace
}  // namespace standin
