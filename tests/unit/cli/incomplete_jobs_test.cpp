// Jobs that ran out of memory or allocated nothing, and traces that are damaged: what summary and peak say of them.
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

Ran run_program(const std::string& arguments) { return test::run_program("liveset " + arguments); }

TEST(OutOfMemory, IsTheFirstThingSaid) {
  TinyTrace trace;
  trace.source("python");
  const auto cuda = trace.heap("cuda:0");
  trace.step(0);
  trace.phase = proto::PHASE_FORWARD;
  trace.alloc(cuda, 0x1000, 2048);
  const std::uint64_t event = trace.out_of_memory(cuda, 4096);
  trace.free(cuda, 0x1000);
  trace.open();
  for (const std::string command : {"summary ", "peak "}) {
    const std::string text = run_program(command + trace.path()).out;
    EXPECT_THAT(text, HasSubstr("OUT OF MEMORY  4.00 KiB asked of cuda:0, which had 2.00 KiB allocated"));
    EXPECT_THAT(text, HasSubstr("step 0, forward"));
    EXPECT_LT(text.find("OUT OF MEMORY"), text.find("PEAK"));
    const json said = json::parse(run_program(command + "--format json " + trace.path()).out)["out_of_memory"];
    ASSERT_EQ(said.size(), 1U);
    EXPECT_EQ(said[0]["event"], event);
    EXPECT_EQ(said[0]["asked_bytes"], 4096);
    EXPECT_EQ(said[0]["allocated_bytes"], 2048);
    EXPECT_EQ(said[0]["step"], 0);
    EXPECT_EQ(json::parse(run_program(command + "--range event:0..1 --format json " + trace.path()).out)["out_of_memory"].size(), 0U);
  }
}

TEST(NoAllocation, PeakSaysSo) {
  TinyTrace trace;
  trace.step(0);
  trace.open();
  const Ran peak = run_program("peak " + trace.path()), at = run_program("peak --at 0 " + trace.path());
  EXPECT_EQ(peak.status, 0) << peak.err;
  EXPECT_THAT(peak.out, HasSubstr("PEAK  none: the trace has no allocation"));
  EXPECT_EQ(at.status, 0) << at.err;
  EXPECT_THAT(at.out, HasSubstr("LIVE  nothing: the trace has no allocation"));
  EXPECT_THAT(at.out, Not(HasSubstr("heap 0")));
  EXPECT_TRUE(json::parse(run_program("peak --format json " + trace.path()).out)["event"].is_null());
}

// The only chunk with allocations cannot be read: what peak cannot show is the damage's doing.
TEST(DamagedChunk, IsSaidWhereNothingIsLeft) {
  TinyTrace trace;
  trace.alloc(trace.heap("cpu"), 0x1000, 10);
  const std::uint64_t offset = trace.open().chunks().at(0).offset;
  std::string bytes = test::read_file(trace.path());
  bytes[offset + 8] = static_cast<char>(bytes[offset + 8] ^ 1);
  test::write_file(trace.path(), bytes);
  const std::string place = "at byte " + std::to_string(offset) + ": ";
  const Ran peak = run_program("peak " + trace.path()), strict = run_program("peak --strict " + trace.path());
  EXPECT_EQ(peak.status, 0) << peak.err;
  EXPECT_THAT(peak.out, HasSubstr(place));
  EXPECT_EQ(strict.status, 4);
  EXPECT_THAT(strict.err, HasSubstr(place));
  EXPECT_EQ(strict.err.find("at byte"), strict.err.rfind("at byte")) << "said twice: " << strict.err;
}

}  // namespace
}  // namespace liveset
