// PyTorch's memory snapshots (torch.cuda.memory._dump_snapshot) as plain structs.
//
// A snapshot is a pickle: `segments` with their blocks at the moment of the dump, and `device_traces`, for each device the last events of
// the allocator, as many as its ring holds. Sizes of events, and `requested_size` of blocks, are what the program asked for; `size` of a
// block is what the allocator gave. Written by PyTorch 1.13 to 2.14; what older ones lack is absent here, too: `history` instead of frames
// and address, no `requested_size`, no times. A bare list of segments (torch.cuda.memory_snapshot()) is read as well.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "viewer/import/pickle.h"

namespace liveset::imports {

enum class BlockState : std::uint8_t {
  inactive,
  allocated,
  pending,  // freed by the program, and waiting for a stream: "active_pending_free", once "active_awaiting_free"
};

struct SnapshotBlock {
  std::uint64_t address = 0, size = 0, requested = 0;
  BlockState state = BlockState::inactive;
  Pickle::Id frames = Pickle::absent;
};

struct SnapshotSegment {
  static constexpr std::uint64_t unknown = ~std::uint64_t{0};
  std::uint32_t device = 0;
  bool expandable = false;
  std::uint64_t address = 0, total = 0, stream = 0;
  std::uint64_t allocated = unknown, active = unknown, requested = unknown;  // as the file sums them up
  std::size_t first_block = 0, blocks = 0;                                   // in Snapshot::blocks
};

enum class Action : std::uint8_t {
  alloc,
  free_requested,
  free_completed,
  segment_alloc,
  segment_free,
  segment_map,
  segment_unmap,
  snapshot,
  oom,  // its address is not one: free bytes of the device
  other,
};
inline constexpr std::size_t action_count = 10;
const char* action_name(Action action);

struct SnapshotEvent {
  static constexpr std::int64_t no_time = -1;
  std::uint64_t address = 0, size = 0, stream = 0;
  std::int64_t time_us = no_time;  // since 1970
  Pickle::Id frames = Pickle::absent;
  Action action = Action::other;
};

// A region that the profiler's hooks named: "Optimizer.step#AdamW.step".
struct SnapshotAnnotation {
  Pickle::Id name = Pickle::absent;
  bool begins = false;
  std::uint32_t device = 0;
  std::int64_t time_us = 0;
};

struct Snapshot {
  static constexpr std::uint32_t max_devices = 1024;
  static constexpr std::int64_t max_time_us = std::int64_t{1} << 53;  // since 1970: more is no time
  static constexpr std::uint64_t max_bytes = std::uint64_t{1} << 48;  // of one block, segment or event: more is no memory's size

  Pickle pickle;
  std::vector<SnapshotSegment> segments;
  std::vector<SnapshotBlock> blocks;
  std::vector<std::vector<SnapshotEvent>> traces;  // by device
  std::vector<SnapshotAnnotation> annotations;
  bool has_traces = false;                   // the file knows of traces at all
  std::string allocator_conf;                // PYTORCH_CUDA_ALLOC_CONF
  bool expandable_segments = false;          // of allocator_settings
  std::uint64_t host_segments = 0;           // of pinned memory; not read
  std::vector<std::string> unknown_actions;  // a few
};

// Errors (unreadable): what the pickle reader refuses; a pickle that is no memory snapshot; numbers that no memory has.
Result<Snapshot> read_snapshot(const std::string& path, const PickleLimits& limits = {});
Result<Snapshot> parse_snapshot(Pickle pickle);

}  // namespace liveset::imports
