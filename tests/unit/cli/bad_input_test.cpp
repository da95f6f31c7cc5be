// What a person gets for input that means nothing: one line that says what and where, or a verdict; never a number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

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
    mark(proto::EVENT_SEQUENCE, 1);
    begin(inner);
    mark(proto::EVENT_SEQUENCE, 2);
    make(0x10000, 1000, inner);
    mark(proto::EVENT_SEQUENCE, 3);
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
      {"regions:nothing", "the model has no layer and no module 'nothing' (it has the layers h1 to h6)"},
      {"selective:nothing", "the model has no operator 'nothing'"},
      {"offload:1TiB", "no value that backward needs has 1099511627776 bytes"},
      {"by-hand", "the model file has no region"},
      {"segments:1,2", "the segments have 3 layers, the model has 6"},
      {"rotor:1", "is infeasible, least is 24 bytes"},
      {"revolve:0", "the number of snapshots must be a whole number of at least 1"},
      {"under:5xs", "the cost has the unknown unit 'xs'"},
      {"under:5ms", "policy 'under:5ms': the model's costs are no times"},
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

// A trace that liveset.h wrote has values and no graph of autograd's: whatever it recorded, it was no inference.
TEST(BadInput, ATraceOfValuesAloneIsToldAsSuch) {
  TinyTrace values;
  const std::uint32_t heap = values.heap("cuda:0"), h0 = values.value("h0");
  values.step(0);
  values.alloc(heap, 0x1000, 512);
  values.value_event(proto::EVENT_VALUE_CREATE, h0, heap, 0x1000);
  values.mark(proto::EVENT_STEP_END, 0);
  const std::string trace = values.open().path();
  for (const char* const command : {"whatif ", "plan ", "model "})
    expect_refused(command + trace, 3, "tells of values by liveset.h, and of no autograd graph that was walked");
}

// What is missing was in the part that is gone.
TEST(BadInput, ATruncatedTraceIsSaidToBeOne) {
  const TemporaryFolder folder;
  const Network net("Net");
  const std::string whole = read_file(net.file);
  const std::uint64_t begin = trace::TraceFile::open(net.file)->chunks().at(0).offset;
  const std::string torn = written(folder, "torn.liveset", whole.substr(0, begin + 10));
  for (const char* const command : {"whatif ", "plan ", "model "}) {
    expect_refused(command + torn, 3, "is truncated (at byte ");
    expect_refused(command + torn, 3, "), and what is left has no blocks (copy the file again");
    expect_refused(command + torn + " --strict", 4, "is truncated (at byte ");
  }
  std::string damaged = whole;
  damaged[begin + 8] = static_cast<char>(damaged[begin + 8] ^ 1);
  expect_refused("whatif " + written(folder, "damaged.liveset", damaged), 3, "), and what is left has no blocks");
}

TEST(BadInput, ATraceInThePlaceOfAModelFileIsToldWhereItBelongs) {
  const TemporaryFolder folder;
  const Network net("Net");
  for (const char* const command : {"predict ", "predict --expect "}) {
    expect_refused(command + net.file, 2, "is a trace, and a model file is wanted (a trace goes to whatif; ");
    expect_refused(command + folder.file("none.liveset"), 3, "none.liveset: no such file (a trace goes to whatif; ");
  }
  expect_refused("summary " + net.file + " --model " + net.file, 2, "is a trace, and a model file is wanted");
  const Ran other = run_program("liveset predict " + folder.file("none.textproto"));
  EXPECT_THAT(other.err, Not(HasSubstr("whatif")));
}

// An option that would change nothing is refused, and the message says when it does.
TEST(BadInput, OptionsThatDoNotApplyAreRefused) {
  const TemporaryFolder folder;
  const Network net("Net");
  const std::string& trace = net.file;
  const std::string chain = written(folder, "chain.textproto", "chain { length: 6 bytes: 8 }\n");
  const std::string torch = "model --torch " + written(folder, "step.py", "def step(): pass\n") + ":step ";
  const std::pair<std::string, std::string> cases[] = {
      {"whatif " + trace + " --alloc-conf expandable_segments:True", "is for the heap of a caching allocator, and heap cpu has none"},
      {"whatif " + trace + " --counter requested", "--counter chooses the peak that JSON puts first"},
      {"summary " + trace + " --policy full", "--policy requires --model"},
      {torch + "--step 3", "--step, --heap and --unit are for a trace, and --torch takes a function"},
      {torch + "--strict", "--strict is for a trace"},
      {torch + "--gpu h100", "--gpu is for --device cuda"},
      {torch + "--gpu h100 --device cpu", "--gpu is for --device cuda"},
      {"model " + trace + " --device cuda", "--device requires --torch"},
      {"model " + trace + " --gpu h100", "--gpu requires --torch"},
      {"model " + trace + " --python python3", "--python requires --torch"},
      {"model " + trace + " -- --batch 8", "what stands behind -- is for the script of --torch"},
      {"plan " + chain + " --budget ''", "--budget: '' is no size"},
      {"plan " + chain + " --step 3", "are for a trace, and this is a model file"},
      {"plan " + chain + " --strict", "--strict is for a trace, and this is a model file"},
      {"import " + trace, "is a trace already"},
      {"fragmentation " + trace + " --top -1", "--top: '-1' is not a whole number of 0 or more"},
      {"check " + trace + " --max-peak 1GiB --top -1", "--top: '-1' is not a whole number of 0 or more"},
      {"predict " + chain + " --live", "--live is for csv, md and json"},
      {"predict " + chain + " --curve --live --format csv", "--curve excludes --live"},
      {"predict " + chain + " --expect --live --format csv", "--expect excludes --live"},
      {"ledger " + trace + " --logical --live", "--live is for csv, md and json"},
      {"ledger " + trace + " --physical --live --format csv", "--live requires --logical"},
      {"ledger " + trace + " --logical --heap cpu", "--heap requires --physical"},
      {"compare " + trace + " " + chain + " --samples 8", "--samples is for two traces"},
      {"compare " + trace + " " + chain + " --held --counter requested", "excludes"},
      {"compare " + trace + " " + chain + " --held --heap cpu", "excludes"},
      {"compare " + trace + " " + trace + " --held", "--held is for a model file, and this is a trace"},
      {"import " + trace + " --format csv", "import makes a trace and has no table"},
  };
  for (const auto& [command, says] : cases) expect_refused(command, 2, says);
}

// Nothing is lost: an output replaces an empty file, or what such a command wrote before.
TEST(BadInput, NoOutputReplacesWhatAnotherWrote) {
  const TemporaryFolder folder;
  const Network net("Net");
  const std::string own = folder.file("own.textproto"), text = written(folder, "notes.txt", "of years\n"), empty = written(folder, "e", "");
  const std::string trace_before = read_file(net.file);
  for (const std::string& output : {net.file, text}) {
    expect_refused("model " + net.file + " -o " + output, 2, "is there already, and nothing that this command wrote");
    expect_refused("model --torch " + text + ":step -o " + output, 2, "is there already, and nothing that this command wrote");
  }
  EXPECT_EQ(read_file(net.file), trace_before);
  EXPECT_EQ(read_file(text), "of years\n");
  for (const std::string& output : {own, own, empty, std::string("/dev/null")})
    EXPECT_EQ(run_program("liveset model " + net.file + " -o " + output).status, 0) << output;
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
