// `liveset predict` as a person calls it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "tests/support/acceptance.h"
#include "tests/support/run_program.h"

namespace liveset::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string chain_file = std::string(LIVESET_SOURCE_DIR) + "/samples/tanh_chain/chain.textproto";

json ids(const json& numbers) {
  json names = json::array();
  for (const json& number : numbers) names.push_back("h" + number.dump());
  return names;
}

TEST(PredictCommand, JsonHasTheChainsLedgerForEveryPolicy) {
  for (const json& policy : acceptance("chain_ledgers").at("policies")) {
    SCOPED_TRACE(policy.at("policy"));
    const Ran ran = run_program("liveset predict " + chain_file + " --policy " + policy_argument(policy) + " --format json");
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.err, "");
    const json out = json::parse(ran.out);
    EXPECT_EQ(out.at("schema"), "liveset.predict/1");
    EXPECT_EQ(out.at("peak").at("ids"), policy.at("peak"));
    EXPECT_EQ(out.at("peak").at("bytes"), 8 * policy.at("peak").get<int>());
    EXPECT_EQ(out.at("peak").at("event"), policy.at("peak_event"));
    EXPECT_EQ(out.at("forward_layers"), policy.at("forward_layers"));
    EXPECT_EQ(out.at("held_at_loss"), ids(policy.at("held_at_loss")));
    EXPECT_EQ(out.at("boundaries"), policy.at("boundaries"));
    ASSERT_EQ(out.at("events").size(), policy.at("events").size());
    for (std::size_t i = 0; i < policy.at("events").size(); ++i) {
      const json& fact = policy.at("events")[i];
      const json expected{{"index", fact.at("index")},
                          {"phase", fact.at("phase")},
                          {"kind", fact.at("kind")},
                          {"value", "h" + fact.at("layer").dump()},
                          {"layer", fact.at("layer")},
                          {"reads", ids(fact.at("reads"))},
                          {"live", ids(fact.at("live"))},
                          {"live_ids", fact.at("live_count")},
                          {"live_bytes", 8 * fact.at("live_count").get<int>()},
                          {"forward_layers", fact.at("forward_layers")}};
      EXPECT_EQ(out.at("events")[i], expected);
    }
  }
}

TEST(PredictCommand, TableSaysPeakFirst) {
  const Ran ran = run_program("liveset predict " + chain_file + " --policy segment:2");
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(
      ran.out,
      HasSubstr("predicted       tanh_chain, 6 layers, policy segment:2\npeak            5 values at event 11, 40 B at event 11\n"));
  EXPECT_THAT(ran.out, HasSubstr("held at loss    4: h0 h2 h4 h6\n"));
}

TEST(PredictCommand, InputsThatAreNotCountedAreSaid) {
  const TemporaryFolder folder;
  const std::string file = written(folder, "chain", "conventions { count_inputs: false }\nchain { length: 3 bytes: 1044480 }\n");
  const Ran ran = run_program("liveset predict " + file);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("held at loss    3 + 1 input, not counted: h0 h1 h2 h3\n"));
  EXPECT_THAT(ran.out, HasSubstr(" 1020.00 KiB ")) << "a number is never shortened";
}

// Lists of names as PyTorch's graph gives them would be cut to "+3": their columns give way to the value's own name.
TEST(PredictCommand, LongNamesAreReadable) {
  const TemporaryFolder folder;
  const std::string norm = "GPT.bs.0.ln1/NativeLayerNormBackward0.input",
                    linear = "GPT.transformer.bs.0.attention.project/AddmmBackward0.mat1";
  const std::string file =
      written(folder, "names",
              "general {\n tensor { id: '" + norm + "' bytes: 8 }\n tensor { id: '" + linear + "' bytes: 8 }\n op { id: 'f' writes: '" +
                  norm + "' saves: '" + norm + "' backward {} }\n op { id: 'g' reads: '" + norm + "' writes: '" + linear + "' saves: '" +
                  linear + "' backward {} }\n}\n");
  const Ran ran = run_program("liveset predict " + file);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("create   GPT.bs.0.ln1/NativeLayerNorm.input "));
  EXPECT_THAT(ran.out, HasSubstr("create   ...bs.0.attention.project/Addmm.mat1 "));
  EXPECT_THAT(ran.out, HasSubstr("held at loss    2: GPT.bs.0.ln1/NativeLayerNorm.input +1\n"));
  EXPECT_THAT(run_program("liveset predict " + file + " --format csv").out, HasSubstr("create," + linear + "," + norm + ","));
  EXPECT_THAT(run_program("liveset predict " + file + " --curve").out, HasSubstr("  ...project/Addmm.mat1  ")) << "cut at a part";
}

TEST(PredictCommand, CsvHasOneLinePerEvent) {
  const Ran ran = run_program("liveset predict " + chain_file + " --format csv");
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(std::count(ran.out.begin(), ran.out.end(), '\n'), 1 + 28);
  EXPECT_THAT(ran.out, HasSubstr("\n11,forward,create,h6,h5,7,56,6,h0 h1 h2 h3 h4 h5 h6\n"));
}

// Segment of three layers each. Forward holds at most h0 h3 h5 h6; the re-run of the first segment, behind the second's backward, h0 h1 h2
// h3; that of the second h0 h3 h4 h5 h6, of which two were made again. So the peak is there.
TEST(PredictCommand, MemoryAboveTheLedger) {
  const Ran ran = run_program("liveset predict " + chain_file + " --policy segment:3");
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.out, ::testing::StartsWith("memory of the step, 0 B of it static\n"
                                             "  peak  counter    in\n"
                                             "  40 B  requested  recompute\n"
                                             "\n"
                                             "  at that of requested  of it  holds\n"
                                             "                  24 B  60.0%  activation\n"
                                             "                  16 B  40.0%  recomputed_activation\n"
                                             "\n"
                                             "predicted       tanh_chain"));
}

TEST(PredictCommand, ChecksWhatTheFileExpects) {
  const Ran ran = run_program("liveset predict " + chain_file + " --expect");
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("24 of 24 as expected\n"));

  const TemporaryFolder folder;
  const std::string off = written(folder, "off",
                                  "chain { length: 6 bytes: 8 }\nexpect { counter: 'peak_ids' value: 7 }\n"
                                  "expect { policy: 'segment:2' counter: 'peak_bytes' value: 48 tolerance: 0.1 }\n");
  const Ran table = run_program("liveset predict " + off + " --expect");
  EXPECT_EQ(table.status, 1);
  EXPECT_EQ(table.out,
            "  policy     counter     expected  predicted  difference  ok\n"
            "  save-all   peak_ids           7          7           0  yes\n"
            "  segment:2  peak_bytes        48         40          -8  no\n"
            "1 of 2 as expected\n");
  const Ran as_json = run_program("liveset predict " + off + " --expect --format json");
  EXPECT_EQ(as_json.status, 1);
  const json out = json::parse(as_json.out);
  EXPECT_EQ(out.at("schema"), "liveset.predict/1");
  EXPECT_EQ(out.at("expect")[1],
            json::parse(R"({"policy": "segment:2", "counter": "peak_bytes", "expected": 48, "predicted": 40, "difference": -8,
                            "tolerance": 0.1, "ok": false})"));
  const Ran csv = run_program("liveset predict " + off + " --expect --format csv");
  EXPECT_EQ(csv.status, 1);
  EXPECT_THAT(csv.out, HasSubstr("\nsegment:2,peak_bytes,48,40,-8,no\n"));
}

// Of two segments of three layers the second's re-run has the peak. The ledger's event is the last create or rerun of it; the curve, which
// has a row for each allocation and free alone, has it elsewhere.
TEST(PredictCommand, EventsOfTheLedgerAndOfTheCurveAreToldApart) {
  const std::string call = "liveset predict " + chain_file + " --policy segment:3 --format json";
  const json ledger = json::parse(run_program(call).out), curve = json::parse(run_program(call + " --curve").out);
  const json& event = ledger.at("events").at(ledger.at("peak").at("event").get<std::size_t>());
  EXPECT_EQ(event.at("live_ids"), ledger.at("peak").at("ids"));
  const json& peak = ledger.at("memory").at("peak");
  EXPECT_EQ(peak.at("memory_event"), peak.at("event"));
  EXPECT_EQ(curve.at("curve").at(peak.at("memory_event").get<std::size_t>()).at("requested"), peak.at("bytes"));
  EXPECT_NE(peak.at("memory_event"), ledger.at("peak").at("event"));
  const std::string help = run_program("liveset predict --help").out;
  EXPECT_THAT(help, HasSubstr("`memory_event`"));
}

// A chain of 5,000 layers has 20,004 events: each of the 5,001 values is created, kept and released, 5,000 backwards and the loss use one.
TEST(PredictCommand, ATableForPeopleEnds) {
  const TemporaryFolder folder;
  const std::string model = folder.file("long.textproto");
  std::ofstream(model) << "chain { length: 5000 bytes: 8 }\n";
  const auto lines = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  const Ran table = run_program("liveset predict " + model);
  EXPECT_THAT(table.out, ::testing::EndsWith("(10,004 more events; --format csv lists all)\n"));
  EXPECT_LT(lines(table.out), 10'020);
  EXPECT_EQ(lines(run_program("liveset predict " + model + " --format csv").out), 20'005);
}

// 61 values of 8 bytes live at the peak of a chain of 60 layers, and 50 are listed.
TEST(PredictCommand, SaysWhatOfTheLiveTensorsIsNotListed) {
  const TemporaryFolder folder;
  const auto memory = [&](const std::string& text) {
    return json::parse(run_program("liveset predict --format json " + written(folder, "chain", text)).out).at("memory");
  };
  const json many = memory("chain { length: 60 bytes: 8 }\n"), few = memory("chain { length: 49 bytes: 8 }\n");
  EXPECT_EQ(many.at("live").size(), 50U);
  EXPECT_EQ(many.at("live_left_out"), json({{"count", 11}, {"bytes", 88}}));
  EXPECT_EQ(few.at("live").size(), 50U);
  EXPECT_EQ(few.at("live_left_out"), json({{"count", 0}, {"bytes", 0}}));
}

TEST(PredictCommand, CurveInsteadOfTheLedger) {
  const Ran csv = run_program("liveset predict " + chain_file + " --policy segment:2 --curve --format csv");
  EXPECT_EQ(csv.status, 0) << csv.err;
  EXPECT_THAT(csv.out, HasSubstr("event,phase,microbatch,module,op,value,change,requested,estimate,activation,recomputed_activation\n"
                                 "0,forward,0,,,h0,8,8,,8,0\n"));
  const json out = json::parse(run_program("liveset predict " + chain_file + " --curve --format json").out);
  EXPECT_EQ(out.at("curve").size(), 14U);  // seven values come and go
  EXPECT_EQ(out.at("memory").at("peak").at("bytes"), 56);
  EXPECT_FALSE(out.contains("events"));
}

// Live sets of 2,000 layers under save-all: some four million names. Without them the output grows with the ledger alone.
TEST(PredictCommand, LiveSetsOfALongLedgerAreLeftOut) {
  const TemporaryFolder folder;
  const std::string file = written(folder, "long", "chain { length: 2000 }\n");
  const Ran csv = run_program("liveset predict " + file + " --format csv");
  EXPECT_EQ(csv.status, 0);
  EXPECT_LT(csv.out.size(), 1U << 20);
  EXPECT_THAT(csv.out, HasSubstr("event,phase,kind,value,reads,ids,bytes,layers,live\n0,forward,create,h0,,1,1,0,\n"));
  EXPECT_THAT(csv.err, HasSubstr("live sets are left out"));
  EXPECT_THAT(csv.err, HasSubstr("--live lists them"));
  const Ran as_json = run_program("liveset predict " + file + " --format json");
  const json out = json::parse(as_json.out);
  EXPECT_EQ(out.at("live_listed"), false);
  EXPECT_EQ(out.at("events")[0].at("live"), nullptr);
  EXPECT_EQ(out.at("events")[0].at("live_ids"), 1);
  EXPECT_EQ(out.at("peak").at("ids"), 2001);
  const Ran all = run_program("liveset predict " + file + " --format csv --live");
  EXPECT_EQ(all.err, "");
  EXPECT_THAT(all.out, HasSubstr("event,phase,kind,value,reads,ids,bytes,layers,live\n0,forward,create,h0,,1,1,0,h0\n"));
  const json small = json::parse(run_program("liveset predict " + chain_file + " --format json").out);
  EXPECT_EQ(small.at("live_listed"), true);
}

TEST(PredictCommand, SaysInOneLineWhatIsWrong) {
  const TemporaryFolder folder;
  const std::string cycle = written(folder, "cycle", "graph {\n layer { id: 'a' reads: 'b' }\n layer { id: 'b' reads: 'a' }\n}\n");
  const std::string twice = written(folder, "twice", "graph {\n input { id: 'x' }\n layer { id: 'x' reads: 'x' }\n}\n");
  const std::string negative = written(folder, "negative", "chain {\n length: 6\n bytes: -8\n}\n");
  const std::string picture = written(folder, "picture.png", std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16));
  const std::string empty = written(folder, "empty", "");
  const std::string nothing_more = "chain { length: 6 }\n";
  const std::string nothing = written(folder, "nothing", nothing_more);
  const std::string unfit = written(folder, "unfit", nothing_more + "expect { policy: 'segments:3,2' counter: 'peak_ids' value: 5 }\n");
  const std::string reserved = written(folder, "reserved", nothing_more + "expect { counter: 'reserved' value: 5 }\n");
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  struct Case {
    std::string arguments, says;
    int status;
  };
  const Case cases[] = {
      {cycle, "line 2: graph: the layers form a cycle: a reads b reads a", 3},
      {twice, "line 3: graph.layer[0].id 'x' is a duplicate", 3},
      {negative, "line 3: chain.bytes is -8, must be at least 0", 3},
      {picture, "this is a binary file", 3},
      {empty, "the file is empty", 3},
      {folder.file("missing"), "No such file or directory", 3},
      {folder.file(""), "is a directory", 3},
      {chain_file + " --policy segment:0", "the segment length must be a whole number of at least 1", 2},
      {chain_file + " --policy segments:3,2", "the segments have 5 layers, the model has 6", 2},
      {chain_file + " --policy segment:99999999999999999999", "the segment length is too large", 2},
      {chain_file + " --policy segments:3,99999999999999999999", "segment 2 is too large", 2},
      {chain_file + " --strict", "--strict", 2},
      {pipe, "is not a regular file", 3},
      {chain_file + " --policy everything", "unknown policy 'everything'", 2},
      {negative + " --expect", "line 3: chain.bytes is -8", 3},
      {nothing + " --expect", "it expects nothing", 3},
      {unfit + " --expect", "line 2: expect[0]: policy 'segments:3,2': the segments have 5 layers, the model has 6", 3},
      {reserved + " --expect", "line 2: expect[0].counter: the model does not tell of 'reserved'", 3},
      {chain_file + " --expect --policy full", "--policy excludes --expect", 2},
  };
  for (const Case& bad : cases) {
    const Ran ran = run_program("liveset predict " + bad.arguments);
    EXPECT_EQ(ran.status, bad.status) << bad.arguments;
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, HasSubstr(bad.says));
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }
}

}  // namespace
}  // namespace liveset::test
