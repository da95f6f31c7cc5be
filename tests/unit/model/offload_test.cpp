// Offload windows and pipeline schedules on small chains, every number worked out by hand.
//
// In a chain h0 .. hn backward of layer i reads h_i and h_(i-1), the loss reads h_n; the loss and the ops of backward make nothing. So what
// is on the device is values alone, and a chain of 1 byte a value counts them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "viewer/model/predict.h"
#include "viewer/model/search.h"

namespace liveset::model {
namespace {

using ledger::LogicalKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Model model_of(const std::string& text) {
  Result<Model> model = parse_model(text, "m.textproto");
  EXPECT_TRUE(model) << model.error().message();
  return std::move(*model);
}

Prediction predicted(const Model& model, const std::string& policy) {
  Result<Prediction> prediction = predict(model, *parse_policy(policy));
  EXPECT_TRUE(prediction) << policy << ": " << prediction.error().message();
  EXPECT_EQ(prediction->ledger.broken_count, 0U) << policy;
  EXPECT_TRUE(prediction->ledger.live_at_end.empty()) << policy;
  return std::move(*prediction);
}

// "forward offload h1": what moves, in order.
std::vector<std::string> moves(const Prediction& prediction) {
  std::vector<std::string> found;
  for (const ledger::LogicalEvent& event : prediction.ledger.events)
    if (event.kind == LogicalKind::offload || event.kind == LogicalKind::prefetch)
      found.push_back(std::string(trace::phase_name(event.phase)) + " " + std::string(logical_kind_name(event.kind)) + " " +
                      prediction.ledger.values[event.value].name);
  return found;
}

std::string uniform(int length) { return "chain { length: " + std::to_string(length) + " bytes: 1 }"; }

// Window 0. When layer i has run: h0, h_(i-1) and h_i; h_(i-1) leaves. Before backward of layer i: h0, h_i, and h_(i-1) comes back. So 3.
// Each further value in the window adds one: in forward one whose copy runs, in backward one that came early. Never above save-all.
TEST(Offload, PeakOfAChainByWindow) {
  const Model six = model_of(uniform(6));
  EXPECT_EQ(predicted(six, "save-all").memory.peak_bytes, 7U);
  EXPECT_EQ(predicted(six, "offload:1").memory.peak_bytes, 3U);
  for (std::uint64_t window = 0; window <= 8; ++window) {
    const Prediction prediction = predicted(six, "offload:1," + std::to_string(window));
    EXPECT_EQ(prediction.memory.peak_bytes, std::min<std::uint64_t>(3 + window, 7)) << window;
    EXPECT_EQ(prediction.ledger.peak_ids, 7U) << "backward still needs what was moved";
    EXPECT_EQ(prediction.extra_cost, 0U);
  }
}

// While f1 runs its input and its output live, 2100; x with them unless a region has moved it. No bound may lie above what is possible.
TEST(Offload, InputsThatARegionMovesNeedNotBeThere) {
  const std::string text =
      "general { tensor { id: 'x' bytes: 1000 given: true } tensor { id: 'a' bytes: 100 } tensor { id: 'b' bytes: 2000 }\n"
      "op { id: 'f0' reads: 'x' writes: 'a' saves: 'x' backward {} } op { id: 'f1' reads: 'a' writes: 'b' backward {} }\n"
      "op { id: 'loss' phase: 'loss' reads: 'b' } }\n";
  const Model kept = model_of(text), moved = model_of(text + "region { mode: OFFLOAD tensor: 'x' }");
  EXPECT_EQ(predicted(kept, "save-all").memory.peak_bytes, 3100U);
  EXPECT_EQ(peak_bound(kept).bytes, 3100U);
  EXPECT_EQ(predicted(moved, "by-hand").memory.peak_bytes, 2100U);
  EXPECT_EQ(peak_bound(moved).bytes, 2100U);
}

TEST(Offload, WhatMovesAndWhen) {
  const Model three = model_of(uniform(3));
  // The loss is h3's last reader before backward.
  EXPECT_THAT(moves(predicted(three, "offload:1")), ElementsAre("forward offload h1", "forward offload h2", "loss offload h3",
                                                                "backward prefetch h3", "backward prefetch h2", "backward prefetch h1"));
  // h2's copy begins after layer 3, which makes room for h1; h3's after the loss. h3 is needed before it has left. h1 comes back early.
  const Prediction one = predicted(three, "offload:1,1");
  EXPECT_THAT(moves(one), ElementsAre("forward offload h1", "loss offload h2", "backward prefetch h2", "backward prefetch h1"));
  EXPECT_EQ(one.offloaded_bytes, 2U);
  EXPECT_EQ(one.prefetched_bytes, 2U);
  EXPECT_THAT(moves(predicted(three, "offload:1,2")), ElementsAre("loss offload h1", "backward prefetch h1"));
  EXPECT_THAT(moves(predicted(three, "offload:1,3")), ElementsAre());
}

// h1 and h3 of six move; h2 h4 h5 h6 and h0 stay.
//   window 0: forward h0 h1 h2 3, h1 leaves 2; h3 3, h4 4, h3 leaves 3 (h0 h2 h4); h5 4, h6 5. Backward: 6 frees h6 4, 5 frees h5 3, 4
//   needs h3: h0 h2 h4 h3 4. So 5. window 1: h3's copy begins after layer 4, and only then h1 leaves: h0 h2 h3 h4 4; h5 5, h6 6. Backward:
//   6 frees h6, 5 frees h5, 4 has h1 brought back early: h0 h2 h4 h3 h1 5. So 6.
TEST(Offload, ByHandInAnyOrder) {
  const std::string chain = uniform(6);
  const auto region = [](const std::string& stash) { return " region { mode: OFFLOAD tensor: ['h3', 'h1'] " + stash + " }"; };
  const Prediction none = predicted(model_of(chain + region("")), "by-hand");
  EXPECT_EQ(none.memory.peak_bytes, 5U);
  EXPECT_THAT(moves(none), ElementsAre("forward offload h1", "forward offload h3", "backward prefetch h3", "backward prefetch h1"));
  const Prediction one = predicted(model_of(chain + region("stash: 1")), "by-hand");
  EXPECT_EQ(one.memory.peak_bytes, 6U);
  EXPECT_THAT(moves(one), ElementsAre("forward offload h1", "backward prefetch h1"));
}

// Segments of two layers; the boundary h2 moves. Its region's re-run needs it: h4 and h0 stay, h2 comes back, h3 is made again.
TEST(Offload, ComesBackForARecompute) {
  const Prediction prediction = predicted(model_of("chain { length: 4 layer_bytes: [1, 10, 100, 1000, 10000] }"
                                                   " region { op: ['h1', 'h2'] } region { op: ['h3', 'h4'] }"
                                                   " region { mode: OFFLOAD tensor: 'h2' }"),
                                          "by-hand");
  EXPECT_THAT(moves(prediction), ElementsAre("forward offload h2", "recompute prefetch h2"));
  EXPECT_EQ(prediction.memory.peak_bytes, 11101U);
  EXPECT_EQ(prediction.memory.phase_peak[static_cast<int>(trace::Phase::forward)], 11001U);  // h0 h3 h4: h2 is away
}

// All forwards of two microbatches of h0 .. h3, one window. Before the first loss: h0 h3 of the first, whose h1 and h2 have left, and h0 h2
// h3 of the second; at most h0 h3 | h0 h1 h2 h3 when its layer 3 has run, 6. Backward of the first: h0 h1 h2 h3 | h0 h3, 6.
TEST(Offload, OneWindowForAllMicrobatches) {
  const Model model = model_of(uniform(3) + " schedule { microbatches: 2 order: 'all-fwd' }");
  EXPECT_EQ(predicted(model, "save-all").memory.peak_bytes, 8U);
  EXPECT_EQ(predicted(model, "offload:1,1").memory.peak_bytes, 6U);
}

// h1 leaves after layer 2, h2 after the loss; both come back before backward of layer 2.
TEST(Offload, LedgerSaysWhatIsAway) {
  std::vector<std::uint64_t> away;
  for (const ledger::LogicalEvent& event : predicted(model_of("chain { length: 2 bytes: 10 }"), "offload:1").ledger.events)
    if (event.kind == LogicalKind::offload || event.kind == LogicalKind::prefetch) away.push_back(event.away_bytes);
  EXPECT_THAT(away, ElementsAre(10, 20, 10, 0));
  EXPECT_FALSE(predicted(model_of(uniform(2)), "save-all").ledger.moves);
}

TEST(Offload, WhatComesBackIsWhatLeft) {
  const Prediction prediction = predicted(model_of(uniform(2)), "offload:1");
  std::vector<const PredictedBlock*> of_h1;
  for (const PredictedBlock& block : prediction.memory.blocks)
    if (block.tensor == 1) of_h1.push_back(&block);
  ASSERT_EQ(of_h1.size(), 2U);
  EXPECT_EQ(of_h1[1]->op, of_h1[0]->op);
  EXPECT_EQ(of_h1[1]->incarnation, 0U) << "it was not made again";
  EXPECT_EQ(of_h1[1]->memory_class, trace::MemoryClass::activation);
  EXPECT_LE(of_h1[0]->freed, of_h1[1]->made);
}

TEST(Offload, Refusals) {
  for (const char* text : {"offload:", "offload:1,", "offload:1,-1", "offload:1,2,3", "offload:1,x"}) {
    const Result<Policy> policy = parse_policy(text);
    ASSERT_FALSE(policy) << text;
    EXPECT_EQ(policy.error().kind, ErrorKind::usage);
  }
  const Result<Model> twice =
      parse_model(uniform(3) + " region { id: 'a' mode: OFFLOAD tensor: 'h1' } region { id: 'b' mode: OFFLOAD tensor: 'h1' }", "m");
  ASSERT_FALSE(twice);
  EXPECT_THAT(twice.error().message(), HasSubstr("regions 'a' and 'b' both offload 'h1'"));
}

// A stage holds a microbatch from its forward to its backward. With 1F1B as many as stages are left from it on, itself included; never more
// than there are.
TEST(Microbatches, InFlightByStage) {
  const auto peak = [](int microbatches, const std::string& order, int stages, int stage) {
    const Model model = model_of(uniform(3) + " schedule { microbatches: " + std::to_string(microbatches) + " order: '" + order +
                                 "' stages: " + std::to_string(stages) + " stage: " + std::to_string(stage) + " }");
    const Prediction prediction = predicted(model, "save-all");
    EXPECT_EQ(prediction.memory.peak_bytes, prediction.ledger.peak_ids);
    EXPECT_EQ(prediction.forward_cost, 3U * static_cast<unsigned>(microbatches));
    return prediction.memory.peak_bytes;
  };
  EXPECT_EQ(peak(8, "1f1b", 4, 0), 4U * 4);  // h0 .. h3 of four
  EXPECT_EQ(peak(8, "1f1b", 4, 1), 3U * 4);
  EXPECT_EQ(peak(8, "1f1b", 4, 2), 2U * 4);
  EXPECT_EQ(peak(8, "1f1b", 4, 3), 1U * 4);
  EXPECT_EQ(peak(2, "1f1b", 4, 0), 2U * 4);  // fewer microbatches than stages
  EXPECT_EQ(peak(2, "1f1b", 4, 2), 2U * 4);
  EXPECT_EQ(peak(1, "1f1b", 4, 0), 1U * 4);
  EXPECT_EQ(peak(8, "all-fwd", 4, 3), 8U * 4);
  EXPECT_EQ(peak(8, "fwd-bwd", 4, 0), 1U * 4);
}

// Stage 1 of 3 has two in flight: F0 F1 B0 F2 B1 F3 B2 B3.
TEST(Microbatches, OrderOfOneForwardOneBackward) {
  const Prediction prediction =
      predicted(model_of(uniform(1) + " schedule { microbatches: 4 order: '1f1b' stages: 3 stage: 1 }"), "save-all");
  std::string order;
  for (const ledger::LogicalEvent& event : prediction.ledger.events) {
    const ledger::LogicalValue& value = prediction.ledger.values[event.value];
    if (value.name != "h1" || (event.kind != LogicalKind::create && event.kind != LogicalKind::release)) continue;
    order += (event.kind == LogicalKind::create ? "F" : "B") + std::to_string(value.microbatch) + " ";
  }
  EXPECT_EQ(order, "F0 F1 B0 F2 B1 F3 B2 B3 ");
}

// Where nobody knows the last readers, what stays is said when the forward is over: of each microbatch, in any order.
TEST(Microbatches, EveryMicrobatchSaysWhatItKeeps) {
  const std::string text = uniform(4) + " conventions { drop: REGION_END rerun: EARLY_STOP }";
  const auto kept = [](const Model& model, const std::string& policy) {
    std::map<std::int64_t, std::vector<std::string>> names;
    const Prediction prediction = predicted(model, policy);
    for (const ledger::LogicalEvent& event : prediction.ledger.events)
      if (const ledger::LogicalValue& value = prediction.ledger.values[event.value]; event.kind == LogicalKind::keep)
        names[value.microbatch].push_back(value.name);
    return names;
  };
  for (const char* const order : {"order: 'fwd-bwd'", "order: 'all-fwd'", "order: '1f1b' stages: 3 stage: 1"}) {
    const Model model = model_of(text + " schedule { microbatches: 3 " + order + " }");
    for (auto& [microbatch, names] : kept(model, "save-all")) EXPECT_THAT(names, ElementsAre("h0", "h1", "h2", "h3", "h4")) << microbatch;
    EXPECT_EQ(kept(model, "save-all").size(), 3U) << order;
    for (auto& [microbatch, names] : kept(model, "segment:2")) EXPECT_THAT(names, ElementsAre("h0", "h2", "h4")) << microbatch;
    EXPECT_EQ(kept(model, "segment:2").size(), 3U) << order;
  }
}

// Before anything is listed: a schedule of these would not fit in memory.
TEST(Microbatches, TooManyMicrobatchesAreRefused) {
  const auto refusal = [](const std::string& text) {
    const Result<Prediction> prediction = predict(model_of(text), *parse_policy("full"));
    return prediction ? "" : prediction.error().message();
  };
  EXPECT_THAT(refusal("chain { length: 1000 } schedule { microbatches: 1000000 }"),
              HasSubstr("1000000 microbatches of 1001 tensors and 2001 ops are too many to list"));
  // Ops that make nothing take their room, too.
  std::string ops;
  for (int op = 0; op < 1000; ++op) ops += " op { id: '" + std::to_string(op) + "' }";
  EXPECT_THAT(refusal("general {" + ops + " } schedule { microbatches: 1000000 }"),
              HasSubstr("1000000 microbatches of 0 tensors and 1000 ops are too many to list"));
}

}  // namespace
}  // namespace liveset::model
