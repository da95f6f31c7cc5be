// What TraceFile knows of an opened file; filled by load_trace.
#pragma once
#include <cstdint>
#include <vector>

#include "viewer/trace/file_bytes.h"
#include "viewer/trace/messages.h"
#include "viewer/trace/trace_file.h"

namespace liveset::trace {

// Where a chunk's packet lies, and how its allocations are numbered in the file.
struct ChunkPlace {
  std::uint64_t content_offset = 0;
  std::uint32_t content_bytes = 0;
  std::uint64_t first_allocation = 0;
};

// Allocations whose chunk cannot be read: [first, first + count) by the file's numbers. `before` are gone before them.
struct AllocationGap {
  std::uint64_t first = 0, count = 0, before = 0;
};

struct TraceFile::State {
  explicit State(FileBytes bytes) : file(std::move(bytes)) {}

  // The chunk's columns, ages untouched.
  Status decode(const ChunkPlace& place, ColumnMask mask, Columns& out) const;
  Status read_chunk(std::size_t index, ColumnMask mask, Columns& out) const;
  // Checks the ages, and counts them over the allocations that can be read. Sets `why` when the result is false.
  bool settle_ages(std::size_t index, Columns& out, std::string& why) const;

  FileBytes file;
  Header header;
  Layout layout{};
  Dictionary dictionary;
  Health health;
  std::vector<ChunkInfo> chunks;
  std::vector<ChunkPlace> places;  // one for each chunk
  std::vector<AllocationGap> gaps;
  std::uint64_t events = 0, allocations = 0, end_time_ns = 0;
};

// Reads header, dictionary and index of `state.file`.
Status load_trace(TraceFile::State& state);

}  // namespace liveset::trace
