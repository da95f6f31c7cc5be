// What decides a block's class, one piece of evidence at a time, and how values and blocks are reconciled.
#include "viewer/ledger/classes.h"

#include <gmock/gmock.h>

#include "tests/support/tiny_trace.h"
#include "viewer/ledger/attribution.h"

namespace liveset::ledger {
namespace {

using test::TinyTrace;

struct Built {
  trace::TraceFile file;
  PhysicalLedger ledger;
  Attribution found;

  MemoryClass of(std::uint64_t ordinal) const { return class_of(*ledger.blocks.find(ordinal)); }
  std::uint64_t bytes_at(std::uint64_t event, MemoryClass memory_class) const {
    const std::uint64_t events[] = {event};
    return class_bytes_at(ledger, ledger.shown_heap, events)[0][static_cast<std::size_t>(memory_class)];
  }
};

Built built(TinyTrace& trace, std::uint64_t details_at = no_event) {
  trace::TraceFile file = trace.open();
  Result<PhysicalLedger> ledger = build_physical(file);
  if (!ledger) throw std::runtime_error(ledger.error().message());
  Result<Attribution> found = attribute_blocks(file, *ledger, {details_at, {}});
  if (!found) throw std::runtime_error(found.error().message());
  return {std::move(file), std::move(*ledger), std::move(*found)};
}

// A trace with the Python source and one heap.
struct PythonTrace : TinyTrace {
  PythonTrace() {
    source("python");
    cpu = heap("cpu");
  }
  std::uint32_t cpu = 0;
};

TEST(Classes, WithoutEvidenceOrPythonNothingIsKnown) {
  TinyTrace trace;
  const auto cpu = trace.heap("cpu");
  trace.alloc(cpu, 0x1000, 10);
  trace.step(0);
  trace.alloc(cpu, 0x2000, 10);
  const Built ledger = built(trace);
  EXPECT_EQ(ledger.of(0), MemoryClass::unattributed);
  EXPECT_EQ(ledger.of(1), MemoryClass::unattributed);
}

TEST(Classes, WithPythonWhatNothingRetainsIsAnInputOrATemporary) {
  PythonTrace trace;
  trace.alloc(trace.cpu, 0x1000, 10);
  trace.step(0);
  trace.alloc(trace.cpu, 0x2000, 10);
  trace.backward();
  const Built ledger = built(trace);
  EXPECT_EQ(ledger.of(0), MemoryClass::input);
  EXPECT_EQ(ledger.of(1), MemoryClass::temporary);
}

TEST(Classes, WhatLivesOnInAStepWithoutABackwardIsUnattributed) {
  PythonTrace trace;
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  trace.alloc(trace.cpu, 0x1000, 10);  // autograd may hold it: nothing says so or not
  trace.alloc(trace.cpu, 0x2000, 10);
  trace.free(trace.cpu, 0x2000);
  trace.step(1);
  trace.alloc(trace.cpu, 0x3000, 10);
  trace.backward();  // this step's graph
  trace.phase = proto::PHASE_OPTIMIZER;
  trace.alloc(trace.cpu, 0x4000, 10);
  const Built ledger = built(trace);
  EXPECT_EQ(ledger.of(0), MemoryClass::unattributed);
  EXPECT_EQ(ledger.of(1), MemoryClass::temporary);
  EXPECT_EQ(ledger.of(2), MemoryClass::temporary);
  EXPECT_EQ(ledger.of(3), MemoryClass::temporary);
}

TEST(Classes, WhatAnOutOfMemoryUnwindsIsUnattributed) {
  PythonTrace trace;
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  trace.alloc(trace.cpu, 0x1000, 10);
  trace.alloc(trace.cpu, 0x2000, 10);
  trace.free(trace.cpu, 0x2000);
  trace.out_of_memory(trace.cpu, 1000);
  trace.free(trace.cpu, 0x1000);  // the exception lets go of the graph
  const Built ledger = built(trace);
  EXPECT_EQ(ledger.of(0), MemoryClass::unattributed);
  EXPECT_EQ(ledger.of(1), MemoryClass::temporary);
}

TEST(Classes, WithoutAStepNothingIsAnInput) {
  PythonTrace trace;
  trace.alloc(trace.cpu, 0x1000, 10);
  EXPECT_EQ(built(trace).of(0), MemoryClass::unattributed);
}

TEST(Classes, BeforePythonSpokeNothingIsAnInput) {
  TinyTrace trace;
  const auto cpu = trace.heap("cpu");
  trace.alloc(cpu, 0x1000, 10);
  trace.writer().flush();
  trace.source("python");
  trace.alloc(cpu, 0x2000, 10);
  trace.step(0);
  const Built ledger = built(trace);
  EXPECT_EQ(ledger.found.python_since, 1U);
  EXPECT_EQ(ledger.of(0), MemoryClass::unattributed);
  EXPECT_EQ(ledger.of(1), MemoryClass::input);
}

TEST(Classes, RetainedIsAnActivationFromBirthToDeath) {
  PythonTrace trace;
  trace.step(0);
  trace.alloc(trace.cpu, 0x1000, 10);  // 1
  trace.retain(trace.cpu, 0x1000);     // 2
  trace.backward();                    // 3
  trace.free(trace.cpu, 0x1000);       // 4
  trace.phase = proto::PHASE_BACKWARD;
  trace.alloc(trace.cpu, 0x1000, 10);  // 5: the address again, another block
  const Built ledger = built(trace);
  EXPECT_EQ(ledger.of(0), MemoryClass::activation);
  EXPECT_EQ(ledger.of(1), MemoryClass::temporary);
  EXPECT_EQ(ledger.bytes_at(1, MemoryClass::activation), 10U);  // before the retain was stated
  EXPECT_EQ(ledger.bytes_at(4, MemoryClass::activation), 0U);
  EXPECT_EQ(ledger.bytes_at(5, MemoryClass::activation), 0U);
}

TEST(Classes, AnInputThatTheGraphRetainsIsAnActivation) {
  PythonTrace trace;
  trace.alloc(trace.cpu, 0x1000, 10);
  trace.step(0);
  trace.retain(trace.cpu, 0x1000);
  EXPECT_EQ(built(trace).of(0), MemoryClass::activation);
}

TEST(Classes, ParameterComesBeforeEverythingElse) {
  PythonTrace trace;
  trace.alloc(trace.cpu, 0x1000, 10);
  trace.storage(trace.cpu, 0x1000, proto::CLASS_GRADIENT);
  trace.retain(trace.cpu, 0x1000);
  trace.storage(trace.cpu, 0x1000, proto::CLASS_PARAMETER);
  EXPECT_EQ(built(trace).of(0), MemoryClass::parameter);
}

TEST(Classes, AnAddressInsideABlockNamesIt) {
  PythonTrace trace;
  trace.alloc(trace.cpu, 0x1000, 0x100);
  trace.alloc(trace.cpu, 0x1100, 0x100);
  trace.storage(trace.cpu, 0x10ff, proto::CLASS_PARAMETER);  // last byte of the first
  trace.step(0);
  const Built ledger = built(trace);
  EXPECT_EQ(ledger.of(0), MemoryClass::parameter);
  EXPECT_EQ(ledger.of(1), MemoryClass::input);
  EXPECT_EQ(ledger.found.orphans, 0U);
}

TEST(Classes, TheSameAddressInAnotherHeapIsAnotherBlock) {
  PythonTrace trace;
  const auto cuda = trace.heap("cuda:0");
  trace.alloc(trace.cpu, 0x1000, 10);
  trace.alloc(cuda, 0x1000, 10);
  trace.storage(cuda, 0x1000, proto::CLASS_PARAMETER);
  trace.step(0);
  const Built ledger = built(trace);
  EXPECT_EQ(ledger.of(0), MemoryClass::input);
  EXPECT_EQ(ledger.of(1), MemoryClass::parameter);
}

TEST(Classes, WhatOutlivesItsRecomputeRegionIsARecomputedActivation) {
  PythonTrace trace;
  const auto region = trace.scope(proto::SCOPE_REGION, "checkpoint:0");
  trace.step(0);
  trace.phase = proto::PHASE_BACKWARD;
  trace.begin(region);
  trace.phase = proto::PHASE_RECOMPUTE;
  trace.alloc(trace.cpu, 0x1000, 10);  // dies inside
  trace.alloc(trace.cpu, 0x2000, 10);  // outlives it
  trace.free(trace.cpu, 0x1000);
  trace.thread = 2;
  trace.alloc(trace.cpu, 0x3000, 10);  // another thread's recompute, whose region is not this one
  trace.thread = 1;
  trace.end(region);
  trace.phase = proto::PHASE_BACKWARD;
  trace.alloc(trace.cpu, 0x4000, 10);
  trace.free(trace.cpu, 0x2000);
  const Built ledger = built(trace);
  EXPECT_EQ(ledger.of(0), MemoryClass::temporary);
  EXPECT_EQ(ledger.of(1), MemoryClass::recomputed_activation);
  EXPECT_EQ(ledger.of(2), MemoryClass::temporary);
  EXPECT_EQ(ledger.of(3), MemoryClass::temporary);
}

TEST(Classes, ARegionThatDoesNotRecomputeMarksNothing) {
  PythonTrace trace;
  const auto region = trace.scope(proto::SCOPE_REGION, "checkpoint:0");
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  trace.begin(region);
  trace.alloc(trace.cpu, 0x1000, 10);
  trace.end(region);
  trace.backward();
  EXPECT_EQ(built(trace).of(0), MemoryClass::temporary);
}

TEST(Classes, ValuesOfAProgramDecideWithoutPython) {
  TinyTrace trace;
  const auto arena = trace.heap("cpu/arena");
  const auto h0 = trace.value("h0"), h1 = trace.value("h1");
  trace.alloc(arena, 0x1000, 8);
  trace.value_event(proto::EVENT_VALUE_CREATE, h0, arena, 0x1000);
  trace.alloc(arena, 0x2000, 8);
  trace.value_event(proto::EVENT_VALUE_REMAKE, h1, arena, 0x2000);
  trace.alloc(arena, 0x3000, 8);
  const Built ledger = built(trace);
  EXPECT_EQ(ledger.of(0), MemoryClass::activation);
  EXPECT_EQ(ledger.of(1), MemoryClass::recomputed_activation);
  EXPECT_EQ(ledger.of(2), MemoryClass::unattributed);
}

TEST(Classes, OfAMomentSumToTheRunningSum) {
  PythonTrace trace;
  trace.alloc(trace.cpu, 0x1000, 1);                         // 0 input
  trace.alloc(trace.cpu, 0x2000, 2);                         // 1 parameter
  trace.storage(trace.cpu, 0x2000, proto::CLASS_PARAMETER);  // 2
  trace.step(0);                                             // 3
  trace.alloc(trace.cpu, 0x3000, 4);                         // 4 activation
  trace.alloc(trace.cpu, 0x4000, 8);                         // 5 temporary
  trace.retain(trace.cpu, 0x3000);                           // 6
  trace.free(trace.cpu, 0x4000);                             // 7
  trace.free(trace.cpu, 0x3000);                             // 8
  const Built ledger = built(trace);
  const std::vector<std::uint64_t> moments = {0, 4, 5, 7, 8};
  const auto classes = class_bytes_at(ledger.ledger, ledger.ledger.shown_heap, moments);
  const auto of = [&](std::size_t moment, MemoryClass memory_class) { return classes[moment][static_cast<std::size_t>(memory_class)]; };
  const std::uint64_t sums[] = {1, 7, 15, 7, 3};
  for (std::size_t i = 0; i < moments.size(); ++i) {
    std::uint64_t sum = 0;
    for (const std::uint64_t bytes : classes[i]) sum += bytes;
    EXPECT_EQ(sum, sums[i]) << moments[i];
    EXPECT_EQ(of(i, MemoryClass::input), 1U);
    EXPECT_EQ(of(i, MemoryClass::parameter), i == 0 ? 0U : 2U);
    EXPECT_EQ(of(i, MemoryClass::activation), i == 0 || i == 4 ? 0U : 4U);
    EXPECT_EQ(of(i, MemoryClass::temporary), i == 2 ? 8U : 0U);
  }
}

TEST(Reconciliation, AStatementWithoutABlockIsAnOrphan) {
  PythonTrace trace;
  trace.alloc(trace.cpu, 0x1000, 10);
  trace.free(trace.cpu, 0x1000);
  trace.statement(proto::EVENT_VALUE_RETAIN, trace.cpu, 0x1000, proto::CLASS_ACTIVATION, 0, 0, 10);  // freed
  trace.statement(proto::EVENT_STORAGE, trace.cpu, 0x5000, proto::CLASS_PARAMETER, 0, 0, 7);         // never seen
  trace.step(0);
  const Built ledger = built(trace);
  EXPECT_EQ(ledger.found.statements, 2U);
  EXPECT_EQ(ledger.found.orphans, 2U);
  EXPECT_EQ(ledger.found.orphan_bytes, 17U);
  ASSERT_EQ(ledger.found.first_orphans.size(), 2U);
  EXPECT_EQ(ledger.found.first_orphans[0].event, 2U);
  EXPECT_EQ(ledger.found.first_orphans[1].address, 0x5000U);
  EXPECT_EQ(ledger.of(0), MemoryClass::input);
}

TEST(Reconciliation, RetainedSetsCountStoragesOnce) {
  PythonTrace trace;
  trace.alloc(trace.cpu, 0x1000, 10);
  trace.alloc(trace.cpu, 0x2000, 20);
  trace.alloc(trace.cpu, 0x3000, 40);
  trace.step(0);
  trace.retain(trace.cpu, 0x1000);
  trace.retain(trace.cpu, 0x1000);
  trace.retain(trace.cpu, 0x3000, proto::CLASS_PARAMETER);
  trace.backward();
  trace.retain(trace.cpu, 0x2000);
  trace.backward();
  const Built ledger = built(trace);
  ASSERT_EQ(ledger.found.retained.size(), 2U);
  EXPECT_EQ(ledger.found.retained[0].slots, 3U);
  EXPECT_EQ(ledger.found.retained[0].storages, 2U);
  EXPECT_EQ(ledger.found.retained[0].bytes, 50U);
  EXPECT_EQ(ledger.found.retained[0].parameter_storages, 1U);
  EXPECT_EQ(ledger.found.retained[0].parameter_bytes, 40U);
  EXPECT_EQ(ledger.found.retained[1].storages, 1U);
}

TEST(Reconciliation, ABlockFreedAfterTheReleaseIsOverRetained) {
  TinyTrace trace;
  const auto arena = trace.heap("cpu/arena");
  const auto h0 = trace.value("h0"), h1 = trace.value("h1");
  trace.alloc(arena, 0x1000, 500);                                  // 0
  trace.value_event(proto::EVENT_VALUE_CREATE, h0, arena, 0x1000);  // 1
  trace.alloc(arena, 0x2000, 8);                                    // 2
  trace.value_event(proto::EVENT_VALUE_CREATE, h1, arena, 0x2000);  // 3
  trace.value_event(proto::EVENT_VALUE_RELEASE, h0);                // 4, at 4,000 ns
  trace.free(arena, 0x2000);                                        // 5: h1 is not released yet
  trace.value_event(proto::EVENT_VALUE_RELEASE, h1);                // 6
  trace.free(arena, 0x1000);                                        // 7, at 7,000 ns
  const Built ledger = built(trace);
  EXPECT_EQ(ledger.found.over_retained_blocks, 1U);
  EXPECT_EQ(ledger.found.over_retained_bytes, 500U);
  EXPECT_EQ(ledger.found.longest_delay_ns, 3000U);
  EXPECT_DOUBLE_EQ(ledger.found.over_retained_byte_seconds, 500 * 3000e-9);
  ASSERT_EQ(ledger.found.worst.size(), 1U);
  EXPECT_EQ(ledger.found.worst[0].value, h0);
  EXPECT_EQ(ledger.found.worst[0].released_event, 4U);
  EXPECT_EQ(ledger.found.freed_before_release, 1U);
}

TEST(Reconciliation, SeveralValuesInOneBlockShareIt) {
  TinyTrace trace;
  const auto arena = trace.heap("cpu/arena");
  const auto base = trace.value("base"), view = trace.value("view");
  trace.alloc(arena, 0x1000, 64);
  trace.value_event(proto::EVENT_VALUE_CREATE, base, arena, 0x1000);
  trace.value_event(proto::EVENT_VALUE_ALIAS, view, arena, 0x1010);
  trace.value_event(proto::EVENT_VALUE_RELEASE, base);  // the view still lives in it: no delay yet
  trace.value_event(proto::EVENT_VALUE_RELEASE, view);
  trace.free(arena, 0x1000);
  const Built ledger = built(trace);
  EXPECT_EQ(ledger.found.shared_blocks, 1U);
  EXPECT_EQ(ledger.found.over_retained_blocks, 1U);
  EXPECT_EQ(ledger.found.worst[0].value, view);
  EXPECT_EQ(ledger.found.worst[0].delay_ns, 1000U);
}

TEST(Reconciliation, NamesAreKeptForTheMomentThatIsAskedFor) {
  PythonTrace trace;
  const auto slot = trace.string("AddmmBackward0.mat1");
  trace.alloc(trace.cpu, 0x1000, 10);                              // 0
  trace.retain(trace.cpu, 0x1000, proto::CLASS_ACTIVATION, slot);  // 1
  trace.free(trace.cpu, 0x1000);                                   // 2
  trace.alloc(trace.cpu, 0x1000, 10);                              // 3
  trace.retain(trace.cpu, 0x1000, proto::CLASS_ACTIVATION, slot);  // 4
  const Built ledger = built(trace, 1);
  ASSERT_EQ(ledger.found.details.size(), 1U);
  EXPECT_EQ(ledger.found.details.begin()->first, 0U);
  EXPECT_EQ(ledger.found.details.begin()->second.names.front().name, slot);
}

}  // namespace
}  // namespace liveset::ledger
