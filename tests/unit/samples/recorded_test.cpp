// The demos under `liveset run`: the ledger that the viewer rebuilds from the trace, event by event, against the acceptance facts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/acceptance.h"
#include "tests/support/chain_facts.h"
#include "tests/support/gradient_cache_facts.h"
#include "tests/support/run_program.h"

namespace liveset::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string chain_file = std::string(LIVESET_SOURCE_DIR) + "/samples/tanh_chain/chain.textproto";

// Records a program of the build and gives what it printed.
json record(const std::string& trace, const std::string& program_and_arguments) {
  const Ran ran = run_program("liveset run -q -o " + trace + " -- " + LIVESET_BIN_DIR + "/" + program_and_arguments);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.err, "");
  return json::parse(ran.out);
}

json read(const std::string& command_and_arguments, int status = 0) {
  const Ran ran = run_program("liveset " + command_and_arguments + " --format json");
  EXPECT_EQ(ran.status, status) << ran.err;
  return json::parse(ran.out);
}

TEST(RecordedTanhChain, LedgerOfEveryPolicyEventByEvent) {
  const TemporaryFolder folder;
  const std::string trace = folder.file("chain.liveset");
  for (const json& policy : acceptance("chain_ledgers").at("policies")) {
    SCOPED_TRACE(policy.at("policy"));
    const json step = record(trace, "tanh_chain --policy " + policy_argument(policy));
    EXPECT_EQ(step.at("max_difference_to_save_all"), 0.0);
    expect_chain_ledger(read("ledger --logical " + trace), policy);
    const json same = read("compare " + trace + " " + chain_file + " --policy " + policy_argument(policy));
    EXPECT_EQ(same.at("equal"), true);
    EXPECT_EQ(same.at("error"), 0);
    EXPECT_EQ(same.at("differences").at("count"), 0);
    EXPECT_EQ(same.at("compared"), "events");
    EXPECT_EQ(same.at("measured").at("peak").at("bytes"), 8 * policy.at("peak").get<int>());
    EXPECT_EQ(same.at("predicted").at("peak").at("bytes"), 8 * policy.at("peak").get<int>());
    EXPECT_EQ(same.at("difference"), 0);
    EXPECT_EQ(same.at("values").at("matched"), policy.at("peak"));
  }
}

TEST(RecordedTanhChain, UnequalSegmentsAreAsPredicted) {
  const TemporaryFolder folder;
  for (const char* policy : {"segments:3,2,1", "segments:1,2,3", "segments:2,2,1,1", "segments:6"}) {
    record(folder.file("c"), std::string("tanh_chain --policy ") + policy);
    EXPECT_EQ(read("compare " + folder.file("c") + " " + chain_file + " --policy " + policy).at("differences").at("count"), 0) << policy;
  }
}

// The arena reports blocks beside the values: at its peak it holds the values of the logical peak, and what is freed is all.
TEST(RecordedTanhChain, PhysicalPeakIsTheLogicalPeak) {
  const TemporaryFolder folder;
  record(folder.file("c"), "tanh_chain --policy segment:2");
  const json summary = read("summary " + folder.file("c"));
  const json& counter = summary.at("counters").at("cpu/arena").at("allocated");
  EXPECT_EQ(counter.at("peak"), 40);
  EXPECT_EQ(counter.at("final"), 0);
  EXPECT_EQ(
      summary.at("peak").at("classes").at("activation").get<int>() + summary.at("peak").at("classes").value("recomputed_activation", 0),
      40);
  EXPECT_EQ(summary.at("health").at("lost_events"), 0);
  EXPECT_EQ(summary.at("health").at("unmatched_frees"), 0);
}

TEST(RecordedTanhChain, CompareExitsWithOneWhereTheyDiffer) {
  const TemporaryFolder folder;
  const std::string trace = folder.file("chain.liveset");
  record(trace, "tanh_chain --policy segment:2");
  const json other = read("compare " + trace + " " + chain_file + " --policy save-all", 1);
  EXPECT_EQ(other.at("equal"), false);
  EXPECT_EQ(other.at("predicted").at("peak").at("ids"), 7);
  EXPECT_EQ(other.at("recorded").at("peak").at("ids"), 5);
  EXPECT_EQ(other.at("held").at("only_predicted").size(), 3U);
  EXPECT_DOUBLE_EQ(other.at("error"), 0.5);  // 6 forward layers against 12
  EXPECT_EQ(run_program("liveset compare " + trace + " " + chain_file + " --max-error 49%").status, 1);
  EXPECT_EQ(run_program("liveset compare " + trace + " " + chain_file + " --max-error 0.5").status, 0);

  // h1, h3 and h5 are given up; segment:2 holds h5 when it makes h6, at its peak.
  EXPECT_EQ(other.at("measured").at("peak").at("bytes"), 40);
  EXPECT_EQ(other.at("predicted").at("peak").at("bytes"), 56);
  EXPECT_EQ(other.at("difference"), -16);
  EXPECT_EQ(other.at("gap").at("missing_values"), -16);
  EXPECT_EQ(other.at("values").at("matched"), 5);
  EXPECT_EQ(other.at("values").at("missing"), 2);
  EXPECT_EQ(other.at("values").at("extra"), 0);

  const std::string wide = written(folder, "wide", "chain { length: 6 bytes: 16 }");
  const json sizes = read("compare " + trace + " " + wide + " --policy segment:2", 1);
  EXPECT_EQ(sizes.at("differences").at("predicted_only"), 0);
  EXPECT_DOUBLE_EQ(sizes.at("errors").at("peak_bytes"), 0.5);
  const Ran table = run_program("liveset compare " + trace + " " + wide + " --policy segment:2");
  EXPECT_THAT(table.out, HasSubstr("they differ by 100 %, the largest of: 50 % in bytes at the peak"));
  EXPECT_THAT(table.out, HasSubstr("100 % in values"));  // every held value has another size
  const std::string csv = run_program("liveset compare " + trace + " " + wide + " --policy segment:2 --format csv").out;
  EXPECT_EQ(csv.substr(0, csv.find('\n')), "class,name,bytes,measured,predicted,blocks");
  EXPECT_THAT(csv, HasSubstr("\nresized_values,h0,-8,8,16,1\n"));
  EXPECT_THAT(run_program("liveset compare " + trace + " " + wide + " --policy segment:2 --format md").out,
              HasSubstr("| --: | --: | --- |"));
}

TEST(RecordedTanhChain, SummaryShowsAPredictionBesideThePeak) {
  const TemporaryFolder folder;
  const std::string trace = folder.file("chain.liveset");
  record(trace, "tanh_chain --policy segment:2");
  const std::string with = "summary " + trace + " --model " + chain_file;
  const json found = read(with).at("prediction");
  EXPECT_EQ(found.at("bytes"), 56);
  EXPECT_EQ(found.at("difference"), -16);
  EXPECT_DOUBLE_EQ(found.at("error"), 16.0 / 56);
  EXPECT_THAT(run_program("liveset " + with).out, HasSubstr("DIFFERENCE  -16 B, -28.57% of the prediction\n"));
  EXPECT_THAT(run_program("liveset " + with + " --policy segment:2").out, HasSubstr("DIFFERENCE  none\n"));
  EXPECT_FALSE(read("summary " + trace).contains("prediction"));
}

TEST(RecordedTanhChain, TwoRunsBesideEachOther) {
  const TemporaryFolder folder;
  const std::string one = folder.file("one"), other = folder.file("other");
  record(one, "tanh_chain --policy segment:2");
  record(other, "tanh_chain --policy save-all");
  const json same = read("compare " + one + " " + one);
  EXPECT_EQ(same.at("equal"), true);
  EXPECT_EQ(same.at("difference"), 0);
  const json found = read("compare " + one + " " + other + " --samples 4,8", 1);
  EXPECT_EQ(found.at("schema"), "liveset.compare/1");
  EXPECT_EQ(found.at("difference"), 40 - 56);
  std::int64_t sum = 0;
  for (const json& bytes : found.at("gap")) sum += bytes.get<std::int64_t>();
  EXPECT_EQ(sum, 40 - 56);
  EXPECT_EQ(found.at("gap").at("missing_values"), -16);
  EXPECT_EQ(found.at("measured").at("kind"), "trace");
  const json &pace = found.at("measured").at("pace"), &other_pace = found.at("predicted").at("pace");
  EXPECT_EQ(pace.at("only_the_first"), true);
  EXPECT_DOUBLE_EQ(pace.at("samples_per_second"), 4 * pace.at("steps_per_second").get<double>());
  EXPECT_DOUBLE_EQ(other_pace.at("samples_per_second"), 8 * other_pace.at("steps_per_second").get<double>());
  EXPECT_EQ(run_program("liveset compare " + one + " " + other + " --max-error 29%").status, 0);
  const std::string text = run_program("liveset compare " + one + " " + other).out;
  EXPECT_THAT(text, HasSubstr("FIRST       40 B allocated on cpu/arena"));
  EXPECT_THAT(text, HasSubstr("DIFFERENCE  -16 B, -28.57% of the second\n"));
  EXPECT_THAT(text, HasSubstr("  -16 B  missing values     h1 +1\n"));
  EXPECT_THAT(text, HasSubstr("VALUES      5 in both (40 B), 2 missing (only second: 16 B), 0 extra\n"));
  const std::string csv = run_program("liveset compare " + one + " " + other + " --format csv").out;
  EXPECT_EQ(csv, "class,name,bytes,measured,predicted,blocks\nmissing_values,h1,-8,0,8,1\nmissing_values,h3,-8,0,8,1\n");
  EXPECT_THAT(run_program("liveset compare " + one + " " + other + " --format md").out, HasSubstr("| -16 B | missing values | h1 +1 |"));
}

TEST(RecordedTanhChain, CompareSaysWhatItCannotDo) {
  const TemporaryFolder folder;
  const std::string trace = folder.file("chain.liveset");
  record(trace, "tanh_chain");
  struct Case {
    std::string arguments, says;
    int status;
  };
  const Case cases[] = {
      {trace + " " + chain_file + " --max-error much", "--max-error 'much' is no share (give 0.05 or 5%)", 2},
      {trace + " " + chain_file + " --max-error -1", "is no share", 2},
      {trace + " " + chain_file + " --policy segment:x", "the segment length must be a whole number of at least 1", 2},
      {trace + " " + chain_file + " --range step:7", "step", 2},
      {chain_file + " " + chain_file, chain_file + ": is a model file, and what stands first must be a trace", 2},
      {trace + " " + trace + " --held", "--held is for a model file, and this is a trace", 2},
      {trace + " " + trace + " --policy everything", "unknown policy 'everything'", 2},
      {trace + " " + LIVESET_BIN_DIR + "/liveset", "liveset", 3},
      {trace + " " + trace + " --samples none", "--samples 'none' is no number of samples a step", 2},
      {trace + " " + chain_file + " --counter reserved", "has no counter \"reserved\"", 2},
      {folder.file("missing") + " " + chain_file, "missing", 3},
  };
  for (const Case& bad : cases) {
    const Ran ran = run_program("liveset compare " + bad.arguments);
    EXPECT_EQ(ran.status, bad.status) << bad.arguments;
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, HasSubstr(bad.says));
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }
}

TEST(RecordedGradientCache, TwentyFourCasesEventByEvent) {
  const TemporaryFolder folder;
  const std::string trace = folder.file("cache.liveset");
  for (const json& fact : acceptance("gradient_cache").at("cases")) {
    SCOPED_TRACE(fact.at("name"));
    const json step = record(trace, "gradient_cache " + gradient_cache_arguments(fact));
    expect_close(step.at("loss"), fact.at("loss"), 1e-15);
    const json ledger = read("ledger --logical " + trace);
    EXPECT_EQ(ledger.at("broken_rules").at("count"), 0) << ledger.at("broken_rules");
    EXPECT_EQ(ledger.at("live_at_end"), json::array());
    EXPECT_EQ(ledger.at("groups").at("hidden_vectors").at("peak_ids"), fact.at("hidden_vectors_peak"));
    EXPECT_EQ(ledger.at("groups").at("hidden_vectors").at("peak_bytes"), 8 * fact.at("hidden_scalars_peak").get<int>());
    EXPECT_EQ(ledger.at("groups").at("representations").at("peak_bytes"), 16 * 8);
    EXPECT_EQ(ledger.at("groups").at("representation_gradients").at("peak_bytes"), 16 * 8);
    EXPECT_EQ(ledger.at("groups").at("scores").at("peak_bytes"), 16 * 8);
    json chunks = json::array();
    for (const json& event : ledger.at("events"))
      if (event.contains("stage")) chunks.push_back(event);
    ASSERT_EQ(chunks.size(), fact.at("events").size());
    for (std::size_t i = 0; i < chunks.size(); ++i) expect_chunk_event(chunks[i], fact.at("events")[i]);
  }
}

}  // namespace
}  // namespace liveset::test
