// proto/FORMAT.md is true: its hex is the file that the writer makes, its tables are the schema, its Python reads what
// we read.
#include <gmock/gmock.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/example_trace.h"
#include "tests/support/opened_trace.h"
#include "tests/support/random_events.h"

namespace liveset {
namespace {

using nlohmann::json;

class FormatDocument : public test::OpenedTraceTest {
 protected:
  std::string document() { return test::read_file(LIVESET_SOURCE_DIR "/proto/FORMAT.md"); }
  // The content of the block that is fenced with this language.
  std::string block(const std::string& language) {
    const std::string text = document(), fence = "```" + language + "\n";
    const std::size_t begin = text.find(fence);
    EXPECT_NE(begin, std::string::npos);
    const std::size_t content = begin + fence.size();
    return text.substr(content, text.find("```", content) - content);
  }
};

TEST_F(FormatDocument, TheWorkedExampleIsWhatTheWriterWrites) {
  constexpr std::size_t hex_begin = 6, hex_end = 6 + 12 * 3 - 1;
  std::string shown;
  std::istringstream lines(block("hex"));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(std::stoul(line.substr(0, 4), nullptr, 16), shown.size()) << line;
    std::istringstream bytes(line.substr(hex_begin, hex_end - hex_begin));
    for (std::string byte; bytes >> byte;) shown.push_back(static_cast<char>(std::stoul(byte, nullptr, 16)));
  }
  ASSERT_TRUE(test::write_example(path_));
  EXPECT_EQ(shown, test::read_file(path_));
}

TEST_F(FormatDocument, TheTableOfKindsIsTheOneInTheCode) {
  std::map<int, std::uint32_t> shown;
  std::istringstream lines(document());
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("| ", 0) != 0) continue;
    std::istringstream cells(line.substr(2));
    std::string kinds, numbers, columns;
    std::getline(cells, kinds, '|');
    std::getline(cells, numbers, '|');
    std::getline(cells, columns, '|');
    std::uint32_t mask = 0;
    std::istringstream column_list(columns);
    for (std::string name; column_list >> name;) {
      if (name.back() == ',') name.pop_back();
      proto::ColumnId id{};
      if (proto::ColumnId_Parse("COLUMN_" + name, &id)) mask |= proto::column_bit(id);
    }
    std::istringstream kind_list(kinds);
    for (std::string name; kind_list >> name;) {
      if (name.back() == ',') name.pop_back();
      proto::EventKind kind{};
      if (proto::EventKind_Parse("EVENT_" + name, &kind)) shown[kind] = mask;
    }
  }
  for (int kind = 1; kind < proto::EventKind_ARRAYSIZE; ++kind) {
    if (!proto::EventKind_IsValid(kind)) continue;
    ASSERT_TRUE(shown.contains(kind)) << proto::EventKind_Name(static_cast<proto::EventKind>(kind));
    EXPECT_EQ(shown[kind], proto::columns_of(static_cast<std::uint8_t>(kind)))
        << proto::EventKind_Name(static_cast<proto::EventKind>(kind));
  }
}

// What the Python of the document prints for an event that our reader gives.
json expected_line(const trace::Event& event, const std::uint32_t* reads) {
  const auto kind = static_cast<std::uint8_t>(event.kind);
  const std::uint32_t columns = proto::columns_of(event.has_totals ? kind | proto::kind_has_totals : kind);
  const auto has = [columns](proto::ColumnId id) { return (columns & proto::column_bit(id)) != 0; };
  json line = {{"event", event.index}, {"time_ns", event.time_ns}, {"kind", kind},
               {"scope", event.scope}, {"thread", event.thread},   {"phase", event.phase}};
  if (has(proto::COLUMN_HEAP)) line["heap"] = event.heap;
  if (has(proto::COLUMN_STREAM)) line["stream"] = event.stream;
  if (has(proto::COLUMN_ADDRESS)) line["address"] = event.address;
  if (has(proto::COLUMN_SIZE)) line["size"] = event.size;
  if (has(proto::COLUMN_STACK)) line["stack"] = event.stack;
  if (has(proto::COLUMN_NAME)) line["name"] = event.name;
  if (has(proto::COLUMN_TEXT)) line["text"] = event.text;
  if (has(proto::COLUMN_CLASS)) line["class"] = event.memory_class;
  if (has(proto::COLUMN_VALUE)) line["value"] = event.value;
  if (has(proto::COLUMN_NUMBER)) line["number"] = event.number;
  if (has(proto::COLUMN_READS)) line["reads"] = std::vector<std::uint32_t>(reads, reads + event.read_count);
  if (event.kind == trace::Kind::alloc || has(proto::COLUMN_AGE)) line["allocation"] = event.allocation;
  if (!event.has_totals) return line;
  line["total_error"] = event.total_error;
  line["reserved_delta"] = event.reserved_delta;
  return line;
}

TEST_F(FormatDocument, ItsPythonReadsWhatWeRead) {
  if (std::system("python3 -c pass >/dev/null 2>&1") != 0) GTEST_SKIP() << "SKIPPED: no python3";
  const test::RandomEvents stream(4, 2000);
  std::string error;
  auto writer = writer::TraceWriter::create(path_, test::header_info(), &error);
  ASSERT_NE(writer, nullptr) << error;
  test::TrainPattern pattern;
  for (int i = 0; i < 3000; ++i) writer->append(pattern.next());
  writer->flush();
  for (const writer::Event& event : stream.written()) writer->append(event);
  ASSERT_TRUE(writer->finish("exit"));

  const std::string script = folder_.file("reader.py"), output = folder_.file("events.json");
  test::write_file(script, block("python"));
  ASSERT_EQ(std::system(("python3 " + script + " " + path_ + " >" + output).c_str()), 0);
  std::istringstream lines(test::read_file(output));
  const trace::TraceFile file = open_good(test::read_file(path_));
  const Status status = trace::for_each_event(file, [&](const trace::Event& event) {
    std::string line;
    EXPECT_TRUE(std::getline(lines, line));
    EXPECT_EQ(json::parse(line, nullptr, false), expected_line(event, event.reads));
    return !HasFailure();
  });
  ASSERT_TRUE(status);
  std::string rest;
  EXPECT_FALSE(std::getline(lines, rest)) << rest;
  EXPECT_EQ(file.events(), 3000 + stream.expected().size());
}

}  // namespace
}  // namespace liveset
