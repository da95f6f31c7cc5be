// Columns of hand-made chunks: every form of content, and everything that can be wrong with one whose checksum is
// right.
#include <gmock/gmock.h>
#include <zstd.h>

#include <algorithm>

#include "tests/support/opened_trace.h"
#include "tests/support/trace_builder.h"
#include "viewer/trace/columns.h"

namespace liveset::trace {
namespace {

using proto::EVENT_ALLOC;
using proto::EVENT_FREE_REQUESTED;
using test::chunk_of;
using test::constant_column;
using test::plain_column;
using test::TraceBuilder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Chunks : public test::OpenedTraceTest {
 protected:
  static std::string file_of(const proto::EventChunk& chunk) { return TraceBuilder().header().chunk(chunk).footer().bytes(); }
  std::string error_of_chunk(const proto::EventChunk& chunk) {
    // A second chunk, because what is wrong with the last one is found when the file is opened, and the chunk left out.
    const auto allocations =
        static_cast<std::uint64_t>(std::count(chunk.column(0).plain().begin(), chunk.column(0).plain().end(), EVENT_ALLOC));
    return error_of(TraceBuilder().header().chunk(chunk).chunk(chunk_of({EVENT_ALLOC}, chunk.events(), allocations)).footer().bytes());
  }
  Columns read(const proto::EventChunk& chunk, ColumnMask mask = all_columns) {
    const TraceFile file = open_good(file_of(chunk));
    Columns columns;
    const Status status = file.read_chunk(0, mask, columns);
    EXPECT_TRUE(status) << status.error().message();
    return columns;
  }
};

TEST_F(Chunks, PlainConstantAndAbsentColumns) {
  proto::EventChunk chunk = chunk_of({EVENT_ALLOC, EVENT_ALLOC, EVENT_ALLOC});
  chunk.set_first_time_ns(1000);
  chunk.set_address_shift(9);
  *chunk.add_column() = plain_column(proto::COLUMN_TIME, {0, 1, 2});
  *chunk.add_column() = plain_column(proto::COLUMN_TIME_LOW, {0, 5, 255}, true);
  *chunk.add_column() = constant_column(proto::COLUMN_THREAD, 3, 9);
  *chunk.add_column() = plain_column(proto::COLUMN_SCOPE, {proto::zigzag(5), proto::zigzag(-3), 0});
  *chunk.add_column() = plain_column(proto::COLUMN_ADDRESS, {0, 0, 2});
  *chunk.add_column() = plain_column(proto::COLUMN_NEW_ADDRESS, {proto::zigzag(8), proto::zigzag(-6)});
  *chunk.add_column() = constant_column(proto::COLUMN_SIZE, 3, 512);
  const Columns columns = read(chunk);
  EXPECT_EQ(columns.events, 3);
  EXPECT_EQ(columns.allocations, 3);
  EXPECT_THAT(columns.time_ns, ElementsAre(1000, 1261, 2028));
  EXPECT_THAT(columns.thread, ElementsAre(9, 9, 9));
  EXPECT_THAT(columns.scope, ElementsAre(5, 2, 2));
  EXPECT_THAT(columns.address, ElementsAre(8 << 9, 2 << 9, 8 << 9));
  EXPECT_THAT(columns.size, ElementsAre(512, 512, 512));
  EXPECT_THAT(columns.heap, ElementsAre(0, 0, 0)) << "an absent column holds zeros";
  EXPECT_THAT(columns.age, IsEmpty());
}

TEST_F(Chunks, CompressedColumn) {
  proto::EventChunk chunk = chunk_of({EVENT_ALLOC, EVENT_ALLOC, EVENT_ALLOC});
  proto::Column column = plain_column(proto::COLUMN_SIZE, {70, 7000, 1ULL << 40});
  std::string frame(ZSTD_compressBound(column.plain().size()), '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), column.plain().data(), column.plain().size(), 1));
  column.set_data(frame);
  *chunk.add_column() = column;
  EXPECT_THAT(read(chunk).size, ElementsAre(70, 7000, 1ULL << 40));
}

TEST_F(Chunks, OnlyWhatIsAskedFor) {
  proto::EventChunk chunk = chunk_of({EVENT_ALLOC, EVENT_FREE_REQUESTED});
  *chunk.add_column() = constant_column(proto::COLUMN_SIZE, 1, 8);
  *chunk.add_column() = constant_column(proto::COLUMN_AGE, 1, 1);
  const Columns columns = read(chunk, column::age);
  EXPECT_THAT(columns.kind, ElementsAre(EVENT_ALLOC, EVENT_FREE_REQUESTED));
  EXPECT_THAT(columns.age, ElementsAre(1));
  EXPECT_THAT(columns.size, IsEmpty());
  EXPECT_THAT(columns.time_ns, IsEmpty());
}

TEST_F(Chunks, ReusedBuffersHoldNothingOfTheChunkBefore) {
  proto::EventChunk first = chunk_of({EVENT_ALLOC, EVENT_ALLOC});
  *first.add_column() = constant_column(proto::COLUMN_SIZE, 2, 8);
  const TraceFile file = open_good(TraceBuilder().header().chunk(first).chunk(chunk_of({EVENT_ALLOC}, 2, 2)).bytes());
  Columns columns;
  ASSERT_TRUE(file.read_chunk(0, all_columns, columns));
  ASSERT_TRUE(file.read_chunk(1, column::thread, columns));
  EXPECT_THAT(columns.kind, ElementsAre(EVENT_ALLOC));
  EXPECT_THAT(columns.size, IsEmpty());
  EXPECT_THAT(columns.thread, ElementsAre(0));
}

TEST_F(Chunks, Reads) {
  proto::EventChunk chunk = chunk_of({proto::EVENT_VALUE_CREATE, proto::EVENT_VALUE_USE, proto::EVENT_VALUE_USE});
  proto::Column column = plain_column(proto::COLUMN_READS, {0, 2, 7, 300, 1, 5});
  column.set_entries(3);
  *chunk.add_column() = column;
  const Columns columns = read(chunk);
  EXPECT_THAT(columns.reads_begin, ElementsAre(0, 0, 2, 3));
  EXPECT_THAT(columns.reads, ElementsAre(7, 300, 5));
}

TEST_F(Chunks, EnumsOfALaterVersionReadAsTheirZero) {
  proto::EventChunk chunk = chunk_of({proto::EVENT_STORAGE});
  *chunk.add_column() = constant_column(proto::COLUMN_PHASE, 1, 77);
  *chunk.add_column() = constant_column(proto::COLUMN_CLASS, 1, 200);
  const Columns columns = read(chunk);
  EXPECT_THAT(columns.phase, ElementsAre(0));
  EXPECT_THAT(columns.memory_class, ElementsAre(0));
}

// Everything below is corrupt behind a right checksum. Found when the chunk is indexed it is left out; found when it is
// decoded it is an error. Either way it is said.
struct Corruption {
  const char* name;
  proto::Column column;
  const char* expected;
};
class CorruptColumn : public Chunks, public testing::WithParamInterface<Corruption> {};

proto::Column changed(proto::Column column, void (*change)(proto::Column&)) {
  change(column);
  return column;
}

TEST_P(CorruptColumn, IsSaid) {
  proto::EventChunk chunk = chunk_of({EVENT_ALLOC, EVENT_ALLOC, proto::EVENT_VALUE_USE});
  *chunk.add_column() = GetParam().column;
  const std::string bytes = TraceBuilder().header().chunk(chunk).chunk(chunk_of({EVENT_ALLOC}, 3, 2)).footer().bytes();
  Result<TraceFile> file = open(bytes);
  ASSERT_TRUE(file);
  std::string said = file->health().note;
  const Status status = for_each_event(*file, [](const Event&) { return true; });
  if (!status) said += status.error().message();
  EXPECT_THAT(said, HasSubstr(GetParam().expected));
  EXPECT_THAT(said, HasSubstr("at byte "));
}

INSTANTIATE_TEST_SUITE_P(
    All, CorruptColumn,
    testing::Values(
        Corruption{"TooFewEntries", plain_column(proto::COLUMN_SIZE, {1}), "COLUMN_SIZE has 1 entries where the kinds call for 3"},
        Corruption{"TooManyEntries", constant_column(proto::COLUMN_SIZE, 4, 1), "has 4 entries where the kinds call for 3"},
        Corruption{"EntriesBeyondLimit", constant_column(proto::COLUMN_SIZE, 65537, 1), "states 65537 entries"},
        Corruption{"RawBytesBeyondLimit",
                   changed(constant_column(proto::COLUMN_SIZE, 2, 1), [](proto::Column& c) { c.set_raw_bytes((16 << 20) + 1); }),
                   "more than 16 MiB"},
        Corruption{"PlainOfAnotherLength", changed(plain_column(proto::COLUMN_SIZE, {1, 2}), [](proto::Column& c) { c.set_raw_bytes(3); }),
                   "is torn"},
        Corruption{"NoContent", changed(plain_column(proto::COLUMN_SIZE, {1, 2}), [](proto::Column& c) { c.clear_content(); }),
                   "has no content"},
        Corruption{"Twice", plain_column(proto::COLUMN_KIND, {1, 1, 67}, true), "column 1 occurs twice"},
        Corruption{"TornVarint",
                   changed(plain_column(proto::COLUMN_SIZE, {1, 1, 1}), [](proto::Column& c) { c.set_plain("\x01\x01\x81"); }),
                   "does not hold as many numbers"},
        Corruption{"NumbersLeftOver", changed(plain_column(proto::COLUMN_SIZE, {1, 1, 1, 1}), [](proto::Column& c) { c.set_entries(3); }),
                   "does not hold as many numbers"},
        Corruption{"TooLargeForAnId", plain_column(proto::COLUMN_THREAD, {1, 1ULL << 32, 1}),
                   "COLUMN_THREAD holds a number that is too large"},
        Corruption{"ConstantTooLarge", constant_column(proto::COLUMN_THREAD, 3, 1ULL << 32), "holds a number that is too large"},
        Corruption{"ByteTooLarge", constant_column(proto::COLUMN_PHASE, 3, 256), "holds a number that is too large"},
        Corruption{"NotAZstdFrame", changed(plain_column(proto::COLUMN_SIZE, {1, 2, 3}), [](proto::Column& c) { c.set_data("nonsense"); }),
                   "does not decompress"},
        Corruption{"BytesNotOneEach", plain_column(proto::COLUMN_PHASE, {1, 2, 300}), "COLUMN_PHASE is not one byte an entry"},
        Corruption{"ReadsTorn", changed(plain_column(proto::COLUMN_READS, {9}), [](proto::Column& c) { c.set_entries(1); }),
                   "COLUMN_READS is torn"},
        Corruption{"ReadsConstant", constant_column(proto::COLUMN_READS, 1, 1), "cannot be constant"},
        Corruption{"AddressBeforeTheChunk", plain_column(proto::COLUMN_ADDRESS, {1, 1, 0}), "goes back beyond the chunk"}),
    [](const testing::TestParamInfo<Corruption>& corruption) { return corruption.param.name; });

TEST_F(Chunks, ZstdFramesThatExpandBeyondWhatTheyStateAreRefused) {
  const std::string zeros(1 << 20, '\0');
  std::string frame(ZSTD_compressBound(zeros.size()), '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), zeros.data(), zeros.size(), 1));
  proto::EventChunk chunk = chunk_of({EVENT_ALLOC, EVENT_ALLOC});
  proto::Column column = plain_column(proto::COLUMN_SIZE, {1, 2});
  column.set_data(frame);
  *chunk.add_column() = column;
  EXPECT_THAT(error_of_chunk(chunk), HasSubstr("COLUMN_SIZE does not decompress to the size it states"));
}

TEST_F(Chunks, AnAgeBeyondTheFirstAllocation) {
  proto::EventChunk chunk = chunk_of({EVENT_ALLOC, EVENT_FREE_REQUESTED});
  *chunk.add_column() = constant_column(proto::COLUMN_AGE, 1, 2);
  EXPECT_THAT(error_of_chunk(chunk), HasSubstr("a free goes back 2 allocations where there were 1"));
}

TEST_F(Chunks, AllocationsThatTheNextChunkContradicts) {
  const std::string bytes =
      TraceBuilder().header().chunk(chunk_of({EVENT_ALLOC, EVENT_ALLOC})).chunk(chunk_of({EVENT_ALLOC}, 2, 1)).footer().bytes();
  EXPECT_THAT(error_of(bytes), HasSubstr("the chunk has 2 allocations where the next one calls for 1"));
}

TEST_F(Chunks, HeadersThatMakeNoSenseAreLeftOut) {
  const auto damaged = [&](const proto::EventChunk& chunk) {
    const TraceFile file = open_good(file_of(chunk));
    EXPECT_EQ(file.events(), 0);
    EXPECT_EQ(file.health().damaged_packets, 1);
    return file.health().note;
  };
  proto::EventChunk chunk = chunk_of({EVENT_ALLOC});
  chunk.set_events(0);
  EXPECT_THAT(damaged(chunk), HasSubstr("states 0 events"));
  chunk.set_events(65537);
  EXPECT_THAT(damaged(chunk), HasSubstr("states 65537 events"));
  chunk = chunk_of({EVENT_ALLOC});
  chunk.set_address_shift(64);
  EXPECT_THAT(damaged(chunk), HasSubstr("address shift is 64"));
  EXPECT_THAT(damaged(chunk_of({EVENT_ALLOC}, 1, 5)), HasSubstr("makes no sense"));
  EXPECT_THAT(damaged(chunk_of({EVENT_ALLOC}, ~0ULL, 5)), HasSubstr("makes no sense"));
}

TEST_F(Chunks, FirstAllocationsThatRunBackwardsOrTooFarAreLeftOut) {
  for (const std::uint64_t first : {0, 3, 1000}) {
    const TraceFile file = open_good(TraceBuilder()
                                         .header()
                                         .chunk(chunk_of({EVENT_ALLOC, EVENT_ALLOC}, 0, 0))
                                         .chunk(chunk_of({EVENT_ALLOC, EVENT_ALLOC}, 2, 2))
                                         .chunk(chunk_of(std::vector<std::uint64_t>(1000, EVENT_ALLOC), 4, first))
                                         .bytes());
    EXPECT_EQ(file.events(), first == 3 ? 1004 : 4) << first;
    EXPECT_EQ(file.health().damaged_packets, 0);
  }
}

}  // namespace
}  // namespace liveset::trace
