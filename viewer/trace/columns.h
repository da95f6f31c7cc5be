// Names for the columns of an event chunk, and which kind has which: what a fast pass over trace::Columns needs without
// seeing the protobuf code. The numbers are those of proto/trace.proto; columns.cpp checks that.
#pragma once
#include <array>
#include <cstdint>

#include "viewer/trace/records.h"
#include "viewer/trace/trace_file.h"

namespace liveset::trace {

namespace column {
inline constexpr ColumnMask kind = 1U << 1, time = 1U << 2, thread = 1U << 3, phase = 1U << 4, scope = 1U << 5, heap = 1U << 6,
                            stream = 1U << 7, address = 1U << 8, size = 1U << 9, age = 1U << 10, total = 1U << 11, reserved = 1U << 12,
                            value = 1U << 13, name = 1U << 14, memory_class = 1U << 15, reads = 1U << 16, number = 1U << 17,
                            text = 1U << 18, stack = 1U << 19;
}  // namespace column

inline constexpr std::uint8_t totals_bit = 0x80;

// Columns of each kind byte (with or without the totals bit), besides the dense ones.
using ColumnTable = std::array<ColumnMask, 256>;
const ColumnTable& column_table();

// Position in each sparse column of the next entry, while a loop walks a chunk's events in order.
struct Positions {
  std::uint32_t heap = 0, stream = 0, address = 0, size = 0, age = 0, total = 0, value = 0, name = 0, memory_class = 0, reads = 0,
                number = 0, text = 0, stack = 0;

  // Steps over the entries of one event that has the columns `mask`.
  void pass(ColumnMask mask) {
    heap += (mask >> 6) & 1;
    stream += (mask >> 7) & 1;
    address += (mask >> 8) & 1;
    size += (mask >> 9) & 1;
    age += (mask >> 10) & 1;
    total += (mask >> 11) & 1;  // RESERVED has the same entries
    value += (mask >> 13) & 1;
    name += (mask >> 14) & 1;
    memory_class += (mask >> 15) & 1;
    reads += (mask >> 16) & 1;
    number += (mask >> 17) & 1;
    text += (mask >> 18) & 1;
    stack += (mask >> 19) & 1;
  }
};

}  // namespace liveset::trace
