#include "viewer/trace/packet_scanner.h"

#include <xxhash.h>

#include <algorithm>

#include "proto/event_columns.h"

namespace liveset::trace {
namespace {

constexpr std::uint64_t read_ahead = 1U << 20;
constexpr std::uint64_t max_frame_bytes = 1 + proto::max_varint_bytes;

}  // namespace

Packet parse_packet(Bytes content) {
  Packet packet;
  WireReader reader(content);
  std::optional<std::uint64_t> checksum;
  bool several = false;
  while (reader.next()) {
    if (reader.field() == proto::checksum_field) {
      checksum = reader.number();
    } else if (reader.field() == proto::footer_offset_field) {
      packet.footer_offset = reader.number();
    } else if (reader.is_bytes()) {
      several = packet.field != 0;
      packet.field = reader.field();
      packet.body = reader.bytes();
    }
  }
  packet.intact = reader.ok() && !several && packet.field != 0 && checksum &&
                  *checksum == XXH3_64bits_withSeed(packet.body.data(), packet.body.size(), packet.field);
  return packet;
}

// Packets are small against the read-ahead, so most of them cost no system call.
Result<Bytes> PacketScanner::window(std::uint64_t offset, std::uint64_t length) {
  if (offset < window_offset_ || offset + length > window_offset_ + window_.size()) {
    const std::uint64_t wanted = std::min(std::max(length, read_ahead), file_->size() - offset);
    Result<Bytes> bytes = file_->read(offset, wanted, buffer_);
    if (!bytes) return bytes;
    window_offset_ = offset;
    window_ = *bytes;
  }
  return window_.subspan(offset - window_offset_, length);
}

Result<std::optional<Packet>> PacketScanner::at(std::uint64_t offset) {
  torn_ = false;
  const std::uint64_t left = file_->size() - offset;
  if (left == 0) return std::optional<Packet>();
  Result<Bytes> frame = window(offset, std::min(left, max_frame_bytes));
  if (!frame) return frame.take_error();
  const std::uint8_t* begin = frame->data();
  const std::uint8_t* end = begin + frame->size();
  std::uint64_t length = 0;
  const std::uint8_t* content =
      *begin == proto::tag(proto::packet_field, proto::wire_bytes) ? read_varint(begin + 1, end, length) : nullptr;
  const std::uint64_t frame_bytes = content == nullptr ? 0 : static_cast<std::uint64_t>(content - begin);
  if (content == nullptr || length > proto::max_packet_bytes || length > left - frame_bytes) {
    torn_ = true;
    return std::optional<Packet>();
  }
  Result<Bytes> bytes = window(offset + frame_bytes, length);
  if (!bytes) return bytes.take_error();
  Packet packet = parse_packet(*bytes);
  packet.offset = offset;
  packet.content_offset = offset + frame_bytes;
  packet.end = packet.content_offset + length;
  return std::optional<Packet>(packet);
}

}  // namespace liveset::trace
