// How a trace file is made up: its packets and columns, byte by byte. For people who ask where the bytes went.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "viewer/trace/result.h"

namespace liveset::trace {

struct PacketFacts {
  std::string name;  // "header", "dictionary", ...
  std::uint64_t packets = 0, bytes = 0;
};
struct ColumnFacts {
  std::string name;  // "TIME", "ADDRESS", ...
  std::uint64_t entries = 0, raw_bytes = 0, stored_bytes = 0;
  std::uint64_t chunks = 0,
                constant_chunks = 0;  // chunks that have the column at all, and those where it is one number
};
struct Calibration {
  std::uint64_t ticks = 0, monotonic_ns = 0;
};
struct Facts {
  std::vector<PacketFacts> packets;  // of the kinds that occur, in the order of the schema
  std::vector<ColumnFacts> columns;
  std::uint64_t unreadable_bytes = 0;  // in damaged packets, and behind the last packet
  std::uint64_t calibrations = 0;
  std::optional<Calibration> first_calibration, last_calibration;
};

// Walks the packets of the file at `path`, which TraceFile::open has accepted.
Result<Facts> read_facts(const std::string& path);
class TraceFile;
Result<Facts> read_facts(const TraceFile& file);

}  // namespace liveset::trace
