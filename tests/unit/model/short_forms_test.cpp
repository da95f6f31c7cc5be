// The short forms mlp and transformer of a model file: what they predict, and what is said of those that are no step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/acceptance.h"
#include "tests/support/transformer_facts.h"
#include "viewer/model/transformer_step.h"
#include "viewer/model/whatif.h"

namespace liveset::model {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using trace::MemoryClass;
using trace::Phase;

std::string refusal(const std::string& text) {
  const Result<Model> model = parse_model(text, "m.textproto");
  return model ? "accepted" : model.error().message();
}

Prediction predicted(const std::string& text, const std::string& policy = "save-all", const PredictOptions& options = {}) {
  const Result<Model> model = parse_model(text, "m.textproto");
  EXPECT_TRUE(model) << model.error().message();
  if (!model) return {};
  Result<Prediction> prediction = predict(*model, *parse_policy(policy), options);
  EXPECT_TRUE(prediction) << prediction.error().message();
  return prediction ? std::move(*prediction) : Prediction{};
}

std::uint64_t phase_peak(const Prediction& prediction, Phase phase) { return prediction.memory.phase_peak[static_cast<int>(phase)]; }

// Their layers have several operators each: how many of those ran is no number of layers.
TEST(ShortForms, CountLayersWhereALayerIsOneOperator) {
  EXPECT_TRUE(predicted("chain { length: 3 }", "full").ledger.counts_layers());
  EXPECT_TRUE(predicted("rotor_chain { a: [1, 1, 1] abar: [2, 2] delta: [1, 1, 1] uf: [1, 1] ub: [1, 1] of: [0, 0] ob: [0, 0] }")
                  .ledger.counts_layers());
  EXPECT_FALSE(predicted("mlp { batch: 7 widths: [5, 11, 13, 3] }").ledger.counts_layers());
  EXPECT_TRUE(predicted("mlp { batch: 7 widths: [5, 11] }").ledger.counts_layers()) << "one product";
  EXPECT_FALSE(predicted("transformer { sequence: 8 micro_batch: 1 hidden: 8 heads: 1 layers: 2 vocabulary: 16 }").ledger.counts_layers());
}

// 7 rows, widths 5, 11, 13, 3, four bytes each; every figure by hand. Parameters: (5+1)11 + (11+1)13 + (13+1)3 = 264 numbers, 1056 bytes.
TEST(Mlp, EveryPhaseByHand) {
  const Prediction step = predicted("mlp { batch: 7 widths: [5, 11, 13, 3] }");
  const std::uint64_t parameters = 1056, x = 140, a1 = 308, a2 = 364, y = 84;
  EXPECT_EQ(step.memory.static_bytes, parameters);
  // Forward: x and the target; the second ReLU's input, its output, the first's output.
  EXPECT_EQ(phase_peak(step, Phase::forward), parameters + x + y + a1 + 2 * a2);
  // The loss: the output, the loss's storage, the squares, and a number as a double and as a float.
  EXPECT_EQ(phase_peak(step, Phase::loss), parameters + x + y + a1 + a2 + 3 * y + 12);
  // Backward of the first linear: all gradients, the first ReLU's gradient, x, the target, the loss and its gradient.
  const std::uint64_t first = parameters + x + y + a1 + parameters + y + 4;
  // Backward of the second linear: gradients of layers 2 and 3, of both sides of the linear, the first ReLU's output.
  const std::uint64_t second = parameters + x + y + a1 + (12 * 13 + 14 * 3) * 4 + a2 + a1 + y + 4;
  EXPECT_EQ(phase_peak(step, Phase::backward), std::max(first, second));
  EXPECT_EQ(step.memory.peak_bytes, std::max(first, second));
  EXPECT_EQ(step.forward_cost, 2 * 7 * (5 * 11 + 11 * 13 + 13 * 3) + 7 * (11 + 13));
}

TEST(Mlp, OptimizersAndTheFirstStep) {
  const std::string text = "mlp { batch: 7 widths: [5, 11, 13, 3] loss: 'sum' optimizer: ";
  // Adam: two moments and a count of steps for each of the six parameters.
  const Prediction late = predicted(text + "'adam' }"), first = predicted(text + "'adam' }", "save-all", {0});
  EXPECT_EQ(late.memory.static_bytes, 3 * 1056 + 6 * 4);
  EXPECT_EQ(first.memory.static_bytes, 1056);
  // Two temporaries of the largest weight (11 x 13), the one of the bias before it, a number twice; all gradients, and x.
  EXPECT_EQ(phase_peak(late, Phase::optimizer), 3 * 1056 + 24 + 1056 + 140 + 2 * 572 + 44 + 12);
  EXPECT_EQ(predicted(text + "'momentum' }").memory.static_bytes, 2 * 1056);
  EXPECT_EQ(predicted(text + "'sgd' }").memory.static_bytes, 1056);
  // The sum's gradient is one number: the last linear copies it (7 x 3) beside its input's gradient and its weight's.
  const Prediction wide = predicted("mlp { batch: 100 widths: [1, 1000] loss: 'sum' bias: false element_bytes: 8 }");
  EXPECT_EQ(wide.memory.peak_bytes, 8000u + 800 + 8 + 8 + 8000 + 800000);
}

TEST(Mlp, RegionsAreLayers) {
  const std::string text = "mlp { batch: 100 widths: [10, 50, 50, 50, 50, 1] activation: 'tanh' } physical { rng_state: 0 }";
  const Result<Model> model = parse_model(text, "");
  ASSERT_TRUE(model) << model.error().message();
  ASSERT_EQ(model->units.size(), 5u);
  EXPECT_EQ(model->units[1].name, "layer.2");
  const auto held = [&](const std::string& policy) { return predicted(text, policy).ledger.held_at_loss.size(); };
  // x, the target, four outputs of tanh and that of the last layer; segments of two layers keep every second one.
  EXPECT_EQ(held("save-all"), 7u);
  EXPECT_EQ(held("segment:2"), 5u);
  EXPECT_EQ(held("regions:layer.2"), 7u);  // its output is the next layer's input
  EXPECT_EQ(held("segments:1,3,1"), 5u);
  for (const char* policy : {"revolve:2", "full", "sqrt", "selective:addmm", "offload:1000"}) predicted(text, policy);
  const Prediction least = predicted(text, "rotor:400000");
  EXPECT_LE(least.memory.peak_bytes, predicted(text).memory.peak_bytes);
}

TEST(Mlp, SaysLineAndFieldOfWhatIsWrong) {
  const auto expect = [](const std::string& fields, const std::string& what) {
    EXPECT_THAT(refusal("mlp {\n" + fields + "\n}"), HasSubstr("m.textproto: bad model: line 2: mlp." + what)) << fields;
  };
  expect("batch: 0 widths: [1, 2]", "batch is 0, must be at least 1");
  expect("batch: 1 widths: 7", "widths has 1 entries, must have at least 2");
  expect("batch: 1 widths: [7, -1]", "widths[1] is -1, must be at least 1");
  expect("batch: 1 widths: [7, 1] activation: 'swish'", "activation 'swish' is none of relu, tanh, gelu");
  expect("batch: 1 widths: [7, 1] optimizer: 'lion'", "optimizer 'lion' is none of none, sgd, momentum, adam");
  expect("batch: 1 widths: [7, 1] loss: 'l1'", "loss 'l1' is none of mse, sum");
  expect("batch: 1 widths: [7, 1] element_bytes: 3", "element_bytes is 3, must be 2, 4 or 8");
  expect("batch: 1 widths: [4294967296, 4294967296]", "widths[0] and the next one make a layer whose size reaches 2^63");
  EXPECT_THAT(refusal("mlp { batch: 1 widths: [1000000000, 1000000000, 1000000000] }"), HasSubstr("the sum of all bytes is above 2^62"));
  EXPECT_THAT(refusal("mlp { batch: 1 }"), HasSubstr("mlp.widths has 0 entries"));
  EXPECT_THAT(refusal("mlp { batch: 1 widths: [1, 1] }\nschedule { microbatches: 2 }"),
              HasSubstr("line 2: schedule.microbatches is 2, and an mlp is one batch"));
  EXPECT_THAT(refusal("mlp { batch: 1 widths: [1, 1] }\nconventions { release: LISTED }"),
              HasSubstr("line 2: conventions.release is LISTED"));
  EXPECT_THAT(refusal("chain { length: 2 }\nconventions { release: LISTED }"), HasSubstr("line 2: conventions.release is LISTED"));
}

TEST(Mlp, WhatIsAssumedIsSaid) {
  const auto estimate = [](const std::string& text) { return parse_model(text, "")->estimate; };
  EXPECT_EQ(estimate("mlp { batch: 1 widths: [1, 1] }"), "");
  EXPECT_NE(estimate("mlp { batch: 1 widths: [1, 1] element_bytes: 2 }"), "");
  EXPECT_NE(estimate("mlp { batch: 1 widths: [1, 1] } physical { allocator: 'cuda' }"), "");
}

// A model file of a shape, and the same shape for the formulas.
struct Configuration {
  TransformerShape shape;
  std::uint64_t stage = 0;
  std::string more;  // fields of the file
};

std::string file_of(const Configuration& configuration) {
  const TransformerShape& shape = configuration.shape;
  const auto field = [](const char* name, std::uint64_t value) { return std::string(" ") + name + ": " + std::to_string(value); };
  return "transformer {" + field("sequence", shape.sequence) + field("micro_batch", shape.micro_batch) + field("hidden", shape.hidden) +
         field("heads", shape.heads) + field("layers", shape.layers) + field("vocabulary", shape.vocabulary) +
         field("tensor_parallel", shape.tensor) + field("pipeline_stages", shape.pipeline) + field("interleave", shape.interleave) +
         field("stage", configuration.stage) + (shape.sequence_parallel ? " sequence_parallel: true" : "") +
         (shape.hidden_dropout ? "" : " dropout: false") + configuration.more + " }" +
         (shape.microbatches != 0 ? " schedule { microbatches: " + std::to_string(shape.microbatches) + " }" : "");
}

TransformerShape shape_of(const json& config) {
  TransformerShape shape = test::shape_of(config);
  shape.optimizer = TransformerShape::Optimizer::absent;
  return shape;
}

const std::vector<std::pair<const char*, TransformerShape::Recompute>> policies = {
    {"save-all", TransformerShape::Recompute::nothing},
    {"full", TransformerShape::Recompute::full},
    {"regions:core_attention", TransformerShape::Recompute::selective},
};

// The executed step has the peak of the formulas, to the byte, under all three policies.
void expect_peaks(Configuration configuration) {
  const std::string text = file_of(configuration);
  SCOPED_TRACE(text);
  TransformerShape shape = configuration.shape;
  if (shape.microbatches == 0) shape.microbatches = busy_microbatches(shape.pipeline, shape.interleave);
  for (const auto& [policy, recompute] : policies) {
    SCOPED_TRACE(policy);
    // A fused kernel has row sums to make again where the formulas have nothing.
    if (recompute == TransformerShape::Recompute::selective && shape.attention == TransformerShape::Attention::fused) continue;
    shape.recompute = recompute;
    const Result<TransformerMemory> memory = transformer_memory(shape, {configuration.stage, false});
    ASSERT_TRUE(memory) << memory.error().message();
    const Prediction step = predicted(text, policy);
    EXPECT_EQ(Exact(step.memory.peak_bytes).text(), memory->total(memory->peak()).text());
  }
}

// What the layers have stored when the first backward begins.
std::uint64_t stored_in_layers(const Prediction& step, const Model& model) {
  std::uint64_t bytes = 0, first = 0;
  while (first < step.memory.events.size() && step.memory.events[first].phase != Phase::backward) ++first;
  for (const PredictedBlock& block : step.memory.blocks)
    if (block.made < first && block.freed >= first &&
        (block.memory_class == MemoryClass::activation || block.memory_class == MemoryClass::checkpoint_input) &&
        step.tensor_name(model, block.tensor).substr(0, 6) == "layer.")
      bytes += block.bytes;
  return bytes;
}

// The published values: what a first stage stores of its layers, by setting.
TEST(TransformerFile, PublishedBytesOfTheFirstStage) {
  const std::vector<std::tuple<const char*, bool, const char*>> settings = {{"tp", false, "save-all"},
                                                                            {"tp_sp", true, "save-all"},
                                                                            {"tp_selective", false, "regions:core_attention"},
                                                                            {"tp_sp_selective", true, "regions:core_attention"},
                                                                            {"full", false, "full"}};
  int checked = 0;
  for (const json& fact : test::acceptance("transformer").at("paper_models")) {
    Configuration configuration{shape_of(fact.at("config")), 0, ""};
    for (const auto& [name, sequence_parallel, policy] : settings) {
      SCOPED_TRACE(fact.at("name").get<std::string>() + " " + name);
      configuration.shape.sequence_parallel = sequence_parallel;
      const Result<Model> model = parse_model(file_of(configuration), "");
      ASSERT_TRUE(model) << model.error().message();
      const Result<Prediction> step = predict(*model, *parse_policy(policy));
      ASSERT_TRUE(step) << step.error().message();
      EXPECT_EQ(stored_in_layers(*step, *model), fact.at("first_stage_layers_bytes").at(name).get<std::uint64_t>());
      ++checked;
    }
  }
  EXPECT_EQ(checked, 20);
}

TEST(TransformerFile, PeaksAreThoseOfTheFormulas) {
  for (const char* list : {"paper_models", "synthetic"})
    for (const json& fact : test::acceptance("transformer").at(list)) {
      Configuration configuration{shape_of(fact.at("config")), 0, ""};
      // Interleaved, the dropout masks of the embedding reach their maximum after the first backward, and the formulas stop there.
      if (configuration.shape.interleave > 1) configuration.shape.hidden_dropout = configuration.shape.attention_dropout = false;
      if (!parse_model(file_of(configuration), "")) {
        EXPECT_THAT(fact.at("name").get<std::string>(), ::testing::AnyOf("not-divisible", "odd-interleave"));
        continue;
      }
      expect_peaks(configuration);
      configuration.shape.sequence_parallel = true;
      expect_peaks(configuration);
    }
}

TEST(TransformerFile, EveryStageAndEveryExtra) {
  TransformerShape shape;
  shape.sequence = 128;
  shape.micro_batch = 2;
  shape.hidden = 64;
  shape.heads = 8;
  shape.layers = 8;
  shape.vocabulary = 1000;
  shape.optimizer = TransformerShape::Optimizer::absent;
  expect_peaks({shape, 0, ""});
  TransformerShape adam = shape;
  adam.optimizer = TransformerShape::Optimizer::adam;
  expect_peaks({adam, 0, " optimizer: 'adam'"});
  adam.sharding = TransformerShape::Sharding::optimizer;
  adam.data = 4;
  expect_peaks({adam, 0, " optimizer: 'adam' distributed_optimizer: true data_parallel: 4"});
  adam.sharding = TransformerShape::Sharding::parameters;
  expect_peaks({adam, 0, " optimizer: 'adam' data_shard: 3 data_parallel: 4"});
  TransformerShape modern = shape;
  modern.attention = TransformerShape::Attention::fused;
  modern.key_value_heads = 2;
  modern.gated_mlp = true;
  modern.ffn = 160;
  modern.norm = TransformerShape::Norm::rms;
  modern.positions = TransformerShape::Positions::absent;
  modern.linear_biases = modern.tied_embeddings = modern.hidden_dropout = modern.attention_dropout = false;
  const std::string fields =
      " flash_attention: true key_value_heads: 2 gated: true ffn: 160 rms_norm: true position_embeddings: false biases: false "
      "tied_embeddings: false";
  expect_peaks({modern, 0, fields});
  modern.experts = 8;
  modern.experts_per_token = 2;
  modern.expert = 4;
  modern.context = 2;
  expect_peaks({modern, 0, fields + " experts: 8 experts_per_token: 2 expert_parallel: 4 context_parallel: 2"});
  shape.pipeline = 4;
  for (const std::uint64_t stage : {0, 1, 3}) {
    shape.microbatches = 8;
    expect_peaks({shape, stage, ""});
    shape.microbatches = 2;
    expect_peaks({shape, stage, ""});
  }
  shape.interleave = 2;
  shape.hidden_dropout = shape.attention_dropout = false;
  for (const std::uint64_t stage : {0, 2, 3})
    for (const std::uint64_t microbatches : {4, 8, 12}) {
      shape.microbatches = microbatches;
      expect_peaks({shape, stage, ""});
    }
}

// Recomputing costs what the papers count: a layer's forward, or its attention core's two products.
TEST(TransformerFile, ExtraCostIsThatOfThePapers) {
  const json& fact = test::acceptance("transformer").at("paper_models")[0];
  Configuration configuration{shape_of(fact.at("config")), 0, ""};
  const std::uint64_t s = configuration.shape.sequence, b = configuration.shape.micro_batch, h = configuration.shape.hidden,
                      L = configuration.shape.layers, t = configuration.shape.tensor;
  const std::string text = file_of(configuration);
  EXPECT_EQ(predicted(text, "full").extra_cost, L * (24 * b * s * h * h + 4 * b * s * s * h) / t);
  EXPECT_EQ(predicted(text, "regions:core_attention").extra_cost, L * 4 * b * s * s * h / t);
  EXPECT_EQ(predicted(text).extra_cost, 0u);
}

TEST(TransformerFile, FirstStepHasNoMomentsAndPartsHaveNames) {
  const std::string text = "transformer { sequence: 128 micro_batch: 2 hidden: 64 heads: 8 layers: 2 vocabulary: 1000 optimizer: 'adam' }";
  const Prediction late = predicted(text), first = predicted(text, "save-all", {0});
  // 12Lh^2 + 13Lh + (V + s)h, and the final norm; 2 + 4 + 4 bytes each, and two moments of 4.
  const std::uint64_t parameters = 12 * 2 * 64 * 64 + 13 * 2 * 64 + (1000 + 128) * 64 + 2 * 64;
  EXPECT_EQ(late.memory.static_bytes, 18 * parameters);
  EXPECT_EQ(first.memory.static_bytes, 10 * parameters);
  std::vector<std::string> names;
  for (const StaticStorage& storage : late.memory.statics) names.push_back(storage.id);
  EXPECT_THAT(names, ::testing::IsSupersetOf({"word embedding", "gradients", "master parameters", "first moments", "second moments"}));
  const Result<Model> model = parse_model(text, "");
  ASSERT_TRUE(model);
  // Every part of the peak by name, with its formula: they sum to it.
  const Result<Outcome> outcome = model::outcome(*model, *parse_policy("save-all"));
  ASSERT_TRUE(outcome);
  std::uint64_t sum = 0;
  for (const PeakPart& part : outcome->parts) {
    sum += part.bytes;
    EXPECT_NE(part.formula.formula, "") << part.name;
    if (part.name != "softmax output") continue;
    EXPECT_EQ(part.count, 2u);
    EXPECT_EQ(part.bytes, 2u * 2 * 8 * 128 * 128 * 2);
    EXPECT_EQ(part.formula.formula, "2as^2b/t");
    EXPECT_EQ(part.formula.source, "Korthikanti et al. 2022, section 4");
  }
  EXPECT_EQ(sum, outcome->counters.requested.bytes);
  EXPECT_THAT(model->estimate, HasSubstr("by formula, without rounding and fragmentation of the allocator; "));
  EXPECT_EQ(model->units.front().name, "layer.1");
}

TEST(TransformerFile, SaysLineAndFieldOfWhatIsWrong) {
  const std::string good = "sequence: 128 micro_batch: 2 hidden: 64 heads: 8 layers: 8 vocabulary: 1000";
  const auto expect = [&](const std::string& fields, const std::string& what) {
    EXPECT_THAT(refusal("transformer {\n" + good + "\n" + fields + "\n}"), HasSubstr("m.textproto: bad model: line " + what)) << fields;
  };
  EXPECT_THAT(refusal("transformer { }"), HasSubstr("transformer.sequence is 0, must be at least 1"));
  EXPECT_THAT(refusal("transformer {\n sequence: 8\n micro_batch: -1 }"), HasSubstr("line 3: transformer.micro_batch is -1"));
  expect("pipeline_stages: 0", "3: transformer.pipeline_stages is 0, must be at least 1");
  expect("stage: 1", "3: transformer.stage is 1, the last is 0");
  expect("optimizer: 'lion'", "3: transformer.optimizer 'lion' is none of none, sgd, momentum, adam");
  expect("element_bytes: 0", "3: transformer.element_bytes is 0 bytes an element, must be 1, 2, 4 or 8");
  expect("element_bytes: 3", "3: transformer.element_bytes is 3 bytes an element");
  EXPECT_THAT(refusal("transformer { sequence: 8 micro_batch: 1 hidden: 256 heads: 7 layers: 1 vocabulary: 9 }"),
              HasSubstr("line 1: transformer.heads is 7, and hidden 256 is no multiple of it"));
  expect("pipeline_stages: 4294967296 interleave: 4294967296", "2: transformer: pipeline is 4294967296, must be at most a million");
  expect("tensor_parallel: 2000000", "2: transformer: tensor is 2000000, must be at most a million");
  expect("data_shard: 4", "3: transformer.data_shard is 4, must be 0 to 3");
  expect("key_value_heads: 3", "2: transformer: heads are no multiple of key-value heads");
  expect("interleave: 2", "2: transformer: interleaving needs more than one pipeline stage");
  expect("pipeline_stages: 3", "2: transformer: layers are no multiple of pipeline stages");
  expect("pipeline_stages: 4 interleave: 4", "2: transformer: layers are no multiple of pipeline stages times interleaving");
  expect("pipeline_stages: 4 interleave: 2 }\nschedule { microbatches: 6",
         "2: transformer: microbatches are no multiple of pipeline stages");
  expect("tensor_parallel: 7", "2: transformer: the ranks cannot share");
  expect("experts: 4", "2: transformer: a token goes to 0 of 4 experts");
  expect("ffn: 4611686018427387904", "2: transformer: 4611686018427387904 is no size");
  expect("ffn: 1152921504606846976", "2: transformer: a size reaches 2^63");
  expect("}\nschedule { order: 'all-fwd'", "4: schedule.order is 'all-fwd', and the formulas know 1f1b");
  expect("}\nschedule { stages: 2", "4: schedule.stages is given; a transformer has pipeline_stages and stage of its own");
  expect("}\nschedule { microbatches: 1000000", "2: transformer: 1000000 microbatches of 8 layers are too many to list");
  expect("}\nstatic_storage { id: 'gradients' bytes: 1", "4: static_storage[0].id 'gradients' is a duplicate");
  EXPECT_THAT(refusal("transformer { sequence: 1 micro_batch: 1 hidden: 1 heads: 1 vocabulary: 1 layers: 1000000000000 }"),
              HasSubstr("1 microbatches of 1000000000000 layers are too many to list"));
}

}  // namespace
}  // namespace liveset::model
