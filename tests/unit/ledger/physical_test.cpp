// Peak logic on tiny sequences whose answers are worked out by hand in the comments.
#include "viewer/ledger/physical.h"

#include <gmock/gmock.h>

#include "tests/support/tiny_trace.h"
#include "viewer/ledger/classes.h"
#include "viewer/ledger/details.h"

namespace liveset::ledger {
namespace {

using test::TinyTrace;
using testing::ElementsAre;

PhysicalLedger built(TinyTrace& trace, const PhysicalOptions& options = {}) {
  const trace::TraceFile file = trace.open();
  Result<PhysicalLedger> ledger = build_physical(file, options);
  if (!ledger) throw std::runtime_error(ledger.error().message());
  return std::move(*ledger);
}

std::uint64_t live_bytes(const PhysicalLedger& ledger, std::uint64_t event) {
  std::uint64_t sum = 0;
  for (const std::uint32_t ordinal : live_blocks(ledger, ledger.shown_heap, event))
    sum += ledger.blocks.bytes(*ledger.blocks.find(ordinal));
  return sum;
}

TEST(Peak, OfNothingIsAbsent) {
  TinyTrace trace;
  const PhysicalLedger ledger = built(trace);
  EXPECT_EQ(ledger.shown_heap, 0U);
  EXPECT_FALSE(ledger.shown().allocated.known);
}

TEST(Peak, OfOneBlockIsThatBlock) {
  TinyTrace trace;
  const auto heap = trace.heap("cpu");
  trace.alloc(heap, 0x1000, 100);
  const PhysicalLedger ledger = built(trace);
  EXPECT_EQ(ledger.shown().allocated.peak, 100U);
  EXPECT_EQ(ledger.shown().allocated.peak_event, 0U);
  EXPECT_EQ(ledger.shown().allocated.final, 100U);
  EXPECT_EQ(ledger.open_blocks(), 1U);
}

TEST(Peak, StaysWhereItWasReachedFirst) {
  // sums: 100, 0, 100
  TinyTrace trace;
  const auto heap = trace.heap("cpu");
  trace.alloc(heap, 0x1000, 100);
  trace.free(heap, 0x1000);
  trace.alloc(heap, 0x1000, 100);
  const PhysicalLedger ledger = built(trace);
  EXPECT_EQ(ledger.shown().allocated.peak, 100U);
  EXPECT_EQ(ledger.shown().allocated.peak_event, 0U);
}

TEST(Peak, LiveSetIsWhatLivesAfterTheEvent) {
  // sums: 10, 30, 60, 50, 70, 40
  TinyTrace trace;
  const auto heap = trace.heap("cpu");
  trace.alloc(heap, 0xa0, 10);
  trace.alloc(heap, 0xb0, 20);
  trace.alloc(heap, 0xc0, 30);
  trace.free(heap, 0xa0);
  trace.alloc(heap, 0xa0, 20);
  trace.free(heap, 0xc0);
  const PhysicalLedger ledger = built(trace);
  EXPECT_EQ(ledger.shown().allocated.peak, 70U);
  EXPECT_EQ(ledger.shown().allocated.peak_event, 4U);
  EXPECT_THAT(live_blocks(ledger, heap, 4), ElementsAre(1, 2, 3));
  EXPECT_THAT(live_blocks(ledger, heap, 5), ElementsAre(1, 3));
  const std::vector<std::uint64_t> expected = {10, 30, 60, 50, 70, 40};
  for (std::uint64_t event = 0; event < expected.size(); ++event) EXPECT_EQ(live_bytes(ledger, event), expected[event]) << event;
}

TEST(Peak, HeapsAreSeparateAndTheFullestDeviceIsShown) {
  TinyTrace trace;
  const auto cpu = trace.heap("cpu"), small = trace.heap("cuda:0"), large = trace.heap("cuda:1"), unused = trace.heap("cuda:2");
  trace.alloc(cpu, 0x1000, 1000);
  trace.alloc(small, 0x1000, 10);
  trace.alloc(large, 0x1000, 20);
  trace.free(cpu, 0x1000);
  const PhysicalLedger ledger = built(trace);
  EXPECT_EQ(ledger.shown_heap, large);
  EXPECT_EQ(ledger.heaps[cpu].allocated.peak, 1000U);
  EXPECT_EQ(ledger.heaps[cpu].allocated.final, 0U);
  EXPECT_EQ(ledger.heaps[small].allocated.peak, 10U);
  EXPECT_EQ(ledger.heaps[large].allocated.peak, 20U);
  EXPECT_FALSE(ledger.heaps[unused].allocated.known);
}

TEST(Peak, WithoutADeviceCpuIsShownBeforeLargerArenas) {
  TinyTrace trace;
  const auto arena = trace.heap("cpu/arena"), cpu = trace.heap("cpu");
  trace.alloc(arena, 0x1000, 1000);
  trace.alloc(cpu, 0x1000, 10);
  EXPECT_EQ(built(trace).shown_heap, cpu);
}

TEST(Peak, BlocksBeyondFourGibibytesAreExact) {
  TinyTrace trace;
  const auto heap = trace.heap("cuda:0");
  const std::uint64_t large = (80ULL << 30) + 7, edge = 0x80000000ULL;
  trace.alloc(heap, 0x10000000000, large);
  trace.alloc(heap, 0x90000000000, edge);
  trace.alloc(heap, 0xa0000000000, edge - 1);
  trace.free(heap, 0x10000000000);
  const PhysicalLedger ledger = built(trace);
  EXPECT_EQ(ledger.shown().allocated.peak, large + edge + edge - 1);
  EXPECT_EQ(ledger.shown().allocated.final, edge + edge - 1);
}

TEST(Peak, AnEmptyBlockLivesAndWeighsNothing) {
  TinyTrace trace;
  const auto heap = trace.heap("cpu");
  trace.alloc(heap, 0x10, 0);
  trace.alloc(heap, 0x20, 1);
  const PhysicalLedger ledger = built(trace);
  EXPECT_EQ(ledger.shown().live_blocks, 2U);
  EXPECT_EQ(ledger.shown().allocated.peak, 1U);
}

TEST(PeakInRange, IsOfTheEventsInIt) {
  // sums: 100, 50 | 50, 80 | 80, 200
  TinyTrace trace;
  const auto heap = trace.heap("cpu");
  trace.alloc(heap, 0x1000, 50);
  trace.alloc(heap, 0x2000, 50);
  trace.free(heap, 0x2000);
  trace.mark(proto::EVENT_MICROBATCH_BEGIN);
  trace.alloc(heap, 0x3000, 30);
  trace.mark(proto::EVENT_MICROBATCH_END);
  trace.alloc(heap, 0x4000, 120);
  PhysicalOptions options;
  options.range = {3, 6};
  const PhysicalLedger ledger = built(trace, options);
  EXPECT_EQ(ledger.shown().allocated.peak, 80U);
  EXPECT_EQ(ledger.shown().allocated.peak_event, 4U);
  EXPECT_EQ(ledger.shown().allocated.final, 200U);  // of the trace
}

TEST(PeakInRange, TheLevelAtItsBeginCounts) {
  // sums: 50, 100 | 70, 60 | 200: the range peaks at its first event, although that is a free
  TinyTrace trace;
  const auto heap = trace.heap("cpu");
  trace.alloc(heap, 0x1000, 50);
  trace.alloc(heap, 0x2000, 30);
  trace.alloc(heap, 0x3000, 10);
  trace.alloc(heap, 0x4000, 10);
  trace.free(heap, 0x2000);
  trace.free(heap, 0x3000);
  trace.alloc(heap, 0x5000, 140);
  PhysicalOptions options;
  options.range = {4, 6};
  const PhysicalLedger ledger = built(trace, options);
  EXPECT_EQ(ledger.shown().allocated.peak, 70U);
  EXPECT_EQ(ledger.shown().allocated.peak_event, 4U);
}

TEST(Steps, EachHasItsPeakAndThoseOfItsPhases) {
  TinyTrace trace;
  const auto heap = trace.heap("cpu");
  trace.alloc(heap, 0x1, 5);  // 0: outside any step
  trace.step(7);              // 1: other, 5 live
  trace.phase = proto::PHASE_FORWARD;
  trace.alloc(heap, 0x1000, 100);  // 2: 105
  trace.alloc(heap, 0x2000, 20);   // 3: 125
  trace.free(heap, 0x2000);        // 4: 105
  trace.phase = proto::PHASE_BACKWARD;
  trace.backward(12);  // 5: 105
  trace.phase = proto::PHASE_RECOMPUTE;
  trace.alloc(heap, 0x3000, 90);  // 6: 195
  trace.phase = proto::PHASE_BACKWARD;
  trace.free(heap, 0x1000);  // 7: 95
  trace.step(8);             // 8: 95
  trace.free(heap, 0x3000);  // 9: 5
  const PhysicalLedger ledger = built(trace);
  ASSERT_EQ(ledger.steps.size(), 2U);
  const Step& step = ledger.steps[0];
  EXPECT_EQ(step.number, 7);
  EXPECT_EQ(step.first_event, 1U);
  EXPECT_EQ(step.end_event, 8U);
  EXPECT_EQ(step.peak().peak_bytes, 195);
  EXPECT_EQ(step.peak().peak_event, 6U);
  EXPECT_EQ(step.phases[1].peak_bytes, 125);
  EXPECT_EQ(step.phases[1].peak_event, 3U);
  EXPECT_EQ(step.phases[1].allocations, 2U);
  EXPECT_EQ(step.phases[3].peak_bytes, 105);
  EXPECT_EQ(step.phases[4].peak_bytes, 195);
  EXPECT_EQ(step.phases[4].allocations, 1U);
  EXPECT_EQ(step.phases[5].peak_bytes, -1);          // no optimizer
  EXPECT_EQ(ledger.steps[1].peak().peak_bytes, 95);  // the level it begins at
  EXPECT_EQ(ledger.steps[1].end_event, 10U);
  ASSERT_EQ(ledger.backwards.size(), 1U);
  EXPECT_EQ(ledger.backwards[0].event, 5U);
  EXPECT_EQ(ledger.backwards[0].live_bytes, 105U);
  EXPECT_EQ(ledger.backwards[0].nodes, 12);
  EXPECT_EQ(ledger.backwards[0].step, 0U);
  EXPECT_EQ(step_at(ledger, 0), std::nullopt);
  EXPECT_EQ(step_at(ledger, 1), 7);
  EXPECT_EQ(step_at(ledger, 7), 7);
  EXPECT_EQ(step_at(ledger, 8), 8);
}

TEST(Steps, AnEndedStepOwnsNothingAfterIt) {
  TinyTrace trace;
  const auto heap = trace.heap("cpu");
  trace.step(0);
  trace.alloc(heap, 0x1000, 10);
  trace.mark(proto::EVENT_STEP_END, 0);
  trace.alloc(heap, 0x2000, 90);
  const PhysicalLedger ledger = built(trace);
  EXPECT_EQ(ledger.steps[0].peak().peak_bytes, 10);
  EXPECT_EQ(ledger.steps[0].end_event, 3U);
  EXPECT_EQ(step_at(ledger, 3), std::nullopt);
  EXPECT_TRUE(ledger.blocks.find(0)->in_step());
  EXPECT_FALSE(ledger.blocks.find(1)->in_step());
  EXPECT_EQ(ledger.phases[0].peak_bytes, 100);  // of the whole trace
}

TEST(Conservation, TheBaselineIsNoMismatch) {
  // The allocator had 1,000 bytes out before the first event.
  TinyTrace trace;
  const auto heap = trace.heap("cpu");
  trace.alloc(heap, 0x1000, 10, 1010, 4096);
  trace.alloc(heap, 0x2000, 20, 1030, 4096);
  trace.free(heap, 0x1000, 1020, 2048);
  const PhysicalLedger ledger = built(trace);
  EXPECT_EQ(ledger.shown().baseline_bytes, 1000);
  EXPECT_EQ(ledger.shown().checked_events, 3U);
  EXPECT_EQ(ledger.mismatched_events(), 0U);
  EXPECT_EQ(ledger.shown().reserved.peak, 4096U);
  EXPECT_EQ(ledger.shown().reserved.peak_event, 0U);
  EXPECT_EQ(ledger.shown().reserved.final, 2048U);
  EXPECT_EQ(ledger.shown().reserved_below_total, 0U);
}

TEST(Conservation, EveryDifferenceIsCountedAndTheFirstAreShown) {
  TinyTrace trace;
  const auto heap = trace.heap("cpu"), other = trace.heap("cuda:0");
  trace.alloc(heap, 0x1000, 10, 10, 0);
  trace.alloc(other, 0x1000, 10, 10, 0);
  trace.alloc(heap, 0x2000, 20, 37, 0);  // ours: 30
  trace.free(heap, 0x1000, 20, 0);       // ours: 20
  trace.free(other, 0x1000, 1, 0);       // ours: 0
  const PhysicalLedger ledger = built(trace);
  EXPECT_EQ(ledger.mismatched_events(), 2U);
  ASSERT_EQ(ledger.mismatches.size(), 2U);
  EXPECT_EQ(ledger.mismatches[0].event, 2U);
  EXPECT_EQ(ledger.mismatches[0].heap, heap);
  EXPECT_EQ(ledger.mismatches[0].found - ledger.mismatches[0].expected, 7);
  EXPECT_EQ(ledger.mismatches[1].event, 4U);
  EXPECT_EQ(ledger.mismatches[1].found, 1);
}

TEST(Conservation, ReservedOfZeroIsUnknown) {
  TinyTrace trace;
  const auto heap = trace.heap("cpu");
  trace.alloc(heap, 0x1000, 10, 10, 0);
  const PhysicalLedger ledger = built(trace);
  EXPECT_FALSE(ledger.shown().reserved.known);
  EXPECT_EQ(ledger.shown().reserved_below_total, 0U);
}

TEST(Conservation, LessReservedThanAllocatedIsSaid) {
  TinyTrace trace;
  const auto heap = trace.heap("cpu");
  trace.alloc(heap, 0x1000, 10, 10, 9);
  EXPECT_EQ(built(trace).shown().reserved_below_total, 1U);
}

TEST(Conservation, SegmentsMustEqualReserved) {
  TinyTrace trace;
  const auto heap = trace.heap("cuda:0");
  trace.segment(heap, 0x10000, 2048);
  trace.alloc(heap, 0x10000, 10, 10, 2048);
  trace.segment(heap, 0x20000, 1024);
  trace.alloc(heap, 0x10200, 10, 20, 3072);
  trace.alloc(heap, 0x10400, 10, 30, 3073);  // one more than its segments
  const PhysicalLedger ledger = built(trace);
  EXPECT_EQ(ledger.shown().segments.peak, 3072U);
  EXPECT_EQ(ledger.shown().segments_not_reserved, 1U);
}

TEST(Frees, OfBlocksThatWereNotSeenAreCounted) {
  TinyTrace trace;
  const auto heap = trace.heap("cpu");
  trace.alloc(heap, 0x1000, 10);
  trace.free(heap, 0x9000);
  const PhysicalLedger ledger = built(trace);
  EXPECT_EQ(ledger.unmatched_frees, 1U);
  EXPECT_EQ(ledger.shown().allocated.final, 10U);
}

// Heaps beyond the last that is told apart: refused, and nothing is read outside the table of heaps on the way.
TEST(Heaps, MoreThanAreToldApartAreRefused) {
  for (const std::uint32_t heap : {4096U, 8191U, 65535U}) {
    TinyTrace trace;
    trace.alloc(heap, 0x1000, 10);
    trace.free(heap, 0x1000);
    const trace::TraceFile file = trace.open();
    const Result<PhysicalLedger> ledger = build_physical(file);
    ASSERT_FALSE(ledger);
    EXPECT_NE(ledger.error().what.find("heaps"), std::string::npos);
  }
}

// Three chunks of which the middle one is damaged: blocks freed there stay, and the ledger says that sums are off.
TEST(Holes, AreCountedAndSaid) {
  TinyTrace trace;
  const auto heap = trace.heap("cpu");
  constexpr std::uint64_t chunk = 65536;
  trace.alloc(heap, 0x10, 1000);
  while (trace.mark(proto::EVENT_MICROBATCH_BEGIN) + 1 < chunk) continue;
  trace.free(heap, 0x10);  // in the middle chunk, like the next block
  trace.alloc(heap, 0x20, 7);
  while (trace.mark(proto::EVENT_MICROBATCH_BEGIN) + 1 < 2 * chunk) continue;
  trace.free(heap, 0x20);  // of a block in the hole
  trace.alloc(heap, 0x30, 50);
  std::string bytes;
  std::uint64_t damaged = 0;
  {
    const trace::TraceFile whole = trace.open();
    ASSERT_EQ(whole.chunks().size(), 3U);
    damaged = (whole.chunks()[1].offset + whole.chunks()[2].offset) / 2;
    bytes = test::read_file(trace.path());
  }
  bytes[damaged] = static_cast<char>(bytes[damaged] ^ 0x55);
  test::write_file(trace.path(), bytes);
  const PhysicalLedger ledger = built(trace);
  EXPECT_EQ(ledger.holes, 1U);
  EXPECT_EQ(ledger.sums_off_after_holes, 1U);
  EXPECT_EQ(ledger.unmatched_frees, 1U);
  EXPECT_EQ(ledger.shown().allocated.peak, 1050U);  // the freed block still counts
  EXPECT_EQ(ledger.shown().allocated.peak_event, 2 * chunk + 1);
  EXPECT_EQ(ledger.events, 2 * chunk + 2);
}

TEST(Counters, AreSampled) {
  TinyTrace trace;
  const auto heap = trace.heap("cuda:0");
  const auto requested = trace.string("requested");
  trace.counter(heap, requested, 10);
  trace.counter(heap, requested, 30);
  trace.counter(heap, requested, 20);
  const PhysicalLedger ledger = built(trace);
  ASSERT_EQ(ledger.counters.size(), 1U);
  EXPECT_EQ(ledger.counters[0].peak, 30);
  EXPECT_EQ(ledger.counters[0].peak_event, 1U);
  EXPECT_EQ(ledger.counters[0].final, 20);
}

TEST(Blocks, AreDescribedFromTheirBirth) {
  TinyTrace trace;
  const auto heap = trace.heap("cpu");
  const auto root = trace.scope(proto::SCOPE_MODULE, "GPT"), layer = trace.scope(proto::SCOPE_MODULE, "ln1", root);
  trace.alloc(heap, 0x1000, 10);
  trace.step(3);
  trace.phase = proto::PHASE_FORWARD;
  trace.begin(layer);
  trace.alloc(heap, 0x2000, 20);
  const trace::TraceFile file = trace.open();
  Result<PhysicalLedger> ledger = build_physical(file);
  ASSERT_TRUE(ledger);
  const std::vector<std::uint32_t> ordinals = {0, 1};
  const auto details = describe_blocks(file, *ledger, ordinals);
  ASSERT_TRUE(details);
  ASSERT_EQ(details->size(), 2U);
  EXPECT_EQ((*details)[0].address, 0x1000U);
  EXPECT_EQ((*details)[0].step, std::nullopt);
  const BlockDetail& second = (*details)[1];
  EXPECT_EQ(second.address, 0x2000U);
  EXPECT_EQ(second.bytes, 20U);
  EXPECT_EQ(second.birth, 3U);
  EXPECT_EQ(second.death, no_event);
  EXPECT_EQ(second.birth_time_ns, 3000U);
  EXPECT_EQ(second.phase, trace::Phase::forward);
  EXPECT_EQ(second.step, 3);
  EXPECT_EQ(file.dictionary().module_path(second.scope), "GPT.ln1");
}

TEST(Physical, OutOfMemorySaysWhatWasAskedAndWhatWasAllocated) {
  TinyTrace trace;
  const auto cuda = trace.heap("cuda:0");
  trace.alloc(cuda, 0x1000, 10);
  const std::uint64_t event = trace.out_of_memory(cuda, 1000);
  const Result<PhysicalLedger> ledger = build_physical(trace.open());
  ASSERT_EQ(ledger->out_of_memory.size(), 1U);
  EXPECT_EQ(ledger->out_of_memory[0].event, event);
  EXPECT_EQ(ledger->out_of_memory[0].asked_bytes, 1000U);
  EXPECT_EQ(ledger->out_of_memory[0].allocated_bytes, 10U);
}

}  // namespace
}  // namespace liveset::ledger
