// The general form of a model file: what it says is what is predicted, and what is said of bad ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "viewer/model/model.h"

namespace liveset::model {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& text) {
  const Result<Model> model = parse_model(text, "m.textproto");
  return model ? "accepted" : model.error().message();
}

// Two layers whose backward ops are stated in short.
const std::string body =
    "dim { name: 'N' value: 256 }\n"
    "dim { name: 'M' expression: '2*N' }\n"
    "static_storage { id: 'w' size: '4*N*M' }\n"
    "general {\n"
    "  tensor { id: 'x' size: '4*N' given: true }\n"
    "  tensor { id: 'y' size: '4*M' }\n"
    "  tensor { id: 'z' bytes: 4 }\n"
    "  op { id: 'f' reads: 'x' writes: 'y' saves: 'x' work: 'N*M' backward { work: '2*N*M' } }\n"
    "  op { id: 'g' reads: 'y' writes: 'z' saves: 'y' backward {} }\n"
    "  op { id: 'loss' phase: 'loss' reads: 'z' }\n"
    "}\n";

TEST(ProgramFile, DimensionsAndBackwardsInShort) {
  const Result<Model> model = parse_model(body, "");
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->statics[0].bytes, 524288U);  // 4 * 256 * 512
  EXPECT_EQ(model->tensors[0].bytes, 1024U);
  EXPECT_EQ(model->tensors[1].bytes, 2048U);
  ASSERT_EQ(model->ops.size(), 5U);
  EXPECT_EQ(model->ops[3].id, "g'");
  EXPECT_EQ(model->ops[4].id, "f'");
  EXPECT_EQ(model->ops[0].cost, 131072U);
  EXPECT_EQ(model->ops[4].cost, 262144U);
  EXPECT_EQ(model->ops[4].forward, 0U);
  EXPECT_TRUE(model->tensors[1].value);
  EXPECT_FALSE(model->tensors[2].value);
}

TEST(ProgramFile, WrittenAndReadAgainItIsTheSame) {
  const Result<Model> model = parse_model(body, "");
  ASSERT_TRUE(model);
  const std::string text = model_text(*model);
  const Result<Model> again = parse_model(text, "");
  ASSERT_TRUE(again) << again.error().message() << "\n" << text;
  EXPECT_EQ(model_text(*again), text);
}

TEST(ProgramFile, UnitOfCostsAndWhatIsAnEstimateAreKept) {
  const Result<Model> plain = parse_model(body, "");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->estimate, "");
  EXPECT_FALSE(plain->costs_are_times());
  const Result<Model> model = parse_model("cost_unit: 'ns' estimate: 'no \"kernel\" ran'\n" + body, "");
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_TRUE(model->costs_are_times());
  EXPECT_EQ(model->estimate, "no \"kernel\" ran");
  const Result<Model> again = parse_model(model_text(*model), "");
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->cost_unit, "ns");
  EXPECT_EQ(again->estimate, model->estimate);
  EXPECT_THAT(refusal("\ncost_unit: 'ms'\n" + body), HasSubstr("line 2: cost_unit 'ms' is not ns"));
}

TEST(ProgramFile, AnEstimateIsAddedToThatOfTheShortForm) {
  const std::string mlp = "mlp { batch: 2 widths: [3, 4] element_bytes: 2 }\n";
  const Result<Model> own = parse_model(mlp, ""), both = parse_model(mlp + "estimate: 'and more'\n", "");
  ASSERT_TRUE(own && both);
  ASSERT_FALSE(own->estimate.empty());
  EXPECT_EQ(both->estimate, own->estimate + "; and more");
}

std::string changed(const std::string& from, const std::string& to) {
  std::string text = body;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ProgramFile, SaysLineAndFieldOfWhatIsWrong) {
  const auto expect = [](const std::string& from, const std::string& to, const std::string& line, const std::string& what) {
    const std::string message = refusal(changed(from, to));
    EXPECT_THAT(message, HasSubstr(line)) << to;
    EXPECT_THAT(message, HasSubstr(what)) << to;
    EXPECT_EQ(message.find('\n'), std::string::npos) << to;
  };
  expect("'2*N'", "'2*Q'", "line 2: ", "unknown name 'Q'");
  expect("'2*N'", "'N/(N-256)'", "line 2: ", "division by zero");
  expect("value: 256", "value: 4611686018427387904", "line 2: ", "above 2^63");
  expect("value: 256", "value: -1", "line 1: ", "value");
  expect("name: 'M'", "name: 'N'", "line 2: ", "duplicate");
  expect("name: 'M'", "name: 'max'", "line 2: ", "no name");
  expect("id: 'z' bytes: 4", "id: 'z' bytes: 4 size: '4'", "line 7: ", "size");
  expect("id: 'z' bytes: 4", "id: 'y' bytes: 4", "line 7: ", "duplicate");
  expect("id: 'z' bytes: 4", "id: 'z' view_of: 'later'", "line 7: ", "no tensor above");
  expect("id: 'z' bytes: 4", "id: 'z' memory_class: 'soup'", "line 7: ", "no class of memory");
  expect("reads: 'y'", "reads: 'nothing'", "line 9: ", "no tensor");
  expect("phase: 'loss'", "phase: 'lunch'", "line 10: ", "none of forward");
  expect("phase: 'loss'", "phase: 'loss' backward_of: 'f'", "line 10: ", "backward_of");
  expect("id: 'g'", "id: 'f'", "line 9: ", "duplicate");
  expect("id: 'g'", "id: 'g' frees: 'x'", "line 9: ", "LAST_USE");
}

TEST(ProgramFile, OpsThatReadWhatOnlyLaterOpsMake) {
  EXPECT_THAT(refusal("general { tensor { id: 'a' } tensor { id: 'b' } op { id: 'f' reads: 'b' writes: 'a' saves: 'a' }\n"
                      "op { id: 'g' reads: 'a' writes: 'b' } }"),
              HasSubstr("op 'f' reads 'b', which nothing has made yet"));
}

}  // namespace
}  // namespace liveset::model
