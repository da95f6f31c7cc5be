// Two traces, or a trace and a model, beside each other: scenes whose bytes are worked out on paper.
#include "viewer/compare/peaks.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "tests/support/torch_trace.h"
#include "viewer/compare/model_side.h"
#include "viewer/model/model.h"
#include "viewer/model/policy.h"

namespace liveset::compare {
namespace {

using ledger::FoundBy;
using test::TinyTrace;
using test::TorchTrace;
using trace::MemoryClass;
using trace::Phase;

std::int64_t sum_of(const Gap& gap) {
  return std::accumulate(gap.parts.begin(), gap.parts.end(), std::int64_t{0},
                         [](std::int64_t sum, const GapPart& part) { return sum + part.bytes; });
}

PeakComparison compared(TinyTrace& measured, TinyTrace& predicted, const std::string& counter = "allocated") {
  const trace::TraceFile a = measured.open(), b = predicted.open();
  TraceOptions options;
  options.counter = counter;
  Result<PeakComparison> found = compare_traces(a, options, b, options);
  if (!found) throw std::runtime_error(found.error().message());
  EXPECT_EQ(sum_of(found->gap), found->gap.difference);
  return std::move(*found);
}

std::string refused(TinyTrace& measured, TinyTrace& predicted, const std::string& counter = "allocated") {
  const trace::TraceFile a = measured.open(), b = predicted.open();
  TraceOptions options;
  options.counter = counter;
  const Result<PeakComparison> found = compare_traces(a, options, b, options);
  return found ? "" : found.error().message();
}

std::int64_t bytes_of(const PeakComparison& found, GapClass gap_class) { return found.gap.part(gap_class).bytes; }

// A step of a net with modules a and b, each of which makes 1,000 and 2,000 bytes; backward makes a gradient of 500 bytes in a node.
// Peak: while that lives, at event `peak`.
struct Net {
  explicit Net(TorchTrace& trace, bool keeps_second = true, std::int64_t number = 0) {
    const std::uint32_t root = trace.module("Net"), a = trace.module("a", root), b = trace.module("b", root);
    trace.step(number);
    trace.phase = proto::PHASE_FORWARD;
    std::uint64_t address = 0x10000;
    for (const std::uint32_t module : {a, b}) {
      trace.begin(module);
      trace.make(address, 1000, module);
      trace.make(address + 0x1000, 2000, module);
      if (!keeps_second) trace.free(address + 0x1000);
      trace.end(module, root);
      address += 0x10000;
    }
    trace.in_scope = 0;
    trace.phase = proto::PHASE_LOSS;
    for (const std::int64_t node : {2, 1}) {
      trace.graph_node("MulBackward0", node);
      trace.keep(static_cast<std::uint64_t>(node) * 0x10000, "MulBackward0.self");
      if (keeps_second) trace.keep(static_cast<std::uint64_t>(node) * 0x10000 + 0x1000, "MulBackward0.other");
    }
    trace.backward(2);
    trace.phase = proto::PHASE_BACKWARD;
    trace.node_begin("MulBackward0", 2);
    peak = trace.make(0x90000, 500);
    trace.free(0x90000);
    trace.node_end("MulBackward0", 2);
    trace.mark(proto::EVENT_BACKWARD_END);
    for (const std::uint64_t at : {0x10000, 0x20000}) {
      trace.free(at);
      if (keeps_second) trace.free(at + 0x1000);
    }
    trace.mark(proto::EVENT_STEP_END, number);
  }
  std::uint64_t peak = 0;
};

TEST(Peaks, ARunDoesNotDifferFromItself) {
  TorchTrace one, other;
  const Net net(one);
  const Net same(other);
  const PeakComparison found = compared(one, other);
  EXPECT_EQ(found.error(), 0.0);
  EXPECT_EQ(found.verdict, Verdict::comparable);
  EXPECT_EQ(*found.measured.peak.bytes, 6500U);
  EXPECT_EQ(found.measured.peak.event, net.peak);
  EXPECT_EQ(found.gap.values.matched, 4U);
  EXPECT_EQ(found.gap.values.missing + found.gap.values.extra, 0U);
  ASSERT_TRUE(found.measured.at_other);
  EXPECT_EQ(found.measured.at_other->event, net.peak);
  EXPECT_EQ(found.measured.at_other->found_by, FoundBy::node);
}

// With: 2 x (1000 + 2000) + 500 in backward. Without: 1000 + 1000 + 2000 in b's forward, where nothing holds the 2,000 bytes.
TEST(Peaks, KeptValuesAgainstOnesThatAreLetGo) {
  TorchTrace keeping, dropping;
  const Net keeps(keeping);
  const Net drops(dropping, false);
  const PeakComparison found = compared(keeping, dropping);
  EXPECT_EQ(found.gap.difference, 6500 - 4000);
  EXPECT_EQ(bytes_of(found, GapClass::extra_values), 4000);
  EXPECT_EQ(bytes_of(found, GapClass::missing_values), 0);
  EXPECT_EQ(bytes_of(found, GapClass::temporaries), 500 - 2000);
  EXPECT_EQ(found.gap.values.matched, 2U);
  EXPECT_EQ(found.gap.values.extra, 2U);
  EXPECT_EQ(found.gap.part(GapClass::extra_values).rows[0].name, "Net.a/MulBackward0.other");
  // The run that keeps has 1000 + 2000 + 1000 + 2000 when b is done; the one that lets go 2 x 1000 + 500 in the node of backward.
  ASSERT_TRUE(found.measured.at_other);
  EXPECT_EQ(found.measured.at_other->found_by, FoundBy::module);
  EXPECT_EQ(found.measured.at_other->place.module, "Net.b");
  EXPECT_EQ(found.measured.at_other->bytes, 6000U);
  ASSERT_TRUE(found.predicted.at_other);
  EXPECT_EQ(found.predicted.at_other->found_by, FoundBy::node);
  EXPECT_EQ(found.predicted.at_other->place.node, "MulBackward0");
  EXPECT_EQ(found.predicted.at_other->bytes, 2500U);
}

TEST(Peaks, StepsAndPhases) {
  TorchTrace one, other;
  const Net a0(one, true, 0);
  const Net a1(one, true, 1);
  const Net b0(other, false, 0);
  const Net b1(other, true, 1);
  const PeakComparison found = compared(one, other);
  ASSERT_EQ(found.steps.size(), 2U);
  EXPECT_EQ(found.steps[0].number, 0);
  EXPECT_EQ(found.steps[0].measured, 6500U);
  EXPECT_EQ(found.steps[0].predicted, 4000U);
  EXPECT_EQ(found.steps[1].predicted, 6500U);
  EXPECT_EQ(found.measured.phase_peaks[static_cast<int>(Phase::forward)], 6000U);
  EXPECT_EQ(found.measured.phase_peaks[static_cast<int>(Phase::recompute)], std::nullopt);
  // The peaks are those of step 0 and of step 1; each is looked for in its own step.
  EXPECT_EQ(*found.measured.peak.place.step, 0);
  EXPECT_EQ(*found.predicted.peak.place.step, 1);
  EXPECT_EQ(*found.predicted.at_other->place.step, 0);
}

// A region's recompute makes again what its forward gave up, two values in the small run and four in the large one.
struct Recomputing {
  Recomputing(TorchTrace& trace, int values) {
    const std::uint32_t root = trace.module("Net"), region = trace.region("checkpoint:0", root), inside = trace.module("a", region);
    trace.step(0);
    trace.phase = proto::PHASE_FORWARD;
    trace.make(0x1000, 100, root);
    trace.begin(region);
    for (int i = 0; i < values; ++i) {
      trace.make(0x10000 + 0x1000 * static_cast<std::uint64_t>(i), 3000, inside);
      trace.drop(i, 0x10000 + 0x1000 * static_cast<std::uint64_t>(i), inside);
      trace.free(0x10000 + 0x1000 * static_cast<std::uint64_t>(i));
    }
    trace.end(region);
    trace.phase = proto::PHASE_LOSS;
    trace.graph_node("MulBackward0", 1);
    trace.keep(0x1000, "MulBackward0.self");
    for (int i = 0; i < values; ++i) trace.use(i, region, "MulBackward0.other");
    trace.backward(1);
    trace.phase = proto::PHASE_BACKWARD;
    trace.node_begin("MulBackward0", 1);
    trace.begin_again(region);
    for (int i = 0; i < values; ++i) trace.make(0x20000 + 0x1000 * static_cast<std::uint64_t>(i), 3000, inside);
    for (int i = 0; i < values; ++i) trace.remake(i, 0x20000 + 0x1000 * static_cast<std::uint64_t>(i), region);
    trace.end_again(region);
    for (int i = 0; i < values; ++i) trace.free(0x20000 + 0x1000 * static_cast<std::uint64_t>(i));
    trace.node_end("MulBackward0", 1);
    trace.mark(proto::EVENT_BACKWARD_END);
    trace.free(0x1000);
    trace.mark(proto::EVENT_STEP_END);
  }
};

TEST(Peaks, WhatARecomputeHoldsAtOnceIsOneClass) {
  TorchTrace large, small;
  const Recomputing four(large, 4);
  const Recomputing two(small, 2);
  const PeakComparison found = compared(large, small);
  EXPECT_EQ(found.gap.difference, 6000);
  EXPECT_EQ(bytes_of(found, GapClass::recompute_working_set), 6000);
  for (std::size_t i = 0; i < gap_classes; ++i) {
    if (static_cast<GapClass>(i) == GapClass::recompute_working_set) continue;
    EXPECT_EQ(found.gap.parts[i].bytes, 0) << i;
  }
  EXPECT_EQ(found.measured.peak.place.phase, Phase::recompute);
}

// Two blocks; the first is done with when its node ends, and is let go there, or stays until after the peak in the next node.
TEST(Peaks, AValueThatLivesBeyondItsLastUse) {
  TorchTrace holding, releasing;
  for (TorchTrace* trace : {&holding, &releasing}) {
    const std::uint32_t root = trace->module("Net");
    trace->step(0);
    trace->phase = proto::PHASE_FORWARD;
    trace->make(0x1000, 1000, root);
    trace->make(0x2000, 2000, root);
    trace->phase = proto::PHASE_LOSS;
    trace->graph_node("SinBackward0", 2);
    trace->keep(0x1000, "SinBackward0.self");
    trace->graph_node("CosBackward0", 1);
    trace->keep(0x2000, "CosBackward0.self");
    trace->backward(2);
    trace->phase = proto::PHASE_BACKWARD;
    trace->node_begin("SinBackward0", 2);
    if (trace == &releasing) trace->free(0x1000);
    trace->node_end("SinBackward0", 2);
    trace->node_begin("CosBackward0", 1);
    trace->make(0x9000, 5000);
    trace->free(0x9000);
    trace->free(0x2000);
    trace->node_end("CosBackward0", 1);
    trace->mark(proto::EVENT_BACKWARD_END);
    if (trace == &holding) trace->free(0x1000);
    trace->mark(proto::EVENT_STEP_END);
  }
  const PeakComparison found = compared(holding, releasing);
  EXPECT_EQ(found.gap.difference, 1000);
  EXPECT_EQ(bytes_of(found, GapClass::over_retention), 1000);
  EXPECT_EQ(bytes_of(found, GapClass::extra_values), 0);
  EXPECT_EQ(found.gap.values.extra, 1U);
  EXPECT_EQ(found.gap.part(GapClass::over_retention).rows[0].name, "Net/SinBackward0.self");
}

// The recording began with 700 bytes out. Reserved at its peak: 4096, of which 1000 + 500 are blocks that the trace shows.
TEST(Peaks, ReservedIsBlocksAndCacheAndWhatWasThereBefore) {
  TinyTrace one, other;
  const auto fill = [](TinyTrace& trace, std::uint64_t before, std::uint64_t reserved) {
    const std::uint32_t heap = trace.heap("cuda:0");
    trace.alloc(heap, 0x1000, 1000, before + 1000, 2048);
    trace.alloc(heap, 0x2000, 500, before + 1500, reserved);
    trace.free(heap, 0x2000, before + 1000, reserved);
  };
  fill(one, 700, 4096);
  fill(other, 0, 3000);
  const PeakComparison found = compared(one, other, "reserved");
  EXPECT_EQ(*found.measured.peak.bytes, 4096U);
  EXPECT_EQ(found.gap.difference, 1096);
  EXPECT_EQ(bytes_of(found, GapClass::unattributed), 700);
  EXPECT_EQ(bytes_of(found, GapClass::cached), (4096 - 1500 - 700) - (3000 - 1500));
  EXPECT_EQ(found.measured.at_other->bytes, 4096U);
  EXPECT_EQ(found.verdict, Verdict::no_values);
}

// Reserved is at 4096 from the second block on; the moment that is shown is the one at which blocks fill most of it.
TEST(Peaks, OfReservedTheFullestMomentIsShown) {
  TinyTrace trace;
  const std::uint32_t heap = trace.heap("cuda:0");
  trace.alloc(heap, 0x1000, 1000, 1000, 2048);
  trace.alloc(heap, 0x2000, 500, 1500, 4096);
  trace.free(heap, 0x1000, 500, 4096);
  const std::uint64_t fullest = trace.alloc(heap, 0x3000, 3000, 3500, 4096);
  trace.free(heap, 0x3000, 500, 2048);
  trace.alloc(heap, 0x5000, 200, 700, 2048);
  const trace::TraceFile file = trace.open();
  TraceOptions options;
  options.counter = "reserved";
  const Result<TraceSide> read = TraceSide::read(file, options);
  ASSERT_TRUE(read);
  EXPECT_EQ(*read->side.peak.bytes, 4096U);
  EXPECT_EQ(read->side.peak.event, fullest);
  EXPECT_EQ(read->side.extras[static_cast<std::size_t>(GapClass::cached)], 4096 - 3500);
}

// What the driver gave out: 4096 bytes to the caching allocator, of which blocks take 3000, and the library's own.
void fill_device(TinyTrace& trace, std::uint64_t of_library, bool gives_back) {
  trace.source("c10");
  trace.source("driver");
  const std::uint32_t torch = trace.heap("cuda:0", 1), nccl = trace.heap("cuda:0/nccl", 2);
  trace.segment(torch, 0x100000, 4096);
  trace.alloc(torch, 0x100000, 1000, 1000, 4096);
  trace.segment(nccl, 0x900000, of_library);
  if (gives_back) trace.segment(nccl, 0x900000, of_library, true);
  trace.alloc(torch, 0x100800, 2000, 3000, 4096);
  trace.free(torch, 0x100800, 1000, 4096);
}

TEST(Peaks, OfTheDeviceIsBlocksAndCacheAndWhatLibrariesHold) {
  TinyTrace one, other;
  fill_device(one, 700, false);
  fill_device(other, 500, false);
  const PeakComparison found = compared(one, other, "device");
  EXPECT_EQ(*found.measured.peak.bytes, 4096U + 700);
  EXPECT_EQ(found.measured.peak.block_bytes, 3000U) << "of all its time at the peak the fullest moment is shown";
  EXPECT_EQ(found.gap.difference, 200);
  EXPECT_EQ(bytes_of(found, GapClass::outside_allocator), 200);
  EXPECT_EQ(bytes_of(found, GapClass::cached), 0);
  const GapPart& outside = found.gap.part(GapClass::outside_allocator);
  ASSERT_EQ(outside.rows.size(), 1U);
  EXPECT_EQ(outside.rows[0].name, "cuda:0/nccl");
  EXPECT_EQ(outside.rows[0].measured, 700U);
  EXPECT_EQ(outside.rows[0].predicted, 500U);
}

// The library gives its memory back before the second block comes: at the device's peak there is one block of 1000.
TEST(Peaks, OfTheDeviceIsTheTimeAtWhichItWasFullest) {
  TinyTrace one, other;
  fill_device(one, 700, true);
  fill_device(other, 700, false);
  const PeakComparison found = compared(one, other, "device");
  EXPECT_EQ(*found.measured.peak.bytes, 4096U + 700);
  EXPECT_EQ(found.measured.peak.block_bytes, 1000U);
  EXPECT_EQ(found.gap.difference, 0);
  EXPECT_EQ(bytes_of(found, GapClass::cached), 2000);
  EXPECT_EQ(bytes_of(found, GapClass::outside_allocator), 0);
  // Of the other counters nothing lies outside the allocator.
  EXPECT_EQ(bytes_of(compared(one, other, "reserved"), GapClass::outside_allocator), 0);
}

TEST(Peaks, AModelsDeviceIsWhatItReservesAndItsLibraries) {
  TinyTrace trace;
  fill_device(trace, 700, false);
  model::Model described;
  described.physical.caching_allocator = true;
  described.physical.communication = 300;
  described.physical.context = 5000;  // in no event of the driver
  model::StaticStorage weight;
  weight.id = "weight";
  weight.bytes = 3000;
  weight.memory_class = MemoryClass::parameter;
  described.statics.push_back(weight);
  const trace::TraceFile file = trace.open();
  TraceOptions options;
  options.counter = "device";
  const Result<PeakComparison> found = compare_with_model(file, options, described, {}, "a.textproto");
  ASSERT_TRUE(found) << found.error().message();
  options.counter = "reserved";
  const Result<PeakComparison> reserved = compare_with_model(file, options, described, {}, "a.textproto");
  ASSERT_TRUE(reserved) << reserved.error().message();
  EXPECT_EQ(*found->predicted.peak.bytes, *reserved->predicted.peak.bytes + 300);
  EXPECT_EQ(bytes_of(*found, GapClass::cached), bytes_of(*reserved, GapClass::cached));
  EXPECT_EQ(sum_of(found->gap), found->gap.difference);
  EXPECT_EQ(bytes_of(*found, GapClass::outside_allocator), 700 - 300);
}

// The blocks of a snapshot are counted as they were requested, those of a recording as they were allocated: without a wish the counter is
// the one that both have, whichever comes first.
TEST(Peaks, WithoutAWishTheCounterIsTheOneThatBothHave) {
  for (const bool snapshot_first : {true, false}) {
    TinyTrace snapshot, recording;
    snapshot.attribute("imported", R"({"from": "torch-snapshot", "block_bytes": "requested"})");
    snapshot.alloc(snapshot.heap("cuda:0"), 0x1000, 1000);
    const std::uint32_t heap = recording.heap("cuda:0");
    recording.alloc(heap, 0x1000, 1024);
    recording.counter(heap, recording.string("requested"), 900);
    const PeakComparison found = snapshot_first ? compared(snapshot, recording, "") : compared(recording, snapshot, "");
    EXPECT_EQ(found.measured.counter, "requested");
    EXPECT_EQ(found.predicted.counter, "requested");
    EXPECT_EQ(found.gap.difference, snapshot_first ? 100 : -100);
  }
  TinyTrace one, other;
  for (TinyTrace* trace : {&one, &other}) trace->alloc(trace->heap("cuda:0"), 0x1000, 1024);
  EXPECT_EQ(compared(one, other, "").measured.counter, "allocated");
}

// Both have 3100 of 4096 in blocks, one of them without a word about where. The other's moment outside of any step has fewer blocks: it is
// as high, and shows more difference.
TEST(Peaks, AMomentWithOtherBlocksIsNotTaken) {
  TinyTrace silent, speaking;
  for (TinyTrace* trace : {&silent, &speaking}) {
    const std::uint32_t heap = trace->heap("cuda:0");
    trace->alloc(heap, 0x9000, 100, 100, 2048);
    if (trace == &speaking) {
      trace->step(0);
      trace->phase = proto::PHASE_FORWARD;
    }
    trace->alloc(heap, 0x1000, 3000, 3100, 4096);
    trace->free(heap, 0x1000, 100, 4096);
    trace->phase = proto::PHASE_OTHER;
    trace->alloc(heap, 0x1000, 2000, 2100, 4096);
  }
  const PeakComparison found = compared(silent, speaking, "reserved");
  EXPECT_EQ(found.predicted.peak.place.phase, Phase::forward);
  EXPECT_EQ(found.predicted.peak.block_bytes, 3100U);
  EXPECT_EQ(bytes_of(found, GapClass::cached), 0);
}

// Reserved is 4096 in forward, with 3100 in blocks, and in backward, with 2100. The other run's peak is in backward: of the two moments
// that one is compared, and nothing of the first is left in its sums.
TEST(Peaks, OfEqualMomentsTheOthersIsTaken) {
  TinyTrace late, both;
  for (TinyTrace* trace : {&late, &both}) {
    const std::uint32_t heap = trace->heap("cuda:0");
    trace->alloc(heap, 0x9000, 100, 100, 2048);
    trace->step(0);
    trace->phase = proto::PHASE_FORWARD;
    if (trace == &both) {
      trace->alloc(heap, 0x1000, 3000, 3100, 4096);
      trace->free(heap, 0x1000, 100, 4096);
    }
    trace->phase = proto::PHASE_BACKWARD;
    trace->alloc(heap, 0x1000, 2000, 2100, 4096);
    trace->free(heap, 0x1000, 100, 4096);
    trace->mark(proto::EVENT_STEP_END);
  }
  const PeakComparison found = compared(late, both, "reserved");
  EXPECT_EQ(found.predicted.peak.place.phase, Phase::backward);
  EXPECT_EQ(found.predicted.peak.block_bytes, 2100U);
  for (const GapPart& part : found.gap.parts) EXPECT_EQ(part.bytes, 0);
}

// What is reserved before the step began, in the chunk that it begins in, is of the moment that is looked for.
TEST(Peaks, ReservedAtTheOthersPeakCountsWhatCameBeforeTheStep) {
  TinyTrace trace;
  const std::uint32_t heap = trace.heap("cuda:0");
  trace.alloc(heap, 0x9000, 100, 100, 2048);
  trace.alloc(heap, 0xa000, 100, 200, 3072);
  trace.free(heap, 0xa000, 100, 3072);
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  trace.alloc(heap, 0x1000, 900, 1000, 4096);
  const trace::TraceFile file = trace.open();
  const Result<ledger::PhysicalLedger> ledger = ledger::build_physical(file, {});
  ASSERT_TRUE(ledger);
  ledger::Place place;
  place.step = 0;
  place.phase = Phase::forward;
  const Result<ledger::FoundPlace> found = ledger::find_place(file, *ledger, place);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->by, FoundBy::phase);
  EXPECT_EQ(found->reserved, 4096U);
}

// Blocks that are counted as they were requested, by a snapshot or by an allocator that rounds nothing, are the counter at every moment.
TEST(Peaks, AtTheOthersPeakTheCounterIsTheSumOfItsBlocks) {
  for (const bool is_snapshot : {true, false}) {
    TinyTrace one, other;
    for (TinyTrace* trace : {&one, &other}) {
      if (is_snapshot) trace->attribute("imported", R"({"from": "torch-snapshot", "block_bytes": "requested"})");
      const std::uint32_t heap = trace->heap(is_snapshot ? "cuda:0" : "cpu");
      trace->alloc(heap, 0x1000, 1000);
      if (trace == &other) trace->alloc(heap, 0x2000, 500);
    }
    const PeakComparison found = compared(one, other, "requested");
    EXPECT_EQ(found.measured.at_other->bytes, 1000U) << is_snapshot;
    EXPECT_EQ(found.predicted.at_other->bytes, 1500U) << is_snapshot;
  }
}

// More values than are looked for outlive their last use. Of two equal moments the other's is taken, and what is said of the first one is
// not said again.
TEST(Peaks, AWarningIsSaidOnceThoughTheMomentIsReadAgain) {
  TorchTrace late, both;
  constexpr std::uint64_t values = 10'001;
  for (TorchTrace* trace : {&late, &both}) {
    const std::uint32_t root = trace->module("Net");
    trace->step(0);
    trace->phase = proto::PHASE_FORWARD;
    for (std::uint64_t i = 1; i <= values; ++i) trace->make(i * 0x1000, 8, root);
    trace->phase = proto::PHASE_LOSS;
    trace->graph_node("SinBackward0", 3);
    for (std::uint64_t i = 1; i <= values; ++i) trace->keep(i * 0x1000, "SinBackward0.self");
    trace->graph_node("CosBackward0", 2);
    trace->graph_node("TanBackward0", 1);
    trace->backward(3);
    trace->phase = proto::PHASE_BACKWARD;
    trace->node_begin("SinBackward0", 3);
    trace->node_end("SinBackward0", 3);
    for (const std::int64_t node : {2, 1}) {
      const std::string name = node == 2 ? "CosBackward0" : "TanBackward0";
      trace->node_begin(name, node);
      if (node == 1 || trace == &both) {
        trace->make(0x90000000, 5000);
        trace->free(0x90000000);
      }
      trace->node_end(name, node);
    }
    trace->mark(proto::EVENT_BACKWARD_END);
    for (std::uint64_t i = 1; i <= values; ++i) trace->free(i * 0x1000);
    trace->mark(proto::EVENT_STEP_END);
  }
  const PeakComparison found = compared(late, both);
  EXPECT_EQ(found.predicted.peak.place.node, "TanBackward0");
  EXPECT_EQ(found.predicted.peak_warnings, std::vector<std::string>{"of 10001 values that live too long the first 10000 were looked for"});
}

// Requested is read at the end of a step: its highest value is known, not when it was.
TEST(Peaks, RequestedIsBlocksWithoutRounding) {
  TinyTrace one, other;
  const auto fill = [](TinyTrace& trace, std::int64_t requested) {
    const std::uint32_t heap = trace.heap("cuda:0");
    trace.alloc(heap, 0x1000, 1024);
    trace.counter(heap, trace.string("requested"), requested);
  };
  fill(one, 1000);
  fill(other, 900);
  const PeakComparison found = compared(one, other, "requested");
  EXPECT_EQ(found.gap.difference, 100);
  EXPECT_EQ(bytes_of(found, GapClass::rounding), (1000 - 1024) - (900 - 1024));
  EXPECT_FALSE(found.measured.peak_moment_known);
}

TEST(Peaks, ACounterThatIsNotThereIsSaid) {
  TinyTrace one, other;
  for (TinyTrace* trace : {&one, &other}) trace->alloc(trace->heap("cuda:0"), 0x1000, 1024);
  EXPECT_EQ(refused(one, other, "reserved"), one.path() + ": the trace has no counter \"reserved\" of heap cuda:0 (it has allocated)");
}

TEST(Peaks, ATraceWithoutAllocationsHasNoPeak) {
  TinyTrace one, other;
  one.alloc(one.heap("cuda:0"), 0x1000, 1024);
  other.step(0);
  EXPECT_EQ(refused(one, other), other.path() + ": the trace has no allocation, so it has no peak");
}

TEST(Peaks, AnotherNetworkIsTold) {
  TorchTrace one, other;
  const Net net(one);
  const std::uint32_t root = other.module("Encoder");
  other.step(0);
  other.phase = proto::PHASE_FORWARD;
  other.make(0x1000, 1000, root);
  other.graph_node("MulBackward0", 1);
  other.keep(0x1000, "MulBackward0.self");
  other.backward(1);
  const PeakComparison found = compared(one, other);
  EXPECT_EQ(found.verdict, Verdict::another_network);
  EXPECT_FALSE(found.is_meaningful());
}

// Steps of 4,000, 5,000 and 9,000 ns: events are 1,000 ns apart. The first one warms up.
TEST(Peaks, MedianStepWithoutTheFirst) {
  TinyTrace trace;
  const std::uint32_t heap = trace.heap("cpu");
  const auto step = [&](std::int64_t number, int events) {
    trace.step(number);
    for (int i = 1; i < events; ++i)
      trace.alloc(heap, 0x1000 * static_cast<std::uint64_t>(trace.add(test::event(proto::EVENT_SCOPE_BEGIN, 0)) + 1), 8);
  };
  step(0, 40);
  step(1, 2);
  step(2, 3);
  step(3, 5);
  trace.mark(proto::EVENT_STEP_END, 3);
  const trace::TraceFile file = trace.open();
  const Result<ledger::PhysicalLedger> ledger = ledger::build_physical(file);
  ASSERT_TRUE(ledger);
  Result<Pace> pace = pace_of(file, *ledger, {});
  ASSERT_TRUE(pace);
  EXPECT_EQ(pace->steps, 3U);
  EXPECT_EQ(pace->median_ns, 5000U);  // of 3,000, 5,000 and 9,000: a step mark and pairs of events
  pace->samples_per_step = 10;
  EXPECT_DOUBLE_EQ(*pace->samples_per_second(), 10 * 1e9 / 5000);
  EXPECT_FALSE(pace->only_the_first);
}

// Random blocks in random modules and phases, with a graph over some of them: whatever the two traces are, the classes sum up.
TEST(Peaks, ClassesOfRandomTracesSumToTheDifference) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    TorchTrace traces[2];
    for (TorchTrace& trace : traces) {
      const std::uint32_t root = trace.module("Net");
      std::uint32_t modules[] = {root, trace.module("a", root), trace.module("b", root), 0};
      std::vector<std::uint64_t> live;
      std::uint64_t next = 0x10000;
      const auto blocks = [&](int count, int phase) {
        trace.phase = phase;
        for (int i = 0; i < count; ++i) {
          if (live.empty() || random() % 3 != 0) {
            trace.make(next, random() % 5000, modules[random() % 4]);
            live.push_back(next);
            next += 0x10000;
          } else {
            const std::size_t which = random() % live.size();
            trace.free(live[which]);
            live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
          }
        }
      };
      blocks(5, proto::PHASE_OTHER);
      for (int step = 0; step < 2; ++step) {
        trace.step(step);
        blocks(20, proto::PHASE_FORWARD);
        trace.phase = proto::PHASE_LOSS;
        for (std::size_t i = 0; i < live.size(); i += 2) {
          trace.graph_node("N" + std::to_string(i % 3), static_cast<std::int64_t>(i));
          trace.keep(live[i], "N" + std::to_string(i % 3) + ".self");
        }
        trace.backward(static_cast<std::int64_t>(live.size()));
        for (int node = 0; node < 4; ++node) {
          trace.node_begin("N" + std::to_string(node % 3), 2 * node);
          blocks(6, random() % 4 == 0 ? proto::PHASE_RECOMPUTE : proto::PHASE_BACKWARD);
          trace.node_end("N" + std::to_string(node % 3), 2 * node);
        }
        trace.mark(proto::EVENT_BACKWARD_END);
        blocks(5, proto::PHASE_OPTIMIZER);
      }
    }
    const PeakComparison found = compared(traces[0], traces[1]);
    const auto sum = [](const ledger::ClassBytes& classes) { return std::accumulate(classes.begin(), classes.end(), std::uint64_t{0}); };
    for (const Side* side : {&found.measured, &found.predicted}) {
      ASSERT_EQ(sum(side->peak.classes), *side->peak.bytes);
      ASSERT_TRUE(side->at_other);
      ASSERT_LE(side->at_other->block_bytes, *side->peak.bytes);
      std::uint64_t items = 0;
      for (const Item& item : side->items) items += item.bytes;
      ASSERT_EQ(items, *side->peak.bytes);
    }
  }
}

// The allocator gives 42 MiB for 41.5, since of its segment no more than 1 MiB would be left, and for 42. The model's peak of allocated is
// 42 MiB in forward, with 0.5 that is no block's; and at the other's peak, in backward, just the block: of equals that one is taken.
TEST(Peaks, OfEqualMomentsOfAModelTheSumIsThatOfTheOneTaken) {
  constexpr std::uint64_t half = 512 << 10;
  const auto compare = [&](std::uint64_t in_backward) {
    TinyTrace trace;
    const std::uint32_t heap = trace.heap("cuda:0");
    trace.step(0);
    trace.phase = proto::PHASE_BACKWARD;
    trace.alloc(heap, 0x1000, in_backward);
    const Result<model::Model> parsed = model::parse_model(
        "conventions { release: LISTED drop: REGION_END rerun: EARLY_STOP boundary: PHYSICAL_COPY }\n"
        "general {\n"
        "  tensor { id: 'a' bytes: " +
            std::to_string(83 * half) +
            " }\n"
            "  tensor { id: 'b' bytes: " +
            std::to_string(in_backward) +
            " }\n"
            "  op { id: 'f' writes: 'a' frees: 'a' }\n"
            "  op { id: 'loss' phase: 'loss' }\n"
            "  op { id: 'g' phase: 'backward' writes: 'b' frees: 'b' }\n"
            "}\n",
        "m.textproto");
    if (!parsed) throw std::runtime_error(parsed.error().message());
    model::Model described = *parsed;
    described.physical.caching_allocator = true;
    const trace::TraceFile file = trace.open();
    Result<PeakComparison> found = compare_with_model(file, {"", "allocated"}, described, *model::parse_policy("save-all"), "m.textproto");
    if (!found) throw std::runtime_error(found.error().message());
    EXPECT_EQ(sum_of(found->gap), found->gap.difference);
    EXPECT_EQ(*found->predicted.peak.bytes, 84 * half);
    return std::move(*found);
  };
  const PeakComparison equal = compare(84 * half);
  EXPECT_EQ(equal.predicted.peak.place.phase, Phase::backward);
  EXPECT_EQ(equal.gap.difference, 0);
  EXPECT_EQ(bytes_of(equal, GapClass::rounding), 0);
  // What the allocator gives at another moment is between the blocks and its peak, and not known.
  const PeakComparison lower = compare(82 * half);
  EXPECT_EQ(lower.predicted.peak.place.phase, Phase::forward);
  ASSERT_TRUE(lower.predicted.at_other);
  EXPECT_EQ(lower.predicted.at_other->place.phase, Phase::backward);
  EXPECT_EQ(lower.predicted.at_other->block_bytes, 82 * half);
  EXPECT_EQ(lower.predicted.at_other->bytes, std::nullopt);
}

// A chain of three values of 8 bytes and its trace, told by the program itself, which keeps one value less.
TEST(Peaks, AModelsValuesByTheirNames) {
  TinyTrace trace;
  const std::uint32_t heap = trace.heap("arena");
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  for (const std::string name : {"h0", "h2"}) {
    const std::uint64_t address = name == "h0" ? 0x1000 : 0x2000;
    trace.alloc(heap, address, 8);
    trace.value_event(proto::EVENT_VALUE_CREATE, trace.value(name), heap, address);
  }
  const trace::TraceFile file = trace.open();
  const Result<model::Model> chain = model::make_chain({8, 8, 8}, {1, 1});
  const Result<PeakComparison> found = compare_with_model(file, {}, *chain, *model::parse_policy("save-all"), "chain");
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(*found->predicted.peak.bytes, 24U);
  EXPECT_EQ(found->gap.difference, -8);
  EXPECT_EQ(bytes_of(*found, GapClass::missing_values), -8);
  EXPECT_EQ(found->gap.part(GapClass::missing_values).rows.at(0).name, "h1");
  EXPECT_EQ(found->gap.values.matched, 2U);
  EXPECT_EQ(found->verdict, Verdict::comparable);
  ASSERT_EQ(found->steps.size(), 1U);
  EXPECT_EQ(found->steps[0].predicted, 24U);
}

// Step 0 makes states of 50 bytes in its optimizer phase, which step 1 finds; that is where both are highest.
TEST(Peaks, AModelsStatesComeInTheStepBeforeTheOneThatFindsThem) {
  TinyTrace trace;
  const std::uint32_t heap = trace.heap("arena");
  for (std::int64_t number = 0; number < 2; ++number) {
    trace.step(number);
    trace.phase = proto::PHASE_FORWARD;
    trace.alloc(heap, 0x1000, 24);
    trace.free(heap, 0x1000);
    trace.phase = proto::PHASE_OPTIMIZER;
    if (number == 0) trace.alloc(heap, 0x2000, 50);
    trace.mark(proto::EVENT_STEP_END, number);
  }
  const trace::TraceFile file = trace.open();
  Result<model::Model> chain = model::make_chain({8, 8, 8}, {1, 1});
  model::StaticStorage moments;
  moments.id = "moments";
  moments.bytes = 50;
  moments.memory_class = MemoryClass::optimizer_state;
  moments.from_step = 1;
  chain->statics.push_back(moments);
  for (const std::uint64_t step : {0, 1}) {
    Result<ModelSide> side = ModelSide::make(*chain, *model::parse_policy("save-all"), {"chain", "requested", step});
    ASSERT_TRUE(side) << side.error().message();
    EXPECT_EQ(*side->side.peak.bytes, step == 0 ? 50U : 74U);
    EXPECT_EQ(side->side.peak.place.phase, step == 0 ? Phase::optimizer : Phase::forward);
    EXPECT_EQ(side->side.peak.place.node_number, step == 0 ? 0U : 1U);
    // Whichever step is predicted, the others are told alike.
    EXPECT_EQ(side->step_peak(0), 50U);
    EXPECT_EQ(side->step_peak(1), 74U);
  }
  const Result<PeakComparison> found = compare_with_model(file, {}, *chain, *model::parse_policy("save-all"), "chain");
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(*found->measured.peak.bytes, 74U);
  EXPECT_EQ(found->gap.difference, 0);
  ASSERT_EQ(found->steps.size(), 2U);
  EXPECT_EQ(found->steps[0].measured, found->steps[0].predicted);
  EXPECT_EQ(found->steps[1].measured, found->steps[1].predicted);
}

TEST(Peaks, AModelWithoutBytesPredictsNoPeak) {
  TinyTrace trace;
  trace.alloc(trace.heap("arena"), 0x1000, 8);
  const trace::TraceFile file = trace.open();
  const Result<model::Model> chain = model::make_chain({0, 0, 0}, {1, 1});
  const Result<PeakComparison> found = compare_with_model(file, {}, *chain, *model::parse_policy("save-all"), "chain");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message(), "chain: the model states no bytes, so it predicts no peak (give its tensors bytes or size)");
}

}  // namespace
}  // namespace liveset::compare
