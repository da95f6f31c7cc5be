// `liveset check`: what the hooks found is put together, and the exit status is the gate.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support/run_program.h"
#include "tests/support/tiny_trace.h"

namespace liveset {
namespace {

using nlohmann::json;
using test::Ran;
using testing::HasSubstr;
using testing::Not;

Ran check(const std::string& arguments) { return test::run_program("liveset check " + arguments); }

std::string finding(const std::string& kind, const std::string& region, const std::string& detail) {
  return json({{"kind", kind}, {"region", region}, {"module", "GPT.b"}, {"op", "aten.tanh"}, {"detail", detail}}).dump();
}

const char* const coverage = R"({"regions":2,"recomputes":2,"values":5,"value_bytes":4096,"operators":7,"not_sampled":0,)"
                             R"("not_observed":["files and the network"]})";

struct Check : testing::Test {
  test::TinyTrace trace;
  std::string path() { return trace.path(); }
  json replay(int status) {
    const Ran ran = check(path() + " --replay --format json");
    EXPECT_EQ(ran.status, status) << ran.err;
    return json::parse(ran.out);
  }
};

TEST_F(Check, PassesWhatWasComparedAndHasNoFinding) {
  trace.step(0);
  trace.attribute("liveset.replay.coverage", coverage);
  trace.step(1);
  trace.attribute("liveset.replay.coverage", coverage);
  trace.open();
  const json found = replay(0);
  EXPECT_EQ(found["schema"], "liveset.check/1");
  EXPECT_EQ(found["ok"], true);
  const json& one = found["checks"][0];
  EXPECT_EQ(one["name"], "replay");
  EXPECT_EQ(one["ok"], true);
  EXPECT_EQ(one["findings"].size(), 0U);
  EXPECT_EQ(one["coverage"]["recomputes"], 4);  // of two steps
  EXPECT_EQ(one["coverage"]["values"], 10);
  EXPECT_EQ(one["not_observed"], json({"files and the network"}));
  const Ran text = check(path() + " --replay");
  EXPECT_THAT(text.out, HasSubstr("replay: ok\n"));
  EXPECT_THAT(text.out, HasSubstr("not observed: files and the network"));
}

TEST_F(Check, FindingsOfTheSameKindAndPlaceAreOneWithTheFirstStepAndTheCount) {
  trace.attribute("liveset.replay.coverage", coverage);
  for (int step = 3; step < 6; ++step) {
    trace.step(step);
    trace.attribute("liveset.replay", finding("value", "GPT/checkpoint:0", step == 3 ? "first" : "later"));
  }
  trace.attribute("liveset.replay", finding("rng_before", "GPT/checkpoint:0", "cpu"));
  trace.open();
  const json found = replay(1);
  EXPECT_EQ(found["ok"], false);
  const json& findings = found["checks"][0]["findings"];
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0]["kind"], "value");
  EXPECT_EQ(findings[0]["region"], "GPT/checkpoint:0");
  EXPECT_EQ(findings[0]["module"], "GPT.b");
  EXPECT_EQ(findings[0]["op"], "aten.tanh");
  EXPECT_EQ(findings[0]["detail"], "first");
  EXPECT_EQ(findings[0]["step"], 3);
  EXPECT_EQ(findings[0]["count"], 3);
  EXPECT_EQ(findings[1]["count"], 1);
  const Ran text = check(path() + " --replay");
  EXPECT_EQ(text.status, 1);
  EXPECT_THAT(text.out, HasSubstr("value in GPT/checkpoint:0, step 3 (3 times)"));
}

TEST_F(Check, FindingsThatTheHooksOnlyCountedFailTheGate) {
  trace.attribute("liveset.replay.coverage", R"({"regions":1,"left_out":17})");
  trace.open();
  const json found = replay(1);
  EXPECT_EQ(found["checks"][0]["findings_left_out"], 17);
}

TEST_F(Check, SurvivesTextsThatAreNoFindings) {
  trace.attribute("liveset.replay.coverage", R"([1,2])");
  trace.attribute("liveset.replay.coverage", R"({"regions":-1,"not_observed":[1,{"a":2}],"values":1e400)");
  for (const char* text : {"{\"kind\":\"val", "7", "null", "{}", R"({"kind":5,"region":{},"detail":[]})"})
    trace.attribute("liveset.replay", text);
  trace.open();
  const json found = replay(1);
  // Three are no objects, two are empty ones.
  EXPECT_EQ(found["checks"][0]["findings_left_out"], 3);
  EXPECT_EQ(found["checks"][0]["findings"].size(), 1U);
}

TEST_F(Check, ControlCharactersOfATraceStayOffTheTerminal) {
  trace.attribute("liveset.replay", finding("value", "GPT\x1b[2J", "x\x1b[1m"));
  trace.open();
  EXPECT_THAT(check(path() + " --replay").out, Not(HasSubstr("\x1b")));
}

TEST_F(Check, RefusesATraceThatWasNotRecordedForIt) {
  trace.step(0);
  trace.open();
  const Ran ran = check(path() + " --replay");
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, HasSubstr("recorded without --check-replay"));
  EXPECT_EQ(check(path()).status, 2);  // no check is named
}

TEST_F(Check, DistributedNeedsStepsAndOneRankIsNothingToCompare) {
  trace.attribute("liveset.bucket", "{\"bucket\": 0, \"parameters\": [\"");
  trace.open();
  const Ran none = check(path() + " --distributed");
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("no steps"));
}

TEST_F(Check, ARegionOverADeviceBoundaryIsNamedByModuleAndDevices) {
  const auto cpu = trace.heap("cpu"), first = trace.heap("cuda:0"), second = trace.heap("cuda:1");
  const auto model = trace.scope(proto::SCOPE_MODULE, "Net");
  const auto region = trace.scope(proto::SCOPE_REGION, "checkpoint:0", model);
  const auto block = trace.scope(proto::SCOPE_MODULE, "b\x1b[2J", region);
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  trace.begin(model);
  trace.begin(region);
  trace.begin(block);
  trace.alloc(cpu, 0x1000, 5056);  // a random state
  trace.alloc(first, 0x2000, 512);
  trace.alloc(second, 0x3000, 512);
  trace.end(block, region);
  trace.end(region, model);
  trace.end(model);
  trace.open();
  const Ran ran = check(path() + " --distributed --format json");
  EXPECT_EQ(ran.status, 1);
  const json found = json::parse(ran.out);
  ASSERT_EQ(found["checks"].size(), 3U);
  EXPECT_EQ(found["checks"][0]["notes"][0], "one rank only: there is nothing to compare");
  EXPECT_EQ(found["checks"][2]["name"], "devices");
  const json& finding = found["checks"][2]["findings"][0];
  EXPECT_EQ(finding["kind"], "device_boundary");
  EXPECT_EQ(finding["region"], "Net/checkpoint:0");
  EXPECT_EQ(finding["module"], "Net.b\x1b[2J");
  EXPECT_EQ(finding["detail"], "its blocks lie on cuda:0 and cuda:1");
  EXPECT_THAT(check(path() + " --distributed").out, Not(HasSubstr("\x1b")));
}

TEST_F(Check, MaxPeakIsAGateOfItsOwn) {
  const auto heap = trace.heap("cpu");
  trace.alloc(heap, 0x1000, 3000);
  trace.alloc(heap, 0x2000, 1096);
  trace.free(heap, 0x1000);
  trace.open();
  EXPECT_EQ(check(path() + " --max-peak 4096").status, 0);
  EXPECT_EQ(check(path() + " --max-peak 4KiB").status, 0);
  const Ran ran = check(path() + " --max-peak 4095 --format json");
  EXPECT_EQ(ran.status, 1);
  const json found = json::parse(ran.out);
  EXPECT_EQ(found["checks"][0]["name"], "max-peak");
  EXPECT_EQ(found["checks"][0]["coverage"]["bytes"], 4096);
  EXPECT_EQ(check(path() + " --max-peak nothing").status, 2);
}

}  // namespace
}  // namespace liveset
