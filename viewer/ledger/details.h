// Looks things up in a trace that the ledger does not keep: when and where an event happened, what a block's birth
// says.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "viewer/ledger/physical.h"

namespace liveset::ledger {

struct EventStamp {
  std::uint64_t event = no_event, time_ns = 0;
  trace::Kind kind = trace::Kind::none;
  trace::Phase phase = trace::Phase::other;
  std::uint32_t scope = 0, thread = 0;
};
Result<EventStamp> describe_event(const trace::TraceFile& file, std::uint64_t event);

struct BlockDetail {
  std::uint32_t ordinal = 0, scope = 0, thread = 0, stack = 0, heap = 0;
  std::uint64_t address = 0, bytes = 0, stream = 0;
  std::uint64_t birth = 0, death = no_event, birth_time_ns = 0;
  trace::Phase phase = trace::Phase::other;
  std::optional<std::int64_t> step;  // at birth
};
// In the order of `ordinals`, which must rise. Reads only the chunks in which these blocks were made.
Result<std::vector<BlockDetail>> describe_blocks(const trace::TraceFile& file, const PhysicalLedger& ledger,
                                                 std::span<const std::uint32_t> ordinals);

// Index into file.chunks() of the chunk that has `event`; chunks().size() when it is in none.
std::size_t chunk_of(const trace::TraceFile& file, std::uint64_t event);
// Number of the step in which `event` lies.
std::optional<std::int64_t> step_at(const PhysicalLedger& ledger, std::uint64_t event);

}  // namespace liveset::ledger
