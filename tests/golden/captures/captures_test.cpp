// Files of every released version of the format are read as they always were. `captures_test --write` writes the
// expected files anew.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "viewer/report/event_rows.h"
#include "viewer/report/trace_info.h"

namespace liveset {
namespace {

using nlohmann::ordered_json;

const std::filesystem::path folder = LIVESET_SOURCE_DIR "/tests/golden/captures";

std::string text_of(const ordered_json& json) { return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace); }

// One line for info, one for each event: differences are easy to see.
std::string describe(const std::string& path) {
  Result<trace::TraceFile> file = trace::TraceFile::open(path);
  Result<trace::Facts> facts = trace::read_facts(path);
  if (!file || !facts) return "cannot be read";
  ordered_json info = report::info_json(*file, *facts);
  info.erase("file");
  std::string text = text_of(info) + "\n";
  const Status status = trace::for_each_event(*file, [&](const trace::Event& event) {
    text += text_of(report::event_json(file->dictionary(), event)) + "\n";
    return true;
  });
  return status ? text : status.error().message();
}

std::vector<std::filesystem::path> captures() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".liveset") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

TEST(Captures, OfEveryVersionAreStillRead) {
  EXPECT_GE(captures().size(), 1);
  for (std::filesystem::path capture : captures()) {
    const std::string is = describe(capture.string());
    const std::string expected = test::read_file(capture.replace_extension(".json").string());
    EXPECT_EQ(is, expected) << capture;
  }
}

TEST(Captures, TheFirstOneHasEveryKindOfEvent) {
  const Result<trace::TraceFile> file = trace::TraceFile::open((folder / "format-1.0.liveset").string());
  ASSERT_TRUE(file) << file.error().message();
  std::vector<bool> seen(128);
  ASSERT_TRUE(trace::for_each_event(*file, [&](const trace::Event& event) {
    seen[static_cast<std::size_t>(event.kind)] = true;
    return true;
  }));
  // FREE_COMPLETED of a block that nobody allocated is FREE_UNMATCHED.
  for (const int kind : {1, 2, 4, 5, 8, 12, 16, 17, 18, 32, 35, 36, 37, 38, 39, 40, 41, 64, 70, 74, 80}) {
    EXPECT_TRUE(seen[static_cast<std::size_t>(kind)]) << kind;
  }
  EXPECT_EQ(file->health().losses.size(), 1);
  EXPECT_EQ(file->health().implied_frees, 1);
  EXPECT_GE(file->chunks().size(), 3);
}

// What every reader of format 1.2 must find: worked out from what tests/golden/captures/make_capture.cpp writes.
TEST(Captures, TheOneOfFormat12SaysWhatItKnowsOfTensors) {
  const Result<trace::TraceFile> file = trace::TraceFile::open((folder / "format-1.2.liveset").string());
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(file->header().process.rank, 1);
  EXPECT_EQ(file->header().process.world_size, 2);
  std::vector<bool> seen(128);
  std::vector<std::string> facts;
  ASSERT_TRUE(trace::for_each_event(*file, [&](const trace::Event& event) {
    seen[static_cast<std::size_t>(event.kind)] = true;
    const ordered_json json = report::event_json(file->dictionary(), event);
    if (json.contains("dtype") || json.contains("index")) {
      facts.push_back(json.value("dtype", "-") + "/" + (json.contains("index") ? std::to_string(json["index"].get<int>()) : "-"));
    }
    return true;
  }));
  for (const int kind : {42, 43, 44, 65, 66, 67, 68, 72, 80, 82, 83}) EXPECT_TRUE(seen[static_cast<std::size_t>(kind)]) << kind;
  ASSERT_EQ(facts.size(), 18);
  for (std::size_t i = 0; i < facts.size(); i += 3) {
    EXPECT_EQ(facts[i], "bfloat16/-");
    EXPECT_EQ(facts[i + 1], "-/7");
    EXPECT_EQ(facts[i + 2], "float32/7");
  }
}

// And what every reader of format 1.3 must find: which node a block is of.
TEST(Captures, TheOneOfFormat13SaysWhichNodeABlockIsOf) {
  const Result<trace::TraceFile> file = trace::TraceFile::open((folder / "format-1.3.liveset").string());
  ASSERT_TRUE(file) << file.error().message();
  std::map<std::uint32_t, std::int64_t> next;  // of each thread
  std::vector<std::pair<std::uint32_t, std::int64_t>> blocks;
  ASSERT_TRUE(trace::for_each_event(*file, [&](const trace::Event& event) {
    if (event.kind == trace::Kind::sequence) next[event.thread] = event.number;
    if (event.kind == trace::Kind::alloc && event.size == 1024) blocks.emplace_back(event.thread, next[event.thread] - 1);
    return true;
  }));
  using Of = std::pair<std::uint32_t, std::int64_t>;
  EXPECT_THAT(blocks, testing::ElementsAre(Of{1, 40}, Of{1, 40}, Of{2, 0}, Of{2, 0}));
  EXPECT_EQ(next[1], 43);
  EXPECT_EQ(next[2], std::int64_t{1} << 40);
}

// And of format 1.4: which blocks of a node its function did not make.
TEST(Captures, TheOneOfFormat14SaysWhereAFunctionHasReturned) {
  const Result<trace::TraceFile> file = trace::TraceFile::open((folder / "format-1.4.liveset").string());
  ASSERT_TRUE(file) << file.error().message();
  bool returned = false;
  std::vector<bool> after;
  ASSERT_TRUE(trace::for_each_event(*file, [&](const trace::Event& event) {
    if (event.kind == trace::Kind::node_begin) returned = false;
    if (event.kind == trace::Kind::node_returned) returned = true;
    if (event.kind == trace::Kind::alloc && event.size == 2048) after.push_back(returned);
    return true;
  }));
  EXPECT_THAT(after, testing::ElementsAre(false, true, false, false));
}

}  // namespace
}  // namespace liveset

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  if (argc == 2 && std::string(argv[1]) == "--write") {
    for (std::filesystem::path capture : liveset::captures()) {
      const std::string text = liveset::describe(capture.string());
      liveset::test::write_file(capture.replace_extension(".json").string(), text);
    }
    return 0;
  }
  return RUN_ALL_TESTS();
}
