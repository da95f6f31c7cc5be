// Model files: what is read from them, and what is said of bad ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "viewer/model/model.h"

namespace liveset::model {
namespace {

const Tensor& value_of(const Model& model, std::size_t layer) { return model.tensors[model.list(model.ops[layer].writes)[0]]; }
std::uint32_t loss_of(const Model& model) {
  for (const Op& op : model.ops)
    if (op.phase == trace::Phase::loss) return model.list(op.reads)[0];
  return none;
}
std::vector<std::uint32_t> reads_of(const Model& model, std::size_t layer) {
  const auto reads = model.list(model.ops[layer].reads);
  return {reads.begin(), reads.end()};
}

using ::testing::HasSubstr;
using ::testing::Not;

std::string refusal(const std::string& text) {
  const Result<Model> model = parse_model(text, "m.textproto");
  if (model) return "accepted";
  EXPECT_EQ(model.error().kind, ErrorKind::unreadable);
  const std::string message = model.error().message();
  EXPECT_THAT(message, HasSubstr("m.textproto: bad model: "));
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  return message;
}

TEST(ModelFile, ChainFormWithDefaults) {
  const Result<Model> model = parse_model("chain { length: 6 bytes: 8 cost: 1 }", "");
  ASSERT_TRUE(model) << model.error().message();
  ASSERT_EQ(model->units.size(), 6U);
  EXPECT_EQ(model->tensors[model->inputs[0]].id, "h0");
  EXPECT_EQ(value_of(*model, 5).id, "h6");
  EXPECT_EQ(value_of(*model, 5).bytes, 8U);
  EXPECT_EQ(loss_of(*model), 6U);
  EXPECT_TRUE(model->conventions.count_inputs);
  EXPECT_TRUE(model->conventions.checkpoint_last_segment);
}

TEST(ModelFile, ListsPerLayerAndConventions) {
  const Result<Model> model = parse_model(
      "name: 'lists' conventions { count_inputs: false checkpoint_last_segment: false short_segment: FIRST rerun: STOP_BEFORE_BOUNDARY"
      " boundary: PHYSICAL_COPY } chain { length: 2 layer_bytes: [4, 5, 6] layer_cost: [7, 0] }",
      "");
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->name, "lists");
  EXPECT_EQ(model->tensors[model->inputs[0]].bytes, 4U);
  EXPECT_EQ(value_of(*model, 1).bytes, 6U);
  EXPECT_EQ(model->ops[0].cost, 7U);
  EXPECT_EQ(model->ops[1].cost, 0U);
  EXPECT_FALSE(model->conventions.count_inputs);
  EXPECT_FALSE(model->conventions.checkpoint_last_segment);
  EXPECT_TRUE(model->conventions.short_segment_first);
  EXPECT_TRUE(model->conventions.rerun == Conventions::Rerun::stop_before_boundary);
  EXPECT_TRUE(model->conventions.physical_copy);
}

TEST(ModelFile, JsonSaysTheSameAsText) {
  const Result<Model> model =
      parse_model(R"( {"chain": {"length": 3, "layerBytes": [1, 2, "3", 4]}, "conventions": {"rerun": "WHOLE"}} )", "");
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(value_of(*model, 1).bytes, 3U);
  EXPECT_THAT(refusal(R"({"chain": {"length": 3, "bytes": -8}})"), HasSubstr("chain.bytes is -8, must be at least 0"));
  EXPECT_THAT(refusal(R"({"chain": {"length": 3, "wide": 8}})"), HasSubstr("wide"));
  EXPECT_THAT(refusal(R"({"chain": {"length": 3)"), HasSubstr("bad model"));
}

TEST(ModelFile, LayersRunInAnOrderThatTheirReadsAllow) {
  const Result<Model> model = parse_model(
      "graph { input { id: 'x' bytes: 3 } layer { id: 'c' reads: 'b' } layer { id: 'b' reads: 'a' bytes: 5 } layer { id: 'a' reads: 'x' } "
      "}",
      "");
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(value_of(*model, 0).id, "a");
  EXPECT_EQ(value_of(*model, 1).id, "b");
  EXPECT_EQ(value_of(*model, 1).bytes, 5U);
  EXPECT_EQ(reads_of(*model, 2), std::vector<std::uint32_t>{2});
  EXPECT_EQ(loss_of(*model), 3U);
}

TEST(ModelFile, SaysLineAndFieldOfWhatIsWrong) {
  EXPECT_THAT(refusal(""), HasSubstr("the file is empty"));
  EXPECT_THAT(refusal("name: 'x'"),
              HasSubstr("it describes no step: no chain, graph, general, mlp, transformer or rotor_chain (the smallest model is: chain {"));
  EXPECT_THAT(refusal("chain {\n  length: 6\n  bytes: -8\n}"), HasSubstr("line 3: chain.bytes is -8, must be at least 0"));
  EXPECT_THAT(refusal("chain {\n length: 0\n}"), HasSubstr("line 2: chain.length is 0, must be at least 1"));
  EXPECT_THAT(refusal("chain { }"), HasSubstr("chain.length is 0"));
  EXPECT_THAT(refusal("chain { length: 4000000000 }"), HasSubstr("must be at most 1000000"));
  EXPECT_THAT(refusal("chain { length: 2 layer_bytes: [1, 2] }"), HasSubstr("line 1: chain.layer_bytes[0] has 2 entries, must have 3"));
  EXPECT_THAT(refusal("chain { length: 1\n layer_bytes: [1,\n -2] }"), HasSubstr("line 2: chain.layer_bytes[1] is -2"));
  EXPECT_THAT(refusal("chain { length: 1 bytes: 3 layer_bytes: [1, 2] }"), HasSubstr("are both given"));
  EXPECT_THAT(refusal("chain { length: 3 bytes: 4611686018427387904 }"), HasSubstr("the sum of all bytes is above 2^62"));
  EXPECT_THAT(refusal("chain {\n length: 6\n width: 3 }"), HasSubstr("line 3: "));
  EXPECT_THAT(refusal("chain { length: 6"), HasSubstr("line 1: "));
  EXPECT_THAT(refusal("chain { length: 6 length: 7 }"), HasSubstr("line 1: "));
  EXPECT_THAT(refusal("conventions { rerun: 7 } chain { length: 6 }"), HasSubstr("rerun"));
  EXPECT_THAT(refusal(std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16)), HasSubstr("binary file"));
}

TEST(ModelFile, GraphsThatAreNoTrainingStep) {
  EXPECT_THAT(refusal("graph { }"), HasSubstr("has no layer"));
  EXPECT_THAT(refusal("graph {\n input { id: 'x' }\n layer { id: 'a' reads: 'x' }\n layer { id: 'a' reads: 'x' }\n}"),
              HasSubstr("line 4: graph.layer[1].id 'a' is a duplicate"));
  EXPECT_THAT(refusal("graph {\n input { id: 'x' }\n layer { id: 'a' reads: 'x' reads: 'c' }\n layer { id: 'b' reads: 'a' }\n layer { id: "
                      "'c' reads: 'b' }\n}"),
              HasSubstr("line 3: graph: the layers form a cycle: a reads c reads b reads a"));
  EXPECT_THAT(refusal("graph { layer { id: 'a' reads: 'a' } }"), HasSubstr("a reads a"));
  EXPECT_THAT(refusal("graph { input { id: 'x' }\n layer { id: 'a' reads: 'y' } }"),
              HasSubstr("line 2: graph.layer[0].reads[0] 'y' is no input and no layer"));
  EXPECT_THAT(refusal("graph { input { id: 'x' bytes: -1 } layer { id: 'a' reads: 'x' } }"),
              HasSubstr("line 1: graph.input[0].bytes is -1"));
  EXPECT_THAT(refusal("graph { input { id: 'x' } layer { id: 'a' reads: 'x' cost: -1 } }"), HasSubstr("graph.layer[0].cost is -1"));
  EXPECT_THAT(refusal("graph { input { id: 'x' } layer { id: 'a' } }"), HasSubstr("'a' reads nothing"));
  EXPECT_THAT(refusal("graph { input { id: 'x' } layer { reads: 'x' } }"), HasSubstr("graph.layer[0] has no id"));
  EXPECT_THAT(refusal("graph { input { id: 'x' } input { id: 'y' } layer { id: 'a' reads: 'x' } }"), HasSubstr("'y' is read by no layer"));
  EXPECT_THAT(refusal("graph { input { id: 'x' } layer { id: 'a' reads: 'x' } loss: 'x' }"), HasSubstr("graph.loss 'x' is no layer"));
}

TEST(ModelFile, MissingFileAndDirectory) {
  for (const char* path : {"/nonexistent/chain.textproto", "/"}) {
    const Result<Model> model = read_model(path);
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().kind, ErrorKind::unreadable);
    EXPECT_THAT(model.error().message(), HasSubstr("samples/tanh_chain/chain.textproto"));
  }
}

TEST(ModelFile, SampleFileIsTheSixLayerChain) {
  const Result<Model> model = read_model(std::string(LIVESET_SOURCE_DIR) + "/samples/tanh_chain/chain.textproto");
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->units.size(), 6U);
}

}  // namespace
}  // namespace liveset::model
