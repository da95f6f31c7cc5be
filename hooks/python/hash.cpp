#include "hooks/python/hash.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "hooks/core/dtypes.h"

namespace liveset::python {
namespace {

// XXH64 by its public specification (github.com/Cyan4973/xxHash, doc/xxhash_spec.md), seed 0.
constexpr std::uint64_t prime1 = 0x9E3779B185EBCA87ULL, prime2 = 0xC2B2AE3D27D4EB4FULL, prime3 = 0x165667B19E3779F9ULL,
                        prime4 = 0x85EBCA77C2B2AE63ULL, prime5 = 0x27D4EB2F165667C5ULL;

std::uint64_t rotated(std::uint64_t number, int bits) { return number << bits | number >> (64 - bits); }
std::uint64_t round_of(std::uint64_t lane, std::uint64_t input) { return rotated(lane + input * prime2, 31) * prime1; }
std::uint64_t merged(std::uint64_t sum, std::uint64_t lane) { return (sum ^ round_of(0, lane)) * prime1 + prime4; }

template <typename Number>
Number read(const unsigned char* bytes) {
  Number number;
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

class Hasher {
 public:
  void add(const unsigned char* bytes, std::uint64_t count) {
    length_ += count;
    if (held_ != 0) {
      const std::uint64_t taken = count < stripe - held_ ? count : stripe - held_;
      std::memcpy(rest_ + held_, bytes, taken);
      held_ += taken;
      bytes += taken;
      count -= taken;
      if (held_ < stripe) return;
      take(rest_);
      held_ = 0;
    }
    for (; count >= stripe; bytes += stripe, count -= stripe) take(bytes);
    if (count == 0) return;
    std::memcpy(rest_, bytes, count);
    held_ = count;
  }

  std::uint64_t result() const {
    std::uint64_t sum = prime5;
    if (length_ >= stripe) {
      sum = rotated(lanes_[0], 1) + rotated(lanes_[1], 7) + rotated(lanes_[2], 12) + rotated(lanes_[3], 18);
      for (const std::uint64_t lane : lanes_) sum = merged(sum, lane);
    }
    sum += length_;
    const unsigned char* bytes = rest_;
    std::uint64_t left = held_;
    for (; left >= 8; bytes += 8, left -= 8) sum = rotated(sum ^ round_of(0, read<std::uint64_t>(bytes)), 27) * prime1 + prime4;
    if (left >= 4) {
      sum = rotated(sum ^ read<std::uint32_t>(bytes) * prime1, 23) * prime2 + prime3;
      bytes += 4;
      left -= 4;
    }
    for (; left != 0; ++bytes, --left) sum = rotated(sum ^ *bytes * prime5, 11) * prime1;
    sum = (sum ^ sum >> 33) * prime2;
    sum = (sum ^ sum >> 29) * prime3;
    return sum ^ sum >> 32;
  }

 private:
  static constexpr std::uint64_t stripe = 32;
  void take(const unsigned char* bytes) {
    for (int lane = 0; lane < 4; ++lane) lanes_[lane] = round_of(lanes_[lane], read<std::uint64_t>(bytes + 8 * lane));
  }

  std::uint64_t lanes_[4] = {prime1 + prime2, prime2, 0, 0 - prime1};
  std::uint64_t length_ = 0, held_ = 0;
  unsigned char rest_[stripe];
};

// Dimensions of one element go, and those that lie in memory like one become one.
Strided joined(const Strided& tensor) {
  Strided out;
  out.data = tensor.data;
  out.item_bytes = tensor.item_bytes;
  for (int dimension = 0; dimension < tensor.dimensions; ++dimension) {
    const std::uint64_t size = tensor.sizes[dimension], stride = tensor.strides[dimension];
    if (size == 1) continue;
    const int last = out.dimensions - 1;
    if (last >= 0 && out.strides[last] == size * stride) {
      out.sizes[last] *= size;
      out.strides[last] = stride;
    } else {
      out.sizes[out.dimensions] = size;
      out.strides[out.dimensions++] = stride;
    }
  }
  return out;
}

// Calls `take(first element, count, stride in elements)` for the runs of the last dimension, in order.
template <typename Take>
void for_each_run(const Strided& given, Take take) {
  const Strided tensor = joined(given);
  for (int dimension = 0; dimension < tensor.dimensions; ++dimension) {
    if (tensor.sizes[dimension] == 0) return;
  }
  if (tensor.dimensions == 0) return take(tensor.data, std::uint64_t{1}, std::uint64_t{1});
  const int last = tensor.dimensions - 1;
  std::uint64_t index[most_dimensions] = {};
  const unsigned char* data = tensor.data;
  for (;;) {
    take(data, tensor.sizes[last], tensor.strides[last]);
    int dimension = last - 1;
    for (; dimension >= 0; --dimension) {
      data += tensor.strides[dimension] * tensor.item_bytes;
      if (++index[dimension] < tensor.sizes[dimension]) break;
      data -= tensor.sizes[dimension] * tensor.strides[dimension] * tensor.item_bytes;
      index[dimension] = 0;
    }
    if (dimension < 0) return;
  }
}

// Calls `take(bytes, count)` for the elements' bytes in order: where they lie if that is one run, else in a small buffer.
template <typename Take>
void for_each_piece(const Strided& tensor, Take take) {
  unsigned char gathered[4096];
  const std::uint64_t item = tensor.item_bytes, most = sizeof gathered / item;
  for_each_run(tensor, [&](const unsigned char* data, std::uint64_t count, std::uint64_t stride) {
    if (stride == 1) return take(data, count * item);
    while (count != 0) {
      const std::uint64_t now = count < most ? count : most;
      for (std::uint64_t each = 0; each < now; ++each, data += stride * item) std::memcpy(gathered + each * item, data, item);
      take(gathered, now * item);
      count -= now;
    }
  });
}

float half(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  std::uint32_t exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
  if (exponent == 0 && fraction == 0) return read<float>(reinterpret_cast<const unsigned char*>(&sign));
  if (exponent == 0x1f) {
    exponent = 0xff;
  } else {
    exponent += 112;
    if (exponent == 112) {  // without the leading one
      for (++exponent; (fraction & 0x400) == 0; --exponent) fraction <<= 1;
      fraction &= 0x3ff;
    }
  }
  const std::uint32_t wide = sign | exponent << 23 | fraction << 13;
  return read<float>(reinterpret_cast<const unsigned char*>(&wide));
}

float brain(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  return read<float>(reinterpret_cast<const unsigned char*>(&wide));
}

void count_in(double number, Figures& figures) {
  const double size = number < 0 ? -number : number;
  if (!(size <= 1.7976931348623157e308)) {
    ++figures.not_finite;
    return;
  }
  figures.sum_of_squares += size * size;
  if (size > figures.max_abs) figures.max_abs = size;
}

using CountRun = void (*)(const unsigned char* data, std::uint64_t count, std::uint64_t step, Figures& figures);

template <typename Number, int parts = 1>
void count_run(const unsigned char* data, std::uint64_t count, std::uint64_t step, Figures& figures) {
  for (; count != 0; --count, data += step) {
    for (std::size_t part = 0; part < parts; ++part) count_in(static_cast<double>(read<Number>(data + part * sizeof(Number))), figures);
  }
}

template <float (*wide)(std::uint16_t)>
void count_short_run(const unsigned char* data, std::uint64_t count, std::uint64_t step, Figures& figures) {
  for (; count != 0; --count, data += step) count_in(static_cast<double>(wide(read<std::uint16_t>(data))), figures);
}

template <typename One, typename Two, typename Four, typename Eight>
CountRun by_bytes(std::uint8_t bytes) {
  return bytes == 1 ? count_run<One> : bytes == 2 ? count_run<Two> : bytes == 4 ? count_run<Four> : count_run<Eight>;
}

// Null: no numbers.
CountRun counter_of(const core::DType& type) {
  switch (type.elements) {
    case core::Elements::naturals: return by_bytes<std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t>(type.bytes);
    case core::Elements::integers: return by_bytes<std::int8_t, std::int16_t, std::int32_t, std::int64_t>(type.bytes);
    case core::Elements::halves: return count_short_run<half>;
    case core::Elements::brains: return count_short_run<brain>;
    case core::Elements::reals: return type.bytes == 4 ? count_run<float> : count_run<double>;
    case core::Elements::complex: return type.bytes == 8 ? count_run<float, 2> : count_run<double, 2>;
    case core::Elements::other: break;
  }
  return nullptr;
}

}  // namespace

std::uint64_t hash(const Strided& tensor) {
  Hasher hasher;
  for_each_piece(tensor, [&](const unsigned char* bytes, std::uint64_t count) { hasher.add(bytes, count); });
  return hasher.result();
}

bool write_elements(const Strided& tensor, int file) {
  bool whole = true;
  for_each_piece(tensor, [&](const unsigned char* bytes, std::uint64_t count) {
    while (whole && count != 0) {
      const ssize_t written = write(file, bytes, count);
      if (written > 0) {
        bytes += written;
        count -= static_cast<std::uint64_t>(written);
      } else {
        whole = written < 0 && errno == EINTR;
      }
    }
  });
  return whole;
}

Figures figures(const Strided& tensor, int dtype) {
  Figures found;
  const CountRun run = counter_of(core::dtype(std::int64_t{dtype} - 1));
  found.known = run != nullptr;
  if (run == nullptr) return found;
  for_each_run(tensor, [&](const unsigned char* data, std::uint64_t count, std::uint64_t stride) {
    run(data, count, stride * tensor.item_bytes, found);
  });
  return found;
}

}  // namespace liveset::python
