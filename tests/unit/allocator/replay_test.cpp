#include "viewer/allocator/replay.h"

#include <gmock/gmock.h>

namespace liveset::allocator {
namespace {

using testing::HasSubstr;

Event malloc(std::uint64_t id, std::uint64_t size, std::uint64_t stream = 0) { return {id, size, stream, Action::malloc}; }
Event free(std::uint64_t id) { return {id, 0, 0, Action::free}; }

// Three blocks of 6 MiB share a segment of 20 MiB; the one in the middle goes. What is left: 6 MiB and 2 MiB free, of which 6 in a row.
TEST(AllocatorReplay, FragmentationAtThePeakOfReserved) {
  const std::uint64_t six = 6 * mebibyte;
  const std::vector<Event> events = {malloc(0, six), malloc(1, six), malloc(2, six), free(1), malloc(3, 7 * mebibyte), free(3)};
  std::vector<Counters> seen;
  ReplayOptions options;
  options.visit = [&seen](std::uint64_t event, const Counters& counters) {
    EXPECT_EQ(event, seen.size());
    seen.push_back(counters);
  };
  const Result<ReplayResult> result = replay(events, options);
  ASSERT_TRUE(result);
  ASSERT_EQ(seen.size(), events.size());
  EXPECT_EQ(seen[2], (Counters{18 * mebibyte, 18 * mebibyte, 18 * mebibyte, 20 * mebibyte}));
  EXPECT_EQ(seen[5], (Counters{12 * mebibyte, 12 * mebibyte, 12 * mebibyte, 40 * mebibyte}));
  EXPECT_EQ(result->final, seen[5]);
  EXPECT_EQ(result->peaks.allocated.bytes, 19 * mebibyte);
  EXPECT_EQ(result->peaks.allocated.event, 4U);
  EXPECT_EQ(result->peaks.reserved.bytes, 40 * mebibyte);
  EXPECT_EQ(result->peaks.reserved.event, 4U);
  const Fragmentation& fragmentation = result->fragmentation;
  EXPECT_EQ(fragmentation.event, 4U);
  ASSERT_EQ(fragmentation.segments.size(), 2U);
  const FragmentedSegment& first = fragmentation.segments[0];
  EXPECT_EQ(first.size, 20 * mebibyte);
  EXPECT_EQ(first.used, 12 * mebibyte);
  EXPECT_EQ(first.free_bytes, 8 * mebibyte);
  EXPECT_EQ(first.largest_free, six);
  ASSERT_EQ(first.pins.size(), 2U);
  EXPECT_EQ(first.pins[0].id, 0U);
  EXPECT_EQ(first.pins[1].id, 2U);
  EXPECT_EQ(first.pins[1].address, first.address + 2 * six);
  EXPECT_EQ(fragmentation.segments[1].pins[0].id, 3U);
}

TEST(AllocatorReplay, AtAnEvent) {
  const std::vector<Event> events = {malloc(0, 1000), malloc(1, 1000), free(0), free(1)};
  ReplayOptions options;
  options.at = 2;
  Result<ReplayResult> result = replay(events, options);
  ASSERT_TRUE(result);
  ASSERT_EQ(result->fragmentation.segments.size(), 1U);
  EXPECT_EQ(result->fragmentation.segments[0].pins[0].id, 1U);
  EXPECT_EQ(result->fragmentation.segments[0].free_bytes, 2 * mebibyte - 1024);
  EXPECT_EQ(result->fragmentation.segments[0].largest_free, 2 * mebibyte - 2048);
  options.at = 100;  // after the end
  result = replay(events, options);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->fragmentation.event, 3U);
  EXPECT_EQ(result->fragmentation.segments[0].largest_free, 2 * mebibyte);
}

// record_stream: requested and allocated are told apart, and giving back waits for the other stream.
TEST(AllocatorReplay, BlocksInUseOnAnotherStream) {
  const std::vector<Event> events = {malloc(0, 1000),
                                     {0, 0, 0, Action::free_requested},
                                     malloc(1, 1000),
                                     {0, 0, 0, Action::empty_cache},
                                     {0, 0, 0, Action::free_completed}};
  Replay replay(2);
  ASSERT_TRUE(replay.add(events[0]));
  ASSERT_TRUE(replay.add(events[1]));
  EXPECT_EQ(replay.counters(), (Counters{1000, 0, 1024, 2 * mebibyte}));
  ASSERT_TRUE(replay.add(events[2]));
  const Fragmentation fragmentation = replay.fragmentation();
  ASSERT_EQ(fragmentation.segments[0].pins.size(), 2U);
  EXPECT_TRUE(fragmentation.segments[0].pins[0].pending);
  EXPECT_EQ(fragmentation.segments[0].pins[0].id, 0U);
  ASSERT_TRUE(replay.add(events[3]));
  EXPECT_EQ(replay.counters(), (Counters{1000, 1024, 1024, 2 * mebibyte}));
  ASSERT_TRUE(replay.add(events[4]));
  EXPECT_EQ(replay.idle_frees(), 1U);  // it was completed by then
}

TEST(AllocatorReplay, OutOfMemoryLeavesNothing) {
  ReplayOptions options;
  options.device.capacity = 30 * mebibyte;
  const Result<ReplayResult> result =
      replay(std::vector<Event>{malloc(0, 25 * mebibyte), malloc(1, 25 * mebibyte), free(1), free(0)}, options);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->statistics.out_of_memory, 1U);
  EXPECT_EQ(result->idle_frees, 1U);
  EXPECT_EQ(result->final.allocated, 0U);
}

TEST(AllocatorReplay, ListsThatMakeNoSense) {
  EXPECT_THAT(replay(std::vector<Event>{malloc(7, 1)}).error().message(), HasSubstr("event 0: allocation 7 is unknown"));
  EXPECT_THAT(replay(std::vector<Event>{malloc(0, 1), malloc(0, 1)}).error().message(), HasSubstr("event 1: allocation 0 lives already"));
  EXPECT_THAT(replay(std::vector<Event>{free(~std::uint64_t{0})}).error().message(), HasSubstr("is unknown"));
  const Result<ReplayResult> idle = replay(std::vector<Event>{free(0), malloc(0, 0), free(0)});
  ASSERT_TRUE(idle);
  EXPECT_EQ(idle->idle_frees, 2U);
  ASSERT_TRUE(replay({}));
  EXPECT_EQ(replay({})->fragmentation.event, Peak::no_event);
}

// No size, however large, makes sums overflow.
TEST(AllocatorReplay, SizesThatNoDeviceHas) {
  CachingAllocator allocator;
  for (const std::uint64_t size : {~std::uint64_t{0}, std::uint64_t{1} << 63, std::uint64_t{1} << 60})
    EXPECT_EQ(allocator.malloc(size).kind, Outcome::Kind::out_of_memory);
  EXPECT_EQ(allocator.counters(), Counters());
  for (int i = 0; i < 100; ++i) allocator.malloc((std::uint64_t{1} << 60) - 1);
  EXPECT_GE(allocator.statistics().out_of_memory, 90U);
  EXPECT_LE(allocator.counters().reserved, std::uint64_t{1} << 63);
  Settings settings;
  settings.expandable_segments = true;
  CachingAllocator expandable(settings);
  EXPECT_EQ(expandable.malloc(std::uint64_t{1} << 59).kind, Outcome::Kind::out_of_memory);
}

}  // namespace
}  // namespace liveset::allocator
