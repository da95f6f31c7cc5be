#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "profiler/channel/consumer.h"
#include "profiler/channel/producer.h"

namespace liveset::channel {
namespace {

class ChannelTest : public testing::Test {
 protected:
  static constexpr std::uint64_t capacity = 64;
  ChannelTest() : memory_((ring_data_offset + capacity * sizeof(Unit)) / sizeof(Unit)) { format_ring(memory_.data(), 3, capacity); }
  void* memory() { return memory_.data(); }
  std::uint64_t bytes() const { return memory_.size() * sizeof(Unit); }
  RingHeader& header() { return *static_cast<RingHeader*>(memory()); }

 private:
  std::vector<Unit> memory_;
};

TEST_F(ChannelTest, EveryUnitArrivesOnceAndInOrder) {
  constexpr std::uint64_t events = 200'000;
  Consumer consumer;
  ASSERT_TRUE(consumer.attach(memory(), bytes()));
  std::thread producing([this] {
    Producer ring;
    ring.attach(memory());
    for (std::uint64_t i = 0; i < events; ++i) {
      const std::uint32_t units = 1 + i % 3;
      while (!ring.has_space(units)) std::this_thread::yield();
      const std::uint64_t ticks = ring.open(ClockKind::monotonic);
      for (std::uint32_t unit = 0; unit < units; ++unit) ring.unit(unit) = {ticks, i, unit, 0, 0, 0, 0};
      ring.close(units);
    }
  });
  std::vector<Unit> taken;
  std::uint64_t seen = 0, next_unit = 0, last_ticks = 0;
  while (seen < events) {
    const Consumer::Look look = consumer.look();
    ASSERT_FALSE(look.damaged);
    taken.clear();
    consumer.take(look.units, taken);
    for (const Unit& unit : taken) {
      ASSERT_EQ(unit.a, seen);
      ASSERT_EQ(unit.b, next_unit);
      ASSERT_GE(unit.ticks, last_ticks);
      last_ticks = unit.ticks;
      if (++next_unit == 1 + seen % 3) next_unit = 0, ++seen;
    }
    if (taken.empty()) std::this_thread::yield();
  }
  producing.join();
  EXPECT_EQ(consumer.look().units, 0U);
}

TEST_F(ChannelTest, IsBusyFromBeforeTheStampUntilPublished) {
  Producer ring;
  ring.attach(memory());
  Consumer consumer;
  ASSERT_TRUE(consumer.attach(memory(), bytes()));
  EXPECT_FALSE(consumer.look().busy);
  ring.open(ClockKind::monotonic);
  EXPECT_TRUE(consumer.look().busy);
  EXPECT_EQ(consumer.look().units, 0U);
  ring.close(2);
  EXPECT_FALSE(consumer.look().busy);
  EXPECT_EQ(consumer.look().units, 2U);
}

TEST_F(ChannelTest, AFullRingTakesNothingMoreUntilItIsDrained) {
  Producer ring;
  ring.attach(memory());
  Consumer consumer;
  ASSERT_TRUE(consumer.attach(memory(), bytes()));
  for (std::uint64_t i = 0; i < capacity; ++i) {
    ASSERT_TRUE(ring.has_space(1));
    ring.open(ClockKind::monotonic);
    ring.close(1);
  }
  EXPECT_FALSE(ring.has_space(1));
  ring.drop();
  EXPECT_EQ(consumer.dropped(), 1U);
  std::vector<Unit> taken;
  consumer.take(10, taken);
  EXPECT_TRUE(ring.has_space(10));
  EXPECT_FALSE(ring.has_space(11));
}

TEST_F(ChannelTest, ASecondProducerGoesOnWhereTheFirstEnded) {
  Producer first;
  first.attach(memory());
  first.open(ClockKind::monotonic);
  first.unit(0).a = 1;
  first.close(1);
  Producer second;
  second.attach(memory());
  second.open(ClockKind::monotonic);
  second.unit(0).a = 2;
  second.close(1);
  Consumer consumer;
  ASSERT_TRUE(consumer.attach(memory(), bytes()));
  std::vector<Unit> taken;
  consumer.take(consumer.look().units, taken);
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[0].a, 1U);
  EXPECT_EQ(taken[1].a, 2U);
}

TEST_F(ChannelTest, AnOverwrittenHeaderIsSeenAndNotFollowed) {
  Consumer consumer;
  ASSERT_TRUE(consumer.attach(memory(), bytes()));
  header().head.store(~std::uint64_t{0} << 1);
  EXPECT_TRUE(consumer.look().damaged);
  EXPECT_EQ(consumer.look().units, 0U);
}

TEST_F(ChannelTest, MemoryThatHoldsNoRingIsRefused) {
  Consumer consumer;
  EXPECT_FALSE(consumer.attach(memory(), ring_data_offset - 1));
  EXPECT_FALSE(consumer.attach(memory(), ring_data_offset + (capacity - 1) * sizeof(Unit)));  // shorter than it says
  header().capacity = 63;
  EXPECT_FALSE(consumer.attach(memory(), bytes()));
  header().capacity = 0;
  EXPECT_FALSE(consumer.attach(memory(), bytes()));
  header().capacity = capacity;
  header().version += 1;
  EXPECT_FALSE(consumer.attach(memory(), bytes()));
}

TEST(ChannelLayout, UnitsOfValueEvents) {
  EXPECT_EQ(value_units(0), 2U);
  EXPECT_EQ(value_units(2), 2U);
  EXPECT_EQ(value_units(3), 3U);
  EXPECT_EQ(value_units(10), 3U);
  EXPECT_EQ(value_units(11), 4U);
}

}  // namespace
}  // namespace liveset::channel
