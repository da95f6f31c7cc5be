// `liveset fragmentation`: recorded segments and simulated ones, what pins them, and traces that have neither.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support/run_program.h"
#include "tests/support/tiny_trace.h"

namespace liveset {
namespace {

using nlohmann::json;
using test::Ran;
using test::TinyTrace;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t mib = 1 << 20;

Ran run(const std::string& arguments, const std::string& path) {
  return test::run_program("liveset fragmentation " + arguments + " " + path);
}
json read(const std::string& arguments, const std::string& path) {
  const Ran ran = run(arguments + " --format json", path);
  EXPECT_EQ(ran.status, 0) << ran.err;
  return json::parse(ran.out, nullptr, false);
}

// Two segments of 20 MiB. In the first lie 6, (6) and 4 MiB, in the second nothing any more.
struct Recorded : TinyTrace {
  Recorded() {
    cuda = heap("cuda:0");
    segment(cuda, 100 * mib, 20 * mib);
    alloc(cuda, 100 * mib, 6 * mib, 6 * mib, 20 * mib);
    storage(cuda, 100 * mib, proto::CLASS_PARAMETER, string("weight"));
    alloc(cuda, 106 * mib, 6 * mib, 12 * mib, 20 * mib);
    segment(cuda, 200 * mib, 20 * mib);
    alloc(cuda, 200 * mib, 20 * mib, 32 * mib, 40 * mib);
    alloc(cuda, 112 * mib, 4 * mib, 36 * mib, 40 * mib);
    free(cuda, 106 * mib, 30 * mib, 40 * mib);
    last = free(cuda, 200 * mib, 10 * mib, 40 * mib);
    static_cast<void>(writer().finish("exit"));
  }
  std::uint32_t cuda = 0;
  std::uint64_t last = 0;
};

TEST(Fragmentation, RecordedSegments) {
  const Recorded trace;
  const json report = read("--at " + std::to_string(trace.last), trace.path());
  EXPECT_EQ(report["schema"], "liveset.fragmentation/1");
  EXPECT_EQ(report["layout"], "recorded");
  EXPECT_EQ(report["heap"], "cuda:0");
  EXPECT_EQ(report["counters"], (json{{"requested", nullptr}, {"allocated", 10 * mib}, {"active", 10 * mib}, {"reserved", 40 * mib}}));
  EXPECT_EQ(report["free_bytes"], 30 * mib);
  EXPECT_EQ(report["unpinned_bytes"], 20 * mib);
  EXPECT_EQ(report["largest_free"], 20 * mib);
  ASSERT_EQ(report["segments"].size(), 2U);
  const json& pinned = report["segments"][0];  // first, although it has less free
  EXPECT_EQ(pinned["segment"], 0);
  EXPECT_EQ(pinned["address"], 100 * mib);
  EXPECT_EQ(pinned["used"], 10 * mib);
  EXPECT_EQ(pinned["free_bytes"], 10 * mib);
  EXPECT_EQ(pinned["largest_free"], 6 * mib);  // 6 between, 4 at the end
  EXPECT_EQ(pinned["blocks"], 2);
  ASSERT_EQ(pinned["pinned_by"].size(), 2U);
  EXPECT_EQ(pinned["pinned_by"][0]["bytes"], 6 * mib);
  EXPECT_EQ(pinned["pinned_by"][0]["class"], "parameter");
  EXPECT_EQ(pinned["pinned_by"][0]["names"], json::array({"weight"}));
  EXPECT_EQ(pinned["pinned_by"][1]["address"], 112 * mib);
  EXPECT_EQ(report["segments"][1]["largest_free"], 20 * mib);
  EXPECT_EQ(report["free_is_at_most"], false);
  // Reserved is at 40 MiB from event 5 on, with 32 MiB in blocks; one event later they are 36.
  const json peak = read("", trace.path());
  EXPECT_EQ(peak["event"], 6);
  EXPECT_EQ(peak["counters"]["allocated"], 36 * mib);
  // A range that opens where blocks are at their most shows that event, not a later one.
  EXPECT_EQ(read("--range event:6..9", trace.path())["event"], 6);
  EXPECT_EQ(read("--simulate", trace.path())["event"], 6);

  const Ran text = run("--at " + std::to_string(trace.last), trace.path());
  EXPECT_THAT(text.out, HasSubstr("layout: the allocator's own segments, as recorded"));
  EXPECT_THAT(text.out, HasSubstr("free: 30.00 MiB (75.0% of reserved), of it 20.00 MiB in segments that nothing lives in"));
  EXPECT_THAT(text.out, HasSubstr("weight"));
  EXPECT_THAT(run("--format csv --at " + std::to_string(trace.last), trace.path()).out,
              HasSubstr("0,large,20971520,10485760,10485760,6291456,2,104857600,0,no"));
}

TEST(Fragmentation, SimulatedInsteadSaysSo) {
  const Recorded trace;
  const json report = read("--simulate --at " + std::to_string(trace.last), trace.path());
  EXPECT_EQ(report["layout"], "simulated");
  EXPECT_EQ(report["counters"]["requested"], nullptr);  // the trace has blocks, not requests
  EXPECT_EQ(report["counters"]["reserved"], 40 * mib);
  EXPECT_EQ(report["peaks"]["reserved"], (json{{"bytes", 40 * mib}, {"event", 5}}));
  EXPECT_EQ(report["segments"][0]["largest_free"], 6 * mib);
  EXPECT_EQ(report["device"], (json{{"mallocs", 2}, {"frees", 0}, {"retries", 0}, {"out_of_memory", 0}}));
  // One range of pages of 20 MiB instead: 6, 6, 20 and 4 MiB take two of them.
  const json expandable = read("--alloc-conf expandable_segments:True", trace.path());
  EXPECT_EQ(expandable["settings"], "expandable_segments:True");
  EXPECT_EQ(expandable["peaks"]["reserved"]["bytes"], 40 * mib);
  ASSERT_EQ(expandable["segments"].size(), 1U);
  EXPECT_EQ(expandable["segments"][0]["expandable"], true);
  const json small = read("--capacity 30MiB", trace.path());
  EXPECT_EQ(small["device"]["out_of_memory"], 1);
  EXPECT_THAT(small["warnings"].dump(), HasSubstr("no memory for 1 allocation"));
  // Who reads from the top reads first that the figures are not of the whole job.
  for (const std::string capacity : {"30MiB", "1MiB"}) {
    const std::string text = run("--capacity " + capacity, trace.path()).out;
    EXPECT_EQ(text.find("OUT OF MEMORY  the simulated device has no memory for "), 0U) << text;
    EXPECT_EQ(text.find("has no memory for ", 60), std::string::npos) << "said once: " << text;
    EXPECT_THAT(run("--format md --capacity " + capacity, trace.path()).out, testing::StartsWith("- out of memory: the simulated device"));
  }
  EXPECT_THAT(run("--capacity 80GiB", trace.path()).out, testing::StartsWith("PEAK"));
  EXPECT_THAT(run("--simulate", trace.path()).out, HasSubstr("layout: simulated, PyTorch's CUDA caching allocator, default settings"));
}

// A CPU heap has no segments: what a GPU's allocator would make of it. Requests are known there.
TEST(Fragmentation, CpuHeap) {
  TinyTrace trace;
  const auto cpu = trace.heap("cpu");
  trace.alloc(cpu, 0x1000, 1000);
  trace.alloc(cpu, 0x2000, 700);
  trace.free(cpu, 0x1000);
  static_cast<void>(trace.writer().finish("exit"));
  const json report = read("", trace.path());
  EXPECT_EQ(report["layout"], "simulated");
  EXPECT_EQ(report["peaks"]["reserved"], (json{{"bytes", 2 * mib}, {"event", 0}}));  // at once
  EXPECT_EQ(report["event"], 1);                                                     // and is fullest with both blocks
  EXPECT_EQ(report["peaks"]["requested"], (json{{"bytes", 1700}, {"event", 1}}));
  EXPECT_EQ(report["peaks"]["allocated"], (json{{"bytes", 2048}, {"event", 1}}));
  const json last = read("--at 2", trace.path());
  EXPECT_EQ(last["counters"], (json{{"requested", 700}, {"allocated", 1024}, {"active", 1024}, {"reserved", 2 * mib}}));
  EXPECT_EQ(last["segments"][0]["pool"], "small");
  EXPECT_EQ(last["segments"][0]["largest_free"], 2 * mib - 2048);
  EXPECT_EQ(last["segments"][0]["pinned_by"][0]["requested"], 700);
}

// Pages that are mapped one after the other are one range; one that goes from the middle makes two.
TEST(Fragmentation, RecordedExpandableSegments) {
  TinyTrace trace;
  const auto cuda = trace.heap("cuda:0");
  const auto pages = [&](int kind, std::uint64_t address, std::uint64_t bytes) {
    auto made = test::allocation(0, address, bytes, cuda);
    made.kind = static_cast<std::uint8_t>(kind);
    return trace.add(made);
  };
  pages(proto::EVENT_SEGMENT_MAP, 100 * mib, 20 * mib);
  pages(proto::EVENT_SEGMENT_MAP, 120 * mib, 40 * mib);
  const auto across = trace.alloc(cuda, 110 * mib, 20 * mib);
  trace.free(cuda, 110 * mib);
  trace.alloc(cuda, 150 * mib, 4 * mib);
  const auto cut = pages(proto::EVENT_SEGMENT_UNMAP, 120 * mib, 20 * mib);
  static_cast<void>(trace.writer().finish("exit"));
  const json whole = read("--at " + std::to_string(across), trace.path());
  ASSERT_EQ(whole["segments"].size(), 1U);
  EXPECT_EQ(whole["segments"][0]["bytes"], 60 * mib);
  EXPECT_EQ(whole["segments"][0]["used"], 20 * mib);
  EXPECT_EQ(whole["segments"][0]["largest_free"], 30 * mib);
  EXPECT_EQ(whole["segments"][0]["pool"], nullptr);
  const json two = read("--at " + std::to_string(cut), trace.path());
  ASSERT_EQ(two["segments"].size(), 2U);
  EXPECT_EQ(two["segments"][0]["address"], 140 * mib);
  EXPECT_EQ(two["segments"][0]["largest_free"], 10 * mib);
  EXPECT_EQ(two["segments"][0]["free_bytes"], 16 * mib);
  EXPECT_EQ(two["unpinned_bytes"], 20 * mib);
}

// A trace that states no counters, but segments: all are there before the first block, as in an imported snapshot.
TEST(Fragmentation, OfSegmentsTheFullestMomentIsShown) {
  TinyTrace trace;
  const auto cuda = trace.heap("cuda:0");
  trace.segment(cuda, 100 * mib, 20 * mib);
  trace.segment(cuda, 200 * mib, 20 * mib);
  trace.alloc(cuda, 100 * mib, 6 * mib);
  const auto fullest = trace.alloc(cuda, 200 * mib, 8 * mib);
  trace.free(cuda, 100 * mib);
  const auto later = trace.alloc(cuda, 108 * mib, 2 * mib);
  trace.segment(cuda, 300 * mib, 2 * mib);
  trace.segment(cuda, 300 * mib, 2 * mib, true);
  trace.alloc(cuda, 100 * mib, 8 * mib);
  static_cast<void>(trace.writer().finish("exit"));
  // 42 MiB are reserved at one event alone, with 10 MiB in blocks.
  const json whole = read("", trace.path());
  EXPECT_EQ(whole["event"], later + 1);
  EXPECT_EQ(whole["counters"]["allocated"], 10 * mib);
  EXPECT_EQ(whole["counters"]["reserved"], 42 * mib);
  const json before = read("--range event:0.." + std::to_string(later + 1), trace.path());
  EXPECT_EQ(before["event"], fullest);
  EXPECT_EQ(before["counters"]["allocated"], 14 * mib);
  EXPECT_EQ(before["free_bytes"], 26 * mib);
}

// record_stream: freed, but not to be used yet.
TEST(Fragmentation, BlocksThatWaitForAStream) {
  TinyTrace trace;
  const auto cuda = trace.heap("cuda:0");
  trace.segment(cuda, 100 * mib, 20 * mib);
  trace.alloc(cuda, 100 * mib, 6 * mib);
  auto freed = test::release(0, 100 * mib, cuda);
  freed.completes_later = true;
  const auto requested = trace.add(freed);
  auto completed = test::release(0, 100 * mib, cuda);
  completed.kind = static_cast<std::uint8_t>(proto::EVENT_FREE_COMPLETED);
  const auto done = trace.add(completed);
  static_cast<void>(trace.writer().finish("exit"));
  for (const std::string more : {"", " --simulate"}) {
    const json waits = read("--at " + std::to_string(requested) + more, trace.path());
    EXPECT_EQ(waits["counters"]["allocated"], 0) << more;
    EXPECT_EQ(waits["counters"]["active"], 6 * mib) << more;
    EXPECT_EQ(waits["segments"][0]["largest_free"], 14 * mib) << more;
    EXPECT_EQ(waits["segments"][0]["pinned_by"][0]["pending"], true) << more;
    const json free = read("--at " + std::to_string(done) + more, trace.path());
    EXPECT_EQ(free["counters"]["active"], 0) << more;
    EXPECT_EQ(free["unpinned_bytes"], 20 * mib) << more;
  }
}

// Ranges that overlap, end beyond all addresses or are given back twice; blocks in none.
TEST(Fragmentation, SegmentsThatContradictEachOther) {
  TinyTrace trace;
  const auto cuda = trace.heap("cuda:0");
  trace.segment(cuda, 100 * mib, 20 * mib);
  trace.segment(cuda, 110 * mib, 20 * mib);
  trace.segment(cuda, ~std::uint64_t{0} - 10, ~std::uint64_t{0});
  trace.alloc(cuda, 115 * mib, 100 * mib);
  trace.alloc(cuda, 118 * mib, 1 * mib);
  trace.alloc(cuda, 900 * mib, 1 * mib);
  trace.segment(cuda, 105 * mib, 1 * mib, true);
  const auto last = trace.segment(cuda, 300 * mib, 1 * mib, true);
  static_cast<void>(trace.writer().finish("exit"));
  const json report = read("--at " + std::to_string(last), trace.path());
  std::uint64_t sum = 0;
  for (const json& segment : report["segments"]) {
    EXPECT_EQ(segment["used"].get<std::uint64_t>() + segment["free_bytes"].get<std::uint64_t>(), segment["bytes"].get<std::uint64_t>());
    sum += segment["bytes"].get<std::uint64_t>();
  }
  EXPECT_EQ(report["counters"]["reserved"], sum);
  EXPECT_THAT(report["warnings"].dump(), HasSubstr("1 block (1.00 MiB) in segments that the trace does not show"));
}

TEST(Fragmentation, NothingToShowAndBadArguments) {
  TinyTrace empty;
  empty.step(0);
  static_cast<void>(empty.writer().finish("exit"));
  EXPECT_THAT(run("", empty.path()).out, HasSubstr("none: the trace has no allocation"));
  EXPECT_EQ(read("", empty.path())["event"], nullptr);
  EXPECT_EQ(read("", empty.path())["segments"], json::array());
  const Recorded trace;
  const std::pair<std::string, std::string> wrong[] = {{"--at 999", "the trace has no event 999"},
                                                       {"--heap tpu", "no heap"},
                                                       {"--alloc-conf max_split_size_mb:1", "less than 20"},
                                                       {"--alloc-conf speed:1", "no setting that is known"},
                                                       {"--capacity none", "is no size"},
                                                       {"--at x", "--at"}};
  for (const auto& [arguments, message] : wrong) {
    const Ran ran = run(arguments, trace.path());
    EXPECT_EQ(ran.status, 2) << arguments;
    EXPECT_THAT(ran.err, HasSubstr(message)) << arguments;
    EXPECT_EQ(ran.out, "");
  }
}

}  // namespace
}  // namespace liveset
