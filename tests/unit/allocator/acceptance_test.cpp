// Scripts of mallocs and frees whose every step is known.
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "tests/support/acceptance.h"
#include "viewer/allocator/caching_allocator.h"

namespace liveset::allocator {
namespace {

using nlohmann::json;

// Runs a script step by step; `check(step, allocator, names)` sees the state after each.
class Script {
 public:
  explicit Script(const json& script) : allocator_(settings(script), device(script)) {}

  static Settings settings(const json& script) {
    Result<Settings> parsed = parse_settings(script.at("settings").get<std::string>());
    EXPECT_TRUE(parsed);
    return parsed ? *parsed : Settings();
  }
  static Device device(const json& script) {
    Device device;
    if (!script.at("device_capacity").is_null()) device.capacity = script.at("device_capacity").get<std::uint64_t>();
    return device;
  }

  std::string run(const std::string& operation, const json& id, const json& size) {
    if (operation == "empty_cache") {
      allocator_.empty_cache();
      return "ok";
    }
    const auto name = id.get<std::string>();
    if (operation == "free") {
      const Handle handle = handles_[name];
      handles_.erase(name);
      if (handle == Handle()) return "ok";  // a null pointer: does nothing
      names_.erase(handle.block);
      return allocator_.free(handle) ? "ok" : "stale";
    }
    const Outcome outcome = allocator_.malloc(size.get<std::uint64_t>());
    handles_[name] = outcome.handle;
    if (outcome.kind == Outcome::Kind::ok) names_[outcome.handle.block] = name;
    return outcome.kind == Outcome::Kind::ok ? "ok" : outcome.kind == Outcome::Kind::null ? "null" : "oom";
  }

  json figures() const {
    const Counters &now = allocator_.counters(), &peak = allocator_.peaks();
    const Statistics& counts = allocator_.statistics();
    return {{"requested", now.requested},         {"allocated", now.allocated},       {"active", now.active},
            {"reserved", now.reserved},           {"peak_allocated", peak.allocated}, {"peak_reserved", peak.reserved},
            {"alloc_retries", counts.retries},    {"ooms", counts.out_of_memory},     {"device_mallocs", counts.device_mallocs},
            {"device_frees", counts.device_frees}};
  }

  json segments() const {
    json all = json::array();
    for (const Segment& segment : allocator_.segments()) {
      json blocks = json::array();
      for (const SegmentBlock& block : segment.blocks) {
        const bool live = block.state == SegmentBlock::State::live;
        blocks.push_back({live ? json(names_.at(block.handle.block)) : json(), block.size, block.requested});
      }
      all.push_back({{"segment", segment.number}, {"pool", segment.small ? "small" : "large"}, {"size", segment.size}, {"blocks", blocks}});
    }
    return all;
  }

 private:
  CachingAllocator allocator_;
  std::map<std::string, Handle> handles_;
  std::map<std::uint32_t, std::string> names_;
};

TEST(AllocatorAcceptance, CountersOfEveryStepAndTheLastSegments) {
  const json& file = test::acceptance("allocator");
  ASSERT_EQ(file.at("scripts").size(), 14U);
  std::size_t steps = 0;
  for (const json& entry : file.at("scripts")) {
    SCOPED_TRACE(entry.at("name").get<std::string>());
    Script script(entry);
    for (const json& row : entry.at("steps")) {
      const std::string result = script.run(row[0].get<std::string>(), row[1], row[2]);
      json step = script.figures();
      step["result"] = result;
      for (std::size_t column = 3; column < row.size(); ++column) {
        const auto name = file.at("columns")[column].get<std::string>();
        EXPECT_EQ(step.at(name), row[column]) << name << " after step " << steps;
      }
      ++steps;
    }
    json segments = json::array();
    for (const json& segment : script.segments())
      segments.push_back({segment.at("segment"), segment.at("pool"), segment.at("size"), segment.at("blocks")});
    EXPECT_EQ(segments, entry.at("segments"));
  }
  EXPECT_EQ(steps, 341U);
}

TEST(AllocatorAcceptance, EveryFieldOfEveryStep) {
  std::ifstream stream(std::string(LIVESET_SOURCE_DIR) + "/../shared/acceptance/allocator.json");
  if (!stream) GTEST_SKIP() << "no ../shared/acceptance/allocator.json beside this checkout";
  const json file = json::parse(stream);
  for (const json& entry : file.at("scripts")) {
    SCOPED_TRACE(entry.at("name").get<std::string>());
    Script script(entry);
    std::size_t number = 0;
    for (const json& step : entry.at("steps")) {
      json found = script.figures();
      found["result"] = script.run(step.at("op").get<std::string>(), step.value("id", json()), step.value("size", json()));
      found.update(script.figures());
      found["segments"] = script.segments();
      for (const char* name : {"op", "id", "size"}) {
        if (step.contains(name)) found[name] = step.at(name);
      }
      ASSERT_EQ(found, step) << "step " << number;
      ++number;
    }
  }
}

}  // namespace
}  // namespace liveset::allocator
