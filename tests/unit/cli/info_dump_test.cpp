// info and dump as a person calls them; and what every reader does with damaged files.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/fuzz/trace_mutator.h"
#include "tests/support/run_program.h"
#include "tests/support/trace_builder.h"
#include "tests/support/trace_events.h"

namespace liveset {
namespace {

using nlohmann::json;
using test::Ran;
using testing::AnyOf;
using testing::Eq;
using testing::HasSubstr;

Ran run_liveset(const std::string& arguments) { return test::run_program("liveset " + arguments); }

class InfoAndDump : public testing::Test {
 protected:
  InfoAndDump() {
    std::string error;
    auto writer = writer::TraceWriter::create(path_, test::header_info(), &error);
    writer->define_source(1, "api", "1", "the arena", "the rest");
    writer->define_string(1, "cpu/arena");
    writer->define_string(2, "encoder");
    writer->define_string(3, "h0");
    writer->define_string(4, "rows");
    writer->define_string(5, "31");
    writer->define_heap(1, 1, 0, -1, 1);
    writer->define_thread(1, 4711, "main");
    writer->define_scope(1, 0, proto::SCOPE_MODULE, 2);
    writer->define_value(1, 3, 0, 0);
    writer->append(test::event(proto::EVENT_STEP_BEGIN, 50));
    writer::Event made = test::with_totals(test::allocation(100, 0x1000, 512), 512, 4096);
    made.scope = 1;
    made.phase = proto::PHASE_FORWARD;
    writer->append(made);
    writer::Event value = test::event(proto::EVENT_VALUE_RETAIN, 150);
    const std::uint32_t reads[] = {1};
    value.value = 1;
    value.memory_class = proto::CLASS_ACTIVATION;
    value.reads = reads;
    writer->append(value);
    writer::Event attribute = test::event(proto::EVENT_ATTRIBUTE, 160);
    attribute.scope = 1;
    attribute.name = 4;
    attribute.text = 5;
    writer->append(attribute);
    writer->flush();
    writer->append(test::release(200, 0x1000));
    writer->append(test::release(1'000'300, 0x9000));
    writer->calibrate(1000, 2000);
    writer->lose(proto::Loss::RING_FULL, 7);
    writer->finish("exit");
  }
  json dump(const std::string& options) {
    const Ran ran = run_liveset("dump --format json " + options + " " + path_);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return json::parse(ran.out, nullptr, false);
  }
  std::vector<int> indices(const std::string& options) {
    std::vector<int> found;
    const json all = dump(options);
    for (const json& event : all["events"]) found.push_back(event["event"]);
    return found;
  }
  test::TemporaryFolder folder_;
  std::string path_ = folder_.file("run.liveset");
};

TEST_F(InfoAndDump, DumpJsonHasEveryFieldOfTheKind) {
  const json all = dump("");
  EXPECT_EQ(all["schema"], "liveset.dump/1");
  ASSERT_EQ(all["events"].size(), 6);
  EXPECT_EQ(all["events"][1],
            json::parse(R"({"event": 1, "time_ns": 100, "kind": "alloc", "phase": "forward", "tid": 4711, "scope": "encoder",
    "heap": "cpu/arena", "address": "0x1000", "bytes": 512, "allocation": 0, "allocator_minus_sum": 0, "reserved_change": 4096})"));
  EXPECT_EQ(all["events"][2]["kind"], "keep");
  EXPECT_EQ(all["events"][2]["value"], "h0");
  EXPECT_EQ(all["events"][2]["class"], "activation");
  EXPECT_EQ(all["events"][2]["reads"], json::parse(R"(["h0"])"));
  EXPECT_EQ(all["events"][3]["name"], "rows");
  EXPECT_EQ(all["events"][3]["text"], "31");
  EXPECT_EQ(all["events"][4]["kind"], "free_requested");
  EXPECT_EQ(all["events"][4]["allocation"], 0);
  EXPECT_EQ(all["events"][5]["kind"], "free_unmatched");
}

TEST_F(InfoAndDump, RangesSelectEvents) {
  using testing::ElementsAre;
  EXPECT_THAT(indices("--range event:1..3"), ElementsAre(1, 2));
  EXPECT_THAT(indices("--range event:4"), ElementsAre(4));
  EXPECT_THAT(indices("--range event:3.."), ElementsAre(3, 4, 5));
  EXPECT_THAT(indices("--range 150ns..1ms"), ElementsAre(2, 3, 4));
  EXPECT_THAT(indices("--range step:0..0"), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(run_liveset("dump --range step:9 " + path_).status, 2);
  EXPECT_EQ(run_liveset("dump --range nonsense " + path_).status, 2);
}

TEST_F(InfoAndDump, DumpTableKeepsWholeFieldsOnOneLine) {
  const Ran ran = run_liveset("dump " + path_);
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(std::count(ran.out.begin(), ran.out.end(), '\n'), 7);
  EXPECT_THAT(ran.out, HasSubstr("heap=cpu/arena address=0x1000 bytes=512 allocation=0 allocator_minus_sum=0 "
                                 "reserved_change=4096 in encoder\n"));
  EXPECT_THAT(ran.out, HasSubstr("value=h0 class=activation number=0 reads=[\"h0\"]\n"));
}

TEST_F(InfoAndDump, InfoJsonSaysWhereTheBytesWent) {
  const Ran ran = run_liveset("info --format json " + path_);
  EXPECT_EQ(ran.status, 0) << ran.err;
  const json info = json::parse(ran.out);
  EXPECT_EQ(info["schema"], "liveset.info/1");
  EXPECT_EQ(info["format"]["major"], 1);
  EXPECT_EQ(info["process"]["pid"], 42);
  EXPECT_EQ(info["events"], 6);
  EXPECT_EQ(info["chunks"], 2);
  EXPECT_EQ(info["sources"][0]["cannot_see"], "the rest");
  EXPECT_EQ(info["heaps"][0]["name"], "cpu/arena");
  EXPECT_EQ(info["heaps"][0]["peak_bytes"], 512);
  EXPECT_EQ(info["health"]["lost_events"], 7);
  EXPECT_EQ(info["health"]["losses"][0]["reason"], "ring_full");
  EXPECT_EQ(info["health"]["unmatched_frees"], 1);
  EXPECT_EQ(info["health"]["end"], "exit");
  EXPECT_EQ(info["columns"]["KIND"]["entries"], 6);
  std::uint64_t bytes = 0;
  for (const json& packets : info["packets"]) bytes += packets["bytes"].get<std::uint64_t>();
  EXPECT_EQ(bytes, info["file_bytes"]) << "every byte of the file is in a packet";
}

TEST_F(InfoAndDump, InfoTableIsForPeople) {
  const Ran ran = run_liveset("info " + path_);
  EXPECT_EQ(ran.status, 0);
  for (const char* text : {"1.4, written by liveset 0.1.0-test", "6 in 2 chunks, 1 allocation\n", "trainer --steps 3",
                           "pid 42, child of 7, on host", "2023-11-14 22:13:20 UTC", "cannot see", "the rest",
                           "Health: 7 events lost, 1 free without its allocation", "7 lost before event 6", "ring_full"}) {
    EXPECT_THAT(ran.out, HasSubstr(text));
  }
}

TEST_F(InfoAndDump, InfoCsvIsOneTable) {
  const std::string csv = run_liveset("info --format csv " + path_).out;
  EXPECT_EQ(csv.substr(0, 13), "figure,value\n");
  EXPECT_THAT(csv, HasSubstr("\nheaps.0.peak_bytes,512\n"));
  EXPECT_THAT(csv, HasSubstr("\nsources.0.cannot_see,the rest\n"));
  EXPECT_THAT(run_liveset("info --format md " + path_).out, HasSubstr("| heap | device |"));
}

TEST_F(InfoAndDump, InfoWrapsWhatASourceCannotSee) {
  const std::string cannot =
      "memory that a driver takes for itself, blocks of threads that were started before the recorder was loaded, and "
      "whatever a library gets from the kernel without asking the allocator";
  std::string error;
  auto writer = writer::TraceWriter::create(path_, test::header_info(), &error);
  writer->define_source(1, "api", "1", "the arena", cannot);
  writer->finish("exit");
  writer.reset();
  const std::string text = run_liveset("info " + path_).out;
  std::string joined;
  for (const char c : text) {
    if (c == '\n' || c == ' ')
      joined += joined.empty() || joined.back() == ' ' ? "" : " ";
    else
      joined += c;
  }
  EXPECT_THAT(joined, HasSubstr(cannot));
  std::size_t longest = 0, begin = text.find("source");
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) longest = std::max(longest, end - begin);
  EXPECT_LE(longest, 80U);
}

TEST_F(InfoAndDump, ANewerMajorVersionIsRefused) {
  proto::Header header = test::plain_header();
  header.set_format_major(7);
  test::write_file(path_, test::TraceBuilder().header(header).bytes());
  for (const char* command : {"info ", "dump ", "summary ", "peak ", "ledger --physical "}) {
    const Ran ran = run_liveset(command + path_);
    EXPECT_EQ(ran.status, 3);
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err,
                HasSubstr("written in format 7.4 by liveset builder; this liveset reads formats up to 1.x (use a newer liveset)\n"));
  }
}

// The exit statuses that damage leads to. That no damage goes unnoticed is what fuzz.traces proves, in thousands of
// ways.
TEST_F(InfoAndDump, DamagedFilesEndInTheStatusThatTheirsIs) {
  test::TraceMutator mutator(test::read_file(path_), 5);
  const std::string damaged = folder_.file("damaged.liveset");
  std::map<int, int> statuses;
  for (std::size_t i = 0; i < 60; ++i) {
    test::write_file(damaged, i % 2 == 0 ? mutator.cut(i, 60) : mutator.flip());
    const char* command = i % 4 < 2 ? "summary " : "dump --format json ";
    const Ran plain = run_liveset(command + damaged);
    const Ran strict = run_liveset(std::string(command) + "--strict " + damaged);
    EXPECT_THAT(plain.status, AnyOf(Eq(0), Eq(3))) << plain.err;
    EXPECT_EQ(strict.status, plain.status == 0 ? 4 : 3) << "damage is noticed: " << strict.err;
    EXPECT_EQ(std::count(strict.err.begin(), strict.err.end(), '\n'), 1) << strict.err;
    EXPECT_THAT(plain.err, AnyOf(HasSubstr("at byte "), HasSubstr("the file is empty")));
    ++statuses[plain.status];
  }
  EXPECT_GT(statuses[0], 10);
  EXPECT_GT(statuses[3], 10);
}

TEST_F(InfoAndDump, AClosedPipeEndsADumpQuietly) {
  const Ran ran = test::run_program("liveset dump " + path_ + " | head -n 1");
  EXPECT_EQ(ran.err, "");
}

}  // namespace
}  // namespace liveset
