// The short forms mlp and transformer of a model file: what they predict, and what is said of those that are no step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "viewer/model/predict.h"

namespace liveset::model {
namespace {

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

}  // namespace
}  // namespace liveset::model
