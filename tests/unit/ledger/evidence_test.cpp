// Why a block has its class: what format 1.2 states of autograd's nodes, of regions and of tensors, and what lifetimes show.
#include <gmock/gmock.h>

#include "tests/support/tiny_trace.h"
#include "viewer/ledger/attribution.h"
#include "viewer/ledger/classes.h"

namespace liveset::ledger {
namespace {

using test::TinyTrace;
using testing::Pair;

// A trace with the Python source, one heap and a step, from which on events are those of a training loop.
struct Job : TinyTrace {
  Job() {
    source("python");
    cpu = heap("cpu");
    step(0);
  }
  std::uint64_t node(int kind, std::uint32_t name, std::int64_t number = 0) {
    writer::Event made = test::event(kind, 0);
    made.name = name;
    made.number = number;
    return add(made);
  }
  std::uint64_t enter(std::uint32_t name) { return node(proto::EVENT_NODE_BEGIN, name); }
  std::uint64_t leave(std::uint32_t name) { return node(proto::EVENT_NODE_END, name); }
  // Of a tensor: dtype as in the format, index of a region's slot.
  std::uint64_t tensor(int kind, std::uint64_t address, int memory_class, std::uint32_t name, int dtype, std::int64_t index = -1,
                       std::uint32_t scope = 0) {
    writer::Event made = test::event(kind, 0);
    made.heap = cpu;
    made.address = address;
    made.memory_class = static_cast<std::uint8_t>(memory_class);
    made.name = name;
    made.scope = scope;
    made.number = (dtype + 1) | (index + 1) << 8;
    return add(made);
  }
  std::uint64_t alloc(std::uint64_t address) { return TinyTrace::alloc(cpu, address, 10); }
  std::uint64_t free(std::uint64_t address) { return TinyTrace::free(cpu, address); }

  void build(std::uint64_t details_at = no_event) {
    file = std::make_unique<trace::TraceFile>(open());
    Result<PhysicalLedger> built = build_physical(*file);
    if (!built) throw std::runtime_error(built.error().message());
    Result<Attribution> attributed = attribute_blocks(*file, *built, {details_at, {}});
    if (!attributed) throw std::runtime_error(attributed.error().message());
    ledger = std::move(*built);
    found = std::move(*attributed);
  }
  // Of the block with that ordinal.
  std::pair<MemoryClass, Evidence> of(std::uint64_t ordinal) const {
    const Block& block = *ledger.blocks.find(ordinal);
    return {class_of(block), block.evidence()};
  }

  std::uint32_t cpu = 0;
  std::unique_ptr<trace::TraceFile> file;
  PhysicalLedger ledger;
  Attribution found;
};

TEST(Evidence, ABackwardsBlocksAreToldApartByItsNodes) {
  Job job;
  const auto mul = job.string("MulBackward0"), add = job.string("AddBackward0"), accumulate = job.string("AccumulateGrad");
  job.backward();
  job.phase = proto::PHASE_BACKWARD;
  job.alloc(0x1000);  // 0: the loss's own gradient, before the first node
  job.enter(mul);
  job.alloc(0x2000);  // 1: scratch of the node
  job.free(0x2000);
  job.alloc(0x3000);  // 2: what it hands on
  job.alloc(0x4000);  // 3: a gradient that somebody asked for
  job.leave(mul);
  job.free(0x1000);
  job.enter(accumulate);
  job.alloc(0x5000);  // 4: a copy that becomes .grad, and that the program lets go of before backward ends
  job.leave(accumulate);
  job.free(0x5000);
  job.enter(add);
  job.free(0x3000);
  job.leave(add);
  job.mark(proto::EVENT_BACKWARD_END);
  job.build();
  EXPECT_THAT(job.of(0), Pair(MemoryClass::activation_gradient, Evidence::root_gradient));
  EXPECT_THAT(job.of(1), Pair(MemoryClass::temporary, Evidence::in_node));
  EXPECT_THAT(job.of(2), Pair(MemoryClass::activation_gradient, Evidence::between_nodes));
  EXPECT_THAT(job.of(3), Pair(MemoryClass::gradient, Evidence::outlives_backward));
  EXPECT_THAT(job.of(4), Pair(MemoryClass::gradient, Evidence::accumulated));
  EXPECT_TRUE(is_guess(Evidence::outlives_backward));
  EXPECT_FALSE(is_guess(Evidence::accumulated));
}

// A library's workspace is made once, wherever it is needed first.
TEST(Evidence, WhatOutlivesItsStepWithoutAWordIsNoGradient) {
  Job job;
  const auto mul = job.string("MulBackward0");
  job.step(1);
  job.backward();
  job.phase = proto::PHASE_BACKWARD;
  job.enter(mul);
  job.alloc(0x1000);  // 0: never freed
  job.alloc(0x2000);  // 1: freed in the next step
  job.alloc(0x3000);  // 2: freed in this one
  job.leave(mul);
  job.mark(proto::EVENT_BACKWARD_END);
  job.phase = proto::PHASE_OTHER;
  job.free(0x3000);
  job.step(2);
  job.free(0x2000);
  job.build();
  EXPECT_THAT(job.of(0), Pair(MemoryClass::temporary, Evidence::lifetime));
  EXPECT_THAT(job.of(1), Pair(MemoryClass::temporary, Evidence::lifetime));
  EXPECT_THAT(job.of(2), Pair(MemoryClass::gradient, Evidence::outlives_backward));
}

TEST(Evidence, AStatedGradientIsOneAtEveryEventOfItsLife) {
  Job job;
  const auto mul = job.string("MulBackward0");
  job.backward();
  job.phase = proto::PHASE_BACKWARD;
  job.enter(mul);
  const auto born = job.alloc(0x1000);
  job.leave(mul);
  job.storage(job.cpu, 0x1000, proto::CLASS_GRADIENT);
  job.mark(proto::EVENT_BACKWARD_END);
  job.build();
  EXPECT_THAT(job.of(0), Pair(MemoryClass::gradient, Evidence::storage));
  const std::uint64_t moments[] = {born};
  EXPECT_EQ(class_bytes_at(job.ledger, job.cpu, moments)[0][static_cast<std::size_t>(MemoryClass::gradient)], 10U);
}

TEST(Evidence, NodesOfOtherThreadsBelongToTheOpenBackward) {
  Job job;
  const auto mul = job.string("MulBackward0");
  job.backward();
  job.thread = 2;
  job.phase = proto::PHASE_BACKWARD;
  job.enter(mul);
  job.alloc(0x1000);
  job.alloc(0x2000);
  job.leave(mul);
  job.free(0x1000);
  job.thread = 1;
  job.mark(proto::EVENT_BACKWARD_END);
  job.free(0x2000);
  job.build();
  EXPECT_THAT(job.of(0), Pair(MemoryClass::activation_gradient, Evidence::between_nodes));
  EXPECT_THAT(job.of(1), Pair(MemoryClass::gradient, Evidence::outlives_backward));
}

TEST(Evidence, ANodeThatRaisedEndsWithItsBackward) {
  Job job;
  const auto mul = job.string("MulBackward0");
  job.backward();
  job.phase = proto::PHASE_BACKWARD;
  job.enter(mul);
  job.alloc(0x1000);
  job.free(0x1000);
  job.mark(proto::EVENT_BACKWARD_END);
  job.alloc(0x2000);  // of no node
  job.leave(mul);     // of nothing
  job.build();
  EXPECT_THAT(job.of(0), Pair(MemoryClass::temporary, Evidence::in_node));
  EXPECT_THAT(job.of(1), Pair(MemoryClass::temporary, Evidence::lifetime));
}

TEST(Evidence, WhatABackwardWithoutEndHoldsIsAGuess) {
  Job job;
  const auto mul = job.string("MulBackward0");
  job.backward();
  job.phase = proto::PHASE_BACKWARD;
  job.enter(mul);
  job.alloc(0x1000);
  job.alloc(0x2000);
  job.leave(mul);
  job.free(0x1000);
  job.build();
  EXPECT_THAT(job.of(0), Pair(MemoryClass::activation_gradient, Evidence::between_nodes));
  EXPECT_THAT(job.of(1), Pair(MemoryClass::activation_gradient, Evidence::unfinished_backward));
}

TEST(Evidence, WhatDiesInThePhaseItWasBornInWasHeldForNothingElse) {
  Job job;
  job.phase = proto::PHASE_FORWARD;
  job.alloc(0x1000);  // 0
  job.free(0x1000);
  job.alloc(0x2000);  // 1: dies in the loss
  job.phase = proto::PHASE_LOSS;
  job.free(0x2000);
  job.alloc(0x3000);  // 2
  job.free(0x3000);
  job.alloc(0x4000);  // 3: lives over the walk, and nothing names it
  job.backward();
  job.mark(proto::EVENT_BACKWARD_END);
  job.free(0x4000);
  job.phase = proto::PHASE_OPTIMIZER;
  job.alloc(0x5000);  // 4
  job.free(0x5000);
  job.phase = proto::PHASE_OTHER;
  job.alloc(0x6000);  // 5
  job.build();
  for (const int ordinal : {0, 2, 4}) EXPECT_THAT(job.of(ordinal), Pair(MemoryClass::temporary, Evidence::in_phase)) << ordinal;
  EXPECT_THAT(job.of(1), Pair(MemoryClass::temporary, Evidence::lifetime));
  EXPECT_THAT(job.of(3), Pair(MemoryClass::temporary, Evidence::lifetime));
  EXPECT_EQ(job.of(5).first, MemoryClass::unattributed);  // after the last backward of its step, outside of every phase
}

TEST(Evidence, WhatAnOutOfMemoryUnwindsIsNoTemporaryOfItsForward) {
  Job job;
  job.phase = proto::PHASE_FORWARD;
  job.alloc(0x1000);
  job.out_of_memory(job.cpu, 1 << 30);
  job.free(0x1000);
  job.phase = proto::PHASE_OTHER;
  job.mark(proto::EVENT_STEP_END);
  job.build();
  EXPECT_THAT(job.of(0), Pair(MemoryClass::unattributed, Evidence::none));
}

TEST(Evidence, WhatARegionReadsAgainIsItsInputAndWhatItGaveUpAndLivesIsDoubtful) {
  Job job;
  const auto region = job.scope(proto::SCOPE_REGION, "checkpoint:0"), inside = job.scope(proto::SCOPE_MODULE, "f1", region);
  job.phase = proto::PHASE_FORWARD;
  job.alloc(0x1000);  // 0: a variable that the region reads
  job.begin(region);
  job.alloc(0x2000);  // 1: given up, and held by something
  job.alloc(0x3000);  // 2: given up, and freed
  for (std::uint64_t i = 0; i < 3; ++i)
    job.tensor(proto::EVENT_VALUE_DROP, 0x1000 * (i + 1), proto::CLASS_ACTIVATION, 0, proto::FLOAT32, static_cast<std::int64_t>(i), inside);
  job.end(region);
  job.free(0x3000);
  job.backward();
  job.phase = proto::PHASE_RECOMPUTE;
  job.begin(region);
  job.tensor(proto::EVENT_VALUE_REMAKE, 0x1000, proto::CLASS_RECOMPUTED_ACTIVATION, 0, proto::FLOAT32, 0, region);
  const auto last = job.end(region);
  job.build(last);
  EXPECT_THAT(job.of(0), Pair(MemoryClass::checkpoint_input, Evidence::read_again));
  EXPECT_THAT(job.of(1), Pair(MemoryClass::temporary, Evidence::dropped_alive));
  EXPECT_THAT(job.of(2), Pair(MemoryClass::temporary, Evidence::dropped));
  EXPECT_TRUE(is_guess(Evidence::read_again) && is_guess(Evidence::dropped_alive));
}

TEST(Evidence, ARegionsSlotsAreGivenUpAndMadeAgain) {
  Job job;
  const auto region = job.scope(proto::SCOPE_REGION, "checkpoint:0"), inside = job.scope(proto::SCOPE_MODULE, "f1", region);
  job.phase = proto::PHASE_FORWARD;
  job.alloc(0x9000);  // 0: taken in from outside by the region
  job.begin(region);
  job.alloc(0x1000);  // 1: saved, and given up
  job.tensor(proto::EVENT_VALUE_DROP, 0x1000, proto::CLASS_ACTIVATION, 0, proto::FLOAT32, 3, inside);
  job.tensor(proto::EVENT_VALUE_DROP, 0x9000, 0, 0, proto::FLOAT32, 4, inside);
  job.phase = proto::PHASE_OTHER;
  job.end(region);
  job.free(0x1000);
  job.storage(job.cpu, 0x9000, proto::CLASS_CHECKPOINT_INPUT);
  job.backward();
  job.mark(proto::EVENT_MICROBATCH_BEGIN, 2);
  job.phase = proto::PHASE_RECOMPUTE;
  job.begin(region);
  job.alloc(0x2000);  // 2: made again
  job.alloc(0x3000);  // 3: outlives the region, in no slot
  job.alloc(0x4000);  // 4
  job.free(0x4000);
  job.tensor(proto::EVENT_VALUE_REMAKE, 0x2000, proto::CLASS_RECOMPUTED_ACTIVATION, 0, proto::BFLOAT16, 3, region);
  job.tensor(proto::EVENT_VALUE_REMAKE, 0x9000, proto::CLASS_RECOMPUTED_ACTIVATION, 0, proto::FLOAT32, 4, region);
  const auto last = job.end(region);
  job.begin(region);  // once more, for a second backward
  job.alloc(0x5000);  // 5
  job.end(region);
  job.build(last + 2);
  EXPECT_THAT(job.of(0), Pair(MemoryClass::checkpoint_input, Evidence::storage));
  EXPECT_THAT(job.of(1), Pair(MemoryClass::temporary, Evidence::dropped));
  EXPECT_THAT(job.of(2), Pair(MemoryClass::recomputed_activation, Evidence::remade));
  EXPECT_THAT(job.of(3), Pair(MemoryClass::recomputed_activation, Evidence::outlives_recompute));
  EXPECT_THAT(job.of(4), Pair(MemoryClass::temporary, Evidence::in_recompute));
  const BlockDetails& remade = job.found.details.at(2);
  EXPECT_EQ(remade.region, region);
  EXPECT_EQ(remade.slot, 3);
  EXPECT_EQ(remade.dtype, proto::BFLOAT16);
  EXPECT_EQ(remade.incarnation, 1U);
  EXPECT_EQ(remade.microbatch, 2);
  EXPECT_EQ(job.found.details.at(5).incarnation, 2U);
  EXPECT_EQ(job.found.details.at(0).incarnation, 0U);
  EXPECT_EQ(job.found.details.count(1), 0U);  // does not live then
}

// Own checkpoint functions run their forward again inside a node, with no region around it: the phase tells.
TEST(Evidence, ARecomputeWithoutARegionIsKnownByItsPhase) {
  Job job;
  const auto own = job.string("OwnCheckpointBackward");
  job.backward();
  job.phase = proto::PHASE_BACKWARD;
  job.enter(own);
  job.phase = proto::PHASE_RECOMPUTE;
  job.alloc(0x1000);
  job.alloc(0x2000);
  job.free(0x2000);
  job.phase = proto::PHASE_BACKWARD;
  job.free(0x1000);
  job.leave(own);
  job.mark(proto::EVENT_BACKWARD_END);
  job.build();
  EXPECT_THAT(job.of(0), Pair(MemoryClass::recomputed_activation, Evidence::outlives_recompute));
  EXPECT_THAT(job.of(1), Pair(MemoryClass::temporary, Evidence::in_recompute));
}

TEST(Evidence, StatementsWithoutAValueOrAClassAreReadAsTheyAre) {
  Job job;
  const auto reduce = job.string("all_reduce"), slot = job.string("MulBackward0.self"), node = job.string("MulBackward0");
  const auto gathered = job.string("gathered:model.weight"), list = job.string("list in train.py");
  for (const std::uint64_t address : {0x1000, 0x2000, 0x3000, 0x4000, 0x5000}) job.alloc(address);
  const auto speak = [&](int kind, std::uint64_t address, std::uint32_t name) {
    writer::Event made = test::event(kind, 0);
    made.heap = job.cpu;
    made.address = address;
    made.size = 10;
    made.name = name;
    job.add(made);
  };
  speak(proto::EVENT_COLLECTIVE, 0x1000, reduce);
  job.tensor(proto::EVENT_VALUE_OFFLOAD, 0x2000, 0, slot, proto::FLOAT16);
  job.node(proto::EVENT_GRAPH_NODE, node, 7);
  job.tensor(proto::EVENT_VALUE_RETAIN, 0x3000, proto::CLASS_ACTIVATION, slot, proto::INT64);
  job.tensor(proto::EVENT_STORAGE, 0x4000, proto::CLASS_PARAMETER, gathered, proto::FLOAT32);
  speak(proto::EVENT_HOLDER, 0x5000, list);
  speak(proto::EVENT_HOLDER, 0x8888, list);  // of a storage that was never seen
  const auto last = job.backward();
  job.build(last);
  EXPECT_THAT(job.of(0), Pair(MemoryClass::communication, Evidence::collective));
  EXPECT_THAT(job.of(1), Pair(MemoryClass::offloaded, Evidence::offload));
  EXPECT_THAT(job.of(2), Pair(MemoryClass::activation, Evidence::graph));
  EXPECT_THAT(job.of(3), Pair(MemoryClass::parameter, Evidence::storage));
  EXPECT_THAT(job.of(4), Pair(MemoryClass::temporary, Evidence::lifetime));
  EXPECT_EQ(job.found.orphans, 0U);
  EXPECT_EQ(job.found.details.at(2).slot_name.node, node);
  EXPECT_EQ(job.found.details.at(2).slot_name.slot, slot);
  EXPECT_EQ(job.found.details.at(2).dtype, proto::INT64);
  EXPECT_EQ(job.found.details.at(0).dtype, trace::TensorFacts::no_dtype);
  EXPECT_TRUE(job.found.details.at(3).gathered);
  EXPECT_FALSE(job.found.details.at(2).gathered);
}

// Deeper than anything that runs, and never closed: time and memory stay those of the events.
TEST(Evidence, EndlessNestingIsBounded) {
  Job job;
  const auto mul = job.string("MulBackward0"), other = job.string("Other");
  const auto region = job.scope(proto::SCOPE_REGION, "checkpoint:0");
  job.phase = proto::PHASE_BACKWARD;
  for (int i = 0; i < 5000; ++i) {
    job.backward();
    job.enter(mul);
    job.begin(region);
    job.alloc(0x1000 + 16ULL * static_cast<unsigned>(i));
    job.leave(other);
  }
  for (int i = 0; i < 6000; ++i) job.mark(proto::EVENT_BACKWARD_END);
  job.build();
  EXPECT_EQ(job.of(0).first, MemoryClass::gradient);
}

}  // namespace
}  // namespace liveset::ledger
