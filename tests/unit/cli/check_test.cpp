// `liveset check`: what the hooks found is put together, and the exit status is the gate.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/run_program.h"
#include "tests/support/tiny_trace.h"

namespace liveset {
namespace {

using nlohmann::json;
using test::Ran;
using testing::AllOf;
using testing::Contains;
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
  // Puts a file beside the trace, as one of its run.
  std::string beside(const std::string& name, const std::string& content) {
    std::filesystem::create_directory(path() + ".d");
    const std::string other = path() + ".d/" + name;
    std::ofstream(other, std::ios::binary) << content;
    return other;
  }
  std::string beside(test::TinyTrace& other) {
    other.open();
    return beside(std::to_string(++others_) + ".liveset", test::read_file(other.path()));
  }
  json replay(int status) {
    const Ran ran = check(path() + " --replay --format json");
    EXPECT_EQ(ran.status, status) << ran.err;
    return json::parse(ran.out);
  }

 private:
  int others_ = 0;
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

TEST_F(Check, WhateverAFindingSaysStaysTextAndShort) {
  const std::string esc = "\x1b]0;x\x07\x1b[2J", tail(5000, 'y');
  trace.attribute("liveset.replay", json({{"kind", esc + tail},
                                          {"region", "r" + esc + tail},
                                          {"module", "m" + esc + tail},
                                          {"op", "o" + esc + tail},
                                          {"detail", "d" + esc + tail}})
                                        .dump());
  trace.open();
  for (const std::string format : {"table", "md"}) {
    const Ran ran = check(path() + " --replay --format " + format);
    EXPECT_THAT(ran.out, Not(HasSubstr("\x1b"))) << format;
    EXPECT_THAT(ran.out, Not(HasSubstr("\x07"))) << format;
    EXPECT_LT(ran.out.size(), format == "table" ? 2000U : 40000U) << format;
  }
}

TEST_F(Check, TextListsTheFirstFindingsAndCountsTheOthers) {
  for (int each = 0; each < 30; ++each) trace.attribute("liveset.replay", finding("value", "r" + std::to_string(each), "x"));
  trace.open();
  const Ran ran = check(path() + " --replay");
  EXPECT_THAT(ran.out, HasSubstr("replay: 30 findings\n"));
  EXPECT_THAT(ran.out, HasSubstr("value in r19\n"));
  EXPECT_THAT(ran.out, Not(HasSubstr("value in r20")));
  EXPECT_THAT(ran.out, HasSubstr("and 10 more; --top shows more"));
  EXPECT_THAT(check(path() + " --replay --top 30").out, HasSubstr("value in r29\n"));
  EXPECT_EQ(json::parse(check(path() + " --replay --format json").out)["checks"][0]["findings"].size(), 30U);
}

TEST_F(Check, WhatTheHooksOnlyCountedCountsEachTimeItIsSaid) {
  writer::Event made = test::event(proto::EVENT_ATTRIBUTE, 0);
  made.name = trace.string("liveset.replay");
  made.text = trace.string(R"({"kind":"value","region":"r","more":4})");
  for (int step = 0; step < 3; ++step) trace.add(made);
  trace.open();
  const json found = replay(1);
  EXPECT_EQ(found["checks"][0]["findings"][0]["count"], 3);
  EXPECT_EQ(found["checks"][0]["findings_left_out"], 12);
}

TEST_F(Check, ARankWhoseReplayWasNotCheckedIsAFinding) {
  trace.step(0);
  trace.attribute("liveset.replay.coverage", coverage);
  trace.open();
  test::TinyTrace worker, rank;
  worker.attribute("something", "{}");
  beside(worker);  // has no steps: nothing to check
  EXPECT_EQ(replay(0)["ok"], true);
  rank.step(0);
  const std::string other = beside(rank);
  const json found = replay(1);
  ASSERT_EQ(found["checks"][0]["findings"].size(), 1U);
  EXPECT_EQ(found["checks"][0]["findings"][0]["kind"], "not_checked");
  EXPECT_EQ(found["checks"][0]["findings"][0]["file"], other);
}

TEST_F(Check, ATraceThatCannotBeReadFailsEveryGate) {
  const auto heap = trace.heap("cpu");
  trace.step(0);
  trace.alloc(heap, 0x1000, 100);
  trace.attribute("liveset.replay.coverage", coverage);
  trace.open();
  for (const std::string gate : {"--replay", "--distributed", "--max-peak 4KiB"}) EXPECT_EQ(check(path() + " " + gate).status, 0) << gate;
  const std::string other = beside("7.liveset", "garbage");
  for (const std::string gate : {"--replay", "--distributed", "--max-peak 4KiB"}) {
    const Ran ran = check(path() + " " + gate + " --format json");
    EXPECT_EQ(ran.status, 1) << gate;
    const json found = json::parse(ran.out);
    EXPECT_EQ(found["ok"], false);
    EXPECT_EQ(found["checks"].back()["name"], "traces");
    EXPECT_EQ(found["checks"].back()["findings"][0]["file"], other);
    EXPECT_EQ(check(path() + " " + gate + " --strict").status, 3) << gate;
  }
}

TEST_F(Check, RanksWithoutATraceAreAFinding) {
  const test::TemporaryFolder folder;
  const std::string file = folder.file("rank.liveset");
  writer::HeaderInfo info = test::header_info();
  info.rank = 0;
  info.world_size = 2;
  std::string error;
  const auto writer = writer::TraceWriter::create(file, info, &error);
  ASSERT_NE(writer, nullptr) << error;
  writer->define_thread(1, 1, "main");
  writer->append(test::event(proto::EVENT_STEP_BEGIN, 0));
  ASSERT_TRUE(writer->finish("exit"));
  const Ran ran = check(file + " --distributed --format json");
  EXPECT_EQ(ran.status, 1);
  const json one = json::parse(ran.out)["checks"][0];
  EXPECT_EQ(one["name"], "ranks");
  EXPECT_EQ(one["findings"][0]["kind"], "missing_ranks");
  EXPECT_THAT(std::string(one["findings"][0]["detail"]),
              AllOf(HasSubstr("of the job's 2 ranks"), HasSubstr("of 1 (rank 0)"), HasSubstr("--some-ranks")));
  const Ran some = check(file + " --distributed --some-ranks --format json");
  EXPECT_EQ(some.status, 0) << some.err;
  EXPECT_THAT(json::parse(some.out)["checks"][0]["not_observed"], Contains("1 of the job's 2 ranks"));
  EXPECT_EQ(check(file + " --some-ranks --max-peak 1GiB").status, 2);
}

TEST_F(Check, TablesNameTheTraceAndWhatIsNotListed) {
  trace.step(0);
  trace.attribute("liveset.replay", R"({"kind":"value","region":"r","module":"m","op":"o","detail":"d","more":3})");
  trace.open();
  const Ran csv = check(path() + " --replay --format csv");
  EXPECT_EQ(csv.out,
            "check,kind,region,module,op,step,count,detail,trace\nreplay,value,r,m,o,0,1,d,\n"
            "replay,not_listed,,,,,3,findings that are not listed one by one,\n");
  EXPECT_THAT(check(path() + " --replay --format md").out,
              AllOf(HasSubstr("- replay: 4 findings\n\n### Findings\n\n| check"), HasSubstr("| value |")));
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

TEST_F(Check, MaxPeakHoldsEachTraceOfARunToTheLimit) {
  trace.step(0);
  trace.alloc(trace.heap("cpu"), 0x1000, 1000);
  trace.open();
  test::TinyTrace small, large, nothing;
  small.alloc(small.heap("cpu"), 0x1000, 2000);
  large.alloc(large.heap("cuda:0"), 0x1000, 1000000);
  nothing.step(0);
  beside(small);
  const std::string other = beside(large);
  beside(nothing);
  EXPECT_EQ(check(path() + " --max-peak 1000000").status, 0);
  const Ran ran = check(path() + " --max-peak 2000 --format json");
  EXPECT_EQ(ran.status, 1);
  const json one = json::parse(ran.out)["checks"][0];
  ASSERT_EQ(one["findings"].size(), 1U);
  EXPECT_EQ(one["findings"][0]["file"], other);
  EXPECT_EQ(one["findings"][0]["detail"], "the peak of allocated is 1,000,000 bytes on cuda:0, the limit 2,000");
  EXPECT_EQ(one["coverage"]["bytes"], 1000000);
  EXPECT_EQ(one["coverage"]["traces"], 3);
  EXPECT_EQ(json::parse(check(path() + " --max-peak 999 --format json").out)["checks"][0]["findings"].size(), 3U);
}

TEST_F(Check, APeakThatIsNotThereIsNoPeakOfZero) {
  trace.step(0);
  trace.open();
  const Ran ran = check(path() + " --max-peak 1");
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, HasSubstr("no allocation"));
  test::TinyTrace torn;
  const auto cpu = torn.heap("cpu");
  for (std::uint64_t each = 0; each < 5000; ++each) torn.alloc(cpu, 0x1000 * (1 + each * each % 4999), 1 + each * each % 977);
  torn.open();
  const std::string whole = test::read_file(torn.path());
  beside("torn.liveset", whole.substr(0, whole.size() * 2 / 3));
  const Ran part = check(path() + " --max-peak 1 --format json");
  EXPECT_EQ(part.status, 1) << part.err;
  const json one = json::parse(part.out)["checks"][0];
  ASSERT_EQ(one["findings"].size(), 1U);
  EXPECT_EQ(one["findings"][0]["kind"], "no_peak");
  EXPECT_EQ(check(path() + " --max-peak 1 --strict").status, 4);
}

std::string print_of(const std::string& hash, double value, const std::string& more = "") {
  return R"({"step":0,"what":"gradient","name":"w","dtype":"float32","shape":[1],"max_abs":1.0,"hash":")" + hash + R"(","samples":[[0,)" +
         std::to_string(value) + "]]" + more + "}";
}

TEST_F(Check, EquivalenceSaysWhatItShowedAndWhatItCouldNotRead) {
  test::TinyTrace other, unread, broken;
  trace.attribute("liveset.fingerprint", print_of("1", 1));
  other.attribute("liveset.fingerprint", print_of("2", 1));
  unread.attribute("liveset.fingerprint", print_of("", 1));
  broken.attribute("liveset.fingerprint", print_of("1", 1));
  broken.attribute("liveset.fingerprint", "{");
  for (test::TinyTrace* each : {&trace, &other, &unread, &broken}) each->open();
  const auto against = [&](const std::string& b) { return check(path() + " " + b + " --equivalence --format json"); };
  EXPECT_EQ(json::parse(against(path()).out)["checks"][0]["lower_bound"], false);
  EXPECT_THAT(check(path() + " " + path() + " --equivalence").out, HasSubstr("equivalence: ok\n"));
  EXPECT_EQ(against(other.path()).status, 0);
  EXPECT_EQ(json::parse(against(other.path()).out)["checks"][0]["lower_bound"], true);
  EXPECT_THAT(check(path() + " " + other.path() + " --equivalence").out, HasSubstr("equivalence: not shown to differ\n"));
  for (const test::TinyTrace* each : {&unread, &broken}) {
    const Ran ran = against(each->path());
    EXPECT_EQ(ran.status, 1);
    const json one = json::parse(ran.out)["checks"][0];
    ASSERT_EQ(one["findings"].size(), 1U);
    EXPECT_EQ(one["findings"][0]["kind"], "unreadable");
    EXPECT_EQ(one["findings_left_out"], 0);
    EXPECT_EQ(one["coverage"]["compared"], each == &unread ? 0 : 1);
  }
}

}  // namespace
}  // namespace liveset
