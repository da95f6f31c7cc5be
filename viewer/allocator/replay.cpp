#include "viewer/allocator/replay.h"

#include <absl/container/flat_hash_map.h>

#include <algorithm>

namespace liveset::allocator {
namespace {

void raise(Peak& peak, std::uint64_t bytes, std::uint64_t event) {
  if (bytes > peak.bytes || peak.event == Peak::no_event) peak = {bytes, event};
}

Error refused(std::uint64_t event, std::string what, std::string hint) {
  return {ErrorKind::usage, "", std::nullopt, "allocator replay, event " + std::to_string(event) + ": " + std::move(what), std::move(hint)};
}

}  // namespace

Status Replay::add(const Event& event) {
  if (event.action == Action::empty_cache) {
    allocator_.empty_cache();
  } else {
    if (event.id >= handles_.size()) return refused(events_, "allocation " + std::to_string(event.id) + " is unknown", "ids count from 0");
    Handle& handle = handles_[event.id];
    switch (event.action) {
      case Action::malloc:
        if (handle != Handle()) return refused(events_, "allocation " + std::to_string(event.id) + " lives already", "");
        handle = allocator_.malloc(event.size, event.stream).handle;
        break;
      case Action::free_requested: idle_frees_ += !allocator_.free_requested(handle); break;
      case Action::free:
      case Action::free_completed:
        idle_frees_ += !(event.action == Action::free ? allocator_.free(handle) : allocator_.free_completed(handle));
        handle = {};
        break;
      case Action::empty_cache: break;
    }
  }
  if (allocator_.exhausted()) return refused(events_, "the layout is too fragmented to be followed", "replay a part of it");
  const Counters& now = allocator_.counters();
  raise(peaks_.requested, now.requested, events_);
  raise(peaks_.allocated, now.allocated, events_);
  raise(peaks_.active, now.active, events_);
  raise(peaks_.reserved, now.reserved, events_);
  ++events_;
  return Done{};
}

Fragmentation Replay::fragmentation() const {
  Fragmentation result;
  if (events_ != 0) result.event = events_ - 1;
  result.counters = allocator_.counters();
  // A handle may be of a block that is no more: giving back completes what is pending.
  const auto key = [](Handle handle) { return std::uint64_t{handle.generation} << 32 | handle.block; };
  absl::flat_hash_map<std::uint64_t, std::uint64_t> ids;
  for (std::uint64_t id = 0; id < handles_.size(); ++id) {
    if (handles_[id] != Handle()) ids[key(handles_[id])] = id;
  }
  for (const Segment& segment : allocator_.segments()) {
    FragmentedSegment out{segment.number, segment.address, segment.size, segment.stream, segment.small, segment.expandable};
    for (const SegmentBlock& block : segment.blocks) {
      if (block.state == SegmentBlock::State::free) {
        out.free_bytes += block.size;
        out.largest_free = std::max(out.largest_free, block.size);
      } else {
        out.used += block.size;
        out.pins.push_back(
            {ids[key(block.handle)], block.address, block.size, block.requested, block.state == SegmentBlock::State::pending});
      }
    }
    result.segments.push_back(std::move(out));
  }
  return result;
}

Result<ReplayResult> replay(std::span<const Event> events, const ReplayOptions& options) {
  const auto run = [&](Replay& replay, std::uint64_t end, bool visits) -> Status {
    while (replay.events() < end) {
      const std::uint64_t event = replay.events();
      if (Status status = replay.add(events[event]); !status) return status;
      if (visits) options.visit(event, replay.counters());
    }
    return Done{};
  };
  ReplayResult result;
  Replay whole(events.size(), options.settings, options.device);
  const bool stops = options.at < events.size();
  if (stops) {
    if (Status status = run(whole, options.at + 1, options.visit != nullptr); !status) return status.take_error();
    result.fragmentation = whole.fragmentation();
  }
  if (Status status = run(whole, events.size(), options.visit != nullptr); !status) return status.take_error();
  result.final = whole.counters();
  result.peaks = whole.peaks();
  result.statistics = whole.allocator().statistics();
  result.idle_frees = whole.idle_frees();
  if (stops) return result;
  if (options.at != ReplayOptions::at_peak || events.empty()) {
    result.fragmentation = whole.fragmentation();
    return result;
  }
  Replay again(events.size(), options.settings, options.device);  // where the peak is, is known only at the end
  if (Status status = run(again, result.peaks.reserved.event + 1, false); !status) return status.take_error();
  result.fragmentation = again.fragmentation();
  return result;
}

}  // namespace liveset::allocator
