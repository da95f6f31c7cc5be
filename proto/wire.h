// The few pieces of protobuf's wire format that columns use too: shared by the writer and the reader.
#pragma once
#include <cstdint>

namespace liveset::proto {

constexpr std::uint64_t zigzag(std::int64_t value) {
  return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
constexpr std::int64_t unzigzag(std::uint64_t value) { return static_cast<std::int64_t>((value >> 1) ^ (~(value & 1) + 1)); }

constexpr int max_varint_bytes = 10;

// Writes `value` at `out`, which must have room for max_varint_bytes; returns the end.
inline std::uint8_t* write_varint(std::uint8_t* out, std::uint64_t value) {
  while (value >= 0x80) {
    *out++ = static_cast<std::uint8_t>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<std::uint8_t>(value);
  return out;
}

// Field numbers of Trace and Packet (proto/trace.proto), for code that frames packets by hand.
enum : std::uint32_t {
  packet_field = 1,
  header_field = 1,
  dictionary_field = 2,
  events_field = 3,
  snapshot_field = 4,
  calibration_field = 5,
  loss_field = 6,
  footer_field = 7,
  checksum_field = 14,
  footer_offset_field = 15,
};
enum : std::uint32_t { wire_varint = 0, wire_fixed64 = 1, wire_bytes = 2, wire_fixed32 = 5 };
constexpr std::uint32_t tag(std::uint32_t field, std::uint32_t wire_type) { return field << 3 | wire_type; }

}  // namespace liveset::proto
