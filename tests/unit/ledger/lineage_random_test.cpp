// Any order of regions, nodes and statements: what comes out keeps its promises.
#include <gtest/gtest.h>

#include <set>

#include "tests/support/torch_trace.h"
#include "tests/support/train_pattern.h"
#include "viewer/ledger/retention.h"

namespace liveset::ledger {
namespace {

using test::TorchTrace;

// Speaks in no order at all: of a few addresses, regions, modules and nodes, in two threads.
void speak(TorchTrace& trace, test::Random& random, std::size_t events) {
  std::vector<std::uint32_t> scopes{0};
  for (int i = 0; i < 3; ++i) scopes.push_back(trace.region("checkpoint:" + std::to_string(i), scopes.back()));
  for (int i = 0; i < 3; ++i) scopes.push_back(trace.module("m" + std::to_string(i), scopes[static_cast<std::size_t>(i)]));
  const auto scope = [&] { return scopes[random.below(scopes.size())]; };
  const auto address = [&] { return 0x1000 * (1 + random.below(12)); };
  const auto index = [&] { return static_cast<std::int64_t>(random.below(5)) - 1; };
  const auto number = [&] { return static_cast<std::int64_t>(random.below(6)) - 1; };
  for (std::size_t i = 0; i < events; ++i) {
    trace.thread = 1 + static_cast<std::uint32_t>(random.below(8) == 0);
    if (random.below(6) == 0) trace.phase = static_cast<int>(random.below(6));
    trace.in_scope = scope();
    switch (random.below(20)) {
      case 0: trace.step(static_cast<std::int64_t>(i)); break;
      case 1: trace.begin(scope()); break;
      case 2: trace.begin_again(scope()); break;
      case 3:
      case 4: trace.end(scope()); break;
      case 5: trace.attribute(random.below(2) == 0 ? "checkpoint" : "recompute", "{}"); break;
      case 6:
      case 7: trace.drop(index(), address(), scope()); break;
      case 8: trace.use(index(), scope(), "A.x"); break;
      case 9:
      case 10: trace.remake(index(), address(), scope(), "A.x"); break;
      case 11: trace.keep(address(), "A.x", random.below(2) == 0 ? TorchTrace::float32 : TorchTrace::bfloat16); break;
      case 12: trace.graph_node("A", number()); break;
      case 13: trace.node_begin("A", number()); break;
      case 14: trace.node_end("A", number()); break;
      case 15: trace.mark(random.below(2) == 0 ? proto::EVENT_BACKWARD_BEGIN : proto::EVENT_BACKWARD_END); break;
      case 16: trace.say(proto::EVENT_STORAGE, address(), 0, scope(), "", proto::CLASS_CHECKPOINT_INPUT); break;
      case 17: trace.free(address()); break;
      default: trace.make(address(), 8 * (1 + random.below(3)), scope()); break;
    }
  }
}

void check(const PhysicalLedger& ledger, const Lineage& lineage) {
  std::uint64_t unmatched = 0, remade = 0;
  std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
  for (const RemadeValue& value : lineage.values) {
    const RecomputeRound& round = lineage.rounds[value.round];
    EXPECT_TRUE(seen.emplace(value.round, value.block).second) << "one value of a block in a recompute";
    EXPECT_GE(ledger.blocks.find(value.block)->birth, round.begin);  // one without a region begins with its first block
    remade += ledger.blocks.bytes(*ledger.blocks.find(value.block));
    unmatched += value.original == no_block;
    EXPECT_EQ(value.matched == Matched::none, value.original == no_block);
    if (value.original == no_block) continue;
    EXPECT_NE(value.original, value.block);
    if (value.matched == Matched::order) {
      EXPECT_EQ(ledger.blocks.bytes(*ledger.blocks.find(value.original)), ledger.blocks.bytes(*ledger.blocks.find(value.block)));
    }
  }
  EXPECT_EQ(unmatched, lineage.unmatched_blocks);
  std::uint64_t of_rounds = 0;
  for (const RecomputeRound& round : lineage.rounds) {
    ASSERT_LT(round.region, lineage.regions.size());
    EXPECT_LE(round.begin, round.end);
    EXPECT_LE(round.begin_ns, round.end_ns);
    of_rounds += round.remade_bytes;
  }
  EXPECT_EQ(of_rounds, remade);
  for (const CheckpointRegion& region : lineage.regions) EXPECT_EQ(region.dropped_bytes, region.not_held_bytes + region.still_live_bytes);
}

TEST(RandomLineage, KeepsItsPromises) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    test::Random random(seed);
    TorchTrace trace;
    speak(trace, random, 600);
    const trace::TraceFile file = trace.open();
    const Result<PhysicalLedger> ledger = build_physical(file);
    ASSERT_TRUE(ledger);
    for (const Range& range : {Range{}, Range{100, 400}}) {
      const Result<Lineage> lineage = trace_lineage(file, *ledger, {range, {}});
      ASSERT_TRUE(lineage);
      check(*ledger, *lineage);
      const Result<Retention> found = trace_retention(file, *ledger, *lineage, {range, 0, 0, {}});
      ASSERT_TRUE(found);
      for (const OverdueBlock& block : found->overdue) {
        EXPECT_LT(block.block, ledger->blocks.end());
        EXPECT_GT(block.held_ns, 0U);
        EXPECT_TRUE(block.used);
      }
      for (const OverdueBlock& block : found->unused) EXPECT_FALSE(block.used);
    }
  }
}

}  // namespace
}  // namespace liveset::ledger
