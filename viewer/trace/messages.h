// From encoded messages of proto/trace.proto to plain records. Every function is false when the message is malformed;
// unknown fields are passed over.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/event_columns.h"
#include "viewer/trace/records.h"
#include "viewer/trace/wire_reader.h"

namespace liveset::trace {

// Which sparse columns each kind byte has in a file: its header's table.
using Layout = std::array<std::uint32_t, 256>;

bool parse_header(Bytes message, Header& header, std::string& magic, Layout& layout);
// Adds to `dictionary`. Ids are dense, so one that lies far beyond the entries so far is refused rather than made room
// for.
bool parse_dictionary(Bytes message, Dictionary& dictionary);
bool parse_loss(Bytes message, Loss& loss);

struct Footer {
  std::uint64_t events = 0, end_time_ns = 0, allocations = 0, unmatched_frees = 0, lost_events = 0;
  std::uint64_t conservation_mismatches = 0, implied_frees = 0;
  std::string end;
  std::vector<HeapTotal> totals;
  std::vector<std::uint64_t> packet_offsets;  // of chunks, dictionaries and losses, in no order
};
bool parse_footer(Bytes message, Footer& footer);

struct ColumnView {
  enum class Content : std::uint8_t { none, data, plain, constant };
  Content content = Content::none;
  std::uint32_t entries = 0, raw_bytes = 0;
  std::uint64_t constant = 0;
  Bytes bytes;
};
struct ChunkView {
  std::uint64_t first_event = 0, first_time_ns = 0, first_allocation = 0;
  std::uint32_t events = 0, address_shift = 0;
  std::array<ColumnView, proto::ColumnId_ARRAYSIZE> columns;
  std::vector<HeapTotal> totals;
};
// Checks every figure against the limits of proto/event_columns.h. `why` is set when the result is false.
bool parse_chunk(Bytes message, ChunkView& chunk, std::string& why);

}  // namespace liveset::trace
