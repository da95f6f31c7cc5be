// The chunk that is being filled: events in, an EventChunk message out.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "profiler/writer/column_buffer.h"
#include "profiler/writer/trace_writer.h"
#include "proto/event_columns.h"

namespace liveset::writer {

// An event as its columns hold it: the blocks it speaks of are resolved.
struct ResolvedEvent {
  const Event& event;
  std::uint8_t kind_byte;  // EventKind, and the totals bit
  std::uint64_t time_ns;   // never smaller than that of the event before
  std::uint64_t age = 0;
  std::int64_t total_error = 0, reserved_delta = 0;
};

class ChunkBuilder {
 public:
  ChunkBuilder();
  std::uint32_t events() const { return events_; }
  bool full() const { return events_ == proto::max_chunk_events || column(proto::COLUMN_READS).bytes() > reads_limit; }
  void add(const ResolvedEvent& resolved);
  // The chunk without its totals; the builder is empty afterwards.
  void encode(std::uint64_t first_event, std::uint64_t first_allocation, proto::EventChunk& chunk);

 private:
  // READS has any number of entries per event; a chunk that reaches this many bytes of them is closed.
  static constexpr std::size_t reads_limit = 4U << 20;

  ColumnBuffer& column(proto::ColumnId id) { return columns_[id]; }
  const ColumnBuffer& column(proto::ColumnId id) const { return columns_[id]; }
  void add_sparse(const ResolvedEvent& resolved, std::uint32_t columns);
  void add_address(std::uint64_t address);
  unsigned encode_new_addresses();

  std::array<ColumnBuffer, proto::ColumnId_ARRAYSIZE> columns_;
  std::vector<std::uint64_t> addresses_;      // of every entry of ADDRESS
  std::vector<std::uint64_t> new_addresses_;  // raw: the shift is known only when the chunk is full
  // Where in addresses_ an address of this hash stood last. Direct-mapped: a collision only costs bytes, not truth.
  std::vector<std::uint32_t> last_seen_;
  std::uint32_t events_ = 0;
  std::uint64_t first_time_ns_ = 0, last_time_ns_ = 0;
  std::uint32_t last_scope_ = 0, last_value_ = 0;
  Compressor compressor_;
  std::vector<char> scratch_;
};

}  // namespace liveset::writer
