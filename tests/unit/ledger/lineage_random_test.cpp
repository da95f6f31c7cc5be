// Any order of regions, nodes and statements: what comes out keeps its promises.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "tests/support/torch_trace.h"
#include "tests/support/train_pattern.h"
#include "viewer/ledger/retention.h"
#include "viewer/trace/columns.h"

namespace liveset::ledger {
namespace {

using test::TorchTrace;

// What was said: of a DROP or a REMAKE where it was, and which block that is.
struct Statement {
  std::uint64_t time_ns;
  std::uint32_t thread, scope, block;
  std::int64_t index;
};

struct Said {
  std::vector<Statement> drops, remakes;
  std::vector<std::uint64_t> times;  // of the file's events: the writer adds the frees that are missing
};

std::vector<std::uint64_t> times_of(const trace::TraceFile& file) {
  std::vector<std::uint64_t> times;
  trace::Columns columns;
  for (std::size_t i = 0; i < file.chunks().size(); ++i) {
    if (!file.read_chunk(i, trace::column::time, columns)) return {};
    times.insert(times.end(), columns.time_ns.begin(), columns.time_ns.end());
  }
  return times;
}

// Speaks in no order at all: of a few addresses, regions, modules and nodes, in two threads.
Said speak(TorchTrace& trace, test::Random& random, std::size_t events) {
  Said said;
  std::map<std::uint64_t, std::uint32_t> blocks;  // the last block of an address
  std::uint32_t ordinal = 0;
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
      case 7: {
        const auto which = index();
        const auto where = address();
        const auto named = scope(), in = named != 0 ? named : trace.in_scope;
        const std::uint64_t event = trace.drop(which, where, in);
        if (blocks.contains(where)) said.drops.push_back({1000 * event, trace.thread, in, blocks[where], which});
        break;
      }
      case 8: trace.use(index(), scope(), "A.x"); break;
      case 9:
      case 10: {
        const auto which = index();
        const auto where = address();
        const auto named = scope(), in = named != 0 ? named : trace.in_scope;
        const std::uint64_t event = trace.remake(which, where, in, "A.x");
        if (blocks.contains(where)) said.remakes.push_back({1000 * event, trace.thread, in, blocks[where], which});
        break;
      }
      case 11: trace.keep(address(), "A.x", random.below(2) == 0 ? TorchTrace::float32 : TorchTrace::bfloat16); break;
      case 12: trace.graph_node("A", number()); break;
      case 13: trace.node_begin("A", number()); break;
      case 14: trace.node_end("A", number()); break;
      case 15: trace.mark(random.below(2) == 0 ? proto::EVENT_BACKWARD_BEGIN : proto::EVENT_BACKWARD_END); break;
      case 16: trace.say(proto::EVENT_STORAGE, address(), 0, scope(), "", proto::CLASS_CHECKPOINT_INPUT); break;
      case 17: trace.free(address()); break;
      default: {
        const auto where = address();
        trace.make(where, 8 * (1 + random.below(3)), scope());
        blocks[where] = ordinal++;
        break;
      }
    }
  }
  return said;
}

// Whether some slot of the value's region was dropped in the one block and said to be made again, by that region, in the other.
bool is_said(const Said& said, const Lineage& lineage, const RemadeValue& value) {
  const RecomputeRound& round = lineage.rounds[value.round];
  const CheckpointRegion& region = lineage.regions[round.region];
  for (const Statement& remake : said.remakes) {
    if (remake.block != value.block || remake.scope != region.scope || remake.thread != round.thread || remake.time_ns < round.begin_ns)
      continue;
    for (const Statement& drop : said.drops)
      if (drop.block == value.original && drop.index == remake.index && drop.index >= 0 &&
          drop.time_ns > said.times[region.forward_begin] && drop.time_ns < remake.time_ns)
        return true;
  }
  return false;
}

void check(const PhysicalLedger& ledger, const Lineage& lineage, const Said& said, std::size_t& by_position) {
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
    if (value.matched == Matched::position) {
      ++by_position;
      EXPECT_TRUE(is_said(said, lineage, value));
      EXPECT_EQ(value.guess,
                ledger.blocks.bytes(*ledger.blocks.find(value.original)) != ledger.blocks.bytes(*ledger.blocks.find(value.block)));
    }
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
  std::size_t by_position = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    test::Random random(seed);
    TorchTrace trace;
    Said said = speak(trace, random, 600);
    const trace::TraceFile file = trace.open();
    said.times = times_of(file);
    const Result<PhysicalLedger> ledger = build_physical(file);
    ASSERT_TRUE(ledger);
    for (const Range& range : {Range{}, Range{100, 400}}) {
      const Result<Lineage> lineage = trace_lineage(file, *ledger, {range, {}});
      ASSERT_TRUE(lineage);
      check(*ledger, *lineage, said, by_position);
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
  EXPECT_GT(by_position, 0U);  // it was put to the test
}

}  // namespace
}  // namespace liveset::ledger
