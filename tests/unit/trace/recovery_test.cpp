// Files that are damaged, torn or incomplete: as much as possible is read, and health() says what is missing.
#include <gmock/gmock.h>
#include <unistd.h>

#include "tests/support/opened_trace.h"
#include "tests/support/trace_builder.h"

namespace liveset::trace {
namespace {

using proto::EVENT_ALLOC;
using proto::EVENT_FREE_REQUESTED;
using test::chunk_of;
using test::plain_column;
using test::TraceBuilder;
using testing::ElementsAre;
using testing::HasSubstr;

class Recovery : public test::OpenedTraceTest {
 protected:
  static std::vector<std::uint64_t> indices(const TraceFile& file) {
    std::vector<std::uint64_t> numbers;
    for (const Event& event : events_of(file)) numbers.push_back(event.index);
    return numbers;
  }
  // Three chunks of two events, with or without a footer; `places` are the packets' offsets.
  std::string three_chunks(bool footer, std::vector<std::size_t>* places = nullptr) {
    TraceBuilder builder;
    builder.header();
    for (std::uint64_t i = 0; i < 3; ++i) {
      if (places != nullptr) places->push_back(builder.size());
      builder.chunk(chunk_of({EVENT_ALLOC, EVENT_ALLOC}, 2 * i, 2 * i));
    }
    if (places != nullptr) places->push_back(builder.size());
    proto::Footer message;
    message.set_events(6);
    message.set_allocations(6);
    message.set_end("exit");
    if (footer) builder.footer(message);
    return builder.bytes();
  }
};

TEST_F(Recovery, AWholeFileHasNothingToSay) {
  const TraceFile file = open_good(three_chunks(true));
  EXPECT_THAT(indices(file), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_TRUE(file.health().has_footer);
  EXPECT_FALSE(file.health().truncated);
  EXPECT_EQ(file.health().note, "");
  EXPECT_EQ(file.health().readable_bytes, file.file_bytes());
}

TEST_F(Recovery, WithoutAFooterTheIndexIsRebuilt) {
  const std::string bytes = three_chunks(false);
  const TraceFile file = open_good(bytes);
  EXPECT_THAT(indices(file), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(file.allocations(), 6);
  EXPECT_TRUE(file.health().truncated);
  EXPECT_THAT(file.health().note, HasSubstr("at byte " + std::to_string(bytes.size()) + ": the trace ends without a footer"));
}

TEST_F(Recovery, AHeaderAloneIsATraceWithoutEvents) {
  const TraceFile file = open_good(TraceBuilder().header().bytes());
  EXPECT_EQ(file.events(), 0);
  EXPECT_EQ(file.allocations(), 0);
  EXPECT_TRUE(file.health().truncated);
}

TEST_F(Recovery, ATornTailCostsTheLastPacket) {
  std::vector<std::size_t> places;
  const std::string bytes = three_chunks(false, &places);
  const TraceFile file = open_good(bytes.substr(0, bytes.size() - 1));
  EXPECT_THAT(indices(file), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(file.health().readable_bytes, places[2]);
  EXPECT_EQ(file.health().damaged_packets, 0);
  EXPECT_THAT(file.health().note, HasSubstr("at byte " + std::to_string(places[2]) + ": the trace is torn"));
}

TEST_F(Recovery, ZerosAtTheEndAreATornTail) {
  const std::string bytes = three_chunks(false);
  const TraceFile file = open_good(bytes + std::string(5000, '\0'));
  EXPECT_EQ(file.events(), 6);
  EXPECT_EQ(file.health().readable_bytes, bytes.size());
  EXPECT_THAT(file.health().note, HasSubstr("5000 bytes at its end are not readable"));
}

TEST_F(Recovery, ADamagedChunkInTheMiddleIsSkippedAndCounted) {
  std::vector<std::size_t> places;
  for (const bool footer : {false, true}) {
    std::string bytes = three_chunks(footer, &places);
    bytes[places[1] + 8] = static_cast<char>(bytes[places[1] + 8] ^ 1);
    const TraceFile file = open_good(bytes);
    EXPECT_THAT(indices(file), ElementsAre(0, 1, 4, 5));
    EXPECT_EQ(file.health().damaged_packets, 1);
    EXPECT_EQ(file.health().lost_events, 2);
    EXPECT_EQ(file.health().truncated, !footer);
    EXPECT_THAT(file.health().note, HasSubstr("at byte " + std::to_string(places[1]) + ": a packet's checksum is wrong"));
  }
}

TEST_F(Recovery, WhereFramingIsLostTheFooterHelps) {
  std::vector<std::size_t> places;
  std::string bytes = three_chunks(true, &places);
  bytes[places[1]] = '\x55';
  const TraceFile file = open_good(bytes);
  EXPECT_THAT(indices(file), ElementsAre(0, 1, 4, 5));
  EXPECT_EQ(file.health().damaged_packets, 1);
  EXPECT_FALSE(file.health().truncated);
}

TEST_F(Recovery, WhereFramingIsLostWithoutAFooterReadingEnds) {
  std::vector<std::size_t> places;
  std::string bytes = three_chunks(false, &places);
  bytes[places[1]] = '\x55';
  const TraceFile file = open_good(bytes);
  EXPECT_THAT(indices(file), ElementsAre(0, 1));
  EXPECT_TRUE(file.health().truncated);
  EXPECT_EQ(file.health().readable_bytes, places[1]);
}

TEST_F(Recovery, ALengthBeyondTheLimitIsNotBelieved) {
  const std::string bytes = three_chunks(false);
  const TraceFile file = open_good(bytes + '\x0a' + test::varint_bytes((64U << 20) + 1) + std::string(100, 'x'));
  EXPECT_EQ(file.events(), 6);
  EXPECT_TRUE(file.health().truncated);
}

TEST_F(Recovery, AFooterWhoseOffsetIsFlippedIsDamage) {
  std::string bytes = three_chunks(true);
  bytes[bytes.size() - 8] = static_cast<char>(bytes[bytes.size() - 8] ^ 1);
  const TraceFile file = open_good(bytes);
  EXPECT_EQ(file.events(), 6);
  EXPECT_FALSE(file.health().has_footer);
  EXPECT_TRUE(file.health().truncated);
}

TEST_F(Recovery, ChunksMissingAtTheEndAreMissedByTheFooter) {
  TraceBuilder builder;
  proto::Footer footer;
  footer.set_events(10);
  builder.header().chunk(chunk_of({EVENT_ALLOC})).footer(footer);
  EXPECT_EQ(open_good(builder.bytes()).health().lost_events, 9);
}

TEST_F(Recovery, JoinedTracesAreReadUpToTheSecond) {
  const std::string one = three_chunks(true);
  const TraceFile file = open_good(one + three_chunks(false));
  EXPECT_EQ(file.events(), 6);
  EXPECT_TRUE(file.health().truncated);
  EXPECT_THAT(file.health().note, HasSubstr("at byte " + std::to_string(one.size()) + ": a second header"));
}

TEST_F(Recovery, LostNamesAreNoLostEvents) {
  proto::Loss loss;
  loss.set_reason(proto::Loss::DICTIONARY_FULL);
  loss.set_events(7);
  const TraceFile file = open_good(TraceBuilder().header().loss(loss).bytes());
  EXPECT_EQ(file.health().lost_events, 0);
  EXPECT_EQ(file.health().lost_names, 7);
}

TEST_F(Recovery, LossesAreSummed) {
  proto::Loss loss;
  loss.set_reason(proto::Loss::RING_FULL);
  loss.set_events(7);
  loss.set_before_event(1);
  const TraceFile file = open_good(TraceBuilder().header().loss(loss).loss(loss).bytes());
  EXPECT_EQ(file.health().lost_events, 14);
  ASSERT_EQ(file.health().losses.size(), 2);
  EXPECT_EQ(file.health().losses[0].reason, proto::Loss::RING_FULL);
}

// Chunks A (3 allocations), B (2 allocations, 2 frees; unreadable), C (frees of both, and of one of its own).
TEST_F(Recovery, AgesReachOverAGapAndIntoIt) {
  TraceBuilder builder;
  builder.header().chunk(chunk_of({EVENT_ALLOC, EVENT_ALLOC, EVENT_ALLOC}));
  const std::size_t gap = builder.size();
  proto::EventChunk lost = chunk_of({EVENT_ALLOC, EVENT_ALLOC, EVENT_FREE_REQUESTED, EVENT_FREE_REQUESTED}, 3, 3);
  *lost.add_column() = plain_column(proto::COLUMN_AGE, {1, 2});
  builder.chunk(lost);
  proto::EventChunk last =
      chunk_of({EVENT_ALLOC, EVENT_FREE_REQUESTED, EVENT_FREE_REQUESTED, EVENT_FREE_REQUESTED, EVENT_FREE_REQUESTED}, 7, 5);
  // Before each free there were 6 allocations: ages 1, 2, 3 and 4 are ordinals 5 (own), 4 and 3 (in the gap), 2 (of
  // chunk A).
  *last.add_column() = plain_column(proto::COLUMN_AGE, {1, 2, 3, 4});
  builder.chunk(last);
  std::string bytes = builder.bytes();
  bytes[gap + 8] = static_cast<char>(bytes[gap + 8] ^ 1);

  const TraceFile file = open_good(bytes);
  EXPECT_EQ(file.allocations(), 4) << "numbered without the gap: 0, 1, 2 of A and 3 of C";
  std::vector<std::uint64_t> allocations;
  for (const Event& event : events_of(file)) allocations.push_back(event.allocation);
  EXPECT_THAT(allocations, ElementsAre(0, 1, 2, 3, 3, no_allocation, no_allocation, 2));
  EXPECT_EQ(file.health().lost_events, 4);
}

// Of 2,000 allocations every other one can be read: the ages of the last chunk's frees reach back to each of them.
TEST_F(Recovery, AgesReachOverManyGaps) {
  constexpr std::uint64_t all = 2000;
  TraceBuilder builder;
  builder.header();
  for (std::uint64_t i = 0; i < all; i += 2) builder.chunk(chunk_of({EVENT_ALLOC}, i, i));
  std::vector<std::uint64_t> ages;
  for (std::uint64_t age = 1; age <= all; ++age) ages.push_back(age);
  proto::EventChunk last = chunk_of(std::vector<std::uint64_t>(all, EVENT_FREE_REQUESTED), all, all);
  *last.add_column() = plain_column(proto::COLUMN_AGE, ages);
  const TraceFile file = open_good(builder.chunk(last).bytes());
  ASSERT_EQ(file.allocations(), all / 2);
  const std::vector<Event> events = events_of(file);
  ASSERT_EQ(events.size(), all / 2 + all);
  for (std::uint64_t age = 1; age <= all; ++age) {
    const std::uint64_t target = all - age;
    EXPECT_EQ(events[all / 2 + age - 1].allocation, target % 2 == 0 ? target / 2 : no_allocation) << age;
  }
}

TEST_F(Recovery, TheFirstChunkMissing) {
  TraceBuilder builder;
  builder.header();
  const std::size_t gap = builder.size();
  builder.chunk(chunk_of({EVENT_ALLOC, EVENT_ALLOC}));
  proto::EventChunk next = chunk_of({EVENT_ALLOC, EVENT_FREE_REQUESTED, EVENT_FREE_REQUESTED}, 2, 2);
  *next.add_column() = plain_column(proto::COLUMN_AGE, {3, 1});
  builder.chunk(next);
  std::string bytes = builder.bytes();
  bytes[gap + 8] = static_cast<char>(bytes[gap + 8] ^ 1);
  const TraceFile file = open_good(bytes);
  std::vector<std::uint64_t> allocations;
  for (const Event& event : events_of(file)) allocations.push_back(event.allocation);
  EXPECT_THAT(allocations, ElementsAre(0, no_allocation, 0));
}

TEST_F(Recovery, AChunkThatComesTwiceIsTakenOnce) {
  const TraceFile file = open_good(TraceBuilder()
                                       .header()
                                       .chunk(chunk_of({EVENT_ALLOC, EVENT_ALLOC}))
                                       .chunk(chunk_of({EVENT_ALLOC, EVENT_ALLOC}))
                                       .chunk(chunk_of({EVENT_ALLOC}, 2, 2))
                                       .bytes());
  EXPECT_THAT(indices(file), ElementsAre(0, 1, 2));
  EXPECT_EQ(file.health().damaged_packets, 1);
}

TEST_F(Recovery, AFileThatShrinksAfterOpening) {
  const std::string bytes = three_chunks(true);
  const TraceFile file = open_good(bytes);
  ASSERT_EQ(truncate(path_.c_str(), 40), 0);
  Columns columns;
  const Status status = file.read_chunk(0, all_columns, columns);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message(), HasSubstr("has become shorter"));
}

TEST_F(Recovery, AFileThatIsOverwrittenAfterOpening) {
  const std::string bytes = three_chunks(true);
  const TraceFile file = open_good(bytes);
  test::write_file(path_, std::string(bytes.size(), '\x11'));
  Columns columns;
  const Status status = file.read_chunk(0, all_columns, columns);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message(), HasSubstr("has changed"));
}

}  // namespace
}  // namespace liveset::trace
