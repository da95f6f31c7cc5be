// A small trace described in JSON goes in; what summary, peak and the physical ledger say of it must contain what the
// file expects. Expected objects name the fields that matter; a field that is named must be equal.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/tiny_trace.h"
#include "viewer/report/peak.h"
#include "viewer/report/physical_rows.h"

namespace liveset::report {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using test::TinyTrace;

void expect_contains(const json& actual, const json& expected, const std::string& path) {
  if (expected.is_object()) {
    ASSERT_TRUE(actual.is_object()) << path;
    for (const auto& [key, value] : expected.items()) {
      ASSERT_TRUE(actual.contains(key)) << path << " has no " << key;
      expect_contains(actual.at(key), value, path + "." + key);
    }
  } else if (expected.is_array() && !expected.empty()) {
    ASSERT_TRUE(actual.is_array()) << path;
    ASSERT_GE(actual.size(), expected.size()) << path;
    for (std::size_t i = 0; i < expected.size(); ++i) expect_contains(actual[i], expected[i], path + "[" + std::to_string(i) + "]");
  } else {
    EXPECT_EQ(actual, expected) << path;
  }
}

int number_of(const std::string& name, const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<int>(i);
  }
  ADD_FAILURE() << "no such name: " << name;
  return 0;
}

int class_number(const std::string& name) {
  for (int i = 0; i < trace::class_count; ++i) {
    if (trace::class_name(static_cast<trace::MemoryClass>(i)) == name) return i;
  }
  ADD_FAILURE() << "no such class: " << name;
  return 0;
}

int value_kind(const std::string& name) {
  static const std::map<std::string, int> kinds = {{"create", proto::EVENT_VALUE_CREATE},
                                                   {"drop", proto::EVENT_VALUE_DROP},
                                                   {"remake", proto::EVENT_VALUE_REMAKE},
                                                   {"release", proto::EVENT_VALUE_RELEASE}};
  return kinds.at(name);
}

class Described {
 public:
  explicit Described(const json& description) {
    for (const json& source : description["sources"]) trace.source(source);
    for (const json& heap : description["heaps"]) heaps_[heap] = trace.heap(heap);
    for (const json& scope : description["scopes"])
      trace.scope(number_of(scope[0], {"none", "module", "op", "region"}), scope[1], scope[2]);
    for (const json& value : description.value("values", json::array())) values_[value] = trace.value(value);
    for (const json& event : description["events"]) {
      if (event.is_array()) add(event);  // a string is a comment
    }
  }
  TinyTrace trace;

 private:
  void add(const json& event) {
    const std::string kind = event[0];
    if (kind == "alloc")
      trace.alloc(heaps_.at(event[1]), event[2], event[3]);
    else if (kind == "free")
      trace.free(heaps_.at(event[1]), event[2]);
    else if (kind == "step")
      trace.step(event[1]);
    else if (kind == "backward")
      trace.backward(event[1]);
    else if (kind == "begin")
      trace.begin(event[1]);
    else if (kind == "end")
      trace.end(event[1], event[2]);
    else if (kind == "phase")
      trace.phase = number_of(event[1], {"other", "forward", "loss", "backward", "recompute", "optimizer"});
    else if (kind == "storage")
      trace.storage(heaps_.at(event[1]), event[2], class_number(event[3]), trace.string(event[4]));
    else if (kind == "retain")
      trace.retain(heaps_.at(event[1]), event[2], class_number(event[3]), trace.string(event[4]));
    else if (kind == "value" && event.size() == 3)
      trace.value_event(value_kind(event[1]), values_.at(event[2]));
    else if (kind == "value")
      trace.value_event(value_kind(event[1]), values_.at(event[2]), heaps_.at(event[3]), event[4]);
    else
      ADD_FAILURE() << "no such event: " << kind;
  }
  std::map<std::string, std::uint32_t> heaps_, values_;
};

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, IsWhatTheReportsSay) {
  const json description = json::parse(test::read_file(std::string(LIVESET_SOURCE_DIR) + "/tests/golden/ledger/" + GetParam() + ".json"));
  Described described(description);
  const trace::TraceFile file = described.trace.open();

  const Result<Summary> summary = summarize(file, {});
  ASSERT_TRUE(summary) << summary.error().message();
  const json said = summary_json(*summary);
  expect_contains(said, description["summary"], "summary");
  std::uint64_t sum = 0;
  for (const auto& [name, bytes] : said["peak"]["classes"].items()) sum += bytes.get<std::uint64_t>();
  EXPECT_EQ(sum, said["peak"]["bytes"]);

  PeakOptions by_module;
  by_module.by = GroupBy::module;
  const Result<PeakReport> peak = build_peak(file, by_module);
  ASSERT_TRUE(peak) << peak.error().message();
  expect_contains(peak_report_json(*peak), description["peak_by_module"], "peak");

  Result<ledger::PhysicalLedger> ledger = ledger::build_physical(file);
  ASSERT_TRUE(ledger);
  std::map<std::uint64_t, json> rows;
  const Status status = for_each_physical(file, *ledger, {}, [&](const PhysicalRow& row) {
    rows[row.event] = {{"event", row.event}, {"kind", trace::kind_name(row.kind)}, {"address", row.address},
                       {"size", row.size},   {"live_blocks", row.live_blocks},     {"live_bytes", row.live_bytes}};
    return true;
  });
  ASSERT_TRUE(status);
  for (const json& row : description["physical"]) expect_contains(rows[row["event"]], row, "physical");
}

INSTANTIATE_TEST_SUITE_P(Ledger, Golden, testing::Values("checkpointed_step", "instrumented_arena"),
                         [](const auto& parameter) { return std::string(parameter.param); });

}  // namespace
}  // namespace liveset::report
