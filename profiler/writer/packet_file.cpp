#include "profiler/writer/packet_file.h"

#include <xxhash.h>

#include "proto/wire.h"

namespace liveset::writer {
namespace {

void append_varint(std::string& out, std::uint64_t value) {
  std::uint8_t bytes[proto::max_varint_bytes];
  out.append(bytes, proto::write_varint(bytes, value));
}

void append_fixed64(std::string& out, std::uint32_t field, std::uint64_t value) {
  append_varint(out, proto::tag(field, proto::wire_fixed64));
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>(value >> shift));
}

}  // namespace

std::string frame_packet(std::uint32_t field, const std::string& body, std::uint64_t footer_offset) {
  std::string head;
  append_varint(head, proto::tag(field, proto::wire_bytes));
  append_varint(head, body.size());
  std::string tail;
  append_fixed64(tail, proto::checksum_field, XXH3_64bits_withSeed(body.data(), body.size(), field));
  if (footer_offset != no_footer) append_fixed64(tail, proto::footer_offset_field, footer_offset);

  std::string packet;
  packet.reserve(body.size() + head.size() + tail.size() + 12);
  append_varint(packet, proto::tag(proto::packet_field, proto::wire_bytes));
  append_varint(packet, head.size() + body.size() + tail.size());
  return packet.append(head).append(body).append(tail);
}

bool PacketFile::write(const Waiting& packet, bool reserve) {
  if (reserve && !sink_->reserve(packet.bytes.size() + packet.keep_free)) return false;
  if (!sink_->append(packet.bytes)) return false;
  const std::uint64_t offset = size_;
  size_ += packet.bytes.size();
  packet.written(offset);
  return true;
}

void PacketFile::put(std::uint32_t field, const std::string& body, std::uint64_t keep_free, Written written) {
  waiting_.push_back({frame_packet(field, body), keep_free, std::move(written)});
  waiting_bytes_ += waiting_.back().bytes.size();
  if (waiting_.size() == 1) write_waiting();
}

bool PacketFile::write_waiting() {
  while (!waiting_.empty()) {
    if (!write(waiting_.front(), true)) return false;
    waiting_bytes_ -= waiting_.front().bytes.size();
    waiting_.pop_front();
  }
  return true;
}

void PacketFile::drop_waiting() {
  waiting_.clear();
  waiting_bytes_ = 0;
}

bool PacketFile::put_last(std::uint32_t field, const std::string& body, Written written) {
  return write({frame_packet(field, body), 0, std::move(written)}, false);
}

bool PacketFile::put_footer(const std::string& body) {
  return write({frame_packet(proto::footer_field, body, size_), 0, [](std::uint64_t) {}}, false);
}

}  // namespace liveset::writer
