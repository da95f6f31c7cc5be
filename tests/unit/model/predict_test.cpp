// Predictions against the acceptance facts, which were worked out by another program and by exhaustive search.
#include <gtest/gtest.h>

#include "tests/support/acceptance.h"
#include "viewer/model/predict.h"

namespace liveset::model {
namespace {

using nlohmann::json;
using test::acceptance;
using test::policy_argument;

constexpr const char* phases[] = {"other", "forward", "loss", "backward", "recompute", "optimizer"};

Model chain(const std::vector<std::uint64_t>& bytes, const std::vector<std::uint64_t>& cost) { return std::move(*make_chain(bytes, cost)); }

Model uniform_chain(std::uint64_t length, std::uint64_t bytes = 1) {
  return chain(std::vector<std::uint64_t>(length + 1, bytes), std::vector<std::uint64_t>(length, 1));
}

Prediction predicted(const Model& model, const std::string& policy) {
  Result<Policy> parsed = parse_policy(policy);
  EXPECT_TRUE(parsed) << policy;
  Result<Prediction> prediction = predict(model, *parsed);
  EXPECT_TRUE(prediction) << prediction.error().message();
  EXPECT_EQ(prediction->ledger.broken_count, 0U) << policy;
  EXPECT_TRUE(prediction->ledger.live_at_end.empty()) << policy;
  return std::move(*prediction);
}

std::string segments(const json& lengths) {
  std::string text = "segments:";
  for (const json& length : lengths) text += (text.back() == ':' ? "" : ",") + std::to_string(length.get<int>());
  return text;
}

// The chain's ids are numbers in the facts; in a chain the index of a value is that number.
template <class Ids>
json as_json(const Ids& ids) {
  json list = json::array();
  for (const std::uint32_t id : ids) list.push_back(id);
  return list;
}

Conventions with_flags(const json& flags) {
  Conventions conventions;
  for (const auto& [name, value] : flags.items()) {
    if (name == "count_inputs")
      conventions.count_inputs = value;
    else if (name == "short_segment")
      conventions.short_segment_first = value == "first";
    else if (name == "boundary")
      conventions.physical_copy = value == "physical-copy";
    else if (name == "rerun")
      conventions.rerun = value == "stop-before-boundary" ? Conventions::Rerun::stop_before_boundary : Conventions::Rerun::whole;
    else if (name == "checkpoint_last_segment")
      conventions.checkpoint_last_segment = value;
    else
      ADD_FAILURE() << "unknown flag " << name;
  }
  return conventions;
}

// Forward makes x (100), backward g (40) and frees x, the optimizer makes a temporary of 10. Adam's 80 come in step 1, a library's 7 too.
constexpr const char* training = R"(
static_storage { id: "w" bytes: 40 }
static_storage { id: "moments" bytes: 80 memory_class: "optimizer_state" from_step: 1 }
static_storage { id: "workspace of backward" bytes: 7 memory_class: "library" from_step: 1 }
conventions { release: LISTED }
general {
  tensor { id: "x" bytes: 100 }
  tensor { id: "g" bytes: 40 memory_class: "gradient" }
  op { id: "up" writes: "x" saves: "x" }
  op { id: "down" phase: "backward" reads: "x" writes: "g" frees: "x" }
  op { id: "update" phase: "optimizer" workspace: 10 frees: "g" }
})";

TEST(Predict, WhatLaterStepsFindComesInTheStepBefore) {
  const Result<Model> model = parse_model(training, "training");
  ASSERT_TRUE(model) << model.error().message();
  const auto peaks = [&](std::uint64_t step) {
    const Result<Prediction> made = predict(*model, *parse_policy("save-all"), {step});
    EXPECT_TRUE(made) << made.error().message();
    const std::uint64_t* const of_phase = made->memory.phase_peak;
    return std::vector<std::uint64_t>{made->memory.static_bytes, of_phase[1], of_phase[3], of_phase[5]};
  };
  EXPECT_EQ(peaks(0), (std::vector<std::uint64_t>{40, 40 + 100, 40 + 7 + 100 + 40, 40 + 7 + 40 + 80 + 10}));
  EXPECT_EQ(peaks(1), (std::vector<std::uint64_t>{127, 127 + 100, 127 + 100 + 40, 127 + 40 + 10}));
  EXPECT_EQ(peaks(~std::uint64_t{0}), peaks(1));
  const Prediction first = *predict(*model, *parse_policy("save-all"), {0});
  EXPECT_EQ(first.memory.phase_is_estimate[5], true);
  EXPECT_EQ(first.memory.phase_is_estimate[3], false);
  EXPECT_EQ(first.tensor_name(*model, first.memory.blocks.at(1).tensor), "workspace of backward");
}

// No optimizer phase is listed: at the step's end they are there.
TEST(Predict, StatesComeAtTheEndOfAStepWithoutAnOptimizerPhase) {
  Model model = chain({8, 8}, {1});
  StaticStorage moments;
  moments.id = "moments";
  moments.bytes = 50;
  moments.memory_class = trace::MemoryClass::optimizer_state;
  moments.from_step = 3;
  model.statics.push_back(moments);
  for (const auto& [step, peak] : {std::pair{1, 16}, {2, 50}, {3, 66}}) {
    const Result<Prediction> made = predict(model, *parse_policy("save-all"), {static_cast<std::uint64_t>(step)});
    ASSERT_TRUE(made);
    EXPECT_EQ(made->memory.peak_bytes, static_cast<std::uint64_t>(peak)) << step;
    EXPECT_FALSE(made->memory.peak_is_estimate);
  }
}

TEST(Predict, SixLayerChainEventByEvent) {
  const json facts = acceptance("chain_ledgers");
  ASSERT_EQ(facts.at("policies").size(), 7U);
  for (const json& policy : facts.at("policies")) {
    SCOPED_TRACE(policy.at("policy"));
    const Prediction prediction = predicted(uniform_chain(6, 8), policy_argument(policy));
    const ledger::LogicalLedger& ledger = prediction.ledger;
    EXPECT_EQ(json(prediction.boundaries), policy.at("boundaries"));
    EXPECT_EQ(ledger.peak_ids, policy.at("peak"));
    EXPECT_EQ(ledger.peak_bytes, 8 * ledger.peak_ids);
    EXPECT_EQ(ledger.peak_ids_event, policy.at("peak_event"));
    EXPECT_EQ(ledger.peak_bytes_event, policy.at("peak_event"));
    EXPECT_EQ(ledger.forward_layers, policy.at("forward_layers"));
    EXPECT_EQ(prediction.forward_cost, policy.at("forward_layers"));
    EXPECT_EQ(as_json(ledger.held_at_loss), policy.at("held_at_loss"));
    ASSERT_EQ(ledger.events.size(), policy.at("events").size());
    ledger::LiveSet live(ledger);
    for (std::size_t i = 0; i < ledger.events.size(); ++i) {
      const ledger::LogicalEvent& event = ledger.events[i];
      const json& fact = policy.at("events")[i];
      live.apply(event);
      SCOPED_TRACE(fact.dump());
      EXPECT_EQ(phases[static_cast<std::size_t>(event.phase)], fact.at("phase").get<std::string>());
      EXPECT_EQ(logical_kind_name(event.kind), fact.at("kind").get<std::string>());
      EXPECT_EQ(event.layer, fact.at("layer"));
      EXPECT_EQ(ledger.values[event.value].name, "h" + std::to_string(fact.at("layer").get<int>()));
      EXPECT_EQ(as_json(ledger.reads_of(event)), fact.at("reads"));
      EXPECT_EQ(as_json(live.ids()), fact.at("live"));
      EXPECT_EQ(event.live_ids, fact.at("live_count"));
      EXPECT_EQ(event.live_bytes, 8 * event.live_ids);
      EXPECT_EQ(event.forward_layers, fact.at("forward_layers"));
    }
  }
}

TEST(Predict, VariantsOfTheConventions) {
  const json facts = acceptance("chain_ledgers");
  ASSERT_EQ(facts.at("variants").size(), 6U);
  for (const json& variant : facts.at("variants"))
    for (const json& row : variant.at("results")) {
      SCOPED_TRACE(variant.at("variant").dump() + row.dump());
      Model model = uniform_chain(6);
      model.conventions = with_flags(variant.at("changed_flags"));
      const Prediction prediction = predicted(model, policy_argument(row));
      EXPECT_EQ(json(prediction.boundaries), row.at("boundaries"));
      EXPECT_EQ(prediction.ledger.peak_ids, row.at("peak"));
      EXPECT_EQ(prediction.ledger.peak_bytes, row.at("peak"));
      EXPECT_EQ(prediction.ledger.forward_layers, row.at("forward_layers"));
    }
}

TEST(Predict, TwelveFurtherChains) {
  const json facts = acceptance("chain_variants");
  ASSERT_EQ(facts.at("chains").size(), 12U);
  for (const json& chain : facts.at("chains"))
    for (const json& row : chain.at("policies")) {
      SCOPED_TRACE(chain.at("name").dump() + row.dump());
      const Prediction prediction = predicted(uniform_chain(chain.at("layers")), policy_argument(row));
      EXPECT_EQ(json(prediction.boundaries), row.at("boundaries"));
      EXPECT_EQ(prediction.ledger.peak_ids, row.at("peak"));
      EXPECT_EQ(prediction.ledger.forward_layers, row.at("forward_layers"));
      EXPECT_EQ(prediction.ledger.held_at_loss.size(), row.at("held_at_loss_count"));
    }
}

TEST(Predict, EveryCompositionOfUpToEightLayers) {
  const json facts = acceptance("segment_frontier");
  ASSERT_EQ(facts.at("compositions").size(), 255U);
  for (const json& row : facts.at("compositions")) {
    SCOPED_TRACE(row.dump());
    Model model = uniform_chain(row.at("n"));
    const Prediction whole = predicted(model, segments(row.at("lengths")));
    EXPECT_EQ(whole.ledger.peak_ids, row.at("peak"));
    EXPECT_EQ(whole.ledger.forward_layers, row.at("forward_layers"));
    model.conventions.rerun = Conventions::Rerun::stop_before_boundary;
    EXPECT_EQ(predicted(model, segments(row.at("lengths"))).ledger.forward_layers, row.at("forward_layers_boundary_not_rerun"));
  }
}

TEST(Predict, EqualSegments) {
  const json facts = acceptance("segment_frontier");
  ASSERT_GT(facts.at("equal_segments").at("rows").size(), 200U);
  for (const json& row : facts.at("equal_segments").at("rows")) {
    const Prediction prediction = predicted(uniform_chain(row[0]), "segment:" + std::to_string(row[1].get<int>()));
    EXPECT_EQ(prediction.ledger.peak_ids, row[2]) << row;
  }
}

// Sizes 1000 10 200 3000 (h0 .. h3), segment:2, worked out by hand. Boundaries 0, 2, 3: h1 is dropped.
//   forward: h0 1000; h1 1010; h2 1210, drop h1 1200; h3 4200
//   backward of (2,3]: merge h3, release h3 1200. Re-run (0,2]: h1 1210, merge h2; release h2 1010, h1 1000, h0 0.
TEST(Predict, PeakOfIdsAndPeakOfBytesAreToldApart) {
  const Prediction prediction = predicted(chain({1000, 10, 200, 3000}, {5, 7, 11}), "segment:2");
  EXPECT_EQ(prediction.ledger.peak_ids, 3U);
  EXPECT_EQ(prediction.ledger.peak_bytes, 4200U);
  EXPECT_NE(prediction.ledger.peak_ids_event, prediction.ledger.peak_bytes_event);
  EXPECT_EQ(prediction.ledger.events[prediction.ledger.peak_bytes_event].value, 3U);
  EXPECT_EQ(prediction.forward_cost, 5U + 7 + 11 + 11 + 5 + 7);
}

// x -> a -> b, c = a + b, d = c; segments of 2: a, b | c, d. a and b are read by the second segment, c is not.
TEST(Predict, ValueReadByALaterSegmentIsKept) {
  const Result<Model> model = parse_model(
      "graph { input { id: 'x' } layer { id: 'a' reads: 'x' } layer { id: 'b' reads: 'a' } layer { id: 'c' reads: ['a', 'b'] }"
      " layer { id: 'd' reads: 'c' } }",
      "skip");
  ASSERT_TRUE(model) << model.error().message();
  const Prediction prediction = predicted(*model, "segment:2");
  std::vector<std::string> dropped;
  for (const ledger::LogicalEvent& event : prediction.ledger.events)
    if (event.kind == ledger::LogicalKind::drop) dropped.push_back(prediction.ledger.values[event.value].name);
  EXPECT_EQ(dropped, std::vector<std::string>{"c"});
  EXPECT_EQ(prediction.ledger.held_at_loss.size(), 4U);  // x a b d
  EXPECT_EQ(prediction.ledger.forward_layers, 8U);
  EXPECT_EQ(prediction.ledger.peak_ids, 5U);
}

TEST(Predict, LongChainFollowsTheClosedForm) {
  const Prediction prediction = predicted(uniform_chain(100'000), "segment:250");
  EXPECT_EQ(prediction.ledger.peak_ids, 400U + 250U);
  EXPECT_EQ(prediction.ledger.forward_layers, 200'000U);
}

// A recorded step of so many ops that a look back over all of them, from each, would not end: the forward in one-op regions that leave
// nothing, then one operator of as many parts, and a backward that frees what one op saved.
TEST(Predict, LongRecordedStepsAreFollowed) {
  constexpr int count = 50'000;
  std::string tensors, regions, parts, saves, frees;
  for (int i = 0; i < count; ++i) {
    const std::string n = std::to_string(i), module = "' module: 'N." + n + "' ";
    tensors += " tensor { id: 'a" + n + "' bytes: 10 } tensor { id: 'b" + n + "' bytes: 1 }";
    regions += " op { id: 'f" + n + module + "writes: 'a" + n + "' frees: 'a" + n + "' }";
    parts += " op { id: 'p" + n + "' name: 'p' module: 'P' writes: 'b" + n + "'" + (i == 0 ? "" : " continues: true") + " }";
    saves += " saves: 'b" + n + "'";
    frees += " frees: 'b" + n + "'";
  }
  const Result<Model> model = parse_model(
      "conventions { release: LISTED drop: REGION_END rerun: EARLY_STOP boundary: PHYSICAL_COPY }\n"
      "general {" +
          tensors + regions + parts + " op { id: 'use' module: 'P'" + saves + " } op { id: 'back' phase: 'backward' backward_of: 'use'" +
          frees + " } unit: 'N.*' } region { module: 'P' save_ops: 'p' }",
      "long");
  ASSERT_TRUE(model) << model.error().message();
  ASSERT_EQ(model->units.size(), count + 0U);
  // All b live at the end of the forward, whatever runs again.
  for (const char* const policy : {"save-all", "full", "by-hand"})
    EXPECT_EQ(predicted(*model, policy).memory.peak_bytes, count + 0U) << policy;
}

// The static storage comes in the step before, rounded as it is.
TEST(Predict, WhatComesInAStepIsRoundedToo) {
  for (const char* const mark : {"", "rounded: true"}) {
    const Result<Model> model = parse_model(
        "conventions { release: LISTED } static_storage { id: 'w' bytes: 512 from_step: 1 memory_class: 'library' " + std::string(mark) +
            " } general { tensor { id: 'x' bytes: 8 } op { id: 'f' writes: 'x' saves: 'x' }"
            " op { id: 'b' phase: 'backward' backward_of: 'f' reads: 'x' frees: 'x' } }",
        "coming");
    ASSERT_TRUE(model) << model.error().message();
    PredictOptions first;
    first.step = 0;
    const Result<Prediction> found = predict(*model, *parse_policy("save-all"), first);
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_EQ(found->memory.peak_bytes, 520U);
    EXPECT_EQ(found->memory.peak_is_rounded, *mark != '\0');
  }
}

// Two forwards of two layers, each with its backward: a region of all four layers is one of each two, and remakes 10 + 20 bytes at a time.
TEST(Predict, NoRegionGoesOnBehindABackward) {
  std::string ops, tensors;
  for (const char* const n : {"1", "2"}) {
    const std::string a = std::string("a") + n, b = std::string("b") + n;
    tensors += " tensor { id: '" + a + "' bytes: 10 } tensor { id: '" + b + "' bytes: 20 }";
    ops += " op { id: 'f" + a + "' module: 'net.a' writes: '" + a + "' saves: '" + a + "' } op { id: 'f" + b +
           "' module: 'net.b' writes: '" + b + "' saves: '" + b + "' } op { id: 'l" + n + "' phase: 'loss' } op { id: 'g" + b +
           "' phase: 'backward' backward_of: 'f" + b + "' reads: '" + b + "' frees: '" + b + "' } op { id: 'g" + a +
           "' phase: 'backward' backward_of: 'f" + a + "' reads: '" + a + "' frees: '" + a + "' }";
  }
  const Result<Model> model =
      parse_model("conventions { release: LISTED drop: REGION_END rerun: EARLY_STOP boundary: PHYSICAL_COPY } general {" + tensors + ops +
                      " unit: 'net.*' }",
                  "two");
  ASSERT_TRUE(model) << model.error().message();
  ASSERT_EQ(model->units.size(), 4U);
  const Result<Regions> whole = regions_of(*model, *parse_policy("segment:4")), halves = regions_of(*model, *parse_policy("segment:2"));
  ASSERT_TRUE(whole && halves);
  ASSERT_EQ(whole->recomputed.size(), 2U);
  for (const std::size_t part : {0U, 1U}) {
    EXPECT_EQ(whole->recomputed[part].begin, 5 * part);
    EXPECT_EQ(whole->recomputed[part].end, 5 * part + 2);
    EXPECT_EQ(halves->recomputed[part].begin, 5 * part);
  }
  EXPECT_EQ(predicted(*model, "segment:4").memory.peak_bytes, predicted(*model, "segment:2").memory.peak_bytes);
}

// What an allocator rounded up makes the peak of requested an estimate where it lives then, and at no other.
TEST(Predict, AtThePeakIsWhatAnAllocatorRounded) {
  const auto marks = [](const std::string& first, const std::string& second, const std::string& storage) {
    const Result<Model> model =
        parse_model("conventions { release: LISTED } static_storage { id: 'w' bytes: 5 " + storage +
                        " } general { tensor { id: 'x' bytes: 512 " + first + " } tensor { id: 'y' bytes: 1024 " + second +
                        " } op { id: 'f' writes: 'x' frees: 'x' }"
                        " op { id: 'l' phase: 'loss' writes: 'y' frees: 'y' } }",
                    "rounded");
    EXPECT_TRUE(model) << model.error().message();
    const MemoryCurve memory = predicted(*model, "save-all").memory;
    EXPECT_EQ(memory.peak_bytes, 1029U);
    const Result<Model> again = parse_model(model_text(*model), "again");
    for (std::size_t i = 0; i < model->tensors.size(); ++i) EXPECT_EQ(again->tensors[i].rounded, model->tensors[i].rounded);
    return std::vector<bool>{memory.peak_is_rounded, memory.phase_is_rounded[1], memory.phase_is_rounded[2]};
  };
  EXPECT_EQ(marks("", "", ""), (std::vector<bool>{false, false, false}));
  EXPECT_EQ(marks("rounded: true", "", ""), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(marks("", "rounded: true", ""), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(marks("", "", "rounded: true"), (std::vector<bool>{true, true, true}));
}

// y = linear(s) with a bias. The graph holds s until the sum for the bias is made; what a region made again goes before it.
//   save-all: y 10, s 100, gradients of y 10, s 100, weight 50, bias 30: 300
//   region:   the same without the bias's, 270; then s goes, and 200 with the bias's
TEST(Predict, WhatARegionMadeAgainGoesWithTheFunctionThatTakesIt) {
  const auto peaks = [](const std::string& mark) {
    const Result<Model> model = parse_model(
        "conventions { release: LISTED drop: REGION_END rerun: EARLY_STOP boundary: PHYSICAL_COPY }\n"
        "general { tensor { id: 's' bytes: 100 } tensor { id: 'y' bytes: 10 } tensor { id: 'gy' bytes: 10 } tensor { id: 'gs' bytes: 100 }"
        " tensor { id: 'gw' bytes: 50 } tensor { id: 'gb' bytes: 30 }"
        " op { id: 'make' module: 'M' writes: 's' } op { id: 'linear' module: 'M' writes: 'y' saves: 's' }"
        " op { id: 'loss' phase: 'loss' writes: 'gy' }"
        " op { id: 'back' phase: 'backward' backward_of: 'linear' reads: 's' writes: ['gs', 'gw'] }"
        " op { id: 'bias' phase: 'backward' backward_of: 'linear' writes: 'gb' frees: ['s', 'gy', 'y', 'gs', 'gw', 'gb'] " +
            mark + " } } region { module: 'M' }",
        "linear");
    EXPECT_TRUE(model) << model.error().message();
    return std::vector<std::uint64_t>{predicted(*model, "save-all").memory.peak_bytes, predicted(*model, "by-hand").memory.peak_bytes};
  };
  EXPECT_EQ(peaks(""), (std::vector<std::uint64_t>{300, 300}));
  EXPECT_EQ(peaks("after_function: true"), (std::vector<std::uint64_t>{300, 270}));
}

// Where that is not known, backward is an estimate once a region has run again.
TEST(Predict, WithoutReturnsBackwardOfARegionIsAnEstimate) {
  for (const bool unknown : {false, true}) {
    const Result<Model> model = parse_model(
        std::string("conventions { release: LISTED drop: REGION_END rerun: EARLY_STOP boundary: PHYSICAL_COPY ") +
            (unknown ? "returns_unknown: true" : "") +
            " } general { tensor { id: 's' bytes: 100 } tensor { id: 'y' bytes: 10 } tensor { id: 'g' bytes: 50 }"
            " op { id: 'make' module: 'M' writes: 's' } op { id: 'use' module: 'M' writes: 'y' saves: 's' } op { id: 'loss' phase: 'loss' }"
            " op { id: 'back' phase: 'backward' backward_of: 'use' reads: 's' writes: 'g' frees: ['s', 'y', 'g'] } } region { module: 'M' "
            "}",
        "returns");
    ASSERT_TRUE(model) << model.error().message();
    EXPECT_FALSE(predicted(*model, "save-all").memory.peak_is_estimate);
    const MemoryCurve memory = predicted(*model, "by-hand").memory;
    EXPECT_EQ(memory.peak_bytes, 160U);
    EXPECT_EQ(memory.peak_is_estimate, unknown);
    EXPECT_EQ(parse_model(model_text(*model), "again")->conventions.returns_unknown, unknown);
  }
}

// A region is called with what it saves and has not made; `other` may be an argument too, and lives up to the loss without being one.
//   backward: x 100, y 5, gy 20, a 10 made again, ga 100: 235, and 50 more where `other` lives for the region
TEST(Predict, ARegionIsCalledWithWhatItSaves) {
  const auto peak = [](const std::string& saves) {
    const Result<Model> model = parse_model(
        "conventions { release: LISTED drop: REGION_END rerun: EARLY_STOP boundary: PHYSICAL_COPY } general { tensor { id: 'x' bytes: 100 }"
        " tensor { id: 'other' bytes: 50 } tensor { id: 'a' bytes: 10 } tensor { id: 'y' bytes: 5 } tensor { id: 'gy' bytes: 20 }"
        " tensor { id: 'ga' bytes: 100 } op { id: 'in' writes: 'x' } op { id: 'teach' writes: 'other' }"
        " op { id: 'f' module: 'M' writes: 'a' saves: [" +
            saves +
            "] } op { id: 'use' module: 'M' writes: 'y' saves: 'a' }"
            " op { id: 'loss' phase: 'loss' writes: 'gy' frees: 'other' }"
            " op { id: 'back' phase: 'backward' backward_of: 'use' writes: 'ga' frees: ['a', 'y', 'gy'] }"
            " op { id: 'last' phase: 'backward' backward_of: 'f' frees: ['x', 'ga'] } } region { module: 'M' }",
        "arguments");
    EXPECT_TRUE(model) << model.error().message();
    const MemoryCurve memory = predicted(*model, "by-hand").memory;
    return std::pair(memory.peak_bytes, memory.peak_is_estimate);
  };
  EXPECT_EQ(peak("'x'"), std::pair(std::uint64_t{235}, true));
  EXPECT_EQ(peak("'x', 'other'"), std::pair(std::uint64_t{285}, false));
  EXPECT_EQ(peak("'a'"), std::pair(std::uint64_t{285}, true));  // it saves nothing that it is given: the last that was made is taken for it
}

// Autocast may hold the cast c up to the end of its context: 40 bytes that a region gives up may make the loss higher than the rest.
TEST(Predict, WhatAutocastMayHoldMakesAnEstimate) {
  const auto estimate = [](const std::string& name, const std::string& bytes) {
    const Result<Model> model = parse_model(
        "conventions { release: LISTED drop: REGION_END rerun: EARLY_STOP boundary: PHYSICAL_COPY } general { tensor { id: 'x' bytes: 10 }"
        " tensor { id: 'c' bytes: " +
            bytes +
            " } tensor { id: 'y' bytes: 5 } tensor { id: 'l' bytes: 30 } tensor { id: 'o' bytes: 60 }"
            " op { id: 'in' writes: 'x' } op { id: 'cast' name: '" +
            name +
            "' module: 'M' writes: 'c' }"
            " op { id: 'use' module: 'M' writes: 'y' saves: ['x', 'c'] } op { id: 'loss' phase: 'loss' writes: 'l' }"
            " op { id: 'back' phase: 'backward' backward_of: 'use' reads: ['x', 'c'] frees: ['x', 'c', 'y', 'l'] }"
            " op { id: 'step' phase: 'optimizer' writes: 'o' frees: 'o' } } region { module: 'M' }",
        "autocast");
    EXPECT_TRUE(model) << model.error().message();
    const MemoryCurve memory = predicted(*model, "by-hand").memory;
    return std::pair(memory.peak_bytes, memory.peak_is_estimate);
  };
  EXPECT_EQ(estimate("ToCopyBackward0", "4"), std::pair(std::uint64_t{60}, false));
  EXPECT_EQ(estimate("ToCopyBackward0", "20"), std::pair(std::uint64_t{65}, true));
  EXPECT_EQ(estimate("CloneBackward0", "10"), std::pair(std::uint64_t{60}, false));
  EXPECT_EQ(estimate("ToCopyBackward0", "10"), std::pair(std::uint64_t{60}, true));  // 55 when the region runs again, and 10 more
}

// A region runs again before the first node that takes anything back, be it a parameter. g lives up to there.
//   use saves a parameter: a 100 made again beside gy 20 and y 5, before use's backward has made its gradient: 100 + 25 + 40
//   it saves nothing: gy and y are gone when a is made again, beside ga 40
TEST(Predict, ARegionRunsAgainWhereAParameterIsTakenBack) {
  const auto peak = [](const std::string& mark) {
    const Result<Model> model = parse_model(
        "conventions { release: LISTED drop: REGION_END rerun: EARLY_STOP boundary: PHYSICAL_COPY } general { tensor { id: 'a' bytes: 100 }"
        " tensor { id: 'y' bytes: 5 } tensor { id: 'gy' bytes: 20 } tensor { id: 'ga' bytes: 40 }"
        " op { id: 'f' module: 'M' writes: 'a' saves: 'a' } op { id: 'use' module: 'M' writes: 'y' " +
            mark +
            " }"
            " op { id: 'loss' phase: 'loss' writes: 'gy' }"
            " op { id: 'back' phase: 'backward' backward_of: 'use' writes: 'ga' frees: ['y', 'gy'] }"
            " op { id: 'last' phase: 'backward' backward_of: 'f' reads: 'a' frees: ['a', 'ga'] } } region { module: 'M' }",
        "taken back");
    EXPECT_TRUE(model) << model.error().message();
    EXPECT_EQ(parse_model(model_text(*model), "again")->ops[1].saves_static, !mark.empty());
    return predicted(*model, "by-hand").memory.peak_bytes;
  };
  EXPECT_EQ(peak("saves_static: true"), 165U);
  EXPECT_EQ(peak(""), 140U);
}

// Forwards of two microbatches come first: the second one's may be the highest while the first one's `other` is in doubt.
TEST(Predict, DoubtOfOneMicrobatchIsDoubtOfThoseThatRunMeanwhile) {
  const auto estimate = [](const std::string& order) {
    const Result<Model> model = parse_model(
        "conventions { drop: REGION_END rerun: EARLY_STOP boundary: PHYSICAL_COPY } schedule { microbatches: 2 order: '" + order +
            "' } general { tensor { id: 'high' bytes: 500 } tensor { id: 'x' bytes: 10 } tensor { id: 'other' bytes: 50 }"
            " tensor { id: 'a' bytes: 10 } tensor { id: 'y' bytes: 5 } op { id: 'h' writes: 'high' } op { id: 'in' writes: 'x' }"
            " op { id: 'teach' writes: 'other' } op { id: 'f' module: 'M' writes: 'a' saves: 'x' backward {} }"
            " op { id: 'use' module: 'M' writes: 'y' saves: 'a' backward {} } op { id: 'end' reads: 'other' }"
            " op { id: 'loss' phase: 'loss' } } region { module: 'M' }",
        "doubt");
    EXPECT_TRUE(model) << model.error().message();
    const MemoryCurve memory = predicted(*model, "by-hand").memory;
    EXPECT_EQ(memory.events[memory.peak_event].phase, trace::Phase::forward);
    return memory.peak_is_estimate;
  };
  EXPECT_FALSE(estimate("fwd-bwd"));
  EXPECT_TRUE(estimate("all-fwd"));
}

// A step with many forwards cuts a region into many parts: none of them has a long name.
TEST(Predict, PartsOfARegionHaveShortNames) {
  const std::string name(1000, 'x');
  std::string text = "conventions { drop: REGION_END } general { op { id: '" + name + "' }";
  for (int i = 0; i < 20; ++i) text += " op { phase: 'loss' } op { }";
  const Result<Model> model = parse_model(text + " }", "parts");
  ASSERT_TRUE(model) << model.error().message();
  const Result<Regions> regions = regions_of(*model, *parse_policy("segment:21"));
  ASSERT_TRUE(regions) << regions.error().message();
  ASSERT_EQ(regions->recomputed.size(), 21U);
  for (const Region& region : regions->recomputed) EXPECT_LE(region.name.size(), 200U);
}

// A model file may have one op that makes everything and a region for every other op, which may be called with all of it: t0 and on live
// until the last backward, that of the first region, has run.
TEST(Predict, ManyRegionsThatAreCalledWithMuchAreFollowed) {
  constexpr std::uint64_t many = 60'000;
  std::string text = "conventions { drop: REGION_END }\ngeneral { unit: 'net.*'\n", all, regions;
  for (std::uint64_t i = 0; i < many; ++i) {
    const std::string id = std::to_string(i);
    text += "tensor { id: 't" + id + "' bytes: 1 }\n";
    all += (i == 0 ? "'t" : ",'t") + id + "'";
    regions += "op { id: 'o" + id + "' module: 'net." + id + "' backward {} }\n";
  }
  const Result<Model> model =
      parse_model(text + "op { id: 'all' writes: [" + all + "] }\n" + regions + "op { id: 'L' phase: 'loss' reads: [" + all + "] } }", "");
  ASSERT_TRUE(model) << model.error().message();
  ASSERT_EQ(model->units.size(), many);
  const Prediction prediction = predicted(*model, "full");
  ASSERT_EQ(prediction.memory.events.size(), 2 * many);
  EXPECT_FALSE(prediction.memory.events[many].alloc);
  EXPECT_EQ(prediction.memory.events[many].op, model->ops.size() - 1);
}

// As `summary` of a recorded run calls them. Where an operator outside saves b, too, the graph holds it, as it would without the region.
TEST(Regions, HoldTheirInputsAsCheckpointInputs) {
  using trace::MemoryClass;
  const auto blocks = [](const std::string& more) {
    Result<Model> model = parse_model(
        "general {\n  tensor { id: 'x' bytes: 8 given: true } tensor { id: 'a' bytes: 8 } tensor { id: 'b' bytes: 8 } "
        "tensor { id: 'c' bytes: 8 }\n"
        "  op { id: 'f1' reads: 'x' writes: 'a' saves: 'x' backward {} } op { id: 'f2' reads: 'a' writes: 'b' saves: 'a' backward {} }\n" +
            more +
            "  op { id: 'f3' reads: 'b' writes: 'c' saves: 'b' backward {} }\n  op { id: 'loss' phase: 'loss' reads: 'c' }\n}\n"
            "region { id: 'r' op: 'f3' }\n",
        "");
    EXPECT_TRUE(model) << model.error().message();
    const Prediction prediction = predicted(*model, "by-hand");
    for (const PredictedBlock& block : prediction.memory.blocks)
      if (prediction.tensor_name(*model, block.tensor) == "b") return block.memory_class;
    return MemoryClass::none;
  };
  EXPECT_EQ(blocks(""), MemoryClass::checkpoint_input);
  EXPECT_EQ(blocks("  op { id: 'g' reads: 'b' saves: 'b' backward {} }\n"), MemoryClass::activation);
  // Of a chain that names its values itself nobody could record that.
  for (const PredictedBlock& block : predicted(uniform_chain(6), "segment:2").memory.blocks)
    EXPECT_NE(block.memory_class, MemoryClass::checkpoint_input);
}

TEST(Policy, SizesAndCostsAreWrittenAsEverywhereElse) {
  EXPECT_EQ(parse_policy("greedy:1.5GiB")->number, 1'610'612'736U);
  EXPECT_EQ(parse_policy("over:24 gb")->number, 24'000'000'000U);
  EXPECT_EQ(parse_policy("offload:0.5KiB,2")->number, 512U);
  EXPECT_EQ(parse_policy("under:0.5ms")->number, 500'000U);
  EXPECT_EQ(parse_policy("rotor:4611686018427387904")->number, max_total_bytes);
  for (const char* text : {"greedy:", "greedy:-1", "greedy:1PiB", "rotor:4611686018427387905", "under:5GiB"})
    EXPECT_FALSE(parse_policy(text));
}

TEST(Policy, RefusesWhatMakesNoSense) {
  for (const char* text : {"", "save", "segment", "segment:", "segment:0", "segment:-1", "segment:2x", "segment:1.5",
                           "segments:", "segments:3,,3", "segments:3,0", "segments:3,3,", "segment:99999999999999999999"}) {
    const Result<Policy> policy = parse_policy(text);
    ASSERT_FALSE(policy) << text;
    EXPECT_EQ(policy.error().kind, ErrorKind::usage);
    EXPECT_NE(policy.error().message().find("segments:3,2,1"), std::string::npos);
  }
  const Result<Policy> policy = parse_policy("segments:3,2");
  ASSERT_TRUE(policy);
  const Result<Prediction> prediction = predict(uniform_chain(6), *policy);
  ASSERT_FALSE(prediction);
  EXPECT_EQ(prediction.error().kind, ErrorKind::usage);
  EXPECT_NE(prediction.error().message().find("the segments have 5 layers, the model has 6"), std::string::npos);
}

}  // namespace
}  // namespace liveset::model
