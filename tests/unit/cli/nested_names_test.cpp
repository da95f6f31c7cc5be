// A value that a region made again has one name and one incarnation, whichever command tells of it; only some number it.
#include <gmock/gmock.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/run_program.h"
#include "tests/support/torch_trace.h"

namespace liveset {
namespace {

using nlohmann::json;
using test::TorchTrace;

json run_json(const std::string& arguments) {
  const test::Ran ran = test::run_program("liveset " + arguments + " --format json");
  EXPECT_EQ(ran.status, 0) << ran.err;
  return json::parse(ran.out, nullptr, false);
}

// One step of a region (8 KiB saved) around another one (16 KiB saved). Both are made again, the inner one after it has run forward
// inside of the outer recompute. Slots are known by their position, or (`reentrant`) the graph of each recompute is walked.
struct Nested {
  Nested(bool reentrant, bool inner_in_forward, int backwards = 1) {
    model = trace.module("M");
    outer = trace.region("checkpoint:0", model);
    block = trace.module("block", outer);
    inner = trace.region("checkpoint:1", block);
    layer = trace.module("layer", inner);
    trace.step(0);
    trace.phase = proto::PHASE_FORWARD;
    trace.begin(outer);
    trace.attribute("checkpoint", "{}");
    forward_of_outer(reentrant, 0x10000, inner_in_forward);
    trace.end(outer, 0);
    trace.graph_node("TanhBackward0", 1);
    if (!reentrant) {
      trace.use(0, outer, "TanhBackward0.result");
      trace.use(0, inner, "ExpBackward0.result");
    }
    trace.backward(1);
    for (int i = 0; i < backwards; ++i) backward(reentrant, 0x100000 * static_cast<std::uint64_t>(i + 1));
    trace.mark(proto::EVENT_BACKWARD_END);
    trace.phase = proto::PHASE_OTHER;
    for (int i = 0; i < 4; ++i) trace.mark(proto::EVENT_PHASE);
    for (const std::uint64_t address : made) trace.free(address);
    trace.mark(proto::EVENT_STEP_END, 0);
    trace.open();
  }
  void forward_of_outer(bool reentrant, std::uint64_t base, bool with_inner) {
    const bool again = trace.phase == proto::PHASE_RECOMPUTE;
    trace.make(base, 8192, block);
    if (!reentrant && !again) trace.drop(0, base, block);
    if (with_inner) trace.begin(inner);
    if (with_inner) trace.attribute("checkpoint", "{}");
    trace.make(base + 0x4000, 16384, layer);
    if (with_inner && !reentrant) trace.drop(0, base + 0x4000, layer);
    trace.free(base + 0x4000);
    output = trace.make(base + 0x8000, 100, layer);  // the inner one's output: outlives it, and dies with the outer one
    if (with_inner) trace.end(inner, outer);
    trace.free(base + 0x8000);
    if (!again) trace.free(base);
  }
  void again(bool reentrant, std::uint32_t region, std::uint64_t address, const char* slot) {
    if (reentrant)
      trace.remake(-1, address, region, slot);
    else
      trace.remake(0, address, region);
    made.push_back(address);
  }
  void backward(bool reentrant, std::uint64_t base) {
    trace.phase = proto::PHASE_BACKWARD;
    trace.node_begin("TanhBackward0", 1);
    trace.begin_again(outer);
    forward_of_outer(reentrant, base, true);
    trace.in_scope = outer;
    again(reentrant, outer, base, "TanhBackward0.result");
    trace.end_again(outer);
    trace.begin_again(inner);
    trace.make(base + 0xc000, 16384, layer);
    again(reentrant, inner, base + 0xc000, "ExpBackward0.result");
    last = trace.end_again(inner);
    trace.node_end("TanhBackward0", 1);
  }
  TorchTrace trace;
  std::uint32_t model = 0, outer = 0, block = 0, inner = 0, layer = 0;
  std::uint64_t last = 0, output = 0;
  std::vector<std::uint64_t> made;
};

using Names = std::map<std::string, std::pair<std::string, int>>;  // by name: name and incarnation

// Remade values by what each command says.
Names of_recompute(const std::string& path) {
  Names names;
  const json report = run_json("recompute " + path);
  for (const json& value : report["values"]) names[value["name"]] = {value["name"], value["incarnation"]};
  return names;
}

Names of_peak(const std::string& path, std::uint64_t event) {
  Names names;
  const json report = run_json("peak --top 100 --at " + std::to_string(event) + " " + path);
  for (const json& block : report["largest"])
    if (block["incarnation"] != 0) names[block["name"]] = {block["name"], block["incarnation"]};
  return names;
}

Names of_ledger(const std::string& path) {
  Names names;
  const json report = run_json("ledger --logical " + path);
  for (const json& event : report["events"])
    if (event["kind"] == "rerun") names[event["value"]] = {event["value"], event["incarnation"]};
  return names;
}

const Names both{{"M.block.layer/ExpBackward0.result@1", {"M.block.layer/ExpBackward0.result@1", 1}},
                 {"M.block/TanhBackward0.result@1", {"M.block/TanhBackward0.result@1", 1}}};

TEST(NestedRegions, HaveOneNameForAValueInAllReports) {
  for (const bool reentrant : {false, true}) {
    SCOPED_TRACE(reentrant);
    const Nested job(reentrant, true);
    const std::string path = job.trace.path();
    EXPECT_EQ(of_recompute(path), both);
    EXPECT_EQ(of_ledger(path), both);
    EXPECT_EQ(of_peak(path, job.last), both);
  }
}

TEST(NestedRegions, CountEveryRecompute) {
  const Nested job(false, true, 2);
  const std::string path = job.trace.path();
  Names all = both;
  for (const char* name : {"M.block.layer/ExpBackward0.result@2", "M.block/TanhBackward0.result@2"}) all[name] = {name, 2};
  EXPECT_EQ(of_recompute(path), all);
  EXPECT_EQ(of_ledger(path), all);
  EXPECT_EQ(of_peak(path, job.last), all);
}

// The outer region ran forward without a graph, so that the inner one was none there: its forward is that of the first recompute.
TEST(NestedRegions, ThatWereNoneInForwardBeginInTheRecompute) {
  const Nested job(false, false);
  const json report = run_json("recompute " + job.trace.path());
  ASSERT_EQ(report["regions"].size(), 2U);
  EXPECT_EQ(report["regions"][1]["region"], "M/checkpoint:0/block/checkpoint:1");
  EXPECT_EQ(report["regions"][1]["not_held_bytes"], 16384);
  EXPECT_EQ(report["warnings"], json::array());
  ASSERT_EQ(report["values"].size(), 2U);
  for (const json& value : report["values"]) {
    EXPECT_EQ(value["incarnation"], 1);
    EXPECT_EQ(value["matched"], "position");
  }
}

TEST(NestedRegions, LeaksCallWhatTheyMadeTheSame) {
  const Nested job(false, true);
  std::map<std::string, int> found;
  const json report = run_json("leaks " + job.trace.path());
  for (const json& value : report["values"])
    if (value["kind"] == "remade") found[value["name"]] = value["incarnation"];
  EXPECT_EQ(found, (std::map<std::string, int>{{"M.block/TanhBackward0.result@1", 1}, {"M.block.layer/ExpBackward0.result@1", 1}}));
}

// What the inner region's forward leaves inside of the outer recompute and that ends with it was temporary.
TEST(NestedRegions, OutputsInsideARecomputeAreTemporary) {
  const Nested job(false, true);
  const std::string path = job.trace.path();
  std::vector<std::int64_t> sizes;
  std::int64_t before = 0;
  const json ledger = run_json("ledger --logical " + path),
             peak = run_json("peak --top 100 --at " + std::to_string(job.output) + " " + path);
  for (const json& event : ledger.at("events")) {
    const auto live = event.at("live_bytes").get<std::int64_t>();
    if (live != before) sizes.push_back(std::abs(live - before));
    before = live;
  }
  EXPECT_THAT(sizes, testing::Each(testing::AnyOf(8192, 16384)));
  EXPECT_GE(sizes.size(), 4U);  // two values that are made again and go
  std::vector<std::string> classes;
  for (const json& block : peak.at("largest"))
    if (block.at("bytes") == 100) classes.push_back(block.at("class"));
  EXPECT_EQ(classes, std::vector<std::string>{"temporary"});
}

// A module that a region calls twice saves two values in one slot: `recompute` and the ledger number them, `peak` and `leaks` do not.
TEST(RepeatedNames, AreNumberedWhereOriginalsAreTold) {
  TorchTrace trace;
  const std::uint32_t model = trace.module("M"), region = trace.region("checkpoint:0", model), layer = trace.module("layer", region);
  const std::uint64_t forward[] = {0x10000, 0x20000}, again[] = {0x30000, 0x40000};
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  trace.begin(region);
  trace.attribute("checkpoint", "{}");
  for (int call = 0; call < 2; ++call) {
    trace.make(forward[call], 8192, layer);
    trace.drop(call, forward[call], layer);
    trace.free(forward[call]);
  }
  trace.end(region, 0);
  trace.graph_node("TanhBackward0", 2);
  trace.use(1, region, "TanhBackward0.result");
  trace.graph_node("TanhBackward0", 1);
  trace.use(0, region, "TanhBackward0.result");
  trace.backward(1);
  trace.phase = proto::PHASE_BACKWARD;
  trace.node_begin("TanhBackward0", 2);
  trace.begin_again(region);
  for (int call = 0; call < 2; ++call) {
    trace.make(again[call], 8192, layer);
    trace.remake(call, again[call], region);
  }
  const std::uint64_t last = trace.end_again(region);
  trace.node_end("TanhBackward0", 2);
  trace.node_begin("TanhBackward0", 1);
  trace.node_end("TanhBackward0", 1);
  trace.mark(proto::EVENT_BACKWARD_END);
  trace.phase = proto::PHASE_OTHER;
  for (int i = 0; i < 4; ++i) trace.mark(proto::EVENT_PHASE);
  for (const std::uint64_t address : again) trace.free(address);
  trace.mark(proto::EVENT_STEP_END, 0);
  trace.open();
  const std::string path = trace.path();
  const auto names = [&](const std::string& command, const char* list, const char* key) {
    std::vector<std::string> found;
    const json report = run_json(command + " " + path);
    for (const json& value : report.at(list))
      if (value.at("incarnation") == 1) found.push_back(value.at(key));
    return found;
  };
  const auto numbered = testing::UnorderedElementsAre("M.layer/TanhBackward0.result@1", "M.layer/TanhBackward0.result#2@1");
  const auto bare = testing::UnorderedElementsAre("M.layer/TanhBackward0.result@1", "M.layer/TanhBackward0.result@1");
  EXPECT_THAT(names("recompute", "values", "name"), numbered);
  EXPECT_THAT(names("peak --top 100 --at " + std::to_string(last), "largest", "name"), bare);
  EXPECT_THAT(names("leaks", "values", "name"), bare);
  std::set<std::string> told;
  const json ledger = run_json("ledger --logical " + path);
  for (const json& event : ledger.at("events"))
    if (event.at("kind") == "rerun") told.insert(event.at("value"));
  EXPECT_THAT(told, numbered);
}

}  // namespace
}  // namespace liveset
