// `liveset peak`: rows however they are grouped, evidence and guesses, the user's rules, and names that nobody would give.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support/run_program.h"
#include "tests/support/tiny_trace.h"

namespace liveset {
namespace {

using nlohmann::json;
using test::Ran;
using test::TinyTrace;
using testing::HasSubstr;
using testing::Not;

Ran run_program(const std::string& arguments) { return test::run_program("liveset " + arguments); }

json read(const std::string& arguments, const std::string& path) {
  const Ran ran = run_program("peak " + arguments + " --format json " + path);
  EXPECT_EQ(ran.status, 0) << ran.err;
  return json::parse(ran.out, nullptr, false);
}

std::map<std::string, std::uint64_t> rows_of(const json& peak) {
  std::map<std::string, std::uint64_t> rows;
  std::uint64_t sum = 0;
  for (const json& row : peak["rows"]) {
    rows[row["key"]] += row["bytes"].get<std::uint64_t>();
    sum += row["bytes"].get<std::uint64_t>();
  }
  EXPECT_EQ(sum, peak["bytes"]) << peak["by"];
  return rows;
}

// A step of a job whose parameters are gathered, in its backward.
struct Step : TinyTrace {
  Step() {
    source("python");
    cpu = heap("cpu");
    const auto gpt = scope(proto::SCOPE_MODULE, "GPT"), region = scope(proto::SCOPE_REGION, "checkpoint:3", gpt);
    const auto node = string("AddmmBackward0"), slot = string("AddmmBackward0.mat1"), mul = string("MulBackward0"),
               again = string("GeluBackward0.self"), gelu = string("GeluBackward0");
    alloc(cpu, 0x1000, 1000);
    state(proto::EVENT_STORAGE, 0x1000, proto::CLASS_PARAMETER, string("weight"), proto::FLOAT32);
    alloc(cpu, 0x2000, 300);  // the ids of a data set: nothing names them
    step(0);
    phase = proto::PHASE_FORWARD;
    begin(gpt);
    alloc(cpu, 0x3000, 200);
    state(proto::EVENT_STORAGE, 0x3000, proto::CLASS_PARAMETER, string("gathered:weight"), proto::BFLOAT16);
    alloc(cpu, 0x4000, 70);
    end(gpt);
    phase = proto::PHASE_OTHER;
    graph_node(proto::EVENT_GRAPH_NODE, node);
    state(proto::EVENT_VALUE_RETAIN, 0x4000, proto::CLASS_ACTIVATION, slot, proto::BFLOAT16);
    graph_node(proto::EVENT_GRAPH_NODE, gelu);
    state(proto::EVENT_VALUE_USE, 0, 0, again, -1, 5, region);
    mark(proto::EVENT_MICROBATCH_BEGIN, 1);
    backward(2);
    phase = proto::PHASE_RECOMPUTE;
    begin(region);
    alloc(cpu, 0x5000, 40);
    state(proto::EVENT_VALUE_REMAKE, 0x5000, 0, 0, proto::FLOAT16, 5, region);
    end(region);
    phase = proto::PHASE_BACKWARD;
    graph_node(proto::EVENT_NODE_BEGIN, mul);
    alloc(cpu, 0x6000, 9);
    graph_node(proto::EVENT_NODE_END, mul);
    free(cpu, 0x6000);
    mark(proto::EVENT_BACKWARD_END);
    open();
  }
  void state(int kind, std::uint64_t address, int memory_class, std::uint32_t name, int dtype, std::int64_t index = -1,
             std::uint32_t scope = 0) {
    writer::Event made = test::event(kind, 0);
    made.heap = address == 0 ? 0 : cpu;
    made.address = address;
    made.memory_class = static_cast<std::uint8_t>(memory_class);
    made.name = name;
    made.scope = scope;
    made.number = (dtype + 1) | (index + 1) << 8;
    add(made);
  }
  void graph_node(int kind, std::uint32_t name) {
    writer::Event made = test::event(kind, 0);
    made.name = name;
    made.number = 7;
    add(made);
  }
  std::uint32_t cpu = 0;
};

using Rows = std::map<std::string, std::uint64_t>;

TEST(PeakRows, SumToThePeakByWhateverTheyAreGrouped) {
  Step trace;
  EXPECT_EQ(rows_of(read("--by class", trace.path())), (Rows{{"parameter (sharded)", 1000},
                                                             {"parameter (gathered)", 200},
                                                             {"input", 300},
                                                             {"activation", 70},
                                                             {"recomputed_activation", 40},
                                                             {"activation_gradient", 9}}));
  EXPECT_EQ(rows_of(read("--by op", trace.path())),
            (Rows{{"(parameter)", 1200}, {"(input)", 300}, {"AddmmBackward0", 70}, {"GeluBackward0", 40}, {"MulBackward0", 9}}));
  EXPECT_EQ(rows_of(read("--by dtype", trace.path())), (Rows{{"float32", 1000}, {"bfloat16", 270}, {"float16", 40}, {"(not known)", 309}}));
  EXPECT_EQ(rows_of(read("--by stack", trace.path())), (Rows{{"(recorded without --stacks)", 1619}}));
  EXPECT_EQ(rows_of(read("--by phase", trace.path())), (Rows{{"other", 1300}, {"forward", 270}, {"recompute", 40}, {"backward", 9}}));
}

TEST(PeakRows, SayWhatTheirClassesRestOn) {
  Step trace;
  const json peak = read("--top 10", trace.path());
  std::map<std::string, std::pair<std::string, bool>> evidence;
  for (const json& block : peak["largest"]) evidence[std::to_string(block["bytes"].get<int>())] = {block["evidence"], block["guess"]};
  using Said = std::pair<std::string, bool>;
  EXPECT_EQ(evidence["1000"], Said("stated: parameter, weight", false));
  EXPECT_EQ(evidence["300"], Said("born outside the steps", true));
  EXPECT_EQ(evidence["70"], Said("graph: AddmmBackward0.mat1", false));
  EXPECT_EQ(evidence["40"], Said("remade by checkpoint:3", false));
  EXPECT_EQ(evidence["9"], Said("born in node MulBackward0, freed in the same backward", false));
  for (const json& row : peak["rows"]) EXPECT_EQ(row["guess_bytes"], row["key"] == "input" ? 300 : 0) << row;
  EXPECT_EQ(peak["guess"], json({{"input", 300}}));
  const json& remade = peak["largest"][4];
  EXPECT_EQ(remade["op"], "GeluBackward0");
  EXPECT_EQ(remade["slot"], "self");
  EXPECT_EQ(remade["region"], "checkpoint:3");
  EXPECT_EQ(remade["region_slot"], 5);
  EXPECT_EQ(remade["incarnation"], 1);
  EXPECT_EQ(remade["microbatch"], 1);
  EXPECT_EQ(remade["step"], 0);
  EXPECT_EQ(remade["module"], "GPT");
  for (const std::string command : {"peak ", "summary "})
    EXPECT_THAT(run_program(command + trace.path()).out, HasSubstr("  guess\n")) << command;
  EXPECT_THAT(run_program("peak --by module " + trace.path()).out, Not(HasSubstr("guess")));
}

TEST(PeakRows, AddWhatTheAllocatorKeepsForLater) {
  TinyTrace trace;
  const auto cuda = trace.heap("cuda:0");
  trace.alloc(cuda, 0x1000, 100, 100, 2048);
  trace.open();
  EXPECT_EQ(rows_of(read("--counter reserved", trace.path())),
            (Rows{{"unattributed", 100}, {"(in no block: kept by the allocator for later)", 1948}}));
}

// Rows have one shape, and their sum is the counter's peak whether it counts more than the blocks or less.
TEST(PeakRows, SayWhatACounterDoesNotCount) {
  TinyTrace trace;
  const auto cuda = trace.heap("cuda:0");
  trace.alloc(cuda, 0x1000, 1000);
  trace.counter(cuda, trace.string("requested"), 900);
  trace.open();
  const std::string name = "(in blocks, and not counted by requested)";
  const json peak = read("--counter requested", trace.path());
  std::map<std::string, int> rows;
  for (const json& row : peak["rows"]) {
    rows[row["key"]] = row["bytes"];
    for (const char* key : {"key", "bytes", "count", "guess_bytes", "evidence"}) EXPECT_TRUE(row.contains(key)) << row;
  }
  EXPECT_EQ(rows, (std::map<std::string, int>{{"unattributed", 1000}, {name, -100}}));
  EXPECT_EQ(peak["bytes"], 900);
  EXPECT_EQ(peak["classes"]["unattributed"], 1000);
  EXPECT_EQ(peak["beyond_blocks"], -100);
  for (const std::string arguments : {"peak ", "peak --format md ", "summary ", "summary --format md "}) {
    const std::string out = run_program(arguments + "--counter requested --units bytes " + trace.path()).out;
    EXPECT_THAT(out, HasSubstr(name)) << arguments;
    EXPECT_THAT(out, HasSubstr("-100")) << arguments;
  }
  EXPECT_THAT(run_program("peak --counter requested --format csv " + trace.path()).out, HasSubstr("-100,"));
}

// A model with a part that is sharded and one that is not: what the parts are called does not hang on the moment.
TEST(PeakRows, OnlyParametersThatAreGatheredAreSharded) {
  TinyTrace trace;
  trace.source("python");
  const auto cpu = trace.heap("cpu");
  trace.alloc(cpu, 0x1000, 100);
  trace.storage(cpu, 0x1000, proto::CLASS_PARAMETER, trace.string("a.weight"));
  trace.alloc(cpu, 0x2000, 30);
  const auto before = trace.storage(cpu, 0x2000, proto::CLASS_PARAMETER, trace.string("head.weight"));
  trace.step(0);
  trace.alloc(cpu, 0x3000, 200);
  trace.storage(cpu, 0x3000, proto::CLASS_PARAMETER, trace.string("gathered:a.weight"));
  trace.open();
  EXPECT_EQ(rows_of(read("", trace.path())), (Rows{{"parameter (sharded)", 100}, {"parameter (gathered)", 200}, {"parameter", 30}}));
  EXPECT_EQ(rows_of(read("--at " + std::to_string(before), trace.path())), (Rows{{"parameter (sharded)", 100}, {"parameter", 30}}));
}

TEST(PeakRows, NameTheOperatorOfWhatASelectiveCheckpointKeeps) {
  TinyTrace trace;
  trace.source("python");
  const auto cpu = trace.heap("cpu");
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  trace.alloc(cpu, 0x1000, 100);
  trace.phase = proto::PHASE_OTHER;
  writer::Event node = test::event(proto::EVENT_GRAPH_NODE, 0);
  node.name = trace.string("selective");
  trace.add(node);
  trace.retain(cpu, 0x1000, proto::CLASS_ACTIVATION, trace.string("selective.aten.addmm.default"));
  trace.backward();
  trace.open();
  EXPECT_EQ(rows_of(read("--by op", trace.path())), (Rows{{"aten.addmm.default (kept)", 100}}));
}

TEST(PeakRules, MakeCategories) {
  Step trace;
  const test::TemporaryFolder folder;
  const std::string rules = test::written(
      folder, "rules.json", R"({"rules": [{"category": "matmul", "op": "Addmm*"}, {"category": "model", "class": "parameter"}]})");
  const json peak = read("--rules " + rules, trace.path());
  EXPECT_EQ(peak["by"], "category");
  EXPECT_EQ(rows_of(peak), (Rows{{"matmul", 70}, {"model", 1200}, {"(no category)", 349}}));
  const json by_class = read("--by class --rules " + rules, trace.path());
  EXPECT_EQ(by_class["by"], "class");
  for (const json& block : by_class["largest"]) {
    EXPECT_EQ(block["category"] == "matmul", block["bytes"] == 70);
  }
  EXPECT_THAT(run_program("peak --by module --rules " + rules + " " + trace.path()).out, HasSubstr("matmul"));
  const std::string wrong = test::written(folder, "wrong.json", R"({"rules": [{"category": "a", "modul": "x"}]})");
  for (const std::string& arguments : {"--rules " + wrong, std::string("--by category"), "--rules " + folder.file("none.json")}) {
    const Ran ran = run_program("peak " + arguments + " " + trace.path());
    EXPECT_EQ(ran.status, 2) << arguments;
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }
}

// Names with quotes, new lines and escapes, ten thousand bytes long, in ten thousand modules: tables keep their width and stay text.
TEST(PeakNames, NobodyWouldGiveStayReadable) {
  TinyTrace trace;
  trace.source("python");
  const auto cpu = trace.heap("cpu");
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  const std::string strange = "a\"b'c\nd\x1b[31m\te" + std::string(10'000, 'x');
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    trace.in_scope = trace.scope(proto::SCOPE_MODULE, i == 0 ? strange : "m" + std::to_string(i));
    trace.alloc(cpu, 0x1000 + 0x1000 * i, i == 0 ? 4000 : 16);
  }
  trace.retain(cpu, 0x1000, proto::CLASS_ACTIVATION, trace.string(strange + ".slot"));
  trace.backward();
  trace.open();
  for (const std::string arguments :
       {"peak --by module ", "peak --by op ", "peak ", "summary ", "ledger --logical ", "peak --by module --format md "}) {
    const Ran ran = run_program(arguments + trace.path());
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.out.find('\x1b'), std::string::npos) << arguments;
    if (arguments.find("md") != std::string::npos) continue;
    std::size_t begin = 0;
    for (std::size_t end; (end = ran.out.find('\n', begin)) != std::string::npos; begin = end + 1)
      EXPECT_LE(end - begin, 130U) << arguments;
  }
  const json peak = read("--by module", trace.path());
  EXPECT_EQ(peak["rows"].size(), 10'000U);
  EXPECT_EQ(peak["rows"][0]["key"], strange);
}

}  // namespace
}  // namespace liveset
