// The rules of distributed training, on traces made by hand: what a rank recomputes, when its gradients are reduced, on which devices.
#include "viewer/ledger/distributed.h"

#include <gmock/gmock.h>

#include "tests/support/torch_trace.h"

namespace liveset::ledger {
namespace {

using test::TorchTrace;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint64_t weight_gradient = 0x8000, bias_gradient = 0x9000, bucket = 0xa000;

RankFacts facts_of(TorchTrace& trace, const char* ended = "exit") {
  const trace::TraceFile file = trace.open(ended);
  Result<PhysicalLedger> ledger = build_physical(file);
  if (!ledger) throw std::runtime_error(ledger.error().message());
  Result<RankFacts> facts = read_rank(file, *ledger);
  if (!facts) throw std::runtime_error(facts.error().message());
  return std::move(*facts);
}

struct Distributed : testing::Test {
  TorchTrace trace;
  std::uint32_t model = trace.module("Net"), region = trace.region("checkpoint:0", model), block = trace.module("block", region);
  std::uint32_t about_key = trace.string("checkpoint"), about = trace.string(R"({"kind": "non_reentrant"})"),
                outcome_key = trace.string("recompute"), early_stopped = trace.string(R"({"early_stopped": true})"),
                whole = trace.string(R"({"early_stopped": false})");

  void forward() {
    trace.phase = proto::PHASE_FORWARD;
    trace.begin(model);
    trace.begin(region);
    say(about_key, about);
    trace.begin(block);
    trace.end(block, region);
    trace.end(region, model);
    trace.end(model);
  }
  void recompute(bool early = true) {
    trace.begin_again(region);
    trace.begin(block);
    trace.end(block, region);
    say(outcome_key, early ? early_stopped : whole);
    trace.end_again(region);
  }
  // With the ids that the job's hooks have for equal texts.
  void say(std::uint32_t key, std::uint32_t text) {
    writer::Event made = test::event(proto::EVENT_ATTRIBUTE, 0);
    made.name = key;
    made.text = text;
    trace.add(made);
  }
  void backward() {
    trace.phase = proto::PHASE_BACKWARD;
    trace.backward();
  }
  void backward_end() { trace.mark(proto::EVENT_BACKWARD_END); }
  void collective(std::uint64_t address, std::int64_t number = -1, const char* name = "all_reduce") {
    trace.say(proto::EVENT_COLLECTIVE, address, number, 0, name, proto::CLASS_NONE, 64);
  }
  void gradient(std::uint64_t address, const char* parameter) {
    trace.say(proto::EVENT_STORAGE, address, 0, 0, parameter, proto::CLASS_GRADIENT, 64);
  }
};

TEST_F(Distributed, APolicyIsWhatAStepDoesAndEqualStepsShareIt) {
  for (int step = 0; step < 3; ++step) {
    trace.step(step);
    forward();
    backward();
    recompute(step != 2);
    if (step == 2) recompute(false);
    backward_end();
    trace.phase = proto::PHASE_OPTIMIZER;
    trace.mark(proto::EVENT_PHASE);
    trace.phase = proto::PHASE_OTHER;
  }
  const RankFacts facts = facts_of(trace);
  ASSERT_EQ(facts.policies.size(), 2U);
  ASSERT_EQ(facts.steps.size(), 3U);
  EXPECT_EQ(facts.steps[0].policy, facts.steps[1].policy);
  const auto& first = facts.policies[facts.steps[0].policy].regions;
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(facts.paths[first[0].path], "Net.block");
  EXPECT_EQ(std::tuple(first[0].forwards, first[0].recomputes, first[0].early_stopped), std::tuple(1U, 1U, 1U));
  const auto& last = facts.policies[facts.steps[2].policy].regions;
  EXPECT_EQ(std::tuple(last[0].forwards, last[0].recomputes, last[0].early_stopped), std::tuple(1U, 2U, 0U));
}

TEST_F(Distributed, AStepThatWasCutOffIsNotCompared) {
  trace.step(0);
  forward();
  backward();
  recompute();
  trace.step(1);
  forward();
  const RankFacts facts = facts_of(trace, "killed");
  EXPECT_EQ(facts.all_steps, 2U);
  EXPECT_EQ(facts.steps.size(), 1U);
}

TEST_F(Distributed, AReductionAfterTheRecomputeIsAsItShouldBe) {
  trace.step(0);
  forward();
  backward();
  trace.make(weight_gradient, 64);
  recompute();
  collective(weight_gradient);
  backward_end();
  gradient(weight_gradient, "Net.block.weight");
  const RankFacts facts = facts_of(trace);
  EXPECT_THAT(facts.late, IsEmpty());
  EXPECT_EQ(std::tuple(facts.reductions, facts.reductions_known, facts.recomputes, facts.recomputes_without_parameters),
            std::tuple(1U, 1U, 1U, 0U));
}

TEST_F(Distributed, AReductionBeforeTheEndOfARecomputeInTheSameBackwardIsFound) {
  trace.step(7);
  forward();
  backward();
  trace.make(weight_gradient, 64);
  collective(weight_gradient);
  recompute();
  collective(weight_gradient);  // once more, after it: in one backward that does not make it right
  backward_end();
  gradient(weight_gradient, "Net.block.weight");
  const RankFacts facts = facts_of(trace);
  ASSERT_EQ(facts.late.size(), 1U);
  EXPECT_EQ(facts.late[0].region, "Net/checkpoint:0");
  EXPECT_EQ(facts.late[0].module, "Net.block");
  EXPECT_EQ(facts.late[0].parameter, "Net.block.weight");
  EXPECT_EQ(facts.late[0].step, 7);
  EXPECT_TRUE(facts.late[0].same_backward);
}

TEST_F(Distributed, AReductionBetweenTwoBackwardsNeedsAnotherAfterTheSecond) {
  for (int step = 0; step < 2; ++step) {
    trace.step(step);
    forward();
    backward();
    if (step == 0) trace.make(weight_gradient, 64);
    recompute();
    backward_end();
    gradient(weight_gradient, "Net.block.weight");
    collective(weight_gradient);
    backward();
    recompute();
    backward_end();
    if (step == 1) collective(weight_gradient);
  }
  const RankFacts facts = facts_of(trace);
  ASSERT_EQ(facts.late.size(), 1U);
  EXPECT_EQ(facts.late[0].step, 0);
  EXPECT_EQ(facts.late[0].count, 1U);
  EXPECT_FALSE(facts.late[0].same_backward);
}

TEST_F(Distributed, OtherModulesAndOtherOperationsAreNoReductionOfTheRegions) {
  trace.step(0);
  forward();
  backward();
  trace.make(weight_gradient, 64);
  trace.make(bias_gradient, 64);
  collective(weight_gradient);                 // of a module whose name begins alike
  collective(bias_gradient, -1, "broadcast");  // no reduction
  recompute();
  backward_end();
  gradient(weight_gradient, "Net.blocks.weight");
  gradient(bias_gradient, "Net.block.bias");
  const RankFacts facts = facts_of(trace);
  EXPECT_THAT(facts.late, IsEmpty());
  EXPECT_EQ(facts.reductions, 1U);
}

TEST_F(Distributed, AnAddressThatIsTakenAgainIsAnotherBlock) {
  trace.step(0);
  forward();
  backward();
  trace.make(weight_gradient, 64);
  collective(weight_gradient);
  trace.free(weight_gradient);
  recompute();
  trace.make(weight_gradient, 64);
  backward_end();
  gradient(weight_gradient, "Net.block.weight");
  const RankFacts facts = facts_of(trace);
  EXPECT_THAT(facts.late, IsEmpty());
  EXPECT_EQ(facts.reductions_known, 0U);
}

TEST_F(Distributed, ABucketHasTheParametersThatWereStatedForItFromThenOn) {
  trace.make(bucket, 64);
  for (int step = 0; step < 2; ++step) {
    trace.step(step);
    forward();
    backward();
    collective(bucket, 3);
    recompute();
    backward_end();
    trace.attribute("liveset.bucket", R"({"bucket": 3, "parameters": ["Net.block.weight", "Net.block.bias"]})");
  }
  trace.step(2);
  trace.attribute("liveset.bucket", R"({"bucket": 4, "param)");
  trace.attribute("liveset.bucket", "[]");
  const RankFacts facts = facts_of(trace);
  // The first statement stands before the first step's end, so it is of that step too.
  ASSERT_EQ(facts.late.size(), 2U);
  EXPECT_EQ(facts.late[0].count, 2U);
  EXPECT_EQ(facts.reductions_known, 2U);
}

// As any writer of JSON may write it: without spaces, with escapes, in any order.
TEST_F(Distributed, WhatTheJobSaysIsJson) {
  trace.make(bucket, 64);
  trace.step(0);
  trace.attribute("liveset.bucket", R"({"parameters":["Net.block.\u00e9"],"bucket":3})");
  forward();
  backward();
  collective(bucket, 3);
  trace.begin_again(region);
  trace.begin(block);
  trace.end(block, region);
  trace.end_again(region, R"({"early_stopped":true})");
  backward_end();
  const RankFacts facts = facts_of(trace);
  ASSERT_EQ(facts.policies.size(), 1U);
  ASSERT_EQ(facts.policies[0].regions.size(), 1U);
  EXPECT_EQ(facts.policies[0].regions[0].early_stopped, 1U);
  ASSERT_EQ(facts.late.size(), 1U);
  EXPECT_EQ(facts.late[0].parameter, "Net.block.\xc3\xa9");
}

TEST_F(Distributed, BlocksOfARegionByHeapAndSavedValuesOnce) {
  const std::uint32_t cuda = trace.heap("cuda:0");
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  trace.begin(model);
  trace.begin(region);
  trace.attribute("checkpoint", R"({"kind": "non_reentrant", "input_devices": ["cpu"]})");
  trace.make(0x1000, 100, region);
  trace.end(region, model);
  trace.end(model);
  trace.backward();
  trace.begin_again(region);
  trace.alloc(cuda, 0x2000, 512);
  trace.alloc(cuda, 0x3000, 1024);
  trace.statement(proto::EVENT_VALUE_REMAKE, cuda, 0x2000, proto::CLASS_NONE);
  trace.statement(proto::EVENT_VALUE_REMAKE, cuda, 0x2010, proto::CLASS_NONE);  // a view of it
  trace.remake(0, 0x1000, region);                                              // it was there before
  trace.end_again(region);
  const RankFacts facts = facts_of(trace);
  ASSERT_EQ(facts.devices.size(), 2U);
  EXPECT_FALSE(facts.devices[0].recompute);
  ASSERT_EQ(facts.devices[0].made.size(), 1U);
  EXPECT_EQ(facts.devices[0].made[0].bytes, 100U);
  EXPECT_TRUE(facts.devices[1].recompute);
  EXPECT_EQ(facts.devices[1].about, facts.devices[0].about);
  ASSERT_EQ(facts.devices[1].made.size(), 1U);
  EXPECT_EQ(facts.devices[1].made[0].heap, cuda);
  EXPECT_EQ(facts.devices[1].made[0].bytes, 1536U);
  EXPECT_EQ(facts.devices[1].made[0].remade_bytes, 512U);
}

// A trace may say anything: scopes that do not nest, ends without a begin, ids that are not there.
TEST_F(Distributed, NonsenseIsRead) {
  trace.step(0);
  for (int round = 0; round < 100; ++round) {
    trace.begin(region);
    trace.begin(block);
    trace.end(region);
    trace.end(region);
    trace.begin(12345);
    trace.end(54321);
    trace.thread = 1 + (round & 1U);
    trace.attribute("recompute", "x");
    collective(0, 99);
    gradient(0xdead, "a");
    trace.remake(3, 0xdead, region);
  }
  for (int depth = 0; depth < 10000; ++depth) trace.begin(region);
  const RankFacts facts = facts_of(trace);
  EXPECT_EQ(facts.reductions, 100U);
  EXPECT_EQ(facts.reductions_known, 0U);
  EXPECT_THAT(facts.late, IsEmpty());
}

}  // namespace
}  // namespace liveset::ledger
