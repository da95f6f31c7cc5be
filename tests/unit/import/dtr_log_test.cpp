// Logs of DTR: a small one whose numbers are worked out by hand, and the published ones against what was measured on a GPU.
#include "viewer/import/dtr_log.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tests/support/python_pickle.h"
#include "tests/support/run_program.h"
#include "tests/support/shared_files.h"

namespace liveset::imports {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// a (100) is a constant with a second name b; c (40) is made from b; d is a view of c; e (7) and f (9) come of one call in backward.
// Peak: 100 + 40 + 7 + 9 = 156, at line 13. c lives on by d, then as g, and e takes its place.
const std::string small_log = R"({"ANNOTATION":"START","INSTRUCTION":"ANNOTATE"}
{"INSTRUCTION":"CONSTANT","NAME":"a"}
{"INSTRUCTION":"MEMORY","MEMORY":"100","NAME":"a"}
{"DST":"b","INSTRUCTION":"COPY","SRC":"a"}
{"ARGS":["b"],"INSTRUCTION":"CALL","NAME":"matmul","RESULT":["c"],"TIME":"50"}
{"INSTRUCTION":"MEMORY","MEMORY":"40","NAME":"c"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"c"}
{"ARGS":["c"],"INSTRUCTION":"CALL","NAME":"view","RESULT":["d"],"TIME":"1"}
{"INSTRUCTION":"MEMORY","MEMORY":"40","NAME":"d"}
{"ALIAS":"0","INSTRUCTION":"ALIAS","NAME":"d"}
{"INSTRUCTION":"RELEASE","NAME":"c"}
{"ANNOTATION":"BACKWARD","INSTRUCTION":"ANNOTATE"}
{"ARGS":["a","d"],"INSTRUCTION":"CALL","NAME":"split","RESULT":["e","f"],"TIME":"2"}
{"INSTRUCTION":"MEMORY","MEMORY":"7","NAME":"e"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"e"}
{"INSTRUCTION":"MEMORY","MEMORY":"9","NAME":"f"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"f"}
{"ARGS":["a","e"],"INSTRUCTION":"MUTATE","MUTATE":[0],"NAME":"add_","TIME":"3"}
{"INSTRUCTION":"RELEASE","NAME":"f"}
{"DST":"g","INSTRUCTION":"COPY","SRC":"d"}
{"INSTRUCTION":"RELEASE","NAME":"d"}
{"DST":"g","INSTRUCTION":"COPY_FROM","SRC":"e"}
{"INSTRUCTION":"RELEASE","NAME":"a"}
)";

TEST(DtrLogs, CountNamesOfStorages) {
  const test::TemporaryFolder folder;
  const Result<DtrFacts> facts = read_dtr_log(test::written(folder, "x.log", small_log));
  ASSERT_TRUE(facts) << facts.error().message();
  EXPECT_EQ(facts->peak_bytes, 156U);
  EXPECT_EQ(facts->peak_line, 13U);
  EXPECT_EQ(facts->constant_bytes, 100U);
  EXPECT_EQ(facts->end_live_bytes, 107U);
  EXPECT_EQ(facts->end_live_names, 3U);  // b, e, g
  EXPECT_EQ(facts->records.at("CALL"), 3U);
}

TEST(DtrLogs, AreReadAsTraces) {
  const test::TemporaryFolder folder;
  const std::string path = test::written(folder, "x.log", small_log);
  const json peak = json::parse(test::run_program("liveset peak --format json " + path).out);
  EXPECT_EQ(peak["bytes"], 156);
  EXPECT_EQ(peak["counter"], "requested");
  EXPECT_EQ(peak["heap"], "dtr");
  EXPECT_EQ(peak["phase"], "backward");
  EXPECT_EQ(peak["time_ns"], 51);
  std::string live;
  for (const json& block : peak["largest"]) live += block["names"][0].get<std::string>() + " of " + block["op"].dump() + "; ";
  EXPECT_EQ(live, "a of null; c of \"matmul\"; f of \"split\"; e of \"split\"; ");
  const json summary = json::parse(test::run_program("liveset summary --format json " + path).out);
  EXPECT_EQ(summary["counters"]["dtr"]["requested"]["final"], 107);
  EXPECT_EQ(summary["phases"]["forward"]["peak_bytes"], 140);
  EXPECT_FALSE(summary["counters"]["dtr"].contains("reserved"));
  EXPECT_EQ(test::run_program("liveset ledger --logical " + path).status, 0);
  EXPECT_THAT(test::run_program("liveset import " + path).out, HasSubstr("from a dtr-log file"));
}

TEST(DtrLogs, ThatMakeNoSenseAreRefusedByLine) {
  const test::TemporaryFolder folder;
  const std::string start = "{\"INSTRUCTION\":\"ANNOTATE\"}\n";
  const auto error = [&](const std::string& text) {
    const Result<DtrFacts> facts = read_dtr_log(test::written(folder, "x.log", start + text));
    return facts ? "" : facts.error().message();
  };
  EXPECT_EQ(error(""), "");
  EXPECT_THAT(error("\n{\"INSTRUCTION\": [1]}"), HasSubstr("line 3: \"\" is no instruction"));
  EXPECT_THAT(error("7"), HasSubstr("at byte 27: line 2: no JSON object"));
  EXPECT_THAT(error("{\"INSTRUCTION\":\"RELEASE\",\"NAME\":\"q\"}"), HasSubstr("RELEASE of q, which nothing made"));
  EXPECT_THAT(error("{\"INSTRUCTION\":\"COPY\",\"DST\":\"p\",\"SRC\":\"q\"}"), HasSubstr("a copy of q"));
  EXPECT_THAT(error("{\"INSTRUCTION\":\"MEMORY\",\"NAME\":\"q\",\"MEMORY\":\"8\"}"), HasSubstr("which neither"));
  EXPECT_THAT(error("{\"INSTRUCTION\":\"MEMORY\",\"NAME\":\"q\",\"MEMORY\":\"-8\"}"), HasSubstr("MEMORY is no size"));
  EXPECT_THAT(error("{\"INSTRUCTION\":\"MEMORY\",\"NAME\":\"q\",\"MEMORY\":\"9999999999999999\"}"), HasSubstr("MEMORY is no size"));
  EXPECT_THAT(error("{\"INSTRUCTION\":\"ALIAS\",\"NAME\":\"q\",\"ALIAS\":\"0\"}"), HasSubstr("ALIAS of what no CALL made"));
  const std::string call =
      "{\"INSTRUCTION\":\"CALL\",\"NAME\":\"f\",\"ARGS\":[\"z\"],\"TIME\":\"1\"}\n{\"INSTRUCTION\":\"MEMORY\",\"NAME\":\"q\",\"MEMORY\":"
      "\"8\"}\n";
  EXPECT_THAT(error(call + "{\"INSTRUCTION\":\"ALIAS\",\"NAME\":\"q\",\"ALIAS\":\"0\"}"), HasSubstr("a name that nothing made"));
  EXPECT_THAT(error(call + "{\"INSTRUCTION\":\"ALIAS\",\"NAME\":\"q\",\"ALIAS\":\"5\"}"), HasSubstr("does not have"));
  const std::string made = call + "{\"INSTRUCTION\":\"ALIAS\",\"NAME\":\"q\",\"ALIAS\":\"-1\"}\n";
  EXPECT_THAT(error(made + made), HasSubstr("the name q is given twice"));
}

// The logs lie beside the checkout, in an archive that Python unpacks. Budgets are what DTR was told; the peaks are what it took.
TEST(DtrLogs, OfPublishedModelsMeetTheirMeasuredPeaks) {
  const std::string archive = test::shared_file("acceptance/dtr/logs.zip");
  if (archive.empty()) GTEST_SKIP() << "SKIPPED: no shared/acceptance/dtr beside the checkout";
  if (!test::has_python()) GTEST_SKIP() << "SKIPPED: no python3 to unpack the logs";
  const test::TemporaryFolder folder;
  ASSERT_EQ(std::system(("python3 -m zipfile -e " + archive + " " + folder.path().string()).c_str()), 0);
  const json measured = json::parse(test::read_file(test::shared_file("acceptance/dtr/measured.json")));
  std::printf("%-13s %14s %14s %9s   budget: measured peak (gap)\n", "model", "replay bytes", "measured", "error");
  for (const json& model : measured.at("models")) {
    const std::string name = model.at("model"), path = folder.file(model.at("log").get<std::string>());
    SCOPED_TRACE(name);
    const Result<DtrFacts> facts = read_dtr_log(path);
    ASSERT_TRUE(facts) << facts.error().message();
    const json& replay = model.at("replay");
    EXPECT_EQ(facts->peak_bytes, replay.at("peak_bytes"));
    EXPECT_EQ(facts->peak_line, replay.at("peak_record_line"));
    EXPECT_EQ(facts->end_live_bytes, replay.at("end_live_bytes"));
    EXPECT_EQ(facts->end_live_names, replay.at("end_live_names"));
    EXPECT_EQ(facts->constant_bytes, replay.at("constant_bytes"));
    for (const auto& [kind, count] : model.at("records").items()) EXPECT_EQ(facts->records.at(kind), count) << kind;
    const json summary = json::parse(test::run_program("liveset summary --format json " + path).out);
    EXPECT_EQ(summary["peak"]["bytes"], replay.at("peak_bytes"));
    EXPECT_EQ(summary["counters"]["dtr"]["requested"]["final"], replay.at("end_live_bytes"));

    const json& baseline = model.at("published_baseline");
    const double peak = baseline.at("peak_allocated_bytes"), error = (static_cast<double>(facts->peak_bytes) - peak) / peak;
    const bool comparable = baseline.at("same_configuration_as_log");
    EXPECT_EQ(comparable, name == "Transformer" || name == "U-Net");
    if (comparable) {
      EXPECT_LT(std::abs(error), 0.001) << error;
    }
    std::printf("%-13s %14llu %14.0f %9s  ", name.c_str(), static_cast<unsigned long long>(facts->peak_bytes), peak,
                comparable ? (std::to_string(100 * error).substr(0, 6) + "%").c_str() : "(other)");
    for (const json& row : model.at("published_budget_runs").at("rows")) {
      const double budget = row[0].get<double>() / 1e6, took = row[1];
      std::printf(" %.0f: %.0f (%+.1f%%)", budget, took, 100 * (took - budget) / budget);
    }
    std::printf(" MB\n");
  }
}

}  // namespace
}  // namespace liveset::imports
