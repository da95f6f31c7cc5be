#include "profiler/collect/clock_map.h"

#include <gtest/gtest.h>

namespace liveset::collect {
namespace {

// A counter of 2 ticks a nanosecond whose first reading is 1,000,000 at 5 s.
constexpr std::uint64_t ticks_at(std::uint64_t ns) { return 1'000'000 + (ns - 5'000'000'000) * 2; }

TEST(ClockMap, FollowsTheTwoFirstPairs) {
  ClockMap map;
  map.start({ticks_at(5'000'000'000), 5'000'000'000}, {ticks_at(5'010'000'000), 5'010'000'000});
  EXPECT_DOUBLE_EQ(map.ns_per_tick(), 0.5);
  EXPECT_EQ(map.to_ns(ticks_at(5'000'000'000)), 5'000'000'000U);
  EXPECT_EQ(map.to_ns(ticks_at(6'234'567'890)), 6'234'567'890U);
  EXPECT_EQ(map.to_ns(ticks_at(4'999'999'000)), 4'999'999'000U);  // a little before the first pair
}

TEST(ClockMap, ErasesAnErrorWithinASecondWithoutAJump) {
  ClockMap map;
  // The second pair was read 1,000 ns late: the first rate is wrong by 1 in 10,000.
  map.start({ticks_at(5'000'000'000), 5'000'000'000}, {ticks_at(5'010'000'000), 5'010'001'000});
  const std::uint64_t pair_ticks = ticks_at(6'000'000'000);
  const std::uint64_t before = map.to_ns(pair_ticks);
  EXPECT_NEAR(static_cast<double>(before), 6'000'100'000.0, 1.0);
  map.add({pair_ticks, 6'000'000'000});
  EXPECT_NEAR(static_cast<double>(map.to_ns(pair_ticks)), static_cast<double>(before), 1.0);
  EXPECT_NEAR(static_cast<double>(map.to_ns(ticks_at(7'000'000'000))), 7'000'000'000.0, 2.0);
  // Events stamped before the pair keep the time that they would have had.
  EXPECT_NEAR(static_cast<double>(map.to_ns(ticks_at(5'500'000'000))), 5'500'050'000.0, 1.0);
}

TEST(ClockMap, NeverRunsBackwards) {
  ClockMap map;
  map.start({ticks_at(5'000'000'000), 5'000'000'000}, {ticks_at(5'001'000'000), 5'001'030'000});
  std::uint64_t last = 0;
  for (std::uint64_t ns = 5'000'000'000; ns < 15'000'000'000; ns += 9'999'991) {
    // Readings that are off by up to 20 us, both ways.
    if (ns % 100 < 12) map.add({ticks_at(ns), ns + ns % 40'000 - 20'000});
    const std::uint64_t mapped = map.to_ns(ticks_at(ns));
    EXPECT_GE(mapped, last);
    last = mapped;
  }
}

TEST(ClockMap, ASuspendedMachineDoesNotTurnTimeAround) {
  ClockMap map;
  map.start({ticks_at(5'000'000'000), 5'000'000'000}, {ticks_at(5'010'000'000), 5'010'000'000});
  map.add({ticks_at(6'000'000'000), 6'000'000'000});
  map.add({ticks_at(3'606'000'000'000), 7'000'000'000});  // the counter went on for an hour, CLOCK_MONOTONIC stood
  const std::uint64_t then = map.to_ns(ticks_at(3'606'000'000'000));
  EXPECT_GT(map.to_ns(ticks_at(3'606'500'000'000)), then);
}

}  // namespace
}  // namespace liveset::collect
