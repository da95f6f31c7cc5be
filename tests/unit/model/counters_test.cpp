// What the simulated caching allocator makes of a predicted step: where it starts from, and where a region's forward lets go. Sizes are
// chosen so that each segment is one block's own (above 10 MiB, in steps of 2 MiB), so that reserved can be added up by hand.
#include "viewer/model/counters.h"

#include <gtest/gtest.h>

namespace liveset::model {
namespace {

constexpr std::uint64_t mebibyte = 1 << 20;

Model parsed(const std::string& text) {
  Result<Model> model = parse_model(text, "m.textproto");
  EXPECT_TRUE(model) << model.error().message();
  model->physical.caching_allocator = true;
  return std::move(*model);
}

PredictedCounters counters(const Model& model, const std::string& policy = "save-all") {
  const Policy chosen = *parse_policy(policy);
  const Result<Prediction> prediction = predict(model, chosen);
  EXPECT_TRUE(prediction) << prediction.error().message();
  Result<PredictedCounters> found = predict_counters(model, chosen, prediction->memory);
  EXPECT_TRUE(found) << found.error().message();
  return std::move(*found);
}

Model with_past(Model model, std::vector<PastPart> past) {
  model.past = std::make_shared<const std::vector<PastPart>>(std::move(past));
  return model;
}

const std::string listed = "conventions { release: LISTED drop: REGION_END rerun: EARLY_STOP boundary: PHYSICAL_COPY }\n";
// One op that makes 12 MiB and frees it.
const std::string small_step = listed +
                               "general {\n"
                               "  tensor { id: 'a' bytes: 12582912 }\n"
                               "  op { id: 'f' writes: 'a' frees: 'a' }\n"
                               "}\n";

TEST(Counters, AStepFindsWhatTheJobLeftInTheCache) {
  const Model model = parsed(small_step);
  EXPECT_EQ(counters(model).reserved->bytes, 12 * mebibyte);
  // 40 MiB were taken and freed: 12 of them serve.
  const Model late = with_past(model, {{{{0, true, 40 * mebibyte}, {0, false, 40 * mebibyte}}, std::nullopt}});
  EXPECT_EQ(counters(late).reserved->bytes, 40 * mebibyte);
  EXPECT_EQ(counters(late).allocated->bytes, 12 * mebibyte);
  // 10 MiB are too small a hole.
  const Model beside = with_past(model, {{{{0, true, 10 * mebibyte}, {0, false, 10 * mebibyte}}, std::nullopt}});
  EXPECT_EQ(counters(beside).reserved->bytes, 22 * mebibyte);
}

// 12 MiB that the job keeps all the time, and a step that takes nothing.
TEST(Counters, WhatLivedBeforeStandsWhereItWasPut) {
  Model model = parsed(small_step + "static_storage { id: 'w' bytes: 12582912 }\n");
  model.statics[0].block = 7;
  // Of 30 MiB the static keeps what it was given, so its segment has no room; a block that the step does not know is gone.
  const Model late = with_past(model, {{{{5, true, 12 * mebibyte}, {7, true, 12 * mebibyte}, {9, true, 30 * mebibyte}}, std::nullopt}});
  EXPECT_EQ(counters(late).allocated->bytes, 24 * mebibyte);
  EXPECT_EQ(counters(late).reserved->bytes, 54 * mebibyte);
}

TEST(Counters, WhatAnEarlierStepMadeIsWhatALaterOneFrees) {
  // The earlier step leaves a gradient, block 3, which the later one is given and frees before it takes as much.
  Model earlier = parsed(listed +
                         "general {\n"
                         "  tensor { id: 'g' bytes: 12582912 }\n"
                         "  op { id: 'b' phase: 'backward' writes: 'g' }\n"
                         "}\n");
  earlier.tensors[0].block = 3;
  Model model = parsed(listed +
                       "general {\n"
                       "  tensor { id: 'old' bytes: 12582912 given: true }\n"
                       "  tensor { id: 'a' bytes: 12582912 }\n"
                       "  op { id: 'zero' phase: 'other' frees: 'old' }\n"
                       "  op { id: 'f' writes: 'a' frees: 'a' }\n"
                       "}\n");
  model.tensors[0].block = 3;
  EXPECT_EQ(counters(with_past(model, {{{}, earlier}})).reserved->bytes, 12 * mebibyte);
  EXPECT_EQ(counters(with_past(model, {{{}, earlier}})).allocated->bytes, 12 * mebibyte);
}

// Four layers of 20 MiB each.
const std::string layers = [] {
  std::string text = listed + "general {\n  tensor { id: 'x' bytes: 20971520 given: true }\n";
  for (const char* const layer : {"1", "2", "3", "4"}) text += std::string("  tensor { id: 'h") + layer + "' bytes: 20971520 }\n";
  std::string before = "x";
  for (const char* const layer : {"1", "2", "3", "4"}) {
    const std::string made = std::string("h") + layer;
    text += "  op { id: 'f" + std::string(layer) + "' module: 'N." + (*layer < '3' ? "12" : "34") + "' reads: '" + before + "' writes: '" +
            made + "' saves: '" + made + "' }\n";
    before = made;
  }
  text += "  op { id: 'loss' phase: 'loss' reads: 'h4' }\n";
  for (const char* const layer : {"4", "3", "2", "1"})
    text += std::string("  op { id: 'b") + layer + "' phase: 'backward' backward_of: 'f" + layer + "' reads: 'h" + layer + "' frees: 'h" +
            layer + "' }\n";
  return text + "  unit: 'N.*'\n}\n";
}();

TEST(Counters, EarlierStepsRunUnderTheSamePolicy) {
  const Model model = parsed(layers);
  ASSERT_EQ(model.units.size(), 2U);
  const std::uint64_t saved = counters(model).reserved->bytes, remade = counters(model, "full").reserved->bytes;
  EXPECT_EQ(saved, 100 * mebibyte);
  EXPECT_LT(remade, saved);
  // A past of steps like this one says what the step itself says twice.
  for (const char* const policy : {"save-all", "full", "segments:2"})
    EXPECT_EQ(counters(with_past(model, {{{}, model}}), policy).reserved->bytes, counters(model, policy).reserved->bytes) << policy;
  // An earlier step that knows no such layer ran as it was recorded.
  Model other = model;
  other.units.pop_back();
  EXPECT_EQ(counters(with_past(model, {{{}, other}}), "segments:1,1").reserved->bytes, saved);
}

TEST(Counters, WhatAnEarlierStepWithoutThePolicyLeftIsAnEstimate) {
  const Model model = parsed(layers);
  Model other = model;
  other.units.pop_back();
  EXPECT_EQ(counters(model, "segments:1,1").cache_estimate, no_past_estimate);
  EXPECT_EQ(counters(with_past(model, {{{}, model}}), "segments:1,1").cache_estimate, "");
  EXPECT_EQ(counters(with_past(model, {{{}, other}}), "segments:1,1").cache_estimate, past_estimate);
}

// 1,100 bytes get a block of 1,280 where four sizes lie between powers of two, and a block that is known to have 1,536 may be that one.
TEST(Counters, OtherSettingsRoundWhatIsKnownAsItWasRounded) {
  const auto estimate = [](const std::string& settings, const std::string& mark) {
    return counters(parsed("physical { allocator: 'cuda' " + settings +
                           " } conventions { release: LISTED } general { tensor { id: 'x' bytes: 1536 " + mark +
                           " } op { id: 'f' writes: 'x' frees: 'x' } }"))
        .cache_estimate;
  };
  const std::string divisions = "allocator_settings: 'roundup_power2_divisions:4'";
  EXPECT_EQ(estimate("", "rounded: true"), "");
  EXPECT_EQ(estimate(divisions, ""), "");
  EXPECT_EQ(estimate(divisions, "rounded: true"), rounding_estimate);
}

TEST(Counters, AStepThatMakesNothingHoldsItsStatics) {
  const PredictedCounters found = counters(parsed(listed + "general { op { id: 'f' } }\nstatic_storage { id: 'w' bytes: 12582912 }\n"));
  for (const CounterKind kind : counter_kinds) {
    EXPECT_EQ(found.of(kind)->bytes, 12 * mebibyte) << counter_name(kind);
    EXPECT_EQ(found.of(kind)->event, never) << counter_name(kind);
  }
}

TEST(Counters, WhatIsMadeForGoodIsNotMadeAgain) {
  // A library's workspace of 30 MiB, taken by an op of the region in the first step.
  Model first = parsed(listed +
                       "general {\n"
                       "  tensor { id: 'workspace' bytes: 31457280 }\n"
                       "  tensor { id: 'a' bytes: 12582912 }\n"
                       "  tensor { id: 'b' bytes: 12582912 }\n"
                       "  op { id: 'f' module: 'N.all' writes: 'workspace' writes: 'a' saves: 'a' }\n"
                       "  op { id: 'g' module: 'N.all' reads: 'a' writes: 'b' saves: 'b' }\n"
                       "  op { id: 'loss' phase: 'loss' reads: 'b' }\n"
                       "  op { id: 'gb' phase: 'backward' backward_of: 'g' reads: 'b' frees: 'b' }\n"
                       "  op { id: 'fb' phase: 'backward' backward_of: 'f' reads: 'a' frees: 'a' }\n"
                       "  unit: 'N.*'\n"
                       "}\n");
  first.tensors[0].once = true;
  const std::uint64_t peak = counters(first, "full").requested.bytes;
  first.tensors[0].once = false;
  EXPECT_EQ(counters(first, "full").requested.bytes, peak + 30 * mebibyte);
}

// What lives after each allocation of the forward, and after its last event.
std::vector<std::uint64_t> forward_bytes(const Model& model, const std::string& policy) {
  const Result<Prediction> prediction = predict(model, *parse_policy(policy));
  EXPECT_TRUE(prediction) << prediction.error().message();
  std::vector<std::uint64_t> bytes;
  std::uint64_t now = 0, last = 0;
  for (const MemoryEvent& event : prediction->memory.events) {
    const std::uint64_t size = prediction->memory.blocks[event.block].bytes;
    now = event.alloc ? now + size : now - size;
    if (event.phase != trace::Phase::forward) continue;
    if (event.alloc) bytes.push_back(now);
    last = now;
  }
  bytes.push_back(last);
  return bytes;
}

TEST(Counters, ARegionsForwardLetsGoAfterTheModuleThatWasCalledWithAValue) {
  // ln makes its statistics s and the value a; up is called with a; act in the block itself reads u; down, two ops, is called with v.
  const Model model = parsed(listed +
                             "general {\n"
                             "  tensor { id: 's' bytes: 1 }\n"
                             "  tensor { id: 'a' bytes: 10 }\n"
                             "  tensor { id: 'u' bytes: 100 }\n"
                             "  tensor { id: 'v' bytes: 1000 }\n"
                             "  tensor { id: 'd' bytes: 10000 }\n"
                             "  tensor { id: 'e' bytes: 100000 }\n"
                             "  tensor { id: 'out' bytes: 1000000 }\n"
                             "  op { id: 'ln' module: 'N.b.ln' writes: 'a' writes: 's' saves: 's' }\n"
                             "  op { id: 'up' module: 'N.b.up' writes: 'u' saves: 'a' }\n"
                             "  op { id: 'act' module: 'N.b' writes: 'v' saves: 'u' }\n"
                             "  op { id: 'down1' module: 'N.b.down.1' writes: 'd' saves: 'v' }\n"
                             "  op { id: 'down2' module: 'N.b.down.2' writes: 'e' saves: 'd' frees: 'e' }\n"
                             "  op { id: 'sum' module: 'N.b' writes: 'out' }\n"
                             "  op { id: 'loss' phase: 'loss' reads: 'out' }\n"
                             "  op { id: 'down2b' phase: 'backward' backward_of: 'down2' reads: 'd' frees: 'd' frees: 'out' }\n"
                             "  op { id: 'down1b' phase: 'backward' backward_of: 'down1' reads: 'v' frees: 'v' }\n"
                             "  op { id: 'actb' phase: 'backward' backward_of: 'act' reads: 'u' frees: 'u' }\n"
                             "  op { id: 'upb' phase: 'backward' backward_of: 'up' reads: 'a' frees: 'a' }\n"
                             "  op { id: 'lnb' phase: 'backward' backward_of: 'ln' reads: 's' frees: 's' }\n"
                             "  unit: 'N.*'\n"
                             "}\n");
  EXPECT_EQ(forward_bytes(model, "save-all"), (std::vector<std::uint64_t>{10, 11, 111, 1111, 11111, 111111, 1011111, 1011111}));
  // s goes with ln, a with up, u with act; v is the argument of down's call, d of its second part's, and both go when that is over.
  EXPECT_EQ(forward_bytes(model, "full"), (std::vector<std::uint64_t>{10, 11, 110, 1100, 11000, 111000, 1000000, 1000000}));
}

}  // namespace
}  // namespace liveset::model
