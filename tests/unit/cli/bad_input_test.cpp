// What a person gets for input that means nothing: one line that says what and where, or a verdict; never a number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/run_program.h"
#include "tests/support/torch_trace.h"

namespace liveset::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void expect_refused(const std::string& command, int status, const std::string& says) {
  const Ran ran = run_program("liveset " + command);
  EXPECT_EQ(ran.status, status) << command << "\n" << ran.err;
  EXPECT_EQ(ran.out, "") << command;
  EXPECT_THAT(ran.err, HasSubstr(says)) << command;
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << command << "\n" << ran.err;
}

// A step of two modules whose backward reads what they made.
struct Network : TorchTrace {
  explicit Network(const std::string& name) {
    const std::uint32_t root = module(name), inner = module("a", root);
    step(0);
    phase = proto::PHASE_FORWARD;
    begin(inner);
    make(0x10000, 1000, inner);
    make(0x20000, 2000, inner);
    end(inner, root);
    in_scope = 0;
    phase = proto::PHASE_LOSS;
    for (const std::int64_t node : {2, 1}) {
      graph_node("MulBackward0", node);
      keep(static_cast<std::uint64_t>(node) * 0x10000, "MulBackward0.self");
    }
    backward(2);
    phase = proto::PHASE_BACKWARD;
    node_begin("MulBackward0", 2);
    make(0x90000, 500);
    free(0x90000);
    node_end("MulBackward0", 2);
    mark(proto::EVENT_BACKWARD_END);
    free(0x10000);
    free(0x20000);
    mark(proto::EVENT_STEP_END, 0);
    file = open().path();
  }
  std::string file;
};

TEST(BadInput, ModelsThatMeanNothingAreRefusedByEveryCommandThatReadsOne) {
  const TemporaryFolder folder;
  const Network net("Net");
  const std::string& trace = net.file;
  const std::string program =
      "general {\n tensor { id: 'x' bytes: 8 given: true }\n tensor { id: 'y' bytes: 8 }\n tensor { id: 'z' bytes: 8 }\n"
      " op { id: 'f' reads: 'x' writes: 'y' saves: 'x' backward {} }\n op { id: 'g' reads: 'y' writes: 'z' saves: 'y' backward {} }\n}\n";
  struct Case {
    std::string name, text, says;
  };
  const Case cases[] = {
      {"unknown_op", program + "region { op: 'h' }\n", "line 8: region[0].op[0] 'h' is no forward op"},
      {"overflow", "dim { name: 'N' value: 4611686018427387904 }\ndim { name: 'M' expression: '2*N' }\nchain { length: 3 size: 'M' }\n",
       "line 2: dim[1].expression '2*N' at character 2: the product is above 2^63"},
      {"literal", "dim { name: 'N' value: 9223372036854775808 }\nchain { length: 3 size: 'N' }\n", "line 1: Integer out of range"},
      {"sum", "chain { length: 3 bytes: 4611686018427387904 }\n", "the sum of all bytes is above 2^62"},
      {"zero", "dim { name: 'N' value: 0 }\nchain {\n length: 3\n size: '8/N'\n}\n",
       "line 4: chain.size '8/N' at character 2: division by zero"},
      {"cycle", "graph {\n layer { id: 'a' reads: 'b' }\n layer { id: 'b' reads: 'a' }\n}\n",
       "line 2: graph: the layers form a cycle: a reads b reads a"},
      {"too_early",
       "general {\n tensor { id: 'x' bytes: 8 given: true }\n tensor { id: 'y' bytes: 8 }\n tensor { id: 'z' bytes: 8 }\n"
       " op { id: 'f' reads: ['x', 'z'] writes: 'y' }\n op { id: 'g' reads: 'y' writes: 'z' }\n}\n",
       "op 'f' reads 'z', which nothing has made yet"},
      {"overlap", program + "region { op: ['f', 'g'] }\nregion { op: 'g' }\n", "overlap"},
  };
  for (const Case& bad : cases) {
    const std::string file = written(folder, bad.name, bad.text);
    expect_refused("predict " + file, 3, bad.says);
    expect_refused("plan " + file + " --budget 100", 3, bad.says);
    expect_refused("compare " + trace + " " + file, 3, bad.says);
  }
}

TEST(BadInput, PoliciesThatNameNothingAreRefusedByEveryCommandThatTakesOne) {
  const TemporaryFolder folder;
  const Network net("Net");
  const std::string& trace = net.file;
  const std::string chain = written(folder, "chain", "chain { length: 6 bytes: 8 }\n");
  struct Case {
    std::string policy, says;
  };
  const Case cases[] = {
      {"regions:nothing", "'nothing'"},
      {"selective:nothing", "the model has no operator 'nothing'"},
      {"offload:1TiB", "no value that backward needs has 1099511627776 bytes"},
      {"by-hand", "the model file has no region"},
      {"segments:1,2", "the segments have 3 layers, the model has 6"},
      {"rotor:1", "is infeasible, least is 24 bytes"},
      {"revolve:0", "the number of snapshots must be a whole number of at least 1"},
      {"under:5xs", "the cost has the unknown unit 'xs'"},
      {"over:1.5GiB/s", "the size has the unknown unit 'GiB/s'"},
      {"moves:f1,b1,f2", "move 2, b1, is not possible: another layer is to be reversed first"},
      {"everything", "unknown policy 'everything'"},
  };
  for (const Case& bad : cases) {
    expect_refused("predict " + chain + " --policy " + bad.policy, 2, bad.says);
    expect_refused("plan " + chain + " --budget 100 --policy " + bad.policy, 2, bad.says);
    expect_refused("compare " + trace + " " + chain + " --policy " + bad.policy, 2, bad.says);
  }
}

TEST(BadInput, ATraceWithoutActivationsGivesNoModelAndNoComparison) {
  const TemporaryFolder folder;
  TorchTrace blocks;
  blocks.step(0);
  blocks.make(0x10000, 1000);
  blocks.free(0x10000);
  blocks.mark(proto::EVENT_STEP_END, 0);
  const std::string trace = blocks.open().path();
  const std::string chain = written(folder, "chain", "chain { length: 6 bytes: 8 }\n");
  expect_refused("whatif " + trace + " --policy full", 3, "there are no activations to model");
  expect_refused("model " + trace + " -o " + folder.file("out"), 3, "there are no activations to model");
  expect_refused("compare " + trace + " " + trace + " --policy full", 3, "there are no activations to model");
  expect_refused("compare " + trace + " " + chain, 3, "tells of no values, so there is nothing to compare");
}

// However much difference is allowed: that of two networks means nothing.
TEST(BadInput, AnotherNetworkIsAVerdictAndNoNumber) {
  const TemporaryFolder folder;
  const Network net("Net"), another("Other");
  const std::string &trace = net.file, &other = another.file;
  const std::string chain = written(folder, "chain", "chain { length: 6 bytes: 8 }\n");
  for (const std::string& second : {chain, other}) {
    const Ran ran = run_program("liveset compare " + trace + " " + second + " --max-error 1");
    EXPECT_EQ(ran.status, 1) << second << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("they share no value names: not the same network"));
    EXPECT_THAT(ran.out, Not(HasSubstr("DIFFERENCE")));
    const Ran json = run_program("liveset compare " + trace + " " + second + " --max-error 1 --format json");
    EXPECT_EQ(json.status, 1);
    EXPECT_THAT(json.out, HasSubstr("\"difference\": null"));
    EXPECT_THAT(json.out, HasSubstr("\"gap\": null"));
  }
}

}  // namespace
}  // namespace liveset::test
