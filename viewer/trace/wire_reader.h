// Steps through the fields of one encoded protobuf message without trusting a byte of it.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "proto/wire.h"

namespace liveset::trace {

using Bytes = std::span<const std::uint8_t>;

// Reads a varint at `p`, never beyond `end`. Null when it is torn or does not fit 64 bits.
inline const std::uint8_t* read_varint(const std::uint8_t* p, const std::uint8_t* end, std::uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; p != end && shift < 64; shift += 7) {
    const std::uint64_t byte = *p++;
    if (shift == 63 && byte > 1) return nullptr;
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return p;
  }
  return nullptr;
}

class WireReader {
 public:
  explicit WireReader(Bytes message) : p_(message.data()), end_(message.data() + message.size()) {}

  // Moves to the next field. False at the end, and where the message is malformed (then ok() is false).
  bool next() {
    if (p_ == end_ || !ok_) return false;
    ok_ = false;
    std::uint64_t tag = 0;
    if ((p_ = read_varint(p_, end_, tag)) == nullptr || tag >> 3 == 0 || tag >> 32 != 0) return false;
    field_ = static_cast<std::uint32_t>(tag >> 3);
    wire_type_ = static_cast<std::uint32_t>(tag & 7);
    number_ = 0;
    bytes_ = {};
    switch (wire_type_) {
      case proto::wire_varint: ok_ = (p_ = read_varint(p_, end_, number_)) != nullptr; break;
      case proto::wire_fixed64: ok_ = fixed(8); break;
      case proto::wire_fixed32: ok_ = fixed(4); break;
      case proto::wire_bytes: ok_ = length_delimited(); break;
      default: break;  // groups do not occur in proto3
    }
    return ok_;
  }
  bool ok() const { return ok_; }

  std::uint32_t field() const { return field_; }
  bool is_bytes() const { return wire_type_ == proto::wire_bytes; }
  // The field's number when it is one, otherwise 0; its bytes when it has some, otherwise none.
  std::uint64_t number() const { return number_; }
  std::uint32_t number32() const { return static_cast<std::uint32_t>(number_); }
  Bytes bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  bool fixed(std::size_t size) {
    if (static_cast<std::size_t>(end_ - p_) < size) return false;
    for (std::size_t i = 0; i < size; ++i) number_ |= static_cast<std::uint64_t>(p_[i]) << (8 * i);
    p_ += size;
    return true;
  }
  bool length_delimited() {
    std::uint64_t length = 0;
    if ((p_ = read_varint(p_, end_, length)) == nullptr) return false;
    if (length > static_cast<std::uint64_t>(end_ - p_)) return false;
    bytes_ = {p_, static_cast<std::size_t>(length)};
    p_ += length;
    return true;
  }

  const std::uint8_t* p_;
  const std::uint8_t* end_;
  bool ok_ = true;
  std::uint32_t field_ = 0, wire_type_ = 0;
  std::uint64_t number_ = 0;
  Bytes bytes_;
};

}  // namespace liveset::trace
