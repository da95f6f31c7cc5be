// Walks a file's packets in order, and says of each whether its bytes are those that were written.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "viewer/trace/file_bytes.h"

namespace liveset::trace {

struct Packet {
  std::uint64_t offset = 0, content_offset = 0, end = 0;  // in the file; the content is all but tag and length
  std::uint32_t field = 0;                                // of the body; 0 when there is none
  Bytes body;                                             // valid until the scanner moves on
  bool intact = false;                                    // well formed, and the checksum is right
  std::optional<std::uint64_t> footer_offset;
};

// The packet with this content.
Packet parse_packet(Bytes content);

class PacketScanner {
 public:
  explicit PacketScanner(const FileBytes& file) : file_(&file) {}

  // The packet at `offset`, nothing at the file's end and where no packet begins or the file ends inside it (then
  // `torn()`).
  Result<std::optional<Packet>> at(std::uint64_t offset);
  bool torn() const { return torn_; }

 private:
  Result<Bytes> window(std::uint64_t offset, std::uint64_t length);

  const FileBytes* file_;
  PaddedBuffer buffer_;
  std::uint64_t window_offset_ = 0;
  Bytes window_;
  bool torn_ = false;
};

}  // namespace liveset::trace
