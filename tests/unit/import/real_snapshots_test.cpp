// Snapshots that people published, and of our own runs, against facts that were worked out independently of this code.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support/shared_files.h"
#include "tests/support/temporary_folder.h"
#include "viewer/import/importer.h"
#include "viewer/import/snapshot_facts.h"
#include "viewer/report/summary.h"

namespace liveset::imports {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct Read {
  Snapshot snapshot;
  DeviceFacts facts;
  report::Summary summary;
};

Read read(const std::string& path) {
  Read found;
  Result<Snapshot> snapshot = read_snapshot(path);
  EXPECT_TRUE(snapshot) << snapshot.error().message();
  found.snapshot = std::move(*snapshot);
  Result<std::vector<DeviceFacts>> facts = facts_of(found.snapshot);
  EXPECT_TRUE(facts) << facts.error().message();
  EXPECT_EQ(facts->size(), 1U);
  found.facts = facts->at(0);
  const test::TemporaryFolder folder;
  std::string error;
  const Status status = import_snapshot(path, writer::open_file_sink(folder.file("x.liveset"), &error));
  EXPECT_TRUE(status) << status.error().message();
  Result<trace::TraceFile> file = trace::TraceFile::open_as(folder.file("x.liveset"), path);
  EXPECT_TRUE(file) << file.error().message();
  Result<report::Summary> summary = report::summarize(*file, {});
  EXPECT_TRUE(summary) << summary.error().message();
  found.summary = std::move(*summary);
  return found;
}

const report::CounterFigure& counter(const report::Summary& summary, const std::string& name) {
  static const report::CounterFigure none;
  for (const report::CounterFigure& figure : summary.counters)
    if (figure.heap == "cuda:0" && figure.name == name) return figure;
  ADD_FAILURE() << "no counter " << name;
  return none;
}

std::uint64_t number(const std::string& text) { return std::strtoull(text.c_str(), nullptr, 10); }

// "alloc:36;free_requested:26"
std::string actions_of(const DeviceFacts& facts) {
  std::string text;
  for (std::size_t i = 0; i < action_count; ++i)
    if (facts.actions[i] != 0)
      text += (text.empty() ? "" : ";") + std::string(action_name(static_cast<Action>(i))) + ":" + std::to_string(facts.actions[i]);
  return text;
}

TEST(RealSnapshots, HaveTheNumbersOfTheirFacts) {
  const std::string table = test::shared_file("realfiles/facts/pickle_summary.tsv");
  if (table.empty()) GTEST_SKIP() << "SKIPPED: no shared/realfiles beside the checkout";
  std::size_t read_files = 0;
  for (const auto& row : test::read_table(table)) {
    const std::string path = test::shared_file("realfiles/pickle/" + row.at("file"));
    ASSERT_FALSE(path.empty()) << row.at("file");
    SCOPED_TRACE(row.at("file"));
    ++read_files;
    const auto [snapshot, facts, summary] = read(path);
    EXPECT_EQ(snapshot.pickle.protocol(), 4);
    EXPECT_EQ(snapshot.segments.size(), number(row.at("segments")));
    EXPECT_EQ(snapshot.blocks.size(), number(row.at("blocks")));
    const bool synthetic = row.at("file").find("mosaic") != std::string::npos;
    EXPECT_EQ(facts.contradiction_count != 0, synthetic) << testing::PrintToString(facts.contradictions);
    const bool has_trace = row.count("actions") != 0 && !row.at("actions").empty();
    if (!has_trace) {
      EXPECT_EQ(facts.events, 0U);
      EXPECT_EQ(facts.history, History::none);
      EXPECT_FALSE(summary.peak->is_known);
      continue;
    }
    EXPECT_EQ(facts.events, number(row.at("trace_n")));
    EXPECT_EQ(actions_of(facts), row.at("actions"));
    EXPECT_EQ(facts.unseen_allocations, number(row.at("unknown_frees")));
    EXPECT_EQ(facts.baseline_requested, static_cast<std::int64_t>(number(row.at("baseline_requested"))));
    EXPECT_EQ(facts.peak_requested, static_cast<std::int64_t>(number(row.at("abs_peak_requested"))));
    EXPECT_EQ(facts.active_at_dump, number(row.at("active_rounded_at_dump")));
    EXPECT_EQ(facts.reserved_at_dump, number(row.at("reserved_at_dump")));
    EXPECT_EQ(facts.peak_reserved, static_cast<std::int64_t>(number(row.at("reserved_abs_peak"))));
    // The same by the trace, as every report reads it.
    ASSERT_TRUE(summary.peak);
    EXPECT_EQ(summary.peak->counter, "requested");
    EXPECT_EQ(counter(summary, "active at the dump").final, number(row.at("active_rounded_at_dump")));
    EXPECT_EQ(counter(summary, "reserved").final, number(row.at("reserved_at_dump")));
    EXPECT_EQ(counter(summary, "requested").final, facts.requested_at_dump);
    EXPECT_EQ(summary.unmatched_frees, 0U) << "what lived before opens the trace";
    EXPECT_EQ(summary.segments_not_reserved, 0U);
    const bool one_event = facts.events == 1;
    EXPECT_EQ(facts.history == History::none, one_event);
    EXPECT_EQ(summary.peak->is_known, !one_event);
    EXPECT_EQ(report::summary_json(summary)["peak"].is_null(), one_event);
    if (one_event) {
      EXPECT_THAT(report::summary_text(summary, {}), HasSubstr("the peak is not known"));
      EXPECT_THAT(report::summary_text(summary, {}), testing::Not(HasSubstr("PEAK")));
      EXPECT_EQ(summary.peak->bytes, facts.requested_at_dump);
    } else {
      EXPECT_EQ(summary.peak->bytes, number(row.at("abs_peak_requested")));
      EXPECT_EQ(counter(summary, "reserved").peak, number(row.at("reserved_abs_peak")));
    }
  }
  EXPECT_EQ(read_files, 11U);
}

TEST(RealSnapshots, ThatAreMadeUpContradictThemselves) {
  const std::string path = test::shared_file("realfiles/pickle/facebookresearch__mosaic__test_snapshots_output.pickle");
  if (path.empty()) GTEST_SKIP() << "SKIPPED: no shared/realfiles beside the checkout";
  const auto [snapshot, facts, summary] = read(path);
  const std::string all = testing::PrintToString(facts.contradictions);
  EXPECT_THAT(all, HasSubstr("520 allocations lie in no segment"));
  EXPECT_THAT(all, HasSubstr("more is allocated than is reserved after "));
  EXPECT_THAT(all, HasSubstr("at most 2255398598 bytes in 262144000"));
  EXPECT_THAT(all,
              HasSubstr("sums of segments that their blocks do not add up to: 20, the first: the segment at 0x1aad6308e1 states 52428800 "
                        "bytes in all, its blocks hold 1024"));
  EXPECT_THAT(report::summary_text(summary, {}), HasSubstr("HEALTH  the file contradicts itself in 3 places of cuda:0:"));
}

TEST(RealSnapshots, OfOurOwnRunsHaveTheNumbersOfTheirFacts) {
  const std::string list = test::shared_file("acceptance/snapshots/snapshots.json");
  if (list.empty()) GTEST_SKIP() << "SKIPPED: no shared/acceptance beside the checkout";
  const json all = json::parse(test::read_file(list));
  for (const json& entry : all.at("files")) {
    const std::string name = entry.at("file");
    SCOPED_TRACE(name);
    const auto [snapshot, facts, summary] = read(test::shared_file("acceptance/snapshots/" + name));
    EXPECT_EQ(snapshot.pickle.protocol(), entry.at("protocol"));
    EXPECT_EQ(snapshot.pickle.file_bytes(), entry.at("bytes"));
    for (const auto& [action, count] : entry.at("actions").items()) EXPECT_THAT(actions_of(facts), HasSubstr(action + ":" + count.dump()));
    EXPECT_EQ(facts.history, History::whole);
    EXPECT_EQ(facts.contradiction_count, 0U) << testing::PrintToString(facts.contradictions);
    EXPECT_EQ(facts.unseen_allocations, entry.at("frees_without_alloc"));
    EXPECT_EQ(snapshot.segments.size(), entry.at("segments"));
    EXPECT_EQ(counter(summary, "reserved").final, entry.at("segment_bytes"));
    EXPECT_EQ(summary.peak->bytes, entry.at("replay_peak_requested_bytes"));
    EXPECT_EQ(counter(summary, "requested").final, entry.at("live_at_end"));
  }
}

}  // namespace
}  // namespace liveset::imports
