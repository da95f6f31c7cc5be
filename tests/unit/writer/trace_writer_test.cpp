#include "profiler/writer/trace_writer.h"

#include <gmock/gmock.h>

#include <map>

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
  static proto::Footer footer_of(const std::string& bytes) {
    proto::Trace trace;
    EXPECT_TRUE(trace.ParseFromString(bytes));
    return trace.packet(trace.packet_size() - 1).footer();
  }
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

TEST_F(TraceWriterTest, AFreeOfWhatWasNotSeenIsUnmatched) {
  auto writer = create();
  Event unseen = release(10, 0x9000);
  unseen.size = 77;
  writer->append(unseen);
  writer->append(allocation(20, 0x1000, 8, 1));
  writer->append(release(30, 0x1000, 2));  // the same address in another heap
  EXPECT_TRUE(writer->is_live(1, 0x1000));
  writer->finish("exit");
  const trace::TraceFile file = open();
  const std::vector<trace::Event> events = read_events(file);
  EXPECT_EQ(events[0].kind, trace::Kind::free_unmatched);
  EXPECT_EQ(events[0].address, 0x9000);
  EXPECT_EQ(events[0].size, 77);
  EXPECT_EQ(events[2].kind, trace::Kind::free_unmatched);
  EXPECT_EQ(events[2].heap, 2);
  EXPECT_EQ(file.health().unmatched_frees, 2);
}

TEST_F(TraceWriterTest, AnAllocationOverALiveBlockImpliesItsFree) {
  auto writer = create();
  writer->append(allocation(10, 0x1000, 8));
  writer->append(allocation(20, 0x1000, 16));
  writer->append(release(30, 0x1000));
  writer->finish("exit");
  const trace::TraceFile file = open();
  const std::vector<trace::Event> events = read_events(file);
  ASSERT_EQ(events.size(), 4);
  EXPECT_EQ(events[1].kind, trace::Kind::free_requested);
  EXPECT_EQ(events[1].allocation, 0);
  EXPECT_EQ(events[1].time_ns, 20);
  EXPECT_EQ(events[2].kind, trace::Kind::alloc);
  EXPECT_EQ(events[3].allocation, 1);
  EXPECT_EQ(file.health().implied_frees, 1);
  EXPECT_EQ(file.chunks().back().totals.at(0).live_bytes, 0);
  EXPECT_EQ(file.chunks().back().totals.at(0).peak_bytes, 16);
}

TEST_F(TraceWriterTest, AFreeThatCompletesLaterFindsItsBlockTwice) {
  auto writer = create();
  writer->append(allocation(10, 0x1000, 8));
  Event requested = release(20, 0x1000);
  requested.completes_later = true;
  writer->append(requested);
  writer->append(allocation(30, 0x2000, 8));
  Event completed = release(40, 0x1000);
  completed.kind = proto::EVENT_FREE_COMPLETED;
  writer->append(completed);
  writer->append(completed);
  writer->finish("exit");
  const std::vector<trace::Event> events = read_events(open());
  EXPECT_EQ(events[1].kind, trace::Kind::free_requested);
  EXPECT_EQ(events[1].allocation, 0);
  EXPECT_EQ(events[3].kind, trace::Kind::free_completed);
  EXPECT_EQ(events[3].allocation, 0);
  EXPECT_EQ(events[4].kind, trace::Kind::free_unmatched);
}

TEST_F(TraceWriterTest, TimeNeverRunsBackwards) {
  auto writer = create();
  for (const std::uint64_t time : std::vector<std::uint64_t>{100, 90, 100, 1'000'000'000'000, 5})
    writer->append(event(proto::EVENT_STEP_BEGIN, time));
  writer->finish("exit");
  std::vector<std::uint64_t> times;
  for (const trace::Event& read : read_events(open())) times.push_back(read.time_ns);
  EXPECT_THAT(times, ElementsAre(100, 100, 100, 1'000'000'000'000, 1'000'000'000'000));
}

TEST_F(TraceWriterTest, ConservationIsAgainstWhatTheHeapBeganWith) {
  auto writer = create();
  writer->append(with_totals(allocation(1, 0x1000, 100), 1100, 0));  // the allocator had 1,000 bytes out before
  writer->append(with_totals(allocation(2, 0x2000, 50), 1150, 0));
  writer->append(with_totals(release(3, 0x1000), 1049, 0));  // one byte less than it should be
  writer->append(with_totals(release(4, 0x2000), 1000, 0));
  writer->finish("exit");
  const proto::Footer footer = footer_of(test::read_file(path_));
  EXPECT_EQ(footer.conservation_mismatches(), 1);
  EXPECT_EQ(footer.total(0).baseline_bytes(), 1000);
  std::vector<std::int64_t> errors;
  for (const trace::Event& read : read_events(open())) errors.push_back(read.total_error);
  EXPECT_THAT(errors, ElementsAre(1000, 1000, 999, 1000));
}

TEST_F(TraceWriterTest, NumbersAtTheirBounds) {
  auto writer = create();
  const std::uint64_t most = ~std::uint64_t{0};
  writer->append(with_totals(allocation(most, most, most), most, most));
  writer->append(with_totals(allocation(most, 0, 0), 0, 0));
  Event counter = event(proto::EVENT_COUNTER, most);
  counter.number = INT64_MIN;
  counter.name = 0x7fffffff;
  writer->append(counter);
  writer->append(release(most, most));
  EXPECT_TRUE(writer->finish("exit"));
  const std::vector<trace::Event> events = read_events(open());
  EXPECT_EQ(events[0].address, most);
  EXPECT_EQ(events[0].size, most);
  EXPECT_EQ(events[0].time_ns, most);
  EXPECT_EQ(events[1].address, 0);
  EXPECT_EQ(events[2].number, INT64_MIN);
  EXPECT_EQ(events[2].name, 0x7fffffff);
  EXPECT_EQ(events[3].allocation, 0);
}

TEST_F(TraceWriterTest, ColumnsTakeTheirCheapestForm) {
  auto writer = create();
  for (std::uint64_t i = 0; i < 1000; ++i) {
    Event made = allocation(1000 * i, 0x7f0000000000 + 512 * i, 512);
    made.phase = proto::PHASE_FORWARD;
    writer->append(made);
  }
  writer->finish("exit");
  proto::Trace trace;
  ASSERT_TRUE(trace.ParseFromString(test::read_file(path_)));
  std::map<proto::ColumnId, proto::Column> columns;
  for (const proto::Packet& packet : trace.packet()) {
    for (const proto::Column& column : packet.events().column()) columns[column.id()] = column;
  }
  EXPECT_EQ(columns[proto::COLUMN_KIND].constant(), proto::EVENT_ALLOC);
  EXPECT_EQ(columns[proto::COLUMN_SIZE].constant(), 512);
  EXPECT_EQ(columns[proto::COLUMN_PHASE].constant(), proto::PHASE_FORWARD);
  EXPECT_FALSE(columns.contains(proto::COLUMN_SCOPE)) << "only zeros";
  EXPECT_FALSE(columns.contains(proto::COLUMN_ADDRESS)) << "every address is new, which is 0";
  EXPECT_TRUE(columns[proto::COLUMN_NEW_ADDRESS].has_data());
  EXPECT_LT(columns[proto::COLUMN_NEW_ADDRESS].data().size(), 40);
  EXPECT_EQ(columns[proto::COLUMN_NEW_ADDRESS].raw_bytes(), 1005) << "differences of one, after a first of six bytes";
}

TEST_F(TraceWriterTest, LongListsOfReadsCloseChunksEarly) {
  auto writer = create();
  const std::vector<std::uint32_t> reads(100'000, 1'000'000);
  for (int i = 0; i < 40; ++i) {
    Event use = event(proto::EVENT_VALUE_USE, 1);
    use.reads = reads;
    writer->append(use);
  }
  EXPECT_TRUE(writer->finish("exit"));
  const trace::TraceFile file = open();
  EXPECT_GT(file.chunks().size(), 1);
  read_events(file);
  for (const std::vector<std::uint32_t>& list : reads_) ASSERT_EQ(list, reads);
  EXPECT_EQ(reads_.size(), 40);
}

TEST_F(TraceWriterTest, TextThatIsNoUtf8StaysParsable) {
  HeaderInfo info = test::header_info();
  info.host = "h\xffst";
  info.command = {"\xc3\xa9t\xe9", std::string(2 << 20, 'x'), "last"};
  std::string error;
  auto writer = TraceWriter::create(path_, info, &error);
  writer->define_string(1, "\xff");
  writer->define_thread(1, 5, "\x80");
  writer->define_source(1, "\x80", "\x80", "\x80", "\x80");
  writer->finish("\xff");
  proto::Trace trace;
  ASSERT_TRUE(trace.ParseFromString(test::read_file(path_)));
  const trace::TraceFile file = open();
  ASSERT_EQ(file.header().process.command.size(), 2) << "a command line is cut where its room ends";
  EXPECT_EQ(file.header().process.host, "h?st");
  EXPECT_EQ(file.header().process.command[0], "\xc3\xa9t?");
  EXPECT_GT(file.header().process.command[1].size(), 1'000'000);
  EXPECT_LT(file.header().process.command[1].size(), 1U << 20);
  EXPECT_EQ(file.dictionary().string(1), "\xff") << "strings of events are bytes";
}

TEST_F(TraceWriterTest, LargeDictionariesAreSplit) {
  auto writer = create();
  const std::string text(4000, 'x');
  for (std::uint32_t id = 1; id <= 2000; ++id) writer->define_string(id, text + std::to_string(id));
  writer->append(event(proto::EVENT_STEP_BEGIN, 1));
  writer->finish("exit");
  proto::Trace trace;
  ASSERT_TRUE(trace.ParseFromString(test::read_file(path_)));
  EXPECT_GE(footer_of(test::read_file(path_)).dictionary_offset_size(), 8);
  EXPECT_EQ(open().dictionary().string(2000), text + "2000");
}

TEST_F(TraceWriterTest, FlushMakesEverythingReadable) {
  auto writer = create();
  writer->append(allocation(1, 0x1000, 8));
  writer->calibrate(5, 6);
  writer->lose(proto::Loss::RING_FULL, 12);
  writer->lose(proto::Loss::DICTIONARY_FULL, 3);
  EXPECT_EQ(writer->lost_events(), 12U);
  writer->flush();
  const trace::TraceFile file = open();
  EXPECT_EQ(file.events(), 1);
  EXPECT_TRUE(file.health().truncated);
  EXPECT_EQ(file.health().lost_events, 12);
  EXPECT_EQ(file.health().losses.at(0).before_event, 1);
  writer->append(release(2, 0x1000));
  writer.reset();  // without finish(): flushed, and no footer
  EXPECT_EQ(open().events(), 2);
  EXPECT_FALSE(open().health().has_footer);
}

TEST_F(TraceWriterTest, AFileThatCannotBeMade) {
  std::string error;
  EXPECT_EQ(TraceWriter::create(folder_.file("no/such/folder"), test::header_info(), &error), nullptr);
  EXPECT_THAT(error, testing::HasSubstr("no/such/folder: cannot be written: No such file or directory"));
}

}  // namespace
}  // namespace liveset::writer
