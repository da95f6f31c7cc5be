#include "profiler/writer/trace_writer.h"

#include <gmock/gmock.h>

#include "tests/support/temporary_folder.h"
#include "tests/support/trace_events.h"
#include "viewer/trace/trace_file.h"

namespace liveset::writer {
namespace {

using test::allocation;
using test::event;
using test::release;
using test::with_totals;
using testing::ElementsAre;

class TraceWriterTest : public testing::Test {
 protected:
  std::unique_ptr<TraceWriter> create() {
    std::string error;
    std::unique_ptr<TraceWriter> writer = TraceWriter::create(path_, test::header_info(), &error);
    EXPECT_NE(writer, nullptr) << error;
    return writer;
  }
  trace::TraceFile open() {
    Result<trace::TraceFile> file = trace::TraceFile::open(path_);
    if (!file) throw std::runtime_error(file.error().message());
    return std::move(*file);
  }
  std::vector<trace::Event> read_events(const trace::TraceFile& file) {
    std::vector<trace::Event> events;
    const Status status = trace::for_each_event(file, [&](const trace::Event& read) {
      events.push_back(read);
      reads_.emplace_back(read.reads, read.reads + read.read_count);
      return true;
    });
    EXPECT_TRUE(status) << status.error().message();
    return events;
  }

  test::TemporaryFolder folder_;
  std::string path_ = folder_.file("run.liveset");
  std::vector<std::vector<std::uint32_t>> reads_;
};

TEST_F(TraceWriterTest, WhatIsWrittenIsReadAgain) {
  auto writer = create();
  writer->define_source(1, "api", "1", "what the program reports", "everything else");
  writer->define_string(1, "cpu/arena");
  writer->define_string(2, "encoder");
  writer->define_string(3, "h0");
  writer->define_heap(1, 1, 0, -1, 1);
  writer->define_thread(1, 4711, "main");
  writer->define_scope(1, 0, proto::SCOPE_MODULE, 2);
  writer->define_value(1, 3, 0, 0);
  Event first = with_totals(allocation(100, 0x1000, 512), 600, 4096);
  first.scope = 1;
  first.phase = proto::PHASE_FORWARD;
  first.stream = 7;
  writer->append(first);
  writer->append(allocation(150, 0x2000, 256));
  Event create_value = event(proto::EVENT_VALUE_CREATE, 160);
  const std::uint32_t reads[] = {1, 1};
  create_value.value = 1;
  create_value.heap = 1;
  create_value.address = 0x2000;
  create_value.size = 256;
  create_value.memory_class = proto::CLASS_ACTIVATION;
  create_value.number = -1;
  create_value.reads = reads;
  writer->append(create_value);
  writer->append(with_totals(release(200, 0x1000), 344, 4096));
  EXPECT_TRUE(writer->is_live(1, 0x2000));
  EXPECT_FALSE(writer->is_live(1, 0x1000));
  EXPECT_TRUE(writer->finish("exit"));

  const trace::TraceFile file = open();
  EXPECT_TRUE(file.health().has_footer);
  EXPECT_FALSE(file.health().truncated);
  EXPECT_EQ(file.health().note, "");
  EXPECT_EQ(file.health().end, "exit");
  EXPECT_EQ(file.events(), 4);
  EXPECT_EQ(file.allocations(), 2);
  EXPECT_EQ(file.end_time_ns(), 200);
  EXPECT_EQ(file.header().process.pid, 42);
  EXPECT_THAT(file.header().process.command, ElementsAre("trainer", "--steps", "3"));
  EXPECT_EQ(file.header().tool_version, "0.1.0-test");
  EXPECT_EQ(file.dictionary().string(1), "cpu/arena");
  EXPECT_EQ(file.dictionary().module_path(1), "encoder");
  EXPECT_EQ(file.dictionary().values.at(1).layer, 0);
  EXPECT_EQ(file.dictionary().threads.at(1).tid, 4711);
  EXPECT_EQ(file.dictionary().heaps.at(1).device_index, -1);
  EXPECT_EQ(file.dictionary().sources.at(1).cannot_see, "everything else");

  const std::vector<trace::Event> events = read_events(file);
  ASSERT_EQ(events.size(), 4);
  EXPECT_EQ(events[0].kind, trace::Kind::alloc);
  EXPECT_EQ(events[0].time_ns, 100);
  EXPECT_EQ(events[0].phase, trace::Phase::forward);
  EXPECT_EQ(events[0].scope, 1);
  EXPECT_EQ(events[0].address, 0x1000);
  EXPECT_EQ(events[0].size, 512);
  EXPECT_EQ(events[0].stream, 7);
  EXPECT_TRUE(events[0].has_totals);
  EXPECT_EQ(events[0].total_error, 600 - 512);
  EXPECT_EQ(events[0].reserved_delta, 4096);
  EXPECT_EQ(events[1].allocation, 1);
  EXPECT_FALSE(events[1].has_totals);
  EXPECT_EQ(events[2].kind, trace::Kind::value_create);
  EXPECT_EQ(events[2].number, -1);
  EXPECT_EQ(events[2].memory_class, trace::MemoryClass::activation);
  EXPECT_THAT(reads_[2], ElementsAre(1, 1));
  EXPECT_EQ(events[3].kind, trace::Kind::free_requested);
  EXPECT_EQ(events[3].allocation, 0);
  EXPECT_EQ(events[3].total_error, 344 - 256);
  EXPECT_EQ(events[3].reserved_delta, 0);
  ASSERT_EQ(file.chunks().size(), 1);
  ASSERT_EQ(file.chunks()[0].totals.size(), 1);
  const trace::HeapTotal& total = file.chunks()[0].totals[0];
  EXPECT_EQ(total.live_bytes, 256);
  EXPECT_EQ(total.live_blocks, 1);
  EXPECT_EQ(total.peak_bytes, 768);
  EXPECT_EQ(total.peak_event, 1);
  EXPECT_EQ(total.allocator_total, 344);
  EXPECT_EQ(total.allocator_reserved, 4096);
  EXPECT_EQ(total.baseline_bytes, 88);
}

TEST_F(TraceWriterTest, ReadsAcrossChunks) {
  auto writer = create();
  constexpr std::uint64_t count = 200'000;
  for (std::uint64_t i = 0; i < count; ++i) {
    writer->append(allocation(10 * i, 0x1000 * (i + 1), 64));
    if (i >= 70'000) writer->append(release(10 * i + 5, 0x1000 * (i - 70'000 + 1)));
  }
  EXPECT_TRUE(writer->finish("exit"));

  const trace::TraceFile file = open();
  EXPECT_EQ(file.events(), 330'000);
  EXPECT_EQ(file.allocations(), count);
  EXPECT_EQ(file.chunks().size(), 6);
  std::uint64_t next_alloc = 0, next_free = 0, next_event = 0;
  for (const trace::Event& read : read_events(file)) {
    ASSERT_EQ(read.index, next_event++);
    if (read.kind == trace::Kind::alloc) {
      ASSERT_EQ(read.allocation, next_alloc);
      ASSERT_EQ(read.address, 0x1000 * (next_alloc + 1));
      ASSERT_EQ(read.time_ns, 10 * next_alloc++);
    } else {
      ASSERT_EQ(read.kind, trace::Kind::free_requested);
      ASSERT_EQ(read.allocation, next_free++);
    }
  }
}

}  // namespace
}  // namespace liveset::writer
