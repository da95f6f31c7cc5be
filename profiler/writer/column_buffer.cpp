#include "profiler/writer/column_buffer.h"

#include <algorithm>

namespace liveset::writer {
namespace {

constexpr int compression_level = 1;           // 3 saves 1 % of the bytes for twice the time
constexpr std::size_t worth_compressing = 48;  // bytes; below, a zstd frame is mostly its own header

}  // namespace

void ColumnBuffer::grow() {
  const std::size_t used = bytes();
  buffer_.resize(std::max<std::size_t>(4096, buffer_.size() * 2));
  end_ = buffer_.data() + used;
  limit_ = buffer_.data() + buffer_.size();
}

void ColumnBuffer::encode(proto::ColumnId id, bool may_omit, ZSTD_CCtx* compressor, std::vector<char>& scratch, proto::EventChunk& chunk) {
  if (entries_ != 0 && !(may_omit && all_equal_ && first_ == 0)) {
    proto::Column& column = *chunk.add_column();
    column.set_id(id);
    column.set_entries(entries_);
    column.set_raw_bytes(static_cast<std::uint32_t>(bytes()));
    if (all_equal_) {
      column.set_constant(first_);
    } else {
      std::size_t packed = bytes();
      if (bytes() >= worth_compressing) {
        scratch.resize(std::max(scratch.size(), ZSTD_compressBound(bytes())));
        packed = ZSTD_compressCCtx(compressor, scratch.data(), scratch.size(), buffer_.data(), bytes(), compression_level);
      }
      // Noise gains nothing from a frame around it, and is read faster without.
      if (packed < bytes() - bytes() / 64) {
        column.set_data(scratch.data(), packed);
      } else {
        column.set_plain(buffer_.data(), bytes());
      }
    }
  }
  end_ = buffer_.data();
  entries_ = 0;
  all_equal_ = true;
}

}  // namespace liveset::writer
