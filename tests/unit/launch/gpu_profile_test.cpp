#include "profiler/launch/gpu_profile.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"

namespace liveset::launch {
namespace {

using nlohmann::ordered_json;
using test::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string shipped = std::string(LIVESET_SOURCE_DIR) + "/hooks/standin/gpus";

ordered_json fact(ordered_json value) { return {{"value", std::move(value)}, {"source", "a test"}}; }

ordered_json whole() {
  return {{"gpu", "mine"},
          {"facts",
           {{"name", fact("NVIDIA Mine")},
            {"capability", fact("8.6")},
            {"multiprocessors", fact(28)},
            {"memory_bytes", fact(12000000000)},
            {"context_bytes", {{"value", 300000000}, {"assumed", "nobody measured"}}}}}};
}

std::string problem_of(const ordered_json& json) { return parse_gpu_profile(json.dump(), "mine.json").problem; }

TEST(GpuProfile, AWholeOne) {
  ordered_json json = whole();
  json["facts"]["attribute.16"] = {{"value", 27}, {"assumed", "one is off"}};
  const FoundProfile found = parse_gpu_profile(json.dump(), "mine.json");
  ASSERT_EQ(found.problem, "");
  EXPECT_EQ(found.profile.gpu, "mine");
  EXPECT_EQ(found.profile.name.value, "NVIDIA Mine");
  EXPECT_EQ(found.profile.capability.value, 86);
  EXPECT_EQ(found.profile.multiprocessors.value, 28);
  EXPECT_EQ(found.profile.memory_bytes.value, 12000000000);
  EXPECT_EQ(found.profile.memory_bytes.reason, "a test");
  EXPECT_EQ(found.profile.context_bytes.value, 300000000);
  EXPECT_EQ(found.profile.attributes.at(16).value, 27);
  EXPECT_THAT(found.profile.assumed(), ElementsAre("context_bytes", "attribute.16"));
}

TEST(GpuProfile, EveryFieldIsRequiredOnce) {
  for (const char* field : {"gpu", "facts"}) {
    ordered_json json = whole();
    json.erase(field);
    EXPECT_EQ(problem_of(json), std::string("mine.json: \"") + field + "\" is missing");
  }
  for (const char* field : {"name", "capability", "multiprocessors", "memory_bytes", "context_bytes"}) {
    ordered_json json = whole();
    json["facts"].erase(field);
    EXPECT_EQ(problem_of(json), std::string("mine.json: facts: \"") + field + "\" is missing");
  }
}

TEST(GpuProfile, EveryBadValueIsNamedWithItsField) {
  const std::vector<std::pair<const char*, std::vector<ordered_json>>> bad = {
      {"name", {"", 7, std::string(256, 'x'), "two\nlines", nullptr}},
      {"capability", {9.0, 90, "9", "9.", "9.0.0", "9.10", "4.9", "21.0", "x", "-9.0", ""}},
      {"multiprocessors", {0, -1, 1.5, "132", 1025, nullptr}},
      {"memory_bytes", {0, -1, 1e9, "80GiB", 18446744073709551615ULL, 17592186044417, nullptr}},
      {"context_bytes", {-1, 0.5, "0", 17592186044417}},
  };
  for (const auto& [field, values] : bad) {
    for (const ordered_json& value : values) {
      ordered_json json = whole();
      json["facts"][field]["value"] = value;
      EXPECT_THAT(problem_of(json), testing::StartsWith(std::string("mine.json: facts.") + field + ".value: must be ")) << value;
    }
  }
}

TEST(GpuProfile, ValuesUpToTheLimitsPass) {
  for (const auto& [field, value] : std::vector<std::pair<const char*, ordered_json>>{
           {"capability", "5.0"}, {"capability", "20.9"}, {"multiprocessors", 1024}, {"memory_bytes", 17592186044416}}) {
    ordered_json json = whole();
    json["facts"][field]["value"] = value;
    EXPECT_EQ(problem_of(json), "") << field << value;
  }
}

TEST(GpuProfile, WhatDecidesNothingIsNoAssumption) {
  ordered_json json = whole();
  json["facts"]["cublas_workspace_bytes"] = {{"value", 1}, {"assumed", "for comparison"}};
  EXPECT_THAT(parse_gpu_profile(json.dump(), "mine.json").profile.assumed(), ElementsAre("context_bytes"));
}

TEST(GpuProfile, AFactHasExactlyOneReason) {
  ordered_json json = whole();
  json["facts"]["name"].erase("source");
  EXPECT_THAT(problem_of(json), HasSubstr("facts.name: must have either \"source\" or \"assumed\""));
  json["facts"]["name"]["source"] = "here";
  json["facts"]["name"]["assumed"] = "there";
  EXPECT_THAT(problem_of(json), HasSubstr("facts.name: must have either"));
  json = whole();
  json["facts"]["name"]["source"] = "";
  EXPECT_EQ(problem_of(json), "mine.json: facts.name.source: must be a text that is not empty");
  json["facts"]["name"] = "NVIDIA Mine";
  EXPECT_THAT(problem_of(json), HasSubstr("facts.name: must be {\"value\""));
}

TEST(GpuProfile, NothingUnknownPasses) {
  ordered_json json = whole();
  json["colour"] = "green";
  EXPECT_EQ(problem_of(json), "mine.json: unknown field \"colour\"");
  json = whole();
  json["facts"]["clock"] = fact(1);
  EXPECT_EQ(problem_of(json), "mine.json: facts: unknown field \"clock\"");
  json = whole();
  json["facts"]["attribute.x"] = fact(1);
  EXPECT_EQ(problem_of(json), "mine.json: facts: unknown field \"attribute.x\"");
  json = whole();
  json["facts"]["name"]["unit"] = "none";
  EXPECT_EQ(problem_of(json), "mine.json: facts.name: unknown field \"unit\"");
}

TEST(GpuProfile, TheContextFitsInTheMemory) {
  ordered_json json = whole();
  json["facts"]["context_bytes"]["value"] = 12000000000;
  EXPECT_EQ(problem_of(json), "mine.json: facts.context_bytes.value: must be below memory_bytes");
}

TEST(GpuProfile, WhatIsNoJsonIsNamedWithItsLine) {
  EXPECT_EQ(parse_gpu_profile("{\n  \"gpu\": \"mine\",\n  facts\n}", "mine.json").problem, "mine.json:3: is no JSON");
  EXPECT_EQ(parse_gpu_profile("", "mine.json").problem, "mine.json:1: is no JSON");
  EXPECT_EQ(parse_gpu_profile("[]", "mine.json").problem, "mine.json: must be an object with \"gpu\" and \"facts\"");
}

TEST(GpuProfile, FilesOfTheUser) {
  const TemporaryFolder folder;
  test::write_file(folder.file("mine.json"), whole().dump());
  EXPECT_EQ(find_gpu_profile(folder.file("mine.json"), shipped).profile.name.value, "NVIDIA Mine");
  EXPECT_EQ(find_gpu_profile(folder.file("no.json"), shipped).problem, folder.file("no.json") + ": No such file or directory");
  EXPECT_EQ(find_gpu_profile("/", shipped).problem, "/: is a directory");
}

TEST(GpuProfile, AnUnknownNameListsTheKnown) {
  EXPECT_THAT(find_gpu_profile("h1000", shipped).problem,
              HasSubstr("unknown GPU \"h1000\" (known: a100-40, a100-80, b200, h100, h200, l40s, rtx4090;"));
}

// Published figures: the capability and the multiprocessors of each, and memory within what is printed on the box (in units of 10^9).
TEST(GpuProfile, TheShippedOnes) {
  struct Expected {
    const char* gpu;
    int capability, multiprocessors, gigabytes;
  };
  for (const Expected& expected : {Expected{"a100-40", 80, 108, 43},
                                   {"a100-80", 80, 108, 86},
                                   {"b200", 100, 148, 192},
                                   {"h100", 90, 132, 86},
                                   {"h200", 90, 132, 152},
                                   {"l40s", 89, 142, 52},
                                   {"rtx4090", 89, 128, 26}}) {
    const FoundProfile found = find_gpu_profile(expected.gpu, shipped);
    ASSERT_EQ(found.problem, "");
    const GpuProfile& profile = found.profile;
    EXPECT_EQ(profile.gpu, expected.gpu);
    EXPECT_EQ(profile.capability.value, expected.capability);
    EXPECT_EQ(profile.multiprocessors.value, expected.multiprocessors);
    EXPECT_LT(profile.memory_bytes.value, expected.gigabytes * 1000000000LL) << expected.gpu;
    EXPECT_GT(profile.memory_bytes.value, expected.gigabytes * 900000000LL) << expected.gpu;
    EXPECT_EQ(profile.cublas_workspace_bytes.value, expected.capability >= 90 ? 33554432 : 8519680);
    EXPECT_THAT(profile.assumed(), testing::Contains("context_bytes"));
  }
  EXPECT_EQ(gpu_profile_names(shipped).size(), 7U);
}

}  // namespace
}  // namespace liveset::launch
