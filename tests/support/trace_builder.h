// Builds trace files packet by packet with libprotobuf alone, so that the reader is tested against the schema and not
// against our writer; and so that files can be wrong on purpose.
#pragma once
#include <xxhash.h>

#include <cstdint>
#include <string>
#include <vector>

#include "proto/event_columns.h"
#include "proto/trace.pb.h"
#include "proto/wire.h"

namespace liveset::test {

inline std::string varint_bytes(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

// A column of varints, or (bytes) of single bytes, as it stands in a chunk.
inline proto::Column plain_column(proto::ColumnId id, const std::vector<std::uint64_t>& entries, bool bytes = false) {
  std::string raw;
  for (const std::uint64_t entry : entries) raw += bytes ? std::string(1, static_cast<char>(entry)) : varint_bytes(entry);
  proto::Column column;
  column.set_id(id);
  column.set_entries(static_cast<std::uint32_t>(entries.size()));
  column.set_raw_bytes(static_cast<std::uint32_t>(raw.size()));
  column.set_plain(raw);
  return column;
}

inline proto::Column constant_column(proto::ColumnId id, std::uint32_t entries, std::uint64_t value) {
  proto::Column column;
  column.set_id(id);
  column.set_entries(entries);
  column.set_raw_bytes(entries);
  column.set_constant(value);
  return column;
}

// A chunk whose events have these kinds; every other column is absent.
inline proto::EventChunk chunk_of(const std::vector<std::uint64_t>& kinds, std::uint64_t first_event = 0,
                                  std::uint64_t first_allocation = 0) {
  proto::EventChunk chunk;
  chunk.set_first_event(first_event);
  chunk.set_events(static_cast<std::uint32_t>(kinds.size()));
  chunk.set_first_allocation(first_allocation);
  *chunk.add_column() = plain_column(proto::COLUMN_KIND, kinds, true);
  return chunk;
}

inline proto::Header plain_header() {
  proto::Header header;
  header.set_magic("liveset trace");
  header.set_format_major(proto::format_major);
  header.set_format_minor(proto::format_minor);
  header.set_tool_version("builder");
  for (int kind = 1; kind < proto::EventKind_ARRAYSIZE; ++kind) {
    const std::uint32_t columns = proto::columns_of(static_cast<std::uint8_t>(kind));
    if (columns == 0) continue;
    proto::KindColumns& entry = *header.add_kind_columns();
    entry.add_kind(static_cast<proto::EventKind>(kind));
    for (int id = 1; id < proto::ColumnId_ARRAYSIZE; ++id) {
      if ((columns >> id & 1) != 0) entry.add_column(static_cast<proto::ColumnId>(id));
    }
  }
  return header;
}

class TraceBuilder {
 public:
  TraceBuilder& header(const proto::Header& header = plain_header()) { return add(1, header, &proto::Packet::mutable_header); }
  TraceBuilder& dictionary(const proto::Dictionary& message) { return add(2, message, &proto::Packet::mutable_dictionary); }
  TraceBuilder& chunk(const proto::EventChunk& message) {
    chunks_.push_back(bytes_.size());
    return add(3, message, &proto::Packet::mutable_events);
  }
  TraceBuilder& loss(const proto::Loss& message) { return add(6, message, &proto::Packet::mutable_loss); }
  // A packet whose body has a field number of a later version.
  TraceBuilder& unknown_packet(std::uint32_t field, const std::string& body) {
    std::string packet = varint_bytes(field << 3 | 2) + varint_bytes(body.size()) + body;
    const std::uint64_t checksum = XXH3_64bits_withSeed(body.data(), body.size(), field);
    packet += varint_bytes(14 << 3 | 1);
    packet.append(reinterpret_cast<const char*>(&checksum), 8);
    return raw(std::string(1, '\x0a') + varint_bytes(packet.size()) + packet);
  }
  TraceBuilder& footer(proto::Footer footer = {}) {
    for (const std::size_t offset : chunks_) footer.add_chunk()->set_offset(offset);
    footer_offset_ = bytes_.size();
    return add(7, footer, &proto::Packet::mutable_footer);
  }
  TraceBuilder& raw(const std::string& bytes) {
    bytes_ += bytes;
    return *this;
  }

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }

 private:
  template <class Message, class Mutable>
  TraceBuilder& add(std::uint32_t field, const Message& message, Mutable mutable_body) {
    const std::string body = message.SerializeAsString();
    proto::Trace trace;
    proto::Packet& packet = *trace.add_packet();
    *(packet.*mutable_body)() = message;
    packet.set_checksum(XXH3_64bits_withSeed(body.data(), body.size(), field));
    if (field == 7) packet.set_footer_offset(footer_offset_);
    return raw(trace.SerializeAsString());
  }

  std::string bytes_;
  std::vector<std::size_t> chunks_;
  std::size_t footer_offset_ = 0;
};

}  // namespace liveset::test
