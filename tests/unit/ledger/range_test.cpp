#include "viewer/ledger/range.h"

#include <gtest/gtest.h>

#include "tests/support/tiny_trace.h"

namespace liveset::ledger {
namespace {

using test::TinyTrace;

std::string problem(const std::string& text) {
  const Result<RangeSpec> spec = parse_range(text);
  if (spec) return "";
  EXPECT_EQ(spec.error().kind, ErrorKind::usage);
  return spec.error().what;
}

TEST(RangeText, HasThreeForms) {
  const auto step = parse_range("step:2..5");
  ASSERT_TRUE(step);
  EXPECT_EQ(step->unit, RangeSpec::Unit::step);
  EXPECT_EQ(step->from, 2);
  EXPECT_EQ(step->to, 5);
  const auto time = parse_range("1.5s..2000ms");
  ASSERT_TRUE(time);
  EXPECT_EQ(time->from, 1'500'000'000);
  EXPECT_EQ(time->to, 2'000'000'000);
  const auto event = parse_range("event:10..20");
  ASSERT_TRUE(event);
  EXPECT_EQ(event->from, 10);
  EXPECT_EQ(event->to, 20);
}

TEST(RangeText, TimesAreExact) {
  const auto range = parse_range("8640000.123456789s..9000000.0000000014s");  // 100 days; digits below a nanosecond are cut
  ASSERT_TRUE(range);
  EXPECT_EQ(range->from, 8'640'000'123'456'789);
  EXPECT_EQ(range->to, 9'000'000'000'000'001);
  EXPECT_TRUE(parse_range("0..3us"));
  EXPECT_EQ(parse_range(".5us..1us")->from, 500);
}

TEST(RangeText, OneStepOneEventAndOpenEnds) {
  EXPECT_EQ(parse_range("step:3")->to, 3);
  EXPECT_EQ(parse_range("event:3")->to, 4);
  EXPECT_LT(parse_range("step:..3")->from, 0);
  EXPECT_GT(parse_range("event:7..")->to, 1'000'000'000'000);
}

TEST(RangeText, MistakesAreSaid) {
  for (const char* text : {"3", "1s", "step:", "step:a..b", "step:1...2", "event:1,2", "1..2", "1m..2m", "1.2.3s..4s", "s..1s",
                           "steps:1..2", "event:5..5", "step:4..3", "2s..1s"})
    EXPECT_NE(problem(text), "") << text;
}

struct ThreeSteps : testing::Test {
  ThreeSteps() {
    const auto heap = trace.heap("cpu");
    trace.alloc(heap, 0x1000, 1);  // 0
    trace.step(0);                 // 1
    trace.alloc(heap, 0x2000, 1);  // 2
    trace.step(1);                 // 3
    trace.alloc(heap, 0x3000, 1);  // 4
    trace.step(2);                 // 5
    trace.alloc(heap, 0x4000, 1);  // 6
  }
  std::pair<std::uint64_t, std::uint64_t> events(const std::string& text) {
    if (!file) file.emplace(trace.open());
    const Result<Range> range = resolve_range(*file, text);
    if (!range) return {no_event, no_event};
    return {range->first, range->end};
  }
  TinyTrace trace;
  std::optional<trace::TraceFile> file;
};
using Events = std::pair<std::uint64_t, std::uint64_t>;

TEST_F(ThreeSteps, StepsAreInclusiveAndEndWhereTheNextBegins) {
  EXPECT_EQ(events("step:0"), Events(1, 3));
  EXPECT_EQ(events("step:0..1"), Events(1, 5));
  EXPECT_EQ(events("step:1..2"), Events(3, Range::open_end));
  EXPECT_EQ(events("step:..1"), Events(1, 5));
  EXPECT_EQ(events("step:2..99"), Events(5, Range::open_end));
}

TEST_F(ThreeSteps, EventsAndTimesAreHalfOpen) {
  EXPECT_EQ(events("event:2..4"), Events(2, 4));
  EXPECT_EQ(events("2us..4us"), Events(2, 4));  // an event a microsecond
  EXPECT_EQ(events("1001ns..4001ns"), Events(2, 5));
  EXPECT_EQ(events("0..100s"), Events(0, 7));
  EXPECT_EQ(events(""), Events(0, Range::open_end));
}

TEST_F(ThreeSteps, WhatIsNotThereIsAUsageErrorThatSaysWhatIs) {
  events("");
  for (const char* text : {"step:3..9", "event:7..9", "7us..9us", "100s..200s"}) {
    const Result<Range> range = resolve_range(*file, text);
    ASSERT_FALSE(range) << text;
    EXPECT_EQ(range.error().kind, ErrorKind::usage);
    EXPECT_NE(range.error().hint, "");
  }
  EXPECT_EQ(resolve_range(*file, "step:3").error().hint, "its steps are 0..2");
}

TEST(StepRange, AnEndedStepEndsThere) {
  TinyTrace trace;
  const auto heap = trace.heap("cpu");
  trace.step(5);                         // 0
  trace.mark(proto::EVENT_STEP_END, 5);  // 1
  trace.alloc(heap, 0x1000, 1);          // 2
  const trace::TraceFile file = trace.open();
  const Result<Range> range = resolve_range(file, "step:5");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->end, 2U);
}

TEST(StepRange, ATraceWithoutStepsSaysSo) {
  TinyTrace trace;
  trace.alloc(trace.heap("cpu"), 0x1000, 1);
  const trace::TraceFile file = trace.open();
  const Result<Range> range = resolve_range(file, "step:0");
  ASSERT_FALSE(range);
  EXPECT_NE(range.error().what.find("no steps"), std::string::npos);
}

}  // namespace
}  // namespace liveset::ledger
