// Files of later minor versions: what is known is read, what is not is passed over and counted.
#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>

#include "tests/support/opened_trace.h"
#include "tests/support/trace_builder.h"
#include "viewer/trace/columns.h"

namespace liveset::trace {
namespace {

using proto::EVENT_ALLOC;
using proto::EVENT_FREE_REQUESTED;
using test::chunk_of;
using test::plain_column;
using test::TraceBuilder;
using testing::ElementsAre;

class Evolution : public test::OpenedTraceTest {};

TEST_F(Evolution, ANewerMinorVersionIsRead) {
  proto::Header header = test::plain_header();
  header.set_format_minor(99);
  const TraceFile file = open_good(TraceBuilder().header(header).chunk(chunk_of({EVENT_ALLOC})).footer().bytes());
  EXPECT_EQ(file.header().format_minor, 99);
  EXPECT_EQ(file.events(), 1);
}

TEST_F(Evolution, UnknownPacketsAreSkippedAndCounted) {
  const TraceFile file =
      open_good(TraceBuilder().header().unknown_packet(9, "news").chunk(chunk_of({EVENT_ALLOC})).unknown_packet(13, "").footer().bytes());
  EXPECT_EQ(file.events(), 1);
  EXPECT_EQ(file.health().unknown_packets, 2);
  EXPECT_EQ(file.health().damaged_packets, 0);
  EXPECT_EQ(file.health().note, "");
}

TEST_F(Evolution, AFlippedFieldNumberIsNoUnknownPacket) {
  // The checksum covers the field number: this is damage, not news.
  std::string bytes = TraceBuilder().header().chunk(chunk_of({EVENT_ALLOC})).footer().bytes();
  const std::size_t place = TraceBuilder().header().size() + 2;
  ASSERT_EQ(bytes[place], '\x1a') << "the tag of an event chunk";
  bytes[place] = '\x5a';
  const TraceFile file = open_good(bytes);
  EXPECT_EQ(file.health().unknown_packets, 0);
  EXPECT_EQ(file.health().damaged_packets, 1);
}

TEST_F(Evolution, UnknownColumnsAndFieldsArePassedOver) {
  proto::EventChunk chunk = chunk_of({EVENT_ALLOC});
  *chunk.add_column() = plain_column(proto::COLUMN_SIZE, {640});
  proto::Column* news = chunk.add_column();
  *news = plain_column(proto::COLUMN_SIZE, {1, 2, 3});
  news->set_id(static_cast<proto::ColumnId>(40));
  proto::EventChunk::GetReflection()->MutableUnknownFields(&chunk)->AddVarint(900, 1);
  const TraceFile file = open_good(TraceBuilder().header().chunk(chunk).footer().bytes());
  EXPECT_EQ(events_of(file).at(0).size, 640);
}

// A later version has a kind 81 with HEAP and SIZE: its entries stand among those of ALLOC.
TEST_F(Evolution, UnknownKindsDoNotShiftTheColumnsOfKnownOnes) {
  proto::Header header = test::plain_header();
  proto::KindColumns& news = *header.add_kind_columns();
  news.add_kind(static_cast<proto::EventKind>(81));
  news.add_column(proto::COLUMN_HEAP);
  news.add_column(proto::COLUMN_SIZE);
  proto::EventChunk chunk = chunk_of({EVENT_ALLOC, 81, EVENT_ALLOC});
  *chunk.add_column() = plain_column(proto::COLUMN_HEAP, {1, 9, 2});
  *chunk.add_column() = plain_column(proto::COLUMN_SIZE, {10, 99, 20});
  const TraceFile file = open_good(TraceBuilder().header(header).chunk(chunk).footer().bytes());
  const std::vector<Event> events = events_of(file);
  ASSERT_EQ(events.size(), 3);
  EXPECT_EQ(events[0].size, 10);
  EXPECT_EQ(kind_name(events[1].kind), "unknown");
  EXPECT_EQ(events[1].size, 0);
  EXPECT_EQ(events[2].size, 20);
  EXPECT_EQ(events[2].heap, 2);
  Columns columns;
  ASSERT_TRUE(file.read_chunk(0, column::size, columns));
  EXPECT_THAT(columns.size, ElementsAre(10, 20));
}

// Since format 1.3; a reader of 1.2 stepped over it as over any kind that it does not know.
TEST_F(Evolution, SequenceHasANumber) {
  proto::EventChunk chunk = chunk_of({proto::EVENT_SEQUENCE, proto::EVENT_SCOPE_BEGIN, proto::EVENT_SEQUENCE, EVENT_ALLOC});
  *chunk.add_column() = plain_column(proto::COLUMN_NUMBER, {proto::zigzag(0), proto::zigzag(std::int64_t{1} << 40)});
  const TraceFile file = open_good(TraceBuilder().header().chunk(chunk).footer().bytes());
  const std::vector<Event> events = events_of(file);
  ASSERT_EQ(events.size(), 4);
  EXPECT_EQ(events[0].kind, Kind::sequence);
  EXPECT_EQ(kind_name(events[2].kind), "sequence");
  EXPECT_EQ(events[0].number, 0);
  EXPECT_EQ(events[1].number, 0);
  EXPECT_EQ(events[2].number, std::int64_t{1} << 40);
}

// Before format 1.2 a STORAGE had no NUMBER.
TEST_F(Evolution, KindsThatGainedAColumnAreReadWithoutIt) {
  proto::Header header = test::plain_header();
  for (proto::KindColumns& entry : *header.mutable_kind_columns()) {
    if (entry.kind(0) != proto::EVENT_STORAGE) continue;
    entry.clear_column();
    for (const auto id : {proto::COLUMN_HEAP, proto::COLUMN_ADDRESS, proto::COLUMN_SIZE, proto::COLUMN_NAME, proto::COLUMN_CLASS})
      entry.add_column(id);
  }
  proto::EventChunk chunk = chunk_of({proto::EVENT_STORAGE, proto::EVENT_STEP_BEGIN, proto::EVENT_STORAGE});
  *chunk.add_column() = plain_column(proto::COLUMN_HEAP, {3, 4});
  *chunk.add_column() = plain_column(proto::COLUMN_NUMBER, {proto::zigzag(5)});
  const TraceFile file = open_good(TraceBuilder().header(header).chunk(chunk).footer().bytes());
  const std::vector<Event> events = events_of(file);
  ASSERT_EQ(events.size(), 3);
  EXPECT_EQ(events[0].number, 0);
  EXPECT_EQ(events[1].number, 5);
  EXPECT_EQ(events[2].heap, 4);
  EXPECT_EQ(events[2].number, 0);
}

// A later version states TEXT for STORAGE too, and no longer a HEAP for COUNTER.
TEST_F(Evolution, KindsWithOtherColumnsComeOutAsOurs) {
  proto::Header header = test::plain_header();
  for (proto::KindColumns& entry : *header.mutable_kind_columns()) {
    if (entry.kind(0) == proto::EVENT_STORAGE) entry.add_column(proto::COLUMN_TEXT);
    if (entry.kind(0) != proto::EVENT_COUNTER) continue;
    entry.clear_column();
    entry.add_column(proto::COLUMN_NUMBER);
  }
  proto::EventChunk chunk = chunk_of({proto::EVENT_STORAGE, proto::EVENT_COUNTER, proto::EVENT_ATTRIBUTE, proto::EVENT_VALUE_USE});
  *chunk.add_column() = plain_column(proto::COLUMN_HEAP, {3, 4});
  *chunk.add_column() = plain_column(proto::COLUMN_TEXT, {70, 71});
  *chunk.add_column() = plain_column(proto::COLUMN_NUMBER, {proto::zigzag(7), proto::zigzag(-5), proto::zigzag(6)});
  proto::Column reads = plain_column(proto::COLUMN_READS, {2, 8, 9});
  reads.set_entries(1);
  *chunk.add_column() = reads;
  const TraceFile file = open_good(TraceBuilder().header(header).chunk(chunk).footer().bytes());
  const std::vector<Event> events = events_of(file);
  EXPECT_EQ(events[0].heap, 3);
  EXPECT_EQ(events[0].text, 0);
  EXPECT_EQ(events[0].number, 7);
  EXPECT_EQ(events[1].heap, 0);
  EXPECT_EQ(events[1].number, -5);
  EXPECT_EQ(events[2].text, 71);
  EXPECT_EQ(events[3].heap, 4);
  EXPECT_EQ(events[3].number, 6);
  EXPECT_EQ(events[3].read_count, 2);
  Columns columns;
  ASSERT_TRUE(file.read_chunk(0, column::text, columns));
  EXPECT_THAT(columns.text, ElementsAre(71));
}

}  // namespace
}  // namespace liveset::trace
