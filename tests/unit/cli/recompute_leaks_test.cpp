// recompute and leaks as a person calls them: formats, names, exit statuses.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/run_program.h"
#include "tests/support/torch_trace.h"

namespace liveset {
namespace {

using nlohmann::json;
using test::Ran;
using test::TorchTrace;
using testing::ElementsAre;
using testing::HasSubstr;

Ran run_program(const std::string& arguments) { return test::run_program("liveset " + arguments); }

json run_json(const std::string& arguments) {
  const Ran ran = run_program(arguments + " --format json");
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.err, "");
  return json::parse(ran.out, nullptr, false);
}

// One step of one region in one module, whose activation (100 KiB) is made again, and used for 6,000 ns less than it lives.
struct OneStep : testing::Test {
  OneStep() {
    const auto model = trace.module("GPT"), region = trace.region("checkpoint:0", model), block = trace.module("block", region);
    trace.step(7);
    trace.phase = proto::PHASE_FORWARD;
    trace.begin(region);
    trace.attribute("checkpoint", R"({"kind":"non_reentrant","input_dtypes":["bfloat16"],"autocast":{"device":"cpu","dtype":"bfloat16"},)"
                                  R"("early_stop":true,"preserve_rng":false})");
    trace.make(0x100000, 102400, block);
    trace.drop(0, 0x100000, block);
    trace.free(0x100000);
    trace.end(region);
    trace.graph_node("TanhBackward0", 1);
    trace.use(0, region, "TanhBackward0.result");
    trace.backward(1);
    trace.phase = proto::PHASE_BACKWARD;
    trace.node_begin("TanhBackward0", 1);
    trace.begin_again(region);
    trace.make(0x200000, 102400, block);
    trace.remake(0, 0x200000, region);
    trace.end_again(region, R"({"early_stopped":true})");
    trace.node_end("TanhBackward0", 1);
    trace.mark(proto::EVENT_BACKWARD_END);
    trace.phase = proto::PHASE_OTHER;
    for (int i = 0; i < 4; ++i) trace.mark(proto::EVENT_PHASE);
    trace.free(0x200000);
    trace.mark(proto::EVENT_STEP_END, 7);
    trace.open();
  }
  TorchTrace trace;
};

TEST_F(OneStep, RecomputeNamesEveryOriginal) {
  const json report = run_json("recompute " + trace.path());
  EXPECT_EQ(report["schema"], "liveset.recompute/1");
  ASSERT_EQ(report["regions"].size(), 1U);
  const json& region = report["regions"][0];
  EXPECT_EQ(region["module"], "GPT.block");
  EXPECT_EQ(region["region"], "GPT/checkpoint:0");
  EXPECT_EQ(region["step"], 7);
  EXPECT_EQ(region["times"], 1);
  EXPECT_EQ(region["early_stopped"], true);
  EXPECT_EQ(region["held_bytes"], nullptr);  // the job says nothing of it: that is not 0
  EXPECT_EQ(region["remade_bytes"], 102400);
  EXPECT_EQ(region["not_held_bytes"], 102400);
  EXPECT_EQ(region["extra_ns"], 4000);
  EXPECT_EQ(region["input_dtypes"], json({"bfloat16"}));
  EXPECT_EQ(region["autocast"], "cpu bfloat16");
  EXPECT_EQ(region["preserve_rng"], false);
  ASSERT_EQ(report["values"].size(), 1U);
  const json& value = report["values"][0];
  EXPECT_EQ(value["name"], "GPT.block/TanhBackward0.result@1");
  EXPECT_EQ(value["original"], "GPT.block/TanhBackward0.result");
  EXPECT_EQ(value["incarnation"], 1);
  EXPECT_EQ(value["module"], "GPT.block");
  EXPECT_EQ(value["op"], "TanhBackward0");
  EXPECT_EQ(value["region"], "GPT/checkpoint:0");
  EXPECT_EQ(value["bytes"], 102400);
  EXPECT_EQ(value["dtype"], "float32");
  EXPECT_EQ(value["original_block"], 0);
  EXPECT_EQ(value["block"], 1);
}

TEST_F(OneStep, RecomputeAsTables) {
  EXPECT_THAT(run_program("recompute " + trace.path()).out,
              testing::AllOf(HasSubstr("RECOMPUTE  100.00 KiB not held, 100.00 KiB made again"), HasSubstr("GPT.block"), HasSubstr("early"),
                             HasSubstr("bf16*\n  * under autocast: cpu bfloat16\n"), HasSubstr("position")));
  EXPECT_THAT(run_program("recompute --format csv " + trace.path()).out,
              HasSubstr("GPT/checkpoint:0,GPT.block,non_reentrant,1,true,,102400,0,102400"));
  EXPECT_THAT(run_program("recompute --format md " + trace.path()).out, HasSubstr("| GPT.block"));
}

TEST_F(OneStep, RecomputeOfAStep) {
  EXPECT_EQ(run_json("recompute --step 7 " + trace.path())["regions"].size(), 1U);
  const Ran none = run_program("recompute --step 8 " + trace.path());
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("8"));
  EXPECT_EQ(run_program("recompute --step 7 --range step:7 " + trace.path()).status, 2);
}

TEST_F(OneStep, LeaksListWhatLivedOn) {
  const json report = run_json("leaks " + trace.path());
  EXPECT_EQ(report["schema"], "liveset.leaks/1");
  ASSERT_EQ(report["values"].size(), 1U);
  const json& value = report["values"][0];
  EXPECT_EQ(value["name"], "GPT.block/TanhBackward0.result@1");  // as recompute names it
  EXPECT_EQ(value["incarnation"], 1);
  EXPECT_EQ(value["module"], "GPT.block");
  EXPECT_EQ(value["kind"], "remade");
  EXPECT_EQ(value["bytes"], 102400);
  EXPECT_EQ(value["held_ns"], 6000);
  EXPECT_EQ(value["guess"], true);
  EXPECT_THAT(run_program("leaks " + trace.path()).out, HasSubstr("GPT.block/TanhBackward0.result"));
}

TEST_F(OneStep, LeaksFailOnlyWhenAsked) {
  EXPECT_EQ(run_program("leaks " + trace.path()).status, 0);
  EXPECT_EQ(run_program("leaks --fail " + trace.path()).status, 1);
  const Ran none = run_program("leaks --fail --min-bytes 102401 " + trace.path());
  EXPECT_EQ(none.status, 0);
  EXPECT_EQ(none.out, "LEAKS  none\n");
  EXPECT_EQ(run_program("leaks --fail --min-delay 0.007 " + trace.path()).status, 0);
  EXPECT_EQ(run_program("leaks --fail --min-delay 0.006 " + trace.path()).status, 1);
  EXPECT_EQ(run_program("leaks --min-bytes many " + trace.path()).status, 2);
}

TEST_F(OneStep, MarkdownHasATitleForEachTableAndNoEmptyOnes) {
  const std::string leaks = run_program("leaks --format md " + trace.path()).out;
  EXPECT_THAT(leaks, testing::StartsWith("### 1 value lived on after the last use in backward\n\n| bytes"));
  EXPECT_EQ(leaks.find("###", 4), std::string::npos) << leaks;
  const std::string recompute = run_program("recompute --format md " + trace.path()).out;
  EXPECT_THAT(recompute, testing::AllOf(testing::StartsWith("### Regions of step 7\n\n| times"), HasSubstr("\n\n### Steps\n\n"),
                                        HasSubstr("\n\n### The largest values made again\n\n")));
  EXPECT_EQ(run_program("leaks --format md --min-bytes 102401 " + trace.path()).out, "No leaks.\n");
}

// One value lives on, one was saved for a node that did not run, and every step leaves a block more.
TEST(Leaks, CsvHasWhatTheTextHas) {
  TorchTrace trace;
  const auto model = trace.module("GPT");
  for (std::uint64_t step = 0; step < 4; ++step) {
    trace.step(static_cast<std::int64_t>(step));
    trace.phase = proto::PHASE_FORWARD;
    const std::uint64_t used = 0x100000 + step * 0x10000, unused = used + 0x4000, kept = used + 0x8000;
    for (const std::uint64_t address : {used, unused, kept}) trace.make(address, 4096 + (address - used) / 0x4000, model);
    const auto number = static_cast<std::int64_t>(2 * step);
    trace.graph_node("ExpBackward0", number);
    trace.keep(used, "ExpBackward0.result");
    trace.graph_node("LogBackward0", number + 1);
    trace.keep(unused, "LogBackward0.self");
    trace.backward(1);
    trace.phase = proto::PHASE_BACKWARD;
    trace.node_begin("ExpBackward0", number);
    trace.node_end("ExpBackward0", number);
    trace.mark(proto::EVENT_BACKWARD_END);
    trace.phase = proto::PHASE_OTHER;
    trace.mark(proto::EVENT_PHASE);
    trace.free(used);
    trace.free(unused);
    trace.mark(proto::EVENT_STEP_END, static_cast<std::int64_t>(step));
  }
  trace.open();
  const std::string csv = run_program("leaks --format csv " + trace.path()).out;
  EXPECT_THAT(csv, testing::StartsWith("name,module,kind,step,bytes,held_ns,holder,guess,evidence,list\n"));
  EXPECT_THAT(csv, testing::AllOf(HasSubstr("ExpBackward0.result,GPT,retained,0,4096,"), HasSubstr(",overdue\n"),
                                  HasSubstr("LogBackward0.self,GPT,retained,0,4097,"), HasSubstr(",unused\n"),
                                  HasSubstr("GPT,GPT,,,12294,,,,\"3 blocks of 4098 bytes, steps 0..2\",growth\n")));
}

// Of 2,000 steps, each with a region below 1,000 modules whose names make a path of 64,000 bytes: a row takes what it shows, and what is
// not shown takes nothing.
TEST(Hostile, DeepScopesAndManyRegionsTakeLittle) {
  constexpr std::uint64_t steps = 2'000;
  TorchTrace trace;
  std::uint32_t scope = 0;
  for (int depth = 0; depth < 1000; ++depth) scope = trace.module(std::string(63, static_cast<char>('a' + depth % 26)), scope);
  const auto region = trace.region("checkpoint:0", scope), block = trace.module("block", region);
  for (std::uint64_t step = 0; step < steps; ++step) {
    trace.step(static_cast<std::int64_t>(step));
    trace.phase = proto::PHASE_FORWARD;
    trace.begin(region);
    trace.make(0x1000, 64, block);
    trace.drop(0, 0x1000, block);
    trace.free(0x1000);
    trace.end(region);
    trace.phase = proto::PHASE_BACKWARD;
    trace.begin_again(region);
    trace.make(0x2000, 64, block);
    trace.remake(0, 0x2000, region);
    trace.end_again(region);
    trace.free(0x2000);
  }
  EXPECT_LT(std::filesystem::file_size((trace.open(), trace.path())), 1'000'000U);
  for (const char* command : {"recompute --format json ", "recompute --format csv ", "recompute ", "leaks --format json "}) {
    const Ran ran = run_program(command + trace.path() + " | wc -c");
    EXPECT_EQ(ran.err, "") << command;
    EXPECT_LT(std::stoull(ran.out), steps * 110'000) << command;
  }
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(usage.ru_maxrss, 256 * 1024);
#endif
}

TEST(NoBackward, IsSaid) {
  TorchTrace trace;
  trace.step(0);
  trace.backward(1);
  trace.open();
  EXPECT_THAT(run_program("leaks " + trace.path()).out,
              testing::AllOf(HasSubstr("LEAKS  none that can be seen"), HasSubstr("WARNING  the trace does not say which nodes")));
  EXPECT_THAT(run_program("recompute " + trace.path()).out, HasSubstr("RECOMPUTE  none"));
}

}  // namespace
}  // namespace liveset
