// A disk that is full: nothing is written twice, nothing half; what was lost is said, in room that was kept for it.
#include <gmock/gmock.h>

#include <sys/resource.h>
#include <csignal>

#include "profiler/writer/trace_writer.h"
#include "tests/support/opened_trace.h"
#include "tests/support/small_disk.h"
#include "tests/support/trace_events.h"
#include "tests/support/train_pattern.h"

namespace liveset::writer {
namespace {

class DiskFull : public test::OpenedTraceTest {
 protected:
  std::unique_ptr<TraceWriter> create() {
    std::string error;
    return TraceWriter::create(std::make_unique<test::SmallDiskSink>(disk_), "disk", test::header_info(), &error);
  }
  void append(TraceWriter& writer, int events) {
    for (int i = 0; i < events; ++i) writer.append(pattern_.next());
  }
  // The file's events must be the first ones of the pattern, whatever was lost.
  void expect_prefix(const trace::TraceFile& file) {
    test::TrainPattern again;
    for (const trace::Event& event : events_of(file)) {
      const Event& expected = again.next();
      ASSERT_EQ(static_cast<int>(event.kind), expected.kind);
      ASSERT_EQ(event.time_ns, expected.time_ns);
      ASSERT_EQ(event.size, event.kind == trace::Kind::alloc ? expected.size : 0);
    }
  }

  test::SmallDisk disk_;
  test::TrainPattern pattern_;
};

TEST_F(DiskFull, LossAndFooterAreWrittenInTheRoomThatWasKept) {
  disk_.capacity = 1 << 20;
  auto writer = create();
  append(*writer, 1'000'000);
  EXPECT_FALSE(writer->finish("exit")) << "the file is not whole";
  EXPECT_LE(disk_.content.size(), disk_.capacity);
  const trace::TraceFile file = open_good(disk_.content);
  EXPECT_TRUE(file.health().has_footer);
  EXPECT_FALSE(file.health().truncated);
  EXPECT_EQ(file.events() % 65536, 0);
  EXPECT_GT(file.events(), 400'000);
  EXPECT_EQ(file.events() + file.health().lost_events, 1'000'000);
  EXPECT_EQ(writer->lost_events(), file.health().lost_events);
  EXPECT_EQ(writer->events(), file.events());
  ASSERT_EQ(file.health().losses.size(), 1);
  EXPECT_EQ(file.health().losses[0].reason, proto::Loss::DISK_FULL);
  EXPECT_EQ(file.health().losses[0].before_event, file.events());
  EXPECT_EQ(file.health().losses[0].time_ns, file.end_time_ns());
  expect_prefix(file);
}

TEST_F(DiskFull, WhatWaitsIsWrittenWhenThereIsRoomAgain) {
  disk_.capacity = 64 << 10;
  auto writer = create();
  append(*writer, 300'000);
  writer->flush();
  EXPECT_LE(disk_.content.size(), disk_.capacity);
  const trace::TraceFile so_far = open_good(disk_.content);
  EXPECT_EQ(so_far.events(), 0);
  disk_.capacity = 64 << 20;
  writer->flush();
  append(*writer, 1000);
  EXPECT_TRUE(writer->finish("exit"));
  const trace::TraceFile file = open_good(disk_.content);
  EXPECT_EQ(file.events(), 301'000);
  EXPECT_EQ(file.health().lost_events, 0);
  expect_prefix(file);
}

TEST_F(DiskFull, WhatWaitsIsBoundedAndTheFileStaysAPrefix) {
  disk_.capacity = 10 << 20;
  auto writer = create();
  // Events of some 200 KB that do not compress: 32 MiB of them may wait.
  test::Random random(1);
  std::vector<std::uint32_t> reads(50'000);
  std::int64_t count = 0;
  const auto append_large = [&](int events) {
    for (int i = 0; i < events; ++i) {
      for (std::uint32_t& value : reads) value = static_cast<std::uint32_t>(random.next() >> 32);
      Event use = test::event(proto::EVENT_VALUE_USE, 1);
      use.number = count++;
      use.reads = reads;
      writer->append(use);
    }
  };
  append_large(300);
  writer->append(test::allocation(2, 0x1000, 8));
  const std::uint64_t lost_early = writer->lost_events();
  EXPECT_GT(lost_early, 20);
  EXPECT_LT(lost_early, 150);
  EXPECT_TRUE(writer->is_live(1, 0x1000)) << "it goes on answering";
  // There is room again, but events in between are gone: nothing may follow them.
  disk_.capacity = 1 << 30;
  writer->flush();
  append_large(10);
  EXPECT_FALSE(writer->finish("exit"));
  const trace::TraceFile file = open_good(disk_.content);
  EXPECT_EQ(file.health().lost_events, lost_early + 10);
  EXPECT_EQ(file.events() + file.health().lost_events, 311);
  std::int64_t next = 0;
  for (const trace::Event& event : events_of(file)) EXPECT_EQ(event.number, next++);
}

TEST_F(DiskFull, WithoutReservationTheFileIsStillAValidPrefix) {
  disk_.capacity = 1 << 20;
  disk_.can_reserve = false;
  auto writer = create();
  append(*writer, 1'000'000);
  EXPECT_FALSE(writer->finish("exit"));
  const trace::TraceFile file = open_good(disk_.content);
  EXPECT_GT(file.events(), 400'000);
  EXPECT_EQ(file.health().damaged_packets, 0);
  expect_prefix(file);
}

TEST_F(DiskFull, NoRoomForTheHeader) {
  disk_.capacity = 100;
  std::string error;
  EXPECT_EQ(TraceWriter::create(std::make_unique<test::SmallDiskSink>(disk_), "disk", test::header_info(), &error), nullptr);
  EXPECT_THAT(error, testing::HasSubstr("disk full"));
  EXPECT_TRUE(disk_.content.empty());
}

TEST_F(DiskFull, LossesThatTheCallerStatesAreAddedToThoseOfTheDisk) {
  disk_.capacity = 64 << 10;
  auto writer = create();
  writer->lose(proto::Loss::RING_FULL, 5);
  append(*writer, 100'000);
  writer->finish("killed");
  const trace::TraceFile file = open_good(disk_.content);
  EXPECT_EQ(file.health().lost_events, 100'005);
  EXPECT_EQ(file.health().losses.size(), 2);
  EXPECT_EQ(file.health().end, "killed");
}

// The real thing: a file size limit fails writes in the middle, as a full disk does on a file system that cannot
// reserve.
TEST_F(DiskFull, AFileSizeLimitLeavesNoTornPacket) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 300 << 10;
  std::string error;
  auto writer = TraceWriter::create(path_, test::header_info(), &error);
  ASSERT_NE(writer, nullptr) << error;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  append(*writer, 500'000);
  const bool whole = writer->finish("exit");
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_FALSE(whole);
  const Result<trace::TraceFile> file = trace::TraceFile::open(path_);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_GT(file->events(), 65536);
  EXPECT_EQ(file->health().damaged_packets, 0);
  EXPECT_EQ(file->health().readable_bytes, file->file_bytes()) << "nothing half-written at the end";
  expect_prefix(*file);
}

}  // namespace
}  // namespace liveset::writer
