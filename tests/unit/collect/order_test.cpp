// The order step on sequences made by hand: 1000 ticks are one microsecond throughout.
#include "profiler/collect/order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>

#include "proto/trace.pb.h"

namespace liveset::collect {
namespace {

using channel::Unit;
using testing::ElementsAre;

constexpr std::uint64_t us = 1000;

// Writes each event as kind:address, and keeps what is live.
class Sink final : public OrderSink {
 public:
  void emit(std::uint32_t ring, const Unit* units, std::uint32_t count, std::uint64_t ticks) override {
    const int kind = units->kind & 0x7f;
    const bool alloc = kind == proto::EVENT_ALLOC, free = kind == proto::EVENT_FREE_REQUESTED;
    names.push_back(std::string(alloc ? "alloc" : free ? "free" : "other") + std::to_string(units->a));
    rings.push_back(ring);
    stamps.push_back(ticks);
    if (alloc && !live.insert({units->heap, units->a}).second) ++address_conflicts;
    if (free && live.erase({units->heap, units->a}) == 0) ++address_conflicts;
    if (count >= 2 && (alloc || free)) {
      channel::Extension extension;
      std::memcpy(&extension, units + 1, sizeof extension);
      auto& total = totals.try_emplace(units->heap, extension.allocated - (alloc ? units->b : -units->b)).first->second;
      total += alloc ? units->b : -units->b;
      if (total != extension.allocated) {
        ++mismatches;
        total = extension.allocated;
      }
    }
  }
  bool is_live(std::uint32_t heap, std::uint64_t address) const override { return live.count({heap, address}) != 0; }

  std::vector<std::string> names;
  std::vector<std::uint32_t> rings;
  std::vector<std::uint64_t> stamps;
  std::set<std::pair<std::uint32_t, std::uint64_t>> live;
  std::map<std::uint32_t, std::uint64_t> totals;
  int mismatches = 0, address_conflicts = 0;
};

class OrderTest : public testing::Test {
 protected:
  OrderTest() : orderer(sink, us) {
    for (int i = 0; i < 4; ++i) orderer.add_lane();
  }
  void add(std::uint32_t ring, int kind, std::uint64_t ticks, std::uint64_t address, std::uint64_t bytes = 0, std::int64_t total = -1) {
    auto& units = orderer.input(ring);
    const bool extended = total >= 0;
    units.push_back({ticks, address, bytes, 0, static_cast<std::uint8_t>(kind | (extended ? channel::kind_extended : 0)), 0, 1});
    if (extended) {
      const channel::Extension extension{static_cast<std::uint64_t>(total), 0, 0, 1};
      Unit unit;
      std::memcpy(&unit, &extension, sizeof unit);
      units.push_back(unit);
    }
    orderer.appended(ring);
  }
  void alloc(std::uint32_t ring, std::uint64_t ticks, std::uint64_t address, std::uint64_t bytes = 8, std::int64_t total = -1) {
    add(ring, proto::EVENT_ALLOC, ticks, address, bytes, total);
  }
  void free(std::uint32_t ring, std::uint64_t ticks, std::uint64_t address, std::uint64_t bytes = 8, std::int64_t total = -1) {
    add(ring, proto::EVENT_FREE_REQUESTED, ticks, address, bytes, total);
  }

  Sink sink;
  Orderer orderer;
};

TEST_F(OrderTest, StampsDecideBetweenRings) {
  alloc(0, 100 * us, 1);
  alloc(0, 300 * us, 3);
  alloc(1, 200 * us, 2);
  alloc(1, 400 * us, 4);
  orderer.advance(Orderer::everything);
  EXPECT_THAT(sink.names, ElementsAre("alloc1", "alloc2", "alloc3", "alloc4"));
  EXPECT_TRUE(orderer.empty());
}

TEST_F(OrderTest, NothingAtOrAfterTheBoundIsEmitted) {
  alloc(0, 100 * us, 1);
  alloc(1, 200 * us, 2);
  alloc(0, 300 * us, 3);
  orderer.advance(250 * us);
  EXPECT_THAT(sink.names, ElementsAre("alloc1", "alloc2"));
  // Ring 1 had nothing more; what comes there now is stamped after the bound and still sorts before 300.
  alloc(1, 260 * us, 4);
  orderer.advance(Orderer::everything);
  EXPECT_THAT(sink.names, ElementsAre("alloc1", "alloc2", "alloc4", "alloc3"));
}

TEST_F(OrderTest, AnEventThatIsNotAloneWaitsUntilItsNeighboursAreKnown) {
  alloc(0, 100 * us, 1);
  orderer.advance(105 * us);  // another thread's free of 1 may be stamped up to 10 us later
  EXPECT_TRUE(sink.names.empty());
  orderer.advance(111 * us);
  EXPECT_THAT(sink.names, ElementsAre("alloc1"));
}

TEST_F(OrderTest, StampsOfOneThreadNeverRunBackwards) {
  alloc(0, 500 * us, 1);
  alloc(0, 400 * us, 2);
  orderer.advance(Orderer::everything);
  EXPECT_THAT(sink.names, ElementsAre("alloc1", "alloc2"));
  EXPECT_THAT(sink.stamps, ElementsAre(500 * us, 500 * us));
}

TEST_F(OrderTest, AFreeGoesBeforeTheAllocationThatGotItsAddress) {
  alloc(0, 100 * us, 7);
  alloc(1, 200 * us, 7);  // ring 0 freed 7 before, its stamp is 2 us late
  free(0, 202 * us, 7);
  free(1, 300 * us, 7);
  orderer.advance(Orderer::everything);
  EXPECT_THAT(sink.names, ElementsAre("alloc7", "free7", "alloc7", "free7"));
  EXPECT_EQ(sink.address_conflicts, 0);
}

TEST_F(OrderTest, EventsOfTheSameThreadBeforeThatFreeGoFirstToo) {
  alloc(0, 100 * us, 7);
  alloc(1, 200 * us, 7);
  alloc(0, 201 * us, 9);
  free(0, 202 * us, 7);
  orderer.advance(Orderer::everything);
  EXPECT_THAT(sink.names, ElementsAre("alloc7", "alloc9", "free7", "alloc7"));
}

TEST_F(OrderTest, AnAllocationGoesBeforeAnotherThreadsFreeOfIt) {
  free(1, 199 * us, 7);
  alloc(0, 200 * us, 7);
  orderer.advance(Orderer::everything);
  EXPECT_THAT(sink.names, ElementsAre("alloc7", "free7"));
  EXPECT_EQ(sink.address_conflicts, 0);
}

TEST_F(OrderTest, ALostFreeIsNoReasonToWaitForever) {
  alloc(0, 100 * us, 7);
  alloc(1, 200 * us, 7);
  alloc(0, 205 * us, 8);
  orderer.advance(Orderer::everything);
  EXPECT_THAT(sink.names, ElementsAre("alloc7", "alloc7", "alloc8"));
}

TEST_F(OrderTest, AnAddressThatIsGivenOutTwiceHoldsNothingBack) {
  alloc(0, 100 * us, 7);
  alloc(0, 200 * us, 7);  // no total, so no event of a thread that lost its processor can be what is missing
  orderer.advance(300 * us);
  EXPECT_THAT(sink.names, ElementsAre("alloc7", "alloc7"));
}

TEST_F(OrderTest, TotalsDecideAgainstStamps) {
  // The allocator counted 1, then 2, then 3; thread 1 was stamped late.
  alloc(0, 100 * us, 1, 10, 10);
  alloc(1, 103 * us, 2, 20, 30);
  alloc(0, 102 * us, 3, 30, 60);
  orderer.advance(Orderer::everything);
  EXPECT_THAT(sink.names, ElementsAre("alloc1", "alloc2", "alloc3"));
  EXPECT_EQ(sink.mismatches, 0);
}

// The same over a longer time, with allocations that say the number of their node: that takes nothing from the time in which they may have
// happened.
TEST_F(OrderTest, TotalsDecideAlsoWhereBlocksSayTheirNode) {
  const auto numbered = [&](std::uint32_t ring, std::uint64_t ticks, std::uint64_t address, std::uint64_t total) {
    auto& units = orderer.input(ring);
    units.push_back({ticks, address, 8, 0, proto::EVENT_ALLOC | channel::kind_extended, 0, 1});
    const channel::Extension extension{total, 0, 0, channel::extension_has_totals | channel::extension_has_sequence};
    const channel::SequenceUnit sequence{7};
    units.resize(units.size() + 2);
    std::memcpy(&units[units.size() - 2], &extension, sizeof extension);
    std::memcpy(&units[units.size() - 1], &sequence, sizeof sequence);
    orderer.appended(ring);
  };
  numbered(0, 1 * us, 1, 8);
  numbered(1, 100 * us, 2, 24);
  numbered(0, 900 * us, 3, 16);
  numbered(1, 901 * us, 4, 32);
  orderer.advance(Orderer::everything);
  EXPECT_THAT(sink.names, ElementsAre("alloc1", "alloc3", "alloc2", "alloc4"));
  EXPECT_EQ(sink.mismatches, 0);
}

TEST_F(OrderTest, AThreadThatLostItsProcessorBeforeTheStampIsWaitedFor) {
  alloc(0, 100 * us, 1, 10, 10);
  alloc(0, 110 * us, 3, 30, 60);  // needs 2, which is stamped 8 ms later and is not even here yet
  alloc(0, 120 * us, 4, 40, 100);
  orderer.advance(1000 * us);
  EXPECT_THAT(sink.names, ElementsAre("alloc1"));
  alloc(1, 8000 * us, 2, 20, 30);
  orderer.advance(9000 * us);
  alloc(0, 400'000 * us, 5, 50, 150);  // both threads are beyond: nothing that is still to come can change the order
  alloc(1, 400'100 * us, 6, 60, 210);
  orderer.advance(500'000 * us);
  EXPECT_THAT(sink.names, ElementsAre("alloc1", "alloc2", "alloc3", "alloc4"));
  EXPECT_EQ(sink.mismatches, 0);
}

TEST_F(OrderTest, AfterASecondAMissingEventIsGivenUp) {
  alloc(0, 100 * us, 1, 10, 10);
  alloc(0, 110 * us, 3, 30, 60);  // an event of 20 bytes was lost
  orderer.advance(1'000'000 * us);
  EXPECT_THAT(sink.names, ElementsAre("alloc1"));
  orderer.advance(1'000'200 * us);
  EXPECT_THAT(sink.names, ElementsAre("alloc1", "alloc3"));
  EXPECT_EQ(sink.mismatches, 1);
}

TEST_F(OrderTest, TheEarliestFittingEventCanBeTheWrongOne) {
  // Taking the free of ring 1 first (it fits, 108 -> 100, and is stamped first) leaves ring 0's pair (100 -> 108 -> 116) without its
  // beginning later on: from 100, "total 108" fits, then "total 124, size 16" of ring 1 would not.
  alloc(2, 50 * us, 1, 100, 100);
  alloc(2, 60 * us, 2, 8, 108);
  free(1, 100 * us, 2, 8, 108);    // truly third: 116 -> 108
  alloc(0, 101 * us, 3, 8, 116);   // truly first: 108 -> 116
  alloc(1, 102 * us, 4, 16, 124);  // truly last: 108 -> 124
  orderer.advance(Orderer::everything);
  EXPECT_THAT(sink.names, ElementsAre("alloc1", "alloc2", "alloc3", "free2", "alloc4"));
  EXPECT_EQ(sink.mismatches, 0);
}

TEST_F(OrderTest, AWrongChoiceIsFoundOutLongAfterAndTakenBack) {
  // Threads 2 and 3 lost their processors before their stamps: 100 -> 164 -> 100, truly first. Taking thread 0's 100 -> 228 before is
  // consistent for a thousand events, in which the total never is 100 again.
  alloc(2, 10 * us, 8, 20, 20);
  alloc(3, 30 * us, 9, 30, 50);
  alloc(0, 50 * us, 1, 50, 100);
  alloc(0, 100 * us, 2, 128, 228);
  for (std::uint64_t i = 0; i < 500; ++i) {
    alloc(0, (200 + 20 * i) * us, 3, 64, 292);
    free(0, (210 + 20 * i) * us, 3, 64, 228);
  }
  alloc(2, 30'000 * us, 4, 64, 164);
  free(3, 40'000 * us, 4, 64, 100);
  orderer.advance(Orderer::everything);
  EXPECT_EQ(sink.names.size(), 1006U);
  EXPECT_EQ(sink.mismatches, 0);
}

TEST_F(OrderTest, WhereNothingAddsUpStampsDecideAndTheMismatchStaysVisible) {
  alloc(0, 100 * us, 1, 10, 10);
  alloc(1, 200 * us, 2, 20, 999);  // 979 bytes that nobody reported
  alloc(0, 300 * us, 3, 30, 1029);
  orderer.advance(Orderer::everything);
  EXPECT_THAT(sink.names, ElementsAre("alloc1", "alloc2", "alloc3"));
  EXPECT_EQ(sink.mismatches, 1);
}

TEST_F(OrderTest, ThreadsThatShareARingOneAfterTheOtherHaveLanesOfTheirOwn) {
  // Thread 2 allocated before thread 1's second allocation, but got its ring, and its stamp, only after thread 1 had ended.
  alloc(0, 100 * us, 1, 10, 10);
  alloc(0, 110 * us, 3, 30, 60);
  orderer.input(0).push_back({200 * us, 77, 2, 0, channel::kind_thread, 0, 1});  // 1: asked for by the event that follows
  orderer.input(0).push_back({});
  const std::uint32_t lane = orderer.appended(0);
  EXPECT_NE(lane, 0U);
  alloc(lane, 201 * us, 2, 20, 30);
  orderer.advance(Orderer::everything);
  EXPECT_THAT(sink.names, ElementsAre("alloc1", "other77", "alloc2", "alloc3"));
  EXPECT_EQ(sink.mismatches, 0);
  // The first one's lane is free for the next.
  orderer.input(lane).push_back({300 * us, 78, 3, 0, channel::kind_thread, 0, 0});
  orderer.input(lane).push_back({});
  alloc(lane, 301 * us, 4, 40, 100);
  orderer.advance(Orderer::everything);
  EXPECT_EQ(sink.names.back(), "alloc4");
}

TEST_F(OrderTest, AnEventThatIsCutOffIsCountedAndSkipped) {
  alloc(0, 100 * us, 1, 10, 10);
  orderer.input(0).push_back({200 * us, 2, 20, 0, proto::EVENT_ALLOC | channel::kind_extended, 0, 1});
  orderer.appended(0);
  orderer.advance(Orderer::everything);
  EXPECT_THAT(sink.names, ElementsAre("alloc1"));
  EXPECT_EQ(orderer.damaged_units(), 1U);
}

// A made-up allocator that counts under its lock: threads are stamped late by a random time, so that stamps and totals disagree. All
// must add up again. Odd seeds: three sizes, so that many orders fit for a while, and delays of microseconds. Even seeds: many sizes,
// and now and then a thread that is kept off its processor for milliseconds.
class OrderProperty : public testing::TestWithParam<int> {};

TEST_P(OrderProperty, EveryEventFitsAgain) {
  std::mt19937_64 random(static_cast<std::uint64_t>(GetParam()));
  const auto threads = static_cast<std::uint32_t>(2 + GetParam() % 7);
  const bool preempted = GetParam() % 2 == 0;
  Sink sink;
  Orderer orderer(sink, us);
  struct Made {
    std::uint64_t ticks;
    Unit unit, extension;
  };
  std::vector<std::vector<Made>> made(threads);
  std::vector<std::uint64_t> free_at(threads, 0);  // when the thread is through with its last call
  struct Block {
    std::uint64_t address, bytes;
  };
  std::vector<Block> live;
  std::vector<std::uint64_t> unused;
  std::uint64_t now = 1'000'000 * us, total = 0, next = 1, inversions = 0, last_stamp = 0;
  for (int i = 0; i < 20'000; ++i) {
    now += 1 + random() % (2 * us);
    // The thread of the event: one that is not still waiting to stamp its last one.
    std::uint32_t thread = static_cast<std::uint32_t>(random() % threads);
    for (std::uint32_t tries = 0; free_at[thread] > now && tries < threads; ++tries) thread = (thread + 1) % threads;
    now = std::max(now, free_at[thread] + 1);
    const bool alloc = live.size() < 5 || (live.size() < 60 && random() % 2 == 0);
    Block block{};
    if (alloc) {
      if (!unused.empty()) {
        block.address = unused.back();
        unused.pop_back();
      } else {
        block.address = next++;
      }
      block.bytes = preempted ? 64 * (1 + random() % 5000) : 64 << (random() % 3);
      total += block.bytes;
      live.push_back(block);
    } else {
      const std::size_t which = random() % live.size();
      block = live[which];
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
      total -= block.bytes;
    }
    const std::uint64_t delay = preempted && random() % 2000 == 0 ? random() % (8000 * us)
                                : random() % 20 == 0              ? random() % (3 * us)
                                                                  : random() % 200;
    const std::uint64_t stamp = now + delay;
    inversions += stamp < last_stamp ? 1 : 0;
    last_stamp = std::max(last_stamp, stamp);
    free_at[thread] = stamp;
    const channel::Extension extension{total, 0, 0, 1};
    Made event{
        stamp, {stamp, block.address, block.bytes, 0, static_cast<std::uint8_t>((alloc ? 1 : 2) | channel::kind_extended), 0, 1}, {}};
    std::memcpy(&event.extension, &extension, sizeof extension);
    made[thread].push_back(event);
    // A freed address may be given out only after its free was reported (that comes before the real free).
    if (!alloc) {
      unused.push_back(block.address);
      if (delay > 100 * us) unused.pop_back();
    }
  }
  EXPECT_GT(inversions, 100U);
  for (std::uint32_t thread = 0; thread < threads; ++thread) {
    orderer.add_lane();
    for (const Made& event : made[thread]) {
      orderer.input(thread).push_back(event.unit);
      orderer.input(thread).push_back(event.extension);
    }
    orderer.appended(thread);
  }
  orderer.advance(Orderer::everything);
  EXPECT_EQ(sink.names.size(), 20'000U);
  EXPECT_EQ(sink.mismatches, 0);
  EXPECT_TRUE(orderer.empty());
}

INSTANTIATE_TEST_SUITE_P(Seeds, OrderProperty, testing::Range(1, 41));

}  // namespace
}  // namespace liveset::collect
