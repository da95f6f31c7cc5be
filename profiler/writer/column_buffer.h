// One column of the chunk that is being filled.
#pragma once
#include <zstd.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "proto/trace.pb.h"
#include "proto/wire.h"

namespace liveset::writer {

struct FreeCompressor {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};
using Compressor = std::unique_ptr<ZSTD_CCtx, FreeCompressor>;

class ColumnBuffer {
 public:
  // An entry that is one varint.
  void add(std::uint64_t value) {
    begin_entry(value);
    end_ = proto::write_varint(end_, value);
  }
  // An entry that is one byte.
  void add_byte(std::uint8_t value) {
    begin_entry(value);
    *end_++ = value;
  }
  // More of the entry that add() began; such entries are never constant.
  void extend(std::uint64_t value) {
    make_room();
    all_equal_ = false;
    end_ = proto::write_varint(end_, value);
  }

  std::size_t bytes() const { return static_cast<std::size_t>(end_ - buffer_.data()); }
  std::uint32_t entries() const { return entries_; }
  // Puts the column into `chunk` in its cheapest form (none at all when every entry is zero and `may_omit`), and
  // empties it.
  void encode(proto::ColumnId id, bool may_omit, ZSTD_CCtx* compressor, std::vector<char>& scratch, proto::EventChunk& chunk);

 private:
  void begin_entry(std::uint64_t value) {
    make_room();
    if (entries_ == 0) first_ = value;
    all_equal_ &= value == first_;
    ++entries_;
  }
  void make_room() {
    if (limit_ - end_ < proto::max_varint_bytes) [[unlikely]]
      grow();
  }
  void grow();

  std::vector<std::uint8_t> buffer_;
  std::uint8_t* end_ = nullptr;
  std::uint8_t* limit_ = nullptr;
  std::uint64_t first_ = 0;
  std::uint32_t entries_ = 0;
  bool all_equal_ = true;
};

}  // namespace liveset::writer
