// What regions gave up and made again, and which original each remade block replaces.
#include "viewer/ledger/lineage.h"

#include <gmock/gmock.h>

#include "tests/support/torch_trace.h"

namespace liveset::ledger {
namespace {

using test::TorchTrace;
using testing::ElementsAre;

Lineage lineage_of(TorchTrace& trace, const LineageOptions& options = {}) {
  const trace::TraceFile file = trace.open();
  Result<PhysicalLedger> ledger = build_physical(file);
  if (!ledger) throw std::runtime_error(ledger.error().message());
  Result<Lineage> lineage = trace_lineage(file, *ledger, options);
  if (!lineage) throw std::runtime_error(lineage.error().message());
  return std::move(*lineage);
}

// value -> original, by ordinals of the allocations
std::vector<std::pair<std::uint32_t, std::uint32_t>> links(const Lineage& lineage) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> found;
  for (const RemadeValue& value : lineage.values) found.emplace_back(value.block, value.original);
  return found;
}

std::pair<std::uint32_t, std::uint32_t> link(std::uint32_t value, std::uint32_t original) { return {value, original}; }

// Allocations: 0 weight, 1 input, 2 and 3 activations that the region gives up, 4 its output.
struct OneRegion : testing::Test {
  OneRegion() {
    model = trace.module("GPT");
    region = trace.region("checkpoint:0", model);
    block = trace.module("block", region);
    linear = trace.module("fc", block);
    trace.make(0x1000, 400);
    trace.step(5);
    trace.phase = proto::PHASE_FORWARD;
    trace.begin(model);
    trace.make(0x2000, 64, model);
    forward_begin = trace.begin(region);
    trace.attribute("checkpoint", R"({"kind":"non_reentrant"})");
    trace.make(0x3000, 100, linear);
    trace.drop(0, 0x2000, linear);  // the input
    trace.drop(1, 0x1000, linear);  // the weight
    trace.drop(2, 0x3000, linear);
    trace.make(0x4000, 200, block);
    trace.drop(3, 0x4000, block);
    trace.drop(4, 0x4000, block);  // another view of it
    trace.make(0x5000, 64, block);
    trace.free(0x3000);
    trace.free(0x4000);
    forward_end = trace.end(region, model);
    trace.end(model);
  }
  void walk() {
    trace.say(proto::EVENT_STORAGE, 0x2000, TorchTrace::facts(TorchTrace::float32), region, "", proto::CLASS_CHECKPOINT_INPUT);
    trace.graph_node("AddmmBackward0", 7);
    trace.use(2, region, "AddmmBackward0.mat1");
    trace.graph_node("MulBackward0", 8);
    trace.use(3, region, "MulBackward0.self");
    trace.use(4, region, "MulBackward0.other");
    trace.backward(2);
    trace.phase = proto::PHASE_BACKWARD;
  }
  // Makes slots 2, 3 and 4 again at other addresses.
  void again(std::uint64_t base, const std::string& outcome = "") {
    trace.begin_again(region);
    trace.make(base, 100, linear);
    trace.make(base + 0x1000, 200, block);
    trace.remake(0, 0x2000, region);
    trace.remake(1, 0x1000, region);
    trace.remake(2, base, region);
    trace.remake(3, base + 0x1000, region);
    trace.remake(4, base + 0x1000, region);
    trace.end_again(region, outcome);
  }
  TorchTrace trace;
  std::uint32_t model = 0, region = 0, block = 0, linear = 0;
  std::uint64_t forward_begin = 0, forward_end = 0;
};

TEST_F(OneRegion, EachRemadeBlockHasTheOriginalOfItsSlot) {
  walk();
  again(0x8000, R"({"early_stopped":true})");
  const Lineage lineage = lineage_of(trace);
  EXPECT_THAT(links(lineage), ElementsAre(link(5, 2), link(6, 3)));
  EXPECT_EQ(lineage.values[0].matched, Matched::position);
  EXPECT_EQ(lineage.values[0].scope, linear);
  EXPECT_EQ(lineage.values[0].slots, 1U);
  EXPECT_EQ(lineage.values[1].slots, 2U);
  EXPECT_EQ(lineage.values[1].dtype, TorchTrace::float32);
  EXPECT_FALSE(lineage.values[1].guess);
  EXPECT_EQ(lineage.reused_slots, 2U);  // the input and the weight
  EXPECT_EQ(lineage.unmatched_blocks, 0U);
  EXPECT_EQ(lineage.stray_statements, 0U);
}

TEST_F(OneRegion, NamesBeyondTheLimitAreSaidToBeLeftOut) {
  walk();
  again(0x8000);
  EXPECT_EQ(lineage_of(trace).left_out, 0U);
  LineageOptions options;
  options.max_names = 0;
  const Lineage lineage = lineage_of(trace, options);
  EXPECT_EQ(lineage.left_out, 3U);  // of slots 2, 3 and 4
  EXPECT_THAT(links(lineage), ElementsAre(link(5, 2), link(6, 3)));
  EXPECT_EQ(lineage.values[0].slot, 0U);
}

TEST_F(OneRegion, SumsCountEachStorageOnce) {
  walk();
  again(0x8000);
  const Lineage lineage = lineage_of(trace);
  ASSERT_EQ(lineage.regions.size(), 1U);
  const CheckpointRegion& found = lineage.regions[0];
  EXPECT_EQ(found.step, 5);
  EXPECT_EQ(found.forward_begin, forward_begin);
  EXPECT_EQ(found.forward_end, forward_end);
  EXPECT_EQ(found.inner, block);
  EXPECT_EQ(found.slots, 5U);
  EXPECT_EQ(found.dropped_blocks, 4U);
  EXPECT_EQ(found.dropped_bytes, 64U + 400 + 100 + 200);
  EXPECT_EQ(found.not_held_bytes, 300U);
  EXPECT_EQ(found.still_live_bytes, 464U);
  EXPECT_TRUE(found.held_stated);
  EXPECT_EQ(found.held_bytes(), 64U);
  EXPECT_EQ(found.rounds, 1U);
  ASSERT_EQ(lineage.rounds.size(), 1U);
  EXPECT_EQ(lineage.rounds[0].remade_blocks, 2U);
  EXPECT_EQ(lineage.rounds[0].remade_bytes, 300U);
  EXPECT_EQ(lineage.rounds[0].end_ns - lineage.rounds[0].begin_ns, 8000U);  // 8 events later
}

TEST_F(OneRegion, ASecondRecomputeIsTheSecondIncarnation) {
  walk();
  again(0x8000);
  again(0xa000);
  const Lineage lineage = lineage_of(trace);
  EXPECT_THAT(links(lineage), ElementsAre(link(5, 2), link(6, 3), link(7, 2), link(8, 3)));
  EXPECT_EQ(lineage.rounds[0].number, 1U);
  EXPECT_EQ(lineage.rounds[1].number, 2U);
  EXPECT_EQ(lineage.regions[0].rounds, 2U);
}

TEST_F(OneRegion, WhatLivesOnIsNotSaved) {
  // As in the fixture, but slot 3 is held by something: it was never freed.
  TorchTrace held;
  const auto checkpoint = held.region("checkpoint:0");
  held.step(0);
  held.phase = proto::PHASE_FORWARD;
  held.begin(checkpoint);
  held.make(0x1000, 100, checkpoint);
  held.drop(0, 0x1000, checkpoint);
  held.end(checkpoint);
  held.backward(1);
  held.begin_again(checkpoint);
  held.make(0x2000, 100, checkpoint);
  held.remake(0, 0x2000, checkpoint);
  held.end_again(checkpoint);
  held.free(0x1000);
  const Lineage lineage = lineage_of(held);
  EXPECT_EQ(lineage.regions[0].not_held_bytes, 0U);
  ASSERT_EQ(lineage.still_live.size(), 1U);
  EXPECT_EQ(lineage.still_live[0].block, 0U);
  EXPECT_THAT(links(lineage), ElementsAre(link(1, 0)));
}

TEST_F(OneRegion, WithoutARecomputeTheNextBackwardDecides) {
  walk();
  const Lineage lineage = lineage_of(trace);
  EXPECT_EQ(lineage.regions[0].rounds, 0U);
  EXPECT_EQ(lineage.regions[0].not_held_bytes, 300U);
  EXPECT_TRUE(lineage.values.empty());
}

TEST_F(OneRegion, ARecomputeThatTheTraceDoesNotEndIsUnfinished) {
  walk();
  trace.begin_again(region);
  trace.make(0x8000, 100, linear);
  const Lineage lineage = lineage_of(trace);
  ASSERT_EQ(lineage.rounds.size(), 1U);
  EXPECT_TRUE(lineage.rounds[0].unfinished);
  EXPECT_TRUE(lineage.values.empty());
}

TEST_F(OneRegion, ASlotThatForwardDidNotStateIsUnmatched) {
  walk();
  trace.begin_again(region);
  trace.make(0x8000, 100, linear);
  trace.remake(9, 0x8000, region);
  trace.end_again(region);
  const Lineage lineage = lineage_of(trace);
  EXPECT_THAT(links(lineage), ElementsAre(link(5, no_block)));
  EXPECT_EQ(lineage.unmatched_blocks, 1U);
  EXPECT_EQ(lineage.unmatched_bytes, 100U);
}

TEST_F(OneRegion, ABlockOfAnotherSizeIsAGuess) {
  walk();
  trace.begin_again(region);
  trace.make(0x8000, 100, linear);
  trace.make(0x9000, 104, linear);
  trace.make(0xa000, 8, linear);
  trace.remake(2, 0x8000, region);
  trace.remake(3, 0x9000, region);
  trace.remake(9, 0xa000, region);
  trace.end_again(region);
  const Lineage lineage = lineage_of(trace);
  EXPECT_THAT(links(lineage), ElementsAre(link(5, 2), link(6, 3), link(7, no_block)));
  EXPECT_FALSE(lineage.values[0].guess);
  EXPECT_EQ(lineage.values[1].matched, Matched::position);
  EXPECT_TRUE(lineage.values[1].guess);
  EXPECT_FALSE(lineage.values[2].guess);
}

TEST_F(OneRegion, WhatIsSaidOfAnotherRegionIsNotOfTheLastRecompute) {
  const auto other = trace.region("checkpoint:1");
  walk();
  trace.begin_again(region);
  trace.make(0x8000, 100, linear);
  trace.make(0x9000, 200, linear);
  trace.remake(2, 0x8000, region);
  trace.end_again(region);
  trace.remake(3, 0x9000, other);  // that one is not open
  trace.remake(-1, 0x9000, other, "A.x");
  trace.remake(3, 0x9000, region);  // this one has just ended
  Lineage lineage = lineage_of(trace);
  EXPECT_EQ(lineage.stray_statements, 2U);
  EXPECT_THAT(links(lineage), ElementsAre(link(5, 2), link(6, 3)));
}

TEST_F(OneRegion, ARangeThatItIsNotInLeavesItOut) {
  walk();
  again(0x8000);
  LineageOptions options;
  options.range = {forward_begin + 1, Range::open_end};
  const Lineage lineage = lineage_of(trace, options);
  EXPECT_TRUE(lineage.regions.empty());
  EXPECT_TRUE(lineage.values.empty());
  EXPECT_EQ(lineage.stray_statements, 0U);
}

TEST_F(OneRegion, TheNextStepsRegionIsAnother) {
  walk();
  again(0x8000);
  trace.free(0x8000);
  trace.free(0x9000);
  trace.step(6);
  trace.phase = proto::PHASE_FORWARD;
  trace.begin(region);
  trace.make(0x3000, 100, linear);
  trace.drop(0, 0x3000, linear);
  trace.end(region);
  trace.free(0x3000);
  trace.backward(1);
  trace.begin_again(region);
  trace.make(0x8000, 100, linear);
  trace.remake(0, 0x8000, region);
  trace.end_again(region);
  const Lineage lineage = lineage_of(trace);
  ASSERT_EQ(lineage.regions.size(), 2U);
  EXPECT_EQ(lineage.regions[1].step, 6);
  EXPECT_EQ(lineage.regions[1].rounds, 1U);
  EXPECT_EQ(lineage.regions[1].not_held_bytes, 100U);
  EXPECT_THAT(links(lineage), ElementsAre(link(5, 2), link(6, 3), link(8, 7)));
}

// Slots out of order, of one index, spoken of again and again: the work stays in proportion to the trace.
TEST(HostileLineage, WorkIsInProportionToTheTrace) {
  constexpr int many = 60'000;
  TorchTrace trace;
  const auto region = trace.region("checkpoint:0");
  const auto say = [&](int kind, std::uint64_t address, std::int64_t index) {
    trace.say(kind, address, TorchTrace::facts(TorchTrace::float32, index), region, "", proto::CLASS_NONE);
  };
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  trace.begin(region);
  trace.make(0x1000, 100, region);
  for (int i = 0; i < many; ++i) {
    say(proto::EVENT_VALUE_DROP, 0x1000, many - i);
    say(proto::EVENT_VALUE_USE, 0, many - i);
    say(proto::EVENT_VALUE_DROP, 0x1000, 0);
    say(proto::EVENT_VALUE_USE, 0, 0);
  }
  trace.end(region);
  trace.free(0x1000);
  trace.backward(1);
  trace.begin_again(region);
  trace.make(0x2000, 100, region);
  for (int i = 0; i < many; ++i) say(proto::EVENT_VALUE_REMAKE, 0x2000, 0);
  trace.end_again(region);
  const Lineage lineage = lineage_of(trace);
  EXPECT_EQ(lineage.slots, 2U * many);
  ASSERT_EQ(lineage.values.size(), 1U);
  EXPECT_EQ(lineage.values[0].original, 0U);
  EXPECT_EQ(lineage.values[0].slots, static_cast<std::uint32_t>(many));
}

// An inner region that runs forward again because the one around it is recomputed, and is then recomputed itself.
TEST(NestedRegions, AForwardInsideARecomputeIsNoRecompute) {
  TorchTrace trace;
  const auto outer = trace.region("checkpoint:0"), inner = trace.region("checkpoint:1", outer);
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  trace.begin(outer);
  trace.attribute("checkpoint", "{}");
  trace.make(0x1000, 8, outer);  // 0: the inner one's input
  trace.drop(0, 0x1000, outer);
  trace.begin(inner);
  trace.attribute("checkpoint", "{}");
  trace.make(0x2000, 16, inner);  // 1
  trace.drop(0, 0x2000, inner);
  trace.end(inner, outer);
  trace.end(outer);
  trace.free(0x1000);
  trace.free(0x2000);
  trace.backward(1);
  trace.begin_again(outer);
  trace.make(0x3000, 8, outer);  // 2
  trace.begin(inner);
  trace.attribute("checkpoint", "{}");
  trace.make(0x4000, 16, inner);  // 3: dies with the recompute
  trace.drop(0, 0x4000, inner);
  trace.end(inner, outer);
  trace.free(0x4000);
  trace.in_scope = outer;
  trace.remake(0, 0x3000, outer);
  trace.end_again(outer);
  trace.begin_again(inner);
  trace.make(0x5000, 16, inner);  // 4
  trace.remake(0, 0x5000, inner);
  trace.end_again(inner);
  const Lineage lineage = lineage_of(trace);
  ASSERT_EQ(lineage.regions.size(), 2U);
  EXPECT_EQ(lineage.regions[0].rounds, 1U);
  EXPECT_EQ(lineage.regions[1].rounds, 1U);
  EXPECT_THAT(links(lineage), ElementsAre(link(2, 0), link(4, 1)));
  EXPECT_EQ(lineage.regions[1].slots, 1U);
}

// A region under no_grad has no slots: the walk of the graph that the recompute built says what it holds.
TEST(ReentrantRegions, AreMatchedByOrder) {
  TorchTrace trace;
  const auto region = trace.region("checkpoint:0"), fc = trace.module("fc", region), act = trace.module("act", region);
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  trace.begin(region);
  trace.attribute("checkpoint", R"({"kind":"reentrant"})");
  trace.make(0x1000, 100, fc);   // 0
  trace.make(0x2000, 100, act);  // 1
  trace.free(0x1000);
  trace.make(0x1000, 100, fc);  // 2: fc again
  trace.free(0x2000);
  trace.end(region);
  trace.make(0x9000, 100, fc);  // 3: behind the region
  trace.free(0x1000);
  trace.backward(1);
  trace.begin_again(region);
  trace.make(0x3000, 100, fc);   // 4
  trace.make(0x4000, 100, act);  // 5: temporary
  trace.make(0x5000, 100, fc);   // 6
  trace.free(0x4000);
  trace.remake(-1, 0x5000, region, "TanhBackward0.result");
  trace.remake(-1, 0x3000, region, "AddmmBackward0.mat1");
  trace.remake(-1, 0x3000, region, "MulBackward0.self");
  trace.end_again(region, R"({"early_stopped":false})");
  const Lineage lineage = lineage_of(trace);
  EXPECT_THAT(links(lineage), ElementsAre(link(4, 0), link(6, 2)));
  EXPECT_EQ(lineage.values[0].matched, Matched::order);
  EXPECT_FALSE(lineage.values[0].guess);
  EXPECT_EQ(lineage.values[0].slots, 2U);
  EXPECT_EQ(lineage.regions[0].not_held_bytes, 200U);
}

TEST(ReentrantRegions, AnotherNumberOfBlocksMakesAGuess) {
  TorchTrace trace;
  const auto region = trace.region("checkpoint:0");
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  trace.begin(region);
  trace.make(0x1000, 100, region);
  trace.end(region);
  trace.backward(1);
  trace.begin_again(region);
  trace.make(0x2000, 100, region);
  trace.make(0x3000, 100, region);
  trace.end_again(region);
  trace.node_begin("AddBackward0", 1);
  const Lineage lineage = lineage_of(trace);
  EXPECT_THAT(links(lineage), ElementsAre(link(1, 0), link(2, no_block)));  // nothing is stated: what outlives the recompute
  EXPECT_TRUE(lineage.values[0].guess);
  EXPECT_EQ(lineage.unmatched_blocks, 1U);
}

// A program's own checkpoint function, called for two calls of one module; backward takes the second call first.
TEST(OwnCheckpointFunctions, AreKnownByThePhaseInsideANode) {
  TorchTrace trace;
  const auto model = trace.module("M"), block = trace.module("block", model);
  trace.step(3);
  trace.phase = proto::PHASE_FORWARD;
  trace.make(0x1000, 100, block);  // 0: first call
  trace.free(0x1000);
  trace.make(0x2000, 100, block);  // 1: second call
  trace.free(0x2000);
  trace.graph_node("MyCheckpointBackward", 12);
  trace.graph_node("MyCheckpointBackward", 11);
  trace.backward(2);
  const auto recompute = [&](std::int64_t number, std::uint64_t address) {
    trace.phase = proto::PHASE_BACKWARD;
    trace.node_begin("torch::autograd::PyNode", number);
    trace.phase = proto::PHASE_RECOMPUTE;
    trace.make(address, 100, block);
    trace.make(address + 0x100, 100, 0);  // a temporary
    trace.free(address + 0x100);
    trace.phase = proto::PHASE_BACKWARD;
    trace.node_begin("MulBackward0", 20);
    trace.make(address + 0x200, 50, 0);
    trace.node_end("MulBackward0", 20);
    trace.phase = proto::PHASE_RECOMPUTE;
    trace.make(address + 0x300, 100, block);  // after the nested backward: no part of it
    trace.free(address + 0x300);
    trace.node_end("torch::autograd::PyNode", number);
  };
  recompute(12, 0x4000);  // 2 is remade
  recompute(11, 0x5000);  // 6 is remade
  const Lineage lineage = lineage_of(trace);
  ASSERT_EQ(lineage.regions.size(), 2U);
  EXPECT_TRUE(lineage.regions[0].by_phase);
  EXPECT_EQ(lineage.regions[0].scope, block);
  EXPECT_EQ(lineage.regions[0].step, 3);
  EXPECT_NE(lineage.regions[0].node, 0U);
  EXPECT_THAT(links(lineage), ElementsAre(link(2, 1), link(6, 0)));
  EXPECT_TRUE(lineage.values[0].guess);
  EXPECT_EQ(lineage.values[0].matched, Matched::order);
  EXPECT_EQ(lineage.regions[0].not_held_bytes, 100U);
}

TEST(HostileLineage, NothingIsTrusted) {
  TorchTrace trace;
  const auto region = trace.region("checkpoint:0");
  trace.remake(0, 0x1000, region);
  trace.drop(0, 0x1000, region);
  trace.end(region);
  trace.end_again(region);
  trace.node_end("X", 1);
  trace.phase = proto::PHASE_FORWARD;
  for (int i = 0; i < 3000; ++i) trace.begin(region);
  trace.make(0x1000, 8);
  trace.drop(0xfffffe, 0x1000, region);
  trace.drop(3, 0x1000, region);
  trace.use(0xfffffe, region, "a");
  trace.begin_again(region);
  for (int i = 0; i < 3000; ++i) trace.begin(region);
  trace.phase = proto::PHASE_FORWARD;
  trace.thread = 2;
  trace.begin(region);
  trace.thread = 1;
  trace.phase = proto::PHASE_RECOMPUTE;
  trace.remake(3, 0x1000, region);
  for (int i = 0; i < 10; ++i) trace.end(region);
  const Lineage lineage = lineage_of(trace);
  EXPECT_GT(lineage.lost_blocks, 0U);
  EXPECT_TRUE(lineage.values.empty());
}

}  // namespace
}  // namespace liveset::ledger
