#include "viewer/ledger/driver_memory.h"

#include <gtest/gtest.h>

namespace liveset::ledger {
namespace {

using trace::Kind;

constexpr std::uint32_t allocator = 1, nccl = 2, other_device = 3, host = 4, arena = 5, managed = 6;

trace::Dictionary names(bool with_driver = true) {
  trace::Dictionary names;
  names.strings = {"", "cuda:0", "cuda:0/nccl", "cuda:1/nccl", "host/torch", "cuda:0/arena", "managed:0/program"};
  names.sources.resize(4);
  names.sources[1].name = "c10";
  names.sources[2].name = with_driver ? "driver" : "other";
  names.sources[3].name = "api";
  names.heaps = {{}, {1, 1, 1, 0}, {2, 2, 1, 0}, {3, 2, 1, 1}, {4, 2, 0, 0}, {5, 3, 1, 0}, {6, 2, 1, 0}};
  return names;
}

TEST(DriverMemory, SumsByDeviceAndTellsTheAllocatorApart) {
  DriverSums sums(names());
  sums.open_range(0);
  sums.add(Kind::segment_alloc, allocator, 100, 1);
  sums.add(Kind::segment_alloc, nccl, 30, 2);
  sums.add(Kind::segment_alloc, other_device, 7, 3);
  sums.add(Kind::segment_free, allocator, 100, 4);
  sums.add(Kind::segment_alloc, nccl, 20, 5);
  sums.add(Kind::segment_alloc, arena, 1000, 6);    // a program's own arena lies in what the driver gave: not counted again
  sums.add(Kind::segment_alloc, managed, 4000, 6);  // may lie on the host
  sums.add(Kind::host_alloc, host, 11, 7);
  sums.add(Kind::host_free, host, 11, 8);
  sums.add(Kind::host_register, host, 5, 9);
  const DriverMemory memory = sums.finish();
  EXPECT_TRUE(memory.known);
  ASSERT_EQ(memory.devices.size(), 2U);
  const DeviceMemory& first = memory.devices[0];
  EXPECT_EQ(first.held.peak, 130U);
  EXPECT_EQ(first.held.peak_event, 2U);
  EXPECT_EQ(first.held.final, 50U);
  EXPECT_EQ(first.outside_allocator.peak, 50U);
  EXPECT_EQ(first.outside_allocator.peak_event, 5U);
  EXPECT_EQ(first.managed.peak, 4000U);
  EXPECT_EQ(first.managed.final, 4000U);
  ASSERT_EQ(first.at_peak.size(), 2U);
  EXPECT_EQ(first.at_peak[0].bytes, 100U);
  EXPECT_EQ(first.at_peak[1].heap, nccl);
  EXPECT_EQ(first.at_peak[1].bytes, 30U);
  EXPECT_EQ(memory.devices[1].held.peak, 7U);
  EXPECT_EQ(memory.pinned_host.peak, 11U);
  EXPECT_EQ(memory.pinned_host.final, 0U);
  EXPECT_EQ(memory.registered_host.final, 5U);
}

TEST(DriverMemory, AHandleCountsOnceWhetherMappedOrNot) {
  DriverSums sums(names());
  sums.open_range(0);
  sums.add(Kind::handle_create, nccl, 40, 1);
  sums.add(Kind::segment_map, nccl, 40, 2);
  EXPECT_EQ(DriverSums(sums).finish().devices[0].held.peak, 40U);
  EXPECT_EQ(DriverSums(sums).finish().devices[0].held.peak_event, 1U);
  EXPECT_EQ(DriverSums(sums).finish().devices[0].unmapped_at_peak, 0U);
  sums.add(Kind::handle_release, nccl, 40, 3);  // mapped: the memory stays
  EXPECT_EQ(DriverSums(sums).finish().devices[0].held.final, 40U);
  sums.add(Kind::segment_unmap, nccl, 40, 4);
  EXPECT_EQ(DriverSums(sums).finish().devices[0].held.final, 0U);
  sums.add(Kind::handle_create, nccl, 60, 5);
  EXPECT_EQ(DriverSums(sums).finish().devices[0].unmapped_at_peak, 60U);
}

// Two handles, one of them never mapped; the other is released while it is mapped.
TEST(DriverMemory, HandlesWithoutMappingsAndMappingsWithoutHandlesAdd) {
  DriverSums sums(names());
  sums.open_range(0);
  sums.add(Kind::handle_create, nccl, 40, 1);
  sums.add(Kind::segment_map, nccl, 40, 2);
  sums.add(Kind::handle_release, nccl, 40, 3);
  sums.add(Kind::handle_create, nccl, 60, 4);
  const DeviceMemory both = DriverSums(sums).finish().devices[0];
  EXPECT_EQ(both.held.peak, 100U);
  EXPECT_EQ(both.unmapped_at_peak, 60U);
  EXPECT_FALSE(both.is_lower_bound);
  sums.add(Kind::segment_unmap, nccl, 40, 5);
  sums.add(Kind::handle_release, nccl, 60, 6);
  EXPECT_EQ(DriverSums(sums).finish().devices[0].held.final, 0U);
}

// The allocator's expandable segments, and NCCL: memory is unmapped and its handle released, in either order, while other memory stays.
TEST(DriverMemory, UsualOrdersLeaveNothingOpen) {
  DriverSums sums(names());
  sums.open_range(0);
  for (std::uint64_t event = 0; event < 6; event += 2) {
    sums.add(Kind::handle_create, allocator, 20, event);
    sums.add(Kind::segment_map, allocator, 20, event + 1);
  }
  sums.add(Kind::segment_unmap, allocator, 20, 7);
  sums.add(Kind::handle_release, allocator, 20, 8);
  EXPECT_EQ(DriverSums(sums).finish().devices[0].held.final, 40U);
  sums.add(Kind::handle_release, allocator, 20, 9);
  sums.add(Kind::segment_unmap, allocator, 20, 10);
  const DeviceMemory memory = sums.finish().devices[0];
  EXPECT_EQ(memory.held.peak, 60U);
  EXPECT_EQ(memory.held.final, 20U);
  EXPECT_FALSE(memory.is_lower_bound);
}

// A handle goes while three others are there, two of them not mapped: was it the mapped one?
TEST(DriverMemory, AnOpenQuestionMakesALowerBound) {
  DriverSums sums(names());
  sums.open_range(0);
  for (std::uint64_t event = 0; event < 3; ++event) sums.add(Kind::handle_create, nccl, 20, event);
  sums.add(Kind::segment_map, nccl, 20, 4);
  EXPECT_FALSE(DriverSums(sums).finish().devices[0].is_lower_bound);
  sums.add(Kind::handle_release, nccl, 20, 5);
  EXPECT_TRUE(DriverSums(sums).finish().devices[0].is_lower_bound);
  EXPECT_EQ(DriverSums(sums).finish().devices[0].held.final, 40U);
}

// How long the peak lasts: until something is given back, and anew with a higher one.
TEST(DriverMemory, TellsHowLongThePeakLasted) {
  DriverSums sums(names());
  sums.open_range(0);
  sums.add(Kind::segment_alloc, allocator, 100, 1);
  sums.add(Kind::segment_alloc, nccl, 30, 2);
  EXPECT_EQ(DriverSums(sums).finish().devices[0].held_until, no_event);
  sums.add(Kind::segment_free, nccl, 30, 3);
  sums.add(Kind::segment_alloc, nccl, 30, 4);
  const DeviceMemory memory = DriverSums(sums).finish().devices[0];
  EXPECT_EQ(memory.held.peak_event, 2U);
  EXPECT_EQ(memory.held_until, 3U) << "the first time at that height ended";
  EXPECT_TRUE(memory.at_peak[0].is_allocator);
  EXPECT_FALSE(memory.at_peak[1].is_allocator);
  sums.add(Kind::segment_alloc, allocator, 1, 5);
  EXPECT_EQ(DriverSums(sums).finish().devices[0].held_until, no_event);
}

// Memory that is unmapped after its handle is gone is given back: the state at the peak is still the one of the peak.
TEST(DriverMemory, WhatIsUnmappedAtThePeakIsNoPartOfIt) {
  DriverSums sums(names());
  sums.open_range(0);
  sums.add(Kind::handle_create, nccl, 40, 1);
  sums.add(Kind::segment_map, nccl, 40, 2);
  sums.add(Kind::handle_release, nccl, 40, 3);
  sums.add(Kind::segment_unmap, nccl, 40, 4);
  const DeviceMemory memory = sums.finish().devices[0];
  EXPECT_EQ(memory.held.peak, 40U);
  ASSERT_EQ(memory.at_peak.size(), 1U);
  EXPECT_EQ(memory.at_peak[0].bytes, 40U);
  EXPECT_EQ(memory.held_until, 4U);
}

// A trace may state anything; it must cost neither time nor memory nor a trap.
TEST(DriverMemory, StandsLies) {
  trace::Dictionary names;
  names.strings = {"", "x"};
  names.sources.resize(2);
  names.sources[1].name = "driver";
  names.heaps.resize(1);
  for (int device = -5; device < 100'000; ++device) names.heaps.push_back({1, 1, 1, device});
  DriverSums sums(names);
  sums.open_range(0);
  constexpr std::uint64_t most = ~std::uint64_t{0};
  for (const Kind kind : {Kind::segment_alloc, Kind::segment_map, Kind::handle_create, Kind::segment_free, Kind::segment_unmap,
                          Kind::handle_release, Kind::host_alloc, Kind::host_register}) {
    for (const std::uint64_t bytes : {most, most / 2, most / 2, std::uint64_t{1}}) {
      for (const std::uint32_t heap : {0U, 1U, 6U, 70U, 50'000U, 0xffffffffU}) sums.add(kind, heap, bytes, 1);
    }
  }
  EXPECT_EQ(sums.finish().devices.size(), 64U);
}

// As many peaks as events, over as many heaps as there can be.
TEST(DriverMemory, NotesPeaksOfManyHeaps) {
  trace::Dictionary names;
  names.strings = {"", "x"};
  names.sources.resize(2);
  names.sources[1].name = "driver";
  names.heaps.assign(4096, {1, 1, 1, 0});
  DriverSums sums(names);
  sums.open_range(0);
  for (std::uint64_t event = 0; event < 1'000'000; ++event)
    sums.add(Kind::segment_alloc, 1 + static_cast<std::uint32_t>(event % 4095), 2, event);
  const DeviceMemory memory = sums.finish().devices[0];
  EXPECT_EQ(memory.held.peak, 2'000'000U);
  std::uint64_t sum = 0;
  for (const HeapBytes& heap : memory.at_peak) sum += heap.bytes;
  EXPECT_EQ(sum, memory.held.peak);
}

TEST(DriverMemory, PeaksAreOfTheRange) {
  DriverSums sums(names());
  sums.add(Kind::segment_alloc, nccl, 90, 1);
  sums.add(Kind::segment_free, nccl, 80, 2);
  sums.open_range(3);
  EXPECT_EQ(DriverSums(sums).finish().devices[0].outside_allocator.peak, 10U);
  sums.add(Kind::segment_alloc, nccl, 5, 4);
  sums.close_range();
  sums.add(Kind::segment_alloc, nccl, 500, 5);
  const DriverMemory memory = sums.finish();
  EXPECT_EQ(memory.devices[0].outside_allocator.peak, 15U);
  EXPECT_EQ(memory.devices[0].outside_allocator.final, 515U);
}

// Without the driver's events nothing is known, which is not 0.
TEST(DriverMemory, IsUnknownWithoutTheDriver) {
  DriverSums sums(names(false));
  sums.open_range(0);
  sums.add(Kind::segment_alloc, allocator, 100, 1);
  const DriverMemory memory = sums.finish();
  EXPECT_FALSE(memory.known);
  EXPECT_TRUE(memory.devices.empty());
}

}  // namespace
}  // namespace liveset::ledger
