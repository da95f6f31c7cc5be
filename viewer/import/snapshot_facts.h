// What a snapshot says of each device when its events are laid over its dump, and where the two contradict each other.
//
// The dump is the state after the last event. So what lived before the first one follows: blocks that the dump shows and no event
// allocated, and blocks that were freed and no event allocated; reserved bytes the same way. Everything is in requested bytes, which is
// what events carry; a block counts until its free is completed, as PyTorch's own `requested_bytes` has it.
#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "viewer/import/snapshot.h"

namespace liveset::imports {

// How much of the past the events tell.
enum class History : std::uint8_t {
  none,    // no event allocates: only the state at the dump is known, and no peak
  window,  // the events begin late: bytes lived before them
  whole,   // from the first byte on
};
const char* history_name(History history);

// A block or segment that was there before the first event.
struct Opening {
  std::uint64_t address = 0, bytes = 0, stream = 0;
  Pickle::Id frames = Pickle::absent;
};

struct DeviceFacts {
  std::uint32_t device = 0;
  History history = History::none;
  std::uint64_t events = 0;
  std::array<std::uint64_t, action_count> actions{};
  std::uint64_t unseen_allocations = 0;                   // blocks that were freed and that no event had allocated
  std::vector<Opening> opening_blocks, opening_segments;  // by address
  // At the dump.
  std::uint64_t requested_at_dump = 0, active_at_dump = 0, allocated_at_dump = 0, reserved_at_dump = 0, pending_at_dump = 0;
  // Requested bytes before the first event: those at the dump less what the events add up to. Below 0: a contradiction.
  std::int64_t baseline_requested = 0, baseline_reserved = 0;
  std::int64_t peak_requested = 0, peak_reserved = 0;  // since the first event; at least the baseline
  std::vector<std::string> contradictions;             // the first few
  std::uint64_t contradiction_count = 0;
  static constexpr std::size_t max_contradictions = 12;
};

// One for each device that has a segment or an event, by device. Errors: sizes that add up beyond 2^60.
Result<std::vector<DeviceFacts>> facts_of(const Snapshot& snapshot);

}  // namespace liveset::imports
