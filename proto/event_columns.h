// Which columns each event kind has: the one table that the writer and the reader share. FORMAT.md prints it.
#pragma once
#include <cstdint>

#include "proto/trace.pb.h"

namespace liveset::proto {

constexpr std::uint32_t column_bit(ColumnId id) { return 1U << static_cast<unsigned>(id); }

// Set in the KIND byte of an event that carries the allocator's own counters.
constexpr std::uint8_t kind_has_totals = 0x80;
constexpr std::uint32_t max_chunk_events = 65536;
constexpr std::uint32_t max_column_bytes = 16U << 20;
constexpr std::uint32_t max_packet_bytes = 64U << 20;
constexpr std::uint32_t max_header_bytes = 4U << 20;
constexpr std::uint32_t format_major = 1;
constexpr std::uint32_t format_minor = 4;

// Columns of an event besides KIND, TIME, TIME_LOW, THREAD, PHASE and SCOPE, which every event has. NEW_ADDRESS goes
// with ADDRESS, for those events whose address is new in the chunk. Unknown kinds have none.
constexpr std::uint32_t columns_of(std::uint8_t kind_byte) {
  constexpr std::uint32_t heap = column_bit(COLUMN_HEAP);
  constexpr std::uint32_t block = heap | column_bit(COLUMN_STREAM) | column_bit(COLUMN_ADDRESS) | column_bit(COLUMN_SIZE);
  constexpr std::uint32_t totals = column_bit(COLUMN_TOTAL) | column_bit(COLUMN_RESERVED);
  const std::uint32_t extra = (kind_byte & kind_has_totals) != 0 ? totals : 0;
  switch (kind_byte & 0x7f) {
    case EVENT_ALLOC: return block | column_bit(COLUMN_STACK) | extra;
    case EVENT_FREE_REQUESTED:
    case EVENT_FREE_COMPLETED: return column_bit(COLUMN_AGE) | column_bit(COLUMN_STACK) | extra;
    case EVENT_FREE_UNMATCHED:
    case EVENT_SEGMENT_ALLOC:
    case EVENT_SEGMENT_FREE:
    case EVENT_SEGMENT_MAP:
    case EVENT_SEGMENT_UNMAP:
    case EVENT_POOL_CREATE:
    case EVENT_POOL_DESTROY:
    case EVENT_POOL_TRIM:
    case EVENT_HOST_ALLOC:
    case EVENT_HOST_FREE:
    case EVENT_HOST_REGISTER:
    case EVENT_HOST_UNREGISTER:
    case EVENT_OUT_OF_MEMORY:
    case EVENT_HANDLE_CREATE:
    case EVENT_HANDLE_RELEASE:
    case EVENT_GRAPH_ALLOC:
    case EVENT_GRAPH_FREE:
    case EVENT_ADDRESS_RESERVE:
    case EVENT_ADDRESS_FREE:
    case EVENT_IMPORT_BEGIN:
    case EVENT_IMPORT_END: return block | extra;
    case EVENT_COUNTER: return heap | column_bit(COLUMN_NAME) | column_bit(COLUMN_NUMBER);
    case EVENT_KERNEL: return heap | column_bit(COLUMN_STREAM) | column_bit(COLUMN_NAME) | column_bit(COLUMN_NUMBER);
    case EVENT_STEP_BEGIN:
    case EVENT_STEP_END:
    case EVENT_MICROBATCH_BEGIN:
    case EVENT_MICROBATCH_END:
    case EVENT_BACKWARD_BEGIN:
    case EVENT_BACKWARD_END:
    case EVENT_SEQUENCE: return column_bit(COLUMN_NUMBER);
    case EVENT_GRAPH_NODE:
    case EVENT_NODE_BEGIN:
    case EVENT_NODE_END: return column_bit(COLUMN_NAME) | column_bit(COLUMN_NUMBER);
    case EVENT_ATTRIBUTE: return column_bit(COLUMN_NAME) | column_bit(COLUMN_TEXT);
    case EVENT_VALUE_CREATE:
    case EVENT_VALUE_RETAIN:
    case EVENT_VALUE_DROP:
    case EVENT_VALUE_USE:
    case EVENT_VALUE_REMAKE:
    case EVENT_VALUE_MERGE:
    case EVENT_VALUE_RELEASE:
    case EVENT_VALUE_ALIAS:
    case EVENT_VALUE_OFFLOAD:
    case EVENT_VALUE_PREFETCH:
    case EVENT_VALUE_MUTATE:
      return column_bit(COLUMN_VALUE) | heap | column_bit(COLUMN_ADDRESS) | column_bit(COLUMN_SIZE) | column_bit(COLUMN_NAME) |
             column_bit(COLUMN_CLASS) | column_bit(COLUMN_READS) | column_bit(COLUMN_NUMBER);
    case EVENT_STORAGE:
      return heap | column_bit(COLUMN_ADDRESS) | column_bit(COLUMN_SIZE) | column_bit(COLUMN_NAME) | column_bit(COLUMN_CLASS) |
             column_bit(COLUMN_NUMBER);
    case EVENT_COLLECTIVE:
    case EVENT_HOLDER:
      return heap | column_bit(COLUMN_ADDRESS) | column_bit(COLUMN_SIZE) | column_bit(COLUMN_NAME) | column_bit(COLUMN_NUMBER);
    default: return 0;
  }
}

}  // namespace liveset::proto
