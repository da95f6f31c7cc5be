// For random event streams: what is written is read, libprotobuf agrees with every byte, and chunk borders change
// nothing.
#include <gmock/gmock.h>

#include "tests/support/opened_trace.h"
#include "tests/support/random_events.h"

namespace liveset {
namespace {

std::string fields(const trace::Event& e) {
  std::string text;
  for (const std::uint64_t field : {e.index,
                                    e.time_ns,
                                    std::uint64_t(e.kind),
                                    std::uint64_t(e.phase),
                                    std::uint64_t(e.has_totals),
                                    std::uint64_t(e.thread),
                                    std::uint64_t(e.scope),
                                    std::uint64_t(e.heap),
                                    std::uint64_t(e.value),
                                    std::uint64_t(e.name),
                                    std::uint64_t(e.text),
                                    std::uint64_t(e.stack),
                                    std::uint64_t(e.memory_class),
                                    e.stream,
                                    e.address,
                                    e.size,
                                    e.allocation,
                                    static_cast<std::uint64_t>(e.total_error),
                                    static_cast<std::uint64_t>(e.reserved_delta),
                                    static_cast<std::uint64_t>(e.number)}) {
    text += std::to_string(field) + " ";
  }
  return text;
}

// Bytes that a packet takes in the file.
std::size_t frame_bytes(const proto::Packet& packet) {
  proto::Trace alone;
  *alone.add_packet() = packet;
  return alone.ByteSizeLong();
}

class RoundTrip : public test::OpenedTraceTest, public testing::WithParamInterface<int> {
 protected:
  // Writes the stream, flushing before an event with probability 1 / `flush_every` (0: never).
  std::string write(const test::RandomEvents& stream, std::uint64_t flush_every) {
    test::Random random(99);
    std::string error;
    auto writer = writer::TraceWriter::create(path_, test::header_info(), &error);
    EXPECT_NE(writer, nullptr) << error;
    for (const writer::Event& event : stream.written()) {
      if (flush_every != 0 && random.below(flush_every) == 0) writer->flush();
      writer->append(event);
    }
    EXPECT_EQ(writer->events(), stream.expected().size());
    EXPECT_TRUE(writer->finish("exit"));
    return test::read_file(path_);
  }
  void expect_stream(const std::string& bytes, const test::RandomEvents& stream) {
    const trace::TraceFile file = open_good(bytes);
    ASSERT_EQ(file.health().note, "");
    ASSERT_EQ(file.events(), stream.expected().size());
    std::size_t next = 0;
    const Status status = trace::for_each_event(file, [&](const trace::Event& event) {
      const test::RandomEvents::Expected& expected = stream.expected()[next++];
      EXPECT_EQ(fields(event), fields(expected.event)) << "event " << next - 1;
      EXPECT_EQ(std::vector<std::uint32_t>(event.reads, event.reads + event.read_count), expected.reads);
      return !HasFailure();
    });
    ASSERT_TRUE(status) << status.error().message();
    EXPECT_EQ(next, stream.expected().size());
  }
};

TEST_P(RoundTrip, WhatIsWrittenIsReadWhereverChunksEnd) {
  const test::RandomEvents stream(static_cast<std::uint64_t>(GetParam()), 3000);
  for (const std::uint64_t flush_every : {0, 1000, 50, 3}) expect_stream(write(stream, flush_every), stream);
}

TEST_P(RoundTrip, LibprotobufReadsTheSameBytes) {
  const test::RandomEvents stream(static_cast<std::uint64_t>(GetParam()), 1000);
  const std::string bytes = write(stream, 300);
  proto::Trace trace;
  ASSERT_TRUE(trace.ParseFromString(bytes));
  EXPECT_EQ(trace.SerializeAsString(), bytes);
  std::uint64_t events = 0;
  for (const proto::Packet& packet : trace.packet()) events += packet.events().events();
  EXPECT_EQ(events, stream.expected().size());
  const proto::Packet& last = trace.packet(trace.packet_size() - 1);
  ASSERT_TRUE(last.has_footer());
  EXPECT_EQ(last.footer().events(), stream.expected().size());
  EXPECT_EQ(last.footer_offset(), bytes.size() - frame_bytes(last));
}

TEST_P(RoundTrip, TheIndexAgreesWithTheChunks) {
  const test::RandomEvents stream(static_cast<std::uint64_t>(GetParam()), 2000);
  const std::string bytes = write(stream, 200);
  proto::Trace trace;
  ASSERT_TRUE(trace.ParseFromString(bytes));
  const proto::Footer& footer = trace.packet(trace.packet_size() - 1).footer();
  std::size_t offset = 0;
  int chunk = 0;
  for (const proto::Packet& packet : trace.packet()) {
    if (packet.has_events()) {
      ASSERT_LT(chunk, footer.chunk_size());
      const proto::ChunkIndex& index = footer.chunk(chunk++);
      EXPECT_EQ(index.offset(), offset);
      EXPECT_EQ(index.first_event(), packet.events().first_event());
      EXPECT_EQ(index.events(), packet.events().events());
      EXPECT_EQ(index.first_allocation(), packet.events().first_allocation());
      EXPECT_EQ(index.total_size(), packet.events().total_size());
    }
    offset += frame_bytes(packet);
  }
  EXPECT_EQ(chunk, footer.chunk_size());
}

INSTANTIATE_TEST_SUITE_P(Seeds, RoundTrip, testing::Range(0, 12));

}  // namespace
}  // namespace liveset
