// Columns of varints, as fast as a portable loop goes.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>

#include "viewer/trace/wire_reader.h"

namespace liveset::trace {

static_assert(std::endian::native == std::endian::little, "words are loaded as the file has them");

// Decodes exactly `count` varints that fill [p, end); false when they do not. Reads up to 8 bytes beyond `end`.
// Values are cut to T; `all` is the union of those of more than one byte, so that a caller can see whether that lost
// any bits.
template <class T>
bool decode_varints(const std::uint8_t* p, const std::uint8_t* end, T* out, std::size_t count, std::uint64_t& all) {
  constexpr std::uint64_t high_bits = 0x8080808080808080U;
  all = 0;
  T* const stop = out + count;
  while (out != stop && p < end) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    const std::uint64_t ends = ~word & high_bits;
    if (ends == high_bits && stop - out >= 8 && end - p >= 8) {
      // Eight numbers of one byte each: what most structural columns consist of.
      for (int i = 0; i < 8; ++i) out[i] = static_cast<T>(p[i]);
      out += 8;
      p += 8;
      continue;
    }
    if (ends == 0) [[unlikely]] {
      std::uint64_t value = 0;
      p = read_varint(p, end, value);
      if (p == nullptr) return false;
      all |= value;
      *out++ = static_cast<T>(value);
      continue;
    }
    // Keep the bytes up to the first one without a continuation bit, and squeeze out bit 7 of each.
    const int bytes = (std::countr_zero(ends) + 1) / 8;
    word &= ends ^ (ends - 1);
    word = (word & 0x7f007f007f007f00U) >> 1 | (word & 0x007f007f007f007fU);
    word = (word & 0x3fff00003fff0000U) >> 2 | (word & 0x00003fff00003fffU);
    word = (word & 0x0fffffff00000000U) >> 4 | (word & 0x000000000fffffffU);
    all |= word;
    *out++ = static_cast<T>(word);
    p += bytes;
  }
  return out == stop && p == end;
}

}  // namespace liveset::trace
