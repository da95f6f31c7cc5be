// `liveset compare` as a person calls it: which counter it takes, and its tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/run_program.h"
#include "tests/support/torch_trace.h"

namespace liveset::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string chain_file = std::string(LIVESET_SOURCE_DIR) + "/samples/tanh_chain/chain.textproto";

// A trace of the chain that keeps every value.
std::string chain_trace(const TemporaryFolder& folder) {
  const std::string path = folder.file("chain.liveset");
  const Ran ran =
      run_command(std::string(LIVESET_BIN_DIR) + "/liveset run -q -o " + path + " -- " + LIVESET_BIN_DIR + "/tanh_chain --policy save-all");
  EXPECT_EQ(ran.status, 0) << ran.err;
  return path;
}

// Allocated 1024, requested 900 as sampled; or a snapshot's 1000 requested.
std::string recording(TinyTrace& trace) {
  const std::uint32_t heap = trace.heap("cuda:0");
  trace.alloc(heap, 0x1000, 1024);
  trace.counter(heap, trace.string("requested"), 900);
  trace.open();
  return trace.path();
}
std::string snapshot(TinyTrace& trace) {
  trace.attribute("imported", R"({"from": "torch-snapshot", "block_bytes": "requested"})");
  trace.alloc(trace.heap("cuda:0"), 0x1000, 1000);
  trace.open();
  return trace.path();
}

TEST(CompareCommand, SaysWhichCounterItTook) {
  TinyTrace one, other, imported;
  const std::string a = recording(one), b = recording(other), c = snapshot(imported);
  const auto counters = [](const std::string& arguments) {
    const Ran ran = run_program("liveset compare " + arguments + " --format json");
    EXPECT_LE(ran.status, 1) << ran.err;
    const json out = json::parse(ran.out);
    EXPECT_EQ(out.at("measured").at("peak").at("counter"), out.at("predicted").at("peak").at("counter"));
    return out.at("measured").at("peak").at("counter").get<std::string>();
  };
  EXPECT_EQ(counters(a + " " + b), "allocated");
  EXPECT_EQ(counters(c + " " + b), "requested");
  EXPECT_EQ(counters(a + " " + c), "requested");
  EXPECT_EQ(counters(a + " " + b + " --counter requested"), "requested");
  const Ran ran = run_program("liveset compare " + a + " " + b + " --counter device");
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, HasSubstr("no counter \"device\" of heap cuda:0 (it has allocated, requested)"));
}

TEST(CompareCommand, TablesOfTwoTraces) {
  TinyTrace one, other;
  const std::string a = recording(one), b = snapshot(other);
  const Ran csv = run_program("liveset compare " + a + " " + b + " --format csv");
  EXPECT_EQ(csv.status, 1);
  EXPECT_EQ(csv.out, "class,name,bytes,measured,predicted,blocks\nrounding,unattributed,24,1024,1000,1\nrounding,,-124,,,\n");
  const Ran md = run_program("liveset compare " + a + " " + b + " --format md --units bytes");
  EXPECT_THAT(md.out, StartsWith("first: 900 B requested on cuda:0; second: 1,000 B requested on cuda:0\n\n- verdict: "));
  EXPECT_THAT(md.out, HasSubstr("\n\n| bytes | of the difference | mostly |"));
  EXPECT_THAT(md.out, HasSubstr("| in all |"));
}

// Nothing of two networks is one difference, so the table has what the text has: both peaks, and why nothing more.
TEST(CompareCommand, TheTableOfTwoNetworksSaysWhatTheyAre) {
  const auto network = [](TorchTrace& trace, const std::string& module) {
    const std::uint32_t scope = trace.module(module);
    trace.step(0);
    trace.phase = proto::PHASE_FORWARD;
    trace.begin(scope);
    trace.make(0x1000, module.size() * 100, scope);
    trace.end(scope);
    trace.graph_node("MulBackward0", 1);
    trace.keep(0x1000, "MulBackward0.self");
    trace.backward(1);
    trace.mark(proto::EVENT_BACKWARD_END);
    trace.free(0x1000);
    return trace.open().path();
  };
  TorchTrace one, other;
  const std::string a = network(one, "Net"), b = network(other, "Other");
  const Ran csv = run_program("liveset compare " + a + " " + b + " --format csv");
  EXPECT_EQ(csv.status, 1) << csv.err;
  EXPECT_THAT(csv.out,
              StartsWith("class,name,bytes,measured,predicted,blocks\npeak,allocated,,300,500,\nverdict,\"they share no value names: "));
  EXPECT_EQ(std::count(csv.out.begin(), csv.out.end(), '\n'), 3);
}

// A step beside a model has a table of classes too, and the ledgers' events stay in the others.
TEST(CompareCommand, TablesOfATraceAndAModel) {
  const TemporaryFolder folder;
  const std::string arguments = chain_trace(folder) + " " + chain_file + " --policy segment:2";
  const Ran csv = run_program("liveset compare " + arguments + " --format csv");
  EXPECT_EQ(csv.status, 1) << csv.err;
  EXPECT_THAT(csv.out, StartsWith("class,name,bytes,measured,predicted,blocks\nextra_values,"));
  const Ran md = run_program("liveset compare " + arguments + " --format md");
  EXPECT_THAT(md.out, HasSubstr("| extra values |"));
  EXPECT_THAT(md.out, HasSubstr("| recorded only |"));
  // Where no bytes are compared, the events are the table.
  const Ran held = run_program("liveset compare " + arguments + " --held --format csv");
  EXPECT_THAT(held.out, Not(HasSubstr("class,name")));
}

// A model of ids alone predicts no peak: every form says so, and the ledgers are compared. Other reasons are errors.
TEST(CompareCommand, PeaksThatAreNotComparedAreSaid) {
  const TemporaryFolder folder;
  const std::string trace = chain_trace(folder), ids = folder.file("ids.textproto");
  std::ofstream(ids) << "chain { length: 6 bytes: 0 }\n";
  const std::string reason = "peaks are not compared: " + ids + ": the model states no bytes";
  const std::string call = "liveset compare " + trace + " " + ids;
  EXPECT_THAT(run_program(call + " --units bytes").out, HasSubstr("peaks are not compared: "));
  EXPECT_THAT(run_program(call + " --format md").out, StartsWith("- " + reason));
  const Ran csv = run_program(call + " --format csv");
  EXPECT_THAT(csv.err, HasSubstr(reason));
  EXPECT_THAT(csv.out, Not(HasSubstr("not compared")));
  const std::string senseless = folder.file("senseless.textproto");
  std::ofstream(senseless) << "chain { length: 6 bytes: 8 }\nphysical { allocator: 'cuda' allocator_settings: 'max_split_size_mb:x' }\n";
  const Ran refused = run_program("liveset compare " + trace + " " + senseless);
  EXPECT_THAT(refused.err, HasSubstr("max_split_size_mb"));
  EXPECT_EQ(refused.status, 3);
}

// The prediction that was asked for is in every form of a summary.
TEST(SummaryCommand, TheModelsPredictionIsInMarkdown) {
  const TemporaryFolder folder;
  const Ran md = run_program("liveset summary " + chain_trace(folder) + " --model " + chain_file + " --policy segment:2 --format md");
  EXPECT_EQ(md.status, 0) << md.err;
  EXPECT_THAT(md.out, HasSubstr("\nPredicted: **"));
  EXPECT_THAT(md.out, HasSubstr("--policy segment:2; measured - predicted: "));
}

// What stands first is a trace. A text that is no model file is told as any other file that is no trace.
TEST(CompareCommand, AModelInFrontOfATraceIsToldSo) {
  const TemporaryFolder folder;
  TinyTrace recorded;
  const std::string trace = recording(recorded);
  const Ran swapped = run_program("liveset compare " + chain_file + " " + trace);
  EXPECT_EQ(swapped.status, 2);
  EXPECT_EQ(swapped.err, "liveset: " + chain_file + ": is a model file, and what stands first must be a trace (the other way round: " +
                             "liveset compare " + trace + " " + chain_file + ")\n");
  const Ran models = run_program("liveset compare " + chain_file + " " + chain_file);
  EXPECT_EQ(models.status, 2);
  EXPECT_THAT(models.err, HasSubstr("what stands first must be a trace (predict shows what a model predicts"));
  const std::string text = folder.file("notes.txt");
  std::ofstream(text) << "no model\n";
  const Ran notes = run_program("liveset compare " + text + " " + trace);
  EXPECT_EQ(notes.status, 3);
  EXPECT_THAT(notes.err, Not(HasSubstr("model file")));
}

TEST(CompareCommand, HelpNamesCountersAndClasses) {
  const Ran ran = run_program("liveset compare --help");
  EXPECT_EQ(ran.status, 0);
  for (const char* text : {"device", "requested", "outside the allocator", "extra values"}) EXPECT_THAT(ran.out, HasSubstr(text));
}

}  // namespace
}  // namespace liveset::test
