// What lives longer than backward needs it, what backward never uses, what is saved twice, and what every step leaves more of.
#include "viewer/ledger/retention.h"

#include <gmock/gmock.h>

#include "tests/support/torch_trace.h"
#include "viewer/ledger/retention_walk.h"

namespace liveset::ledger {
namespace {

using test::TorchTrace;
using testing::ElementsAre;

Retention retention_of(TorchTrace& trace, RetentionOptions options = {}) {
  const trace::TraceFile file = trace.open();
  Result<PhysicalLedger> ledger = build_physical(file);
  if (!ledger) throw std::runtime_error(ledger.error().message());
  Result<Lineage> lineage = trace_lineage(file, *ledger);
  if (!lineage) throw std::runtime_error(lineage.error().message());
  Result<Retention> found = trace_retention(file, *ledger, *lineage, options);
  if (!found) throw std::runtime_error(found.error().message());
  return std::move(*found);
}

// Two nodes: Mul (number 2) runs before Addmm (number 1). Blocks: 0 is saved by both, 1 by Mul.
struct TwoNodes : testing::Test {
  TwoNodes() {
    model = trace.module("GPT");
    trace.step(4);
    trace.phase = proto::PHASE_FORWARD;
    trace.make(0x1000, 1000, model);
    trace.make(0x2000, 2000, model);
    trace.phase = proto::PHASE_LOSS;
    trace.graph_node("MulBackward0", 2);
    trace.keep(0x1000, "MulBackward0.self");
    trace.keep(0x2000, "MulBackward0.other");
    trace.graph_node("AddmmBackward0", 1);
    trace.keep(0x1000, "AddmmBackward0.mat1");
    trace.backward(2);
    trace.phase = proto::PHASE_BACKWARD;
  }
  void run(const std::string& node, std::int64_t number, std::uint64_t release = 0) {
    trace.node_begin(node, number);
    if (release != 0) trace.free(release);
    last_end = trace.node_end(node, number);
  }
  std::uint64_t done() {
    const std::uint64_t event = trace.mark(proto::EVENT_BACKWARD_END);
    trace.phase = proto::PHASE_OTHER;
    return event;
  }
  TorchTrace trace;
  std::uint32_t model = 0;
  std::uint64_t last_end = 0;
};

TEST_F(TwoNodes, WhatItsLastNodeReleasesIsNotOverdue) {
  run("MulBackward0", 2, 0x2000);
  run("AddmmBackward0", 1, 0x1000);  // after Mul used it too
  done();
  const Retention found = retention_of(trace);
  EXPECT_TRUE(found.nodes);
  EXPECT_EQ(found.followed, 2U);
  EXPECT_TRUE(found.overdue.empty());
  EXPECT_TRUE(found.unused.empty());
}

TEST_F(TwoNodes, TheDelayCountsFromTheEndOfTheLastNode) {
  run("MulBackward0", 2);
  const std::uint64_t mul = last_end;
  run("AddmmBackward0", 1, 0x1000);
  done();
  const std::uint64_t gone = trace.free(0x2000);
  const Retention found = retention_of(trace);
  ASSERT_EQ(found.overdue.size(), 1U);
  EXPECT_EQ(found.overdue[0].block, 1U);
  EXPECT_EQ(found.overdue[0].scope, model);
  EXPECT_EQ(found.overdue[0].bytes, 2000U);
  EXPECT_EQ(found.overdue[0].held_ns, 1000 * (gone - mul));
  EXPECT_EQ(found.overdue[0].release, Release::outside);
}

TEST_F(TwoNodes, TheFirstOfTwoUsesIsNotTheLast) {
  run("MulBackward0", 2, 0x2000);
  run("AddmmBackward0", 1);
  const std::uint64_t addmm = last_end;
  done();
  trace.begin(model);
  const std::uint64_t gone = trace.free(0x1000);
  const Retention found = retention_of(trace);
  ASSERT_EQ(found.overdue.size(), 1U);
  EXPECT_EQ(found.overdue[0].held_ns, 1000 * (gone - addmm));
  EXPECT_EQ(found.overdue[0].release, Release::in_module);
  EXPECT_EQ(found.overdue[0].released_in, model);
}

TEST_F(TwoNodes, WhatLivesAtTheEndIsHeldUntilThen) {
  run("MulBackward0", 2, 0x2000);
  run("AddmmBackward0", 1);
  const std::uint64_t addmm = last_end, end = done();
  const std::uint64_t said = trace.say(proto::EVENT_HOLDER, 0x1000, -1, 0, "list 'kept' of __main__");
  EXPECT_EQ(said, end + 1);
  const Retention found = retention_of(trace);
  ASSERT_EQ(found.overdue.size(), 1U);
  EXPECT_EQ(found.overdue[0].release, Release::at_the_end);
  EXPECT_EQ(found.overdue[0].held_ns, 1000 * (said - addmm));
  EXPECT_NE(found.overdue[0].holder, 0U);
}

TEST_F(TwoNodes, ABackwardThatTheTraceDoesNotEndTellsNothing) {
  run("MulBackward0", 2, 0x2000);  // 0x1000 still waits for Addmm
  const Retention found = retention_of(trace);
  EXPECT_TRUE(found.overdue.empty());
  EXPECT_TRUE(found.unused.empty());
}

TEST_F(TwoNodes, ANodeThatDidNotRunDidNotUseWhatItSaved) {
  run("AddmmBackward0", 1, 0x1000);
  done();
  trace.free(0x2000);
  const Retention found = retention_of(trace);
  EXPECT_TRUE(found.overdue.empty());
  ASSERT_EQ(found.unused.size(), 1U);
  EXPECT_EQ(found.unused[0].block, 1U);
}

TEST_F(TwoNodes, ABackwardThatRaisedTellsNothingOfWhatItDidNotRun) {
  trace.node_begin("MulBackward0", 2);
  done();
  trace.free(0x2000);
  trace.free(0x1000);
  const Retention found = retention_of(trace);
  EXPECT_TRUE(found.unused.empty());
  EXPECT_TRUE(found.overdue.empty());
}

TEST_F(TwoNodes, APythonNodeIsKnownByItsNumber) {
  run("torch::autograd::PyNode", 2, 0x2000);
  run("AddmmBackward0", 1, 0x1000);
  done();
  const Retention found = retention_of(trace);
  EXPECT_TRUE(found.overdue.empty());
  EXPECT_TRUE(found.unused.empty());
}

TEST_F(TwoNodes, ManyThatGoAtOnceAreSaidToBe) {
  for (std::uint64_t i = 0; i < 20; ++i) trace.make(0x10000 + 0x100 * i, 16);
  run("MulBackward0", 2);
  run("AddmmBackward0", 1, 0x1000);
  done();
  for (std::uint64_t i = 0; i < 20; ++i) trace.free(0x10000 + 0x100 * i);
  trace.free(0x2000);
  const Retention found = retention_of(trace);
  ASSERT_EQ(found.overdue.size(), 1U);
  EXPECT_EQ(found.overdue[0].release, Release::many);
  EXPECT_EQ(found.overdue[0].freed_at_once, 21U);
}

TEST_F(TwoNodes, ThresholdsLeaveOutTheSmallAndTheShort) {
  run("MulBackward0", 2);
  run("AddmmBackward0", 1);
  done();
  trace.free(0x2000);  // 1000 * 4 ns behind Mul's end
  for (int i = 0; i < 10; ++i) trace.mark(proto::EVENT_PHASE);
  trace.free(0x1000);
  RetentionOptions options;
  options.min_bytes = 1001;
  EXPECT_THAT(retention_of(trace, options).overdue, testing::SizeIs(1));
  options = {};
  options.min_delay_ns = 10'000;
  const Retention found = retention_of(trace, options);
  ASSERT_EQ(found.overdue.size(), 1U);
  EXPECT_EQ(found.overdue[0].block, 0U);
}

TEST_F(TwoNodes, AGraphThatBackwardBuildsIsPartOfIt) {
  run("MulBackward0", 2, 0x2000);
  trace.node_begin("AddmmBackward0", 1);
  trace.phase = proto::PHASE_RECOMPUTE;
  trace.make(0x5000, 100, model);
  trace.make(0x6000, 100, model);
  trace.graph_node("InnerBackward", 3);
  trace.keep(0x5000, "InnerBackward.saved_tensors");
  trace.graph_node("OtherBackward", 4);
  trace.keep(0x6000, "OtherBackward.saved_tensors");
  trace.phase = proto::PHASE_BACKWARD;
  run("InnerBackward", 3, 0x5000);
  run("OtherBackward", 4);
  trace.free(0x1000);
  trace.node_end("AddmmBackward0", 1);
  done();
  trace.free(0x6000);
  const Retention found = retention_of(trace);
  EXPECT_TRUE(found.unused.empty());
  ASSERT_EQ(found.overdue.size(), 1U);
  EXPECT_EQ(found.overdue[0].block, 3U);
}

TEST(Regions, WhatIsMadeAgainIsUsedByTheNodesThatWaited) {
  TorchTrace trace;
  const auto region = trace.region("checkpoint:0");
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  trace.begin(region);
  trace.make(0x1000, 100, region);  // 0
  trace.drop(0, 0x1000, region);
  trace.make(0x2000, 200, region);  // 1
  trace.drop(1, 0x2000, region);
  trace.free(0x1000);
  trace.end(region);
  trace.phase = proto::PHASE_LOSS;
  trace.graph_node("B", 2);
  trace.use(1, region, "B.x");
  trace.graph_node("A", 1);
  trace.use(0, region, "A.x");
  trace.backward(2);
  trace.phase = proto::PHASE_BACKWARD;
  trace.node_begin("B", 2);
  trace.begin_again(region);
  trace.make(0x3000, 100, region);  // 2
  trace.make(0x4000, 200, region);  // 3
  trace.remake(0, 0x3000, region);
  trace.remake(1, 0x4000, region);
  trace.end_again(region);
  trace.free(0x4000);
  trace.node_end("B", 2);
  trace.node_begin("A", 1);
  trace.node_end("A", 1);
  trace.mark(proto::EVENT_BACKWARD_END);
  trace.free(0x3000);
  trace.free(0x2000);
  const Retention found = retention_of(trace);
  ASSERT_EQ(found.overdue.size(), 2U);
  // The original that lived on: given up at the end of the forward, and there until now.
  EXPECT_EQ(found.overdue[0].block, 1U);
  EXPECT_EQ(found.overdue[0].region, 1U);
  EXPECT_EQ(found.overdue[1].block, 2U);
  EXPECT_TRUE(found.overdue[1].remade);
}

TEST(Regions, WhatTheGraphHoldsBesidesIsNoLeak) {
  TorchTrace trace;
  const auto region = trace.region("checkpoint:0");
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  trace.begin(region);
  trace.make(0x1000, 100, region);
  trace.drop(0, 0x1000, region);
  trace.end(region);
  trace.graph_node("C", 3);
  trace.keep(0x1000, "C.input");
  trace.backward(1);
  trace.phase = proto::PHASE_BACKWARD;
  trace.begin_again(region);
  trace.make(0x2000, 100, region);
  trace.remake(0, 0x2000, region);
  trace.end_again(region);
  trace.node_begin("C", 3);
  trace.free(0x1000);
  trace.node_end("C", 3);
  trace.mark(proto::EVENT_BACKWARD_END);
  EXPECT_TRUE(retention_of(trace).overdue.empty());
}

// One region and node A that waits for its slot 0, over three steps. Block 2k is saved in step k, block 2k+1 is what its recompute made.
struct EachStep {
  void step(std::int64_t number, bool recompute_in_node, std::uint64_t free_in_node = 0) {
    trace.step(number);
    trace.phase = proto::PHASE_FORWARD;
    trace.begin(region);
    trace.make(0x1000, 100, region);
    trace.drop(0, 0x1000, region);
    trace.free(0x1000);
    trace.end(region);
    trace.phase = proto::PHASE_LOSS;
    trace.graph_node("A", number + 1);
    trace.use(0, region, "A.x");
    trace.backward(1);
    trace.phase = proto::PHASE_BACKWARD;
    if (!recompute_in_node) recompute(number);
    trace.node_begin("A", number + 1);
    if (recompute_in_node) recompute(number);
    if (free_in_node != 0) trace.free(free_in_node);
    ends.push_back(trace.node_end("A", number + 1));
    trace.mark(proto::EVENT_BACKWARD_END);
    trace.phase = proto::PHASE_OTHER;
  }
  void recompute(std::int64_t number) {
    trace.begin_again(region);
    trace.make(place(number), 100, region);
    trace.remake(0, place(number), region);
    trace.end_again(region);
  }
  static std::uint64_t place(std::int64_t number) { return 0x10000 + 0x1000 * static_cast<std::uint64_t>(number); }
  TorchTrace trace;
  std::uint32_t region = trace.region("checkpoint:0");
  std::vector<std::uint64_t> ends;
};

struct RemadeEachStep : testing::Test, EachStep {};

TEST(RemadeEachOfSteps, ALeakThatTheNextStepFreesIsFound) {
  for (const bool in_node : {true, false}) {
    SCOPED_TRACE(in_node);
    EachStep each;
    std::uint64_t gone[3] = {};
    for (std::int64_t number = 0; number < 3; ++number) {
      each.step(number, in_node);
      if (number != 0) gone[number - 1] = each.trace.free(EachStep::place(number - 1));
    }
    gone[2] = each.trace.mark(proto::EVENT_STEP_END, 2);
    const Retention found = retention_of(each.trace);
    EXPECT_TRUE(found.unused.empty());
    ASSERT_EQ(found.overdue.size(), 3U);
    for (const OverdueBlock& block : found.overdue) {
      EXPECT_TRUE(block.remade);
      ASSERT_EQ(block.block % 2, 1U);
      EXPECT_EQ(block.held_ns, 1000 * (gone[block.block / 2] - each.ends[block.block / 2]));
    }
  }
}

TEST_F(RemadeEachStep, WhatTheNextNodeOfThatSlotFreesMeanwhileIsALeakToo) {
  step(0, true);
  step(1, true, place(0));  // while A of the next step runs, which has nothing to do with it
  step(2, false, place(1));
  const Retention found = retention_of(trace);
  ASSERT_EQ(found.overdue.size(), 3U);
  std::uint64_t in_node = 0;
  for (const OverdueBlock& block : found.overdue) in_node += block.release == Release::in_node;
  EXPECT_EQ(in_node, 2U);
}

TEST_F(RemadeEachStep, WhatItsNodeReleasesIsNone) {
  step(0, true, place(0));
  step(1, false, place(1));
  step(2, true, place(2));
  const Retention found = retention_of(trace);
  EXPECT_TRUE(found.overdue.empty());
  EXPECT_TRUE(found.unused.empty());
}

TEST_F(TwoNodes, AnEndWithoutABeginEndsNothing) {
  const auto other = trace.module("other"), inner = trace.module("inner", model);
  run("MulBackward0", 2, 0x2000);
  run("AddmmBackward0", 1);
  done();
  trace.begin(model);
  trace.begin(inner);
  trace.end(other);
  trace.free(0x1000);
  const Retention found = retention_of(trace);
  ASSERT_EQ(found.overdue.size(), 1U);
  EXPECT_EQ(found.overdue[0].release, Release::in_module);
  EXPECT_EQ(found.overdue[0].released_in, inner);
}

TEST_F(TwoNodes, ANodeRunsOnceAWalk) {
  run("MulBackward0", 2, 0x2000);
  run("AddmmBackward0", 1);
  const std::uint64_t first_end = last_end;
  run("AddmmBackward0", 1);
  run("AddmmBackward0", 1);
  done();
  const std::uint64_t gone = trace.free(0x1000);
  const Retention found = retention_of(trace);
  ASSERT_EQ(found.overdue.size(), 1U);
  EXPECT_EQ(found.overdue[0].held_ns, 1000 * (gone - first_end));
}

// A number may be begun any number of times: its slots are gone through once.
TEST(HostileRetention, WorkIsInProportionToTheTrace) {
  TorchTrace trace;
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  trace.make(0x1000, 100);
  trace.graph_node("A", 1);
  for (int i = 0; i < 40'000; ++i) trace.keep(0x1000, "");
  trace.backward(1);
  for (int i = 0; i < 40'000; ++i) trace.node(i % 2 == 0 ? proto::EVENT_NODE_BEGIN : proto::EVENT_NODE_END, "A", 1);
  trace.free(0x1000);
  EXPECT_EQ(retention_of(trace).followed, 1U);
}

// More blocks than are listed one by one: 300 steps leave 50 each of two names, 15,000 and 15,000.
TEST(ManyOverdue, AreAllCountedByName) {
  TorchTrace trace;
  const auto one = trace.module("one"), two = trace.module("two");
  const auto node = trace.string("A"), other = trace.string("A.y");
  const auto named = [&](int kind, std::uint32_t name, std::int64_t number, std::uint64_t address = 0) {
    writer::Event made = test::event(kind, 0);
    made.heap = address == 0 ? 0 : trace.cpu;
    made.address = address;
    made.name = name;
    made.number = number;
    made.memory_class = address == 0 ? 0 : proto::CLASS_ACTIVATION;
    trace.add(made);
  };
  constexpr std::uint64_t steps = 300, each = 100;
  for (std::uint64_t step = 0; step < steps; ++step) {
    const auto kept = trace.string("A.x");  // a name is its text, not its number
    trace.step(static_cast<std::int64_t>(step));
    trace.phase = proto::PHASE_FORWARD;
    for (std::uint64_t i = 0; i < each; ++i) trace.make(0x100000 + 0x1000 * i, i % 2 == 0 ? 100 : 2000, i % 2 == 0 ? one : two);
    named(proto::EVENT_GRAPH_NODE, node, 1);
    for (std::uint64_t i = 0; i < each; ++i) named(proto::EVENT_VALUE_RETAIN, i % 2 == 0 ? kept : other, 0, 0x100000 + 0x1000 * i);
    trace.backward(1);
    named(proto::EVENT_NODE_BEGIN, node, 1);
    named(proto::EVENT_NODE_END, node, 1);
    trace.mark(proto::EVENT_BACKWARD_END);
    for (std::uint64_t i = 0; i < each; ++i) trace.free(0x100000 + 0x1000 * i);
  }
  const Retention found = retention_of(trace);
  EXPECT_EQ(found.overdue_blocks, steps * each);
  EXPECT_EQ(found.overdue.size(), Retention::max_overdue);
  EXPECT_EQ(found.ungrouped, 0U);
  ASSERT_EQ(found.overdue_groups.size(), 2U);
  EXPECT_EQ(found.overdue_groups[0].example.scope, two);
  EXPECT_EQ(found.overdue_groups[0].blocks, steps * each / 2);
  EXPECT_EQ(found.overdue_groups[0].most_bytes, 2000U);
  EXPECT_EQ(found.overdue_groups[0].longest_ns, 1000 * (each + 1));  // the last free, behind the end of the backward
  EXPECT_EQ(found.overdue_groups[1].example.scope, one);
  EXPECT_EQ(found.overdue_groups[1].blocks, steps * each / 2);
  double sum = 0;
  for (std::uint64_t i = 0; i < each; i += 2) sum += 100e-9 * 1000.0 * static_cast<double>(i + 2);
  EXPECT_NEAR(found.overdue_groups[1].byte_seconds, steps * sum, 1e-9);
}

TEST(HostileRetention, OfAGraphThatIsTooLargeNothingIsSaidOfWhatIsLeftOut) {
  WalkBudget budget;
  budget.used = WalkBudget::most - 3;
  {
    Walk walk(budget);
    walk.add(1, 1);
    EXPECT_TRUE(walk.add(WalkSlot::block(0)));
    EXPECT_TRUE(walk.add(WalkSlot::block(1)));
    EXPECT_FALSE(walk.add(WalkSlot::block(2)));
    walk.add(2, 2);
    EXPECT_FALSE(walk.add(WalkSlot::block(3)));  // not of node 1
    EXPECT_EQ(walk.nodes().size(), 1U);
    EXPECT_EQ(walk.nodes()[0].end, 2U);
    EXPECT_EQ(budget.left_out, 2U);
  }
  EXPECT_EQ(budget.used, WalkBudget::most - 3);
}

// A region that reads block 0, which is made outside of it and given to it by nobody; node B comes before node A.
struct RegionReads : testing::Test {
  RegionReads() {
    trace.step(0);
    trace.phase = proto::PHASE_FORWARD;
    trace.make(0x1000, 100, model);  // 0
    trace.begin(region);
    trace.drop(0, 0x1000, region);
    trace.make(0x2000, 200, region);  // 1
    trace.drop(1, 0x2000, region);
    trace.free(0x2000);
    trace.end(region);
    trace.phase = proto::PHASE_LOSS;
    trace.graph_node("B", 2);
    trace.use(0, region, "B.x");
    trace.graph_node("A", 1);
    trace.use(1, region, "A.x");
    trace.backward(2);
    trace.phase = proto::PHASE_BACKWARD;
    trace.node_begin("B", 2);
    trace.begin_again(region);
    trace.make(0x3000, 200, region);  // 2
    trace.remake(0, 0x1000, region);
    trace.remake(1, 0x3000, region);
    trace.end_again(region);
    trace.node_end("B", 2);
    trace.node_begin("A", 1);
    trace.free(0x3000);
  }
  TorchTrace trace;
  std::uint32_t region = trace.region("checkpoint:0"), model = trace.module("M");
};

TEST_F(RegionReads, UntilTheLastOfItsNodesEnds) {
  const std::uint64_t last = trace.node_end("A", 1);
  trace.mark(proto::EVENT_BACKWARD_END);
  const std::uint64_t gone = trace.free(0x1000);
  const Retention found = retention_of(trace);
  ASSERT_EQ(found.overdue.size(), 1U);
  EXPECT_EQ(found.overdue[0].block, 0U);
  EXPECT_TRUE(found.overdue[0].read_again);
  EXPECT_EQ(found.overdue[0].region, 1U);
  EXPECT_EQ(found.overdue[0].held_ns, 1000 * (gone - last));
}

TEST_F(RegionReads, AlsoWhereTheNextForwardFreesIt) {
  const std::uint64_t last = trace.node_end("A", 1);
  trace.mark(proto::EVENT_BACKWARD_END);
  trace.step(1);
  trace.phase = proto::PHASE_FORWARD;
  trace.begin(region);
  const std::uint64_t gone = trace.free(0x1000);
  trace.end(region);
  const Retention found = retention_of(trace);
  ASSERT_EQ(found.overdue.size(), 1U);
  EXPECT_TRUE(found.overdue[0].read_again);
  EXPECT_EQ(found.overdue[0].held_ns, 1000 * (gone - last));
}

TEST_F(RegionReads, WhatItsNodesReleaseIsNoLeak) {
  trace.free(0x1000);
  trace.node_end("A", 1);
  trace.mark(proto::EVENT_BACKWARD_END);
  EXPECT_TRUE(retention_of(trace).overdue.empty());
}

TEST(TwoDtypesFound, OnlyFloatsOfOneScopeAndLength) {
  TorchTrace trace;
  const auto softmax = trace.module("softmax"), other = trace.module("other");
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  trace.make(0x1000, 400, softmax);
  trace.make(0x2000, 200, softmax);
  trace.make(0x3000, 200, other);
  trace.make(0x4000, 800, softmax);
  trace.graph_node("SoftmaxBackward0", 1);
  trace.keep(0x1000, "SoftmaxBackward0.result", TorchTrace::float32, 400);
  trace.graph_node("MmBackward0", 2);
  trace.keep(0x2000, "MmBackward0.self", TorchTrace::bfloat16, 200);
  trace.keep(0x3000, "MmBackward0.mat2", TorchTrace::bfloat16, 200);
  trace.keep(0x4000, "MmBackward0.x", 4, 800);  // int64 indices
  trace.backward(2);
  const Retention found = retention_of(trace);
  ASSERT_EQ(found.two_dtypes.size(), 1U);
  EXPECT_EQ(found.two_dtypes[0].scope, softmax);
  EXPECT_EQ(found.two_dtypes[0].elements, 100U);
  EXPECT_EQ(found.two_dtypes[0].blocks, 1U);
  EXPECT_EQ(found.two_dtypes[0].bytes, 600U);
}

// 100 elements: one block of float16, one of float32, two of bfloat16.
TEST(TwoDtypesFound, OfThreeDtypesThoseThatAreListedTogether) {
  constexpr int float16 = 5;
  TorchTrace trace;
  const auto norm = trace.module("norm");
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  trace.make(0x1000, 200, norm);
  trace.make(0x2000, 400, norm);
  trace.make(0x3000, 200, norm);
  trace.make(0x4000, 200, norm);
  trace.graph_node("N", 1);
  trace.keep(0x1000, "N.a", float16, 200);
  trace.keep(0x2000, "N.b", TorchTrace::float32, 400);
  trace.keep(0x3000, "N.c", TorchTrace::bfloat16, 200);
  trace.keep(0x4000, "N.d", TorchTrace::bfloat16, 200);
  trace.backward(1);
  const Retention found = retention_of(trace);
  ASSERT_EQ(found.two_dtypes.size(), 2U);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(found.two_dtypes[i].dtypes[0], i == 0 ? float16 : TorchTrace::float32);
    EXPECT_EQ(found.two_dtypes[i].dtypes[1], i == 0 ? TorchTrace::float32 : TorchTrace::bfloat16);
    EXPECT_EQ(found.two_dtypes[i].blocks, 1U);
    EXPECT_EQ(found.two_dtypes[i].bytes, 600U);  // 200 + 400
  }
}

TEST(TwoDtypesFound, AViewOfItsBytesIsNoCast) {
  TorchTrace trace;
  const auto pack = trace.module("pack");
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  trace.make(0x1000, 400, pack);
  trace.make(0x2000, 800, pack);
  trace.graph_node("N", 1);
  trace.keep(0x1000, "N.a", TorchTrace::float32, 400);
  trace.keep(0x1000, "N.b", TorchTrace::bfloat16, 400);  // the same storage as 200 elements
  trace.keep(0x2000, "N.c", TorchTrace::float32, 800);
  trace.backward(1);
  EXPECT_TRUE(retention_of(trace).two_dtypes.empty());
}

// Steps 0..3; each leaves a block of 32 bytes, and one of 64 that the next step frees.
TEST(GrowthFound, IsWhatEveryStepLeavesMoreOf) {
  TorchTrace trace;
  const auto model = trace.module("M");
  for (std::uint64_t step = 0; step < 4; ++step) {
    trace.step(static_cast<std::int64_t>(step));
    trace.phase = proto::PHASE_FORWARD;
    if (step == 0) trace.make(0x90000, 500, model);  // once: a cache
    trace.make(0x1000 + 0x100 * step, 32, model);
    if (step != 0) trace.free(0x8000 + 0x100 * (step - 1));
    trace.make(0x8000 + 0x100 * step, 64, model);
    trace.phase = proto::PHASE_OTHER;
    trace.mark(proto::EVENT_STEP_END, static_cast<std::int64_t>(step));
  }
  const Retention found = retention_of(trace);
  ASSERT_EQ(found.growth.size(), 1U);
  EXPECT_EQ(found.growth[0].block_bytes, 32U);
  EXPECT_EQ(found.growth[0].blocks, 3U);  // of steps 0, 1 and 2; nothing follows step 3
  EXPECT_EQ(found.growth[0].bytes, 96U);
  EXPECT_EQ(found.growth[0].scope, model);
  EXPECT_EQ(found.growth[0].memory_class, trace::MemoryClass::none);
}

TEST(GrowthFound, TwoStepsTellNothing) {
  TorchTrace trace;
  for (std::uint64_t step = 0; step < 2; ++step) {
    trace.step(static_cast<std::int64_t>(step));
    trace.make(0x1000 + 0x100 * step, 32);
    trace.mark(proto::EVENT_STEP_END, static_cast<std::int64_t>(step));
  }
  EXPECT_TRUE(retention_of(trace).growth.empty());
}

TEST(HostileRetention, NothingIsTrusted) {
  TorchTrace trace;
  const auto region = trace.region("checkpoint:0");
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  trace.node_end("A", 1);
  trace.keep(0x1000, "A.x");
  trace.make(0x1000, 100);
  trace.keep(0x1000, "A.x");  // of no node
  for (int i = 0; i < 200; ++i) trace.graph_node("A", 1);
  trace.keep(0x1000, "A.x");
  trace.use(0xffffff, region, "A.y");
  trace.backward(1);
  trace.backward(1);
  trace.node_begin("A", 1);
  trace.node_begin("A", 1);
  trace.node_end("A", 1);
  trace.free(0x1000);
  for (int i = 0; i < 2000; ++i) trace.begin(region);
  for (int i = 0; i < 10; ++i) trace.end(region);
  retention_of(trace);
}

}  // namespace
}  // namespace liveset::ledger
