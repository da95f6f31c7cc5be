// The accounting of the logical ledger, on sequences worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "viewer/ledger/logical.h"

namespace liveset::ledger {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Sequence {
  LogicalBuilder builder;

  std::uint32_t value(const char* name, std::uint64_t bytes, const char* group = "") {
    LogicalValue made;
    made.name = name;
    made.bytes = bytes;
    made.group = group;
    return builder.add_value(std::move(made));
  }
  void add(LogicalKind kind, std::uint32_t id, std::vector<std::uint32_t> reads = {}, trace::Phase phase = trace::Phase::forward) {
    LogicalInput input;
    input.kind = kind;
    input.value = id;
    input.reads = reads;
    input.phase = phase;
    builder.append(input);
  }
};

TEST(LogicalLedger, AliasesShareBytes) {
  Sequence s;
  const auto a = s.value("a", 100), view = s.value("view", 100);
  s.add(LogicalKind::create, a);
  s.add(LogicalKind::alias, view, {a});
  s.add(LogicalKind::release, a);  // the view still holds the storage
  s.add(LogicalKind::release, view);
  const LogicalLedger ledger = s.builder.finish();
  EXPECT_EQ(ledger.peak_ids, 2U);
  EXPECT_EQ(ledger.peak_bytes, 100U);
  EXPECT_EQ(ledger.events[2].live_ids, 1U);
  EXPECT_EQ(ledger.events[2].live_bytes, 100U);
  EXPECT_EQ(ledger.events[3].live_bytes, 0U);
  EXPECT_EQ(ledger.broken_count, 0U);
}

TEST(LogicalLedger, AStorageIsAwayOnceWhoeverOfItMoves) {
  Sequence s;
  const auto a = s.value("a", 100), view = s.value("view", 100), b = s.value("b", 7);
  s.add(LogicalKind::create, a);
  s.add(LogicalKind::alias, view, {a});
  s.add(LogicalKind::create, b);
  s.add(LogicalKind::offload, a);
  s.add(LogicalKind::offload, view);
  s.add(LogicalKind::offload, b);
  s.add(LogicalKind::prefetch, b);
  s.add(LogicalKind::prefetch, b);
  s.add(LogicalKind::release, a);
  s.add(LogicalKind::release, view);  // the last of the storage: nothing is away any more
  s.add(LogicalKind::release, b);
  const LogicalLedger ledger = s.builder.finish();
  std::vector<std::uint64_t> away;
  for (const LogicalEvent& event : ledger.events) away.push_back(event.away_bytes);
  EXPECT_THAT(away, ElementsAre(0, 0, 0, 100, 100, 107, 100, 100, 100, 0, 0));
  EXPECT_EQ(ledger.events[5].live_bytes, 107U) << "backward still needs what is away";
  EXPECT_TRUE(ledger.moves);
}

TEST(LogicalLedger, RerunMakesTheNextIncarnation) {
  Sequence s;
  const auto a = s.value("a", 8), b = s.value("b", 8);
  s.add(LogicalKind::create, a);
  s.add(LogicalKind::create, b, {a});
  s.add(LogicalKind::drop, b);
  s.add(LogicalKind::rerun, b, {a});
  s.add(LogicalKind::merge, b, {a});
  s.add(LogicalKind::release, b);
  s.add(LogicalKind::release, a);
  const LogicalLedger ledger = s.builder.finish();
  EXPECT_EQ(ledger.values[b].incarnation, 1U);
  EXPECT_EQ(ledger.forward_layers, 3U);
  EXPECT_EQ(ledger.events[4].live_ids, 2U);
  EXPECT_EQ(ledger.broken_count, 0U);
  EXPECT_THAT(ledger.live_at_end, IsEmpty());
}

TEST(LogicalLedger, CountsWhatBreaksTheRules) {
  Sequence s;
  const auto a = s.value("a", 8), b = s.value("b", 8);
  s.add(LogicalKind::create, a);
  s.add(LogicalKind::create, a);  // again while live
  s.add(LogicalKind::rerun, b);   // never dropped
  s.add(LogicalKind::release, a);
  s.add(LogicalKind::use, b, {a});  // use after release
  s.add(LogicalKind::release, a);   // twice
  s.add(LogicalKind::merge, a);     // not live
  s.add(LogicalKind::drop, b);
  s.add(LogicalKind::drop, b);  // twice
  const LogicalLedger ledger = s.builder.finish();
  EXPECT_EQ(ledger.broken_count, 6U);
  ASSERT_EQ(ledger.broken.size(), 6U);
  EXPECT_EQ(ledger.broken[0].event, 1U);
  EXPECT_THAT(ledger.broken[0].what, HasSubstr("create a: made although it is live"));
  EXPECT_THAT(ledger.broken[1].what, HasSubstr("rerun b: made again although it was never dropped"));
  EXPECT_THAT(ledger.broken[2].what, HasSubstr("use b: reads a value after its release"));
  EXPECT_EQ(ledger.events[1].live_ids, 1U);  // never counted twice
  EXPECT_EQ(ledger.events.back().live_ids, 1U);
}

TEST(LogicalLedger, LossHoldsWhatLivesAtItsFirstUse) {
  Sequence s;
  const auto a = s.value("a", 8), b = s.value("b", 8), c = s.value("c", 8);
  s.add(LogicalKind::create, a);
  s.add(LogicalKind::create, b, {a});
  s.add(LogicalKind::drop, a);
  s.add(LogicalKind::use, b, {b}, trace::Phase::loss);
  s.add(LogicalKind::create, c, {b}, trace::Phase::loss);
  s.add(LogicalKind::use, c, {c}, trace::Phase::loss);
  const LogicalLedger ledger = s.builder.finish();
  EXPECT_THAT(ledger.held_at_loss, ElementsAre(b));
  EXPECT_EQ(ledger.loss_event, 3U);
}

TEST(LogicalLedger, RangeOpensWithWhatLives) {
  Sequence s;
  const auto a = s.value("a", 8), b = s.value("b", 4);
  s.builder.set_keeping(false);
  s.add(LogicalKind::create, a);
  s.builder.set_keeping(true);
  s.add(LogicalKind::create, b, {a});
  s.add(LogicalKind::release, a);
  const LogicalLedger ledger = s.builder.finish();
  EXPECT_THAT(ledger.opening_live, ElementsAre(a));
  EXPECT_EQ(ledger.opening_bytes, 8U);
  ASSERT_EQ(ledger.events.size(), 2U);
  EXPECT_EQ(ledger.events[0].live_bytes, 12U);
  EXPECT_THAT(live_after(ledger, 0), ElementsAre(a, b));
  EXPECT_THAT(live_after(ledger, 1), ElementsAre(b));
  EXPECT_EQ(ledger.broken_count, 0U);
}

TEST(LogicalLedger, RegionCountsItsGroupsAtTheirMost) {
  Sequence s;
  const auto outside = s.value("outside", 8, "hidden"), inside = s.value("inside", 8, "hidden"), other = s.value("other", 8, "scores");
  s.add(LogicalKind::create, outside);
  const auto region = s.builder.begin_region("encode");
  s.add(LogicalKind::create, inside);
  s.add(LogicalKind::release, inside);
  s.add(LogicalKind::release, outside);
  s.add(LogicalKind::create, other);
  s.builder.set_attribute(region, "rows", "[0]");
  s.builder.end_region(region, trace::Phase::forward, 17, 3);
  s.builder.end_region(s.builder.begin_region("nothing said of it"), trace::Phase::forward, 18, 3);
  const LogicalLedger ledger = s.builder.finish();
  ASSERT_EQ(ledger.regions.size(), 1U);
  EXPECT_THAT(ledger.regions[0].group_live, ElementsAre(2, 1));
  EXPECT_EQ(ledger.events.back().kind, LogicalKind::region);
  EXPECT_EQ(ledger.events.back().trace_event, 17U);
  EXPECT_EQ(ledger.groups[0].peak_ids, 2U);
  EXPECT_EQ(ledger.groups[0].peak_bytes, 16U);
}

}  // namespace
}  // namespace liveset::ledger
