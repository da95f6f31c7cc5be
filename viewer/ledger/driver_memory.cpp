#include "viewer/ledger/driver_memory.h"

#include <algorithm>

#include "viewer/ledger/block_table.h"

namespace liveset::ledger {
namespace {

using trace::Kind;

constexpr int cuda_type = 1, most_devices = 64;

std::uint64_t at_least_zero(std::int64_t number) { return static_cast<std::uint64_t>(std::max<std::int64_t>(number, 0)); }

// +1: the event brings memory, -1: it takes it away.
int direction(Kind kind) {
  switch (kind) {
    case Kind::segment_alloc:
    case Kind::segment_map:
    case Kind::handle_create:
    case Kind::host_alloc:
    case Kind::host_register: return 1;
    case Kind::segment_free:
    case Kind::segment_unmap:
    case Kind::handle_release:
    case Kind::host_free:
    case Kind::host_unregister: return -1;
    default: return 0;
  }
}

// Moves as much of `bytes` as there is. -> the rest
std::uint64_t move(std::uint64_t bytes, std::uint64_t& from, std::uint64_t& to) {
  const std::uint64_t moved = std::min(bytes, from);
  from -= moved;
  to += moved;
  return bytes - moved;
}

std::int64_t signed_bytes(Kind kind, std::uint64_t size) { return static_cast<std::int64_t>(direction(kind) > 0 ? size : 0 - size); }

}  // namespace

bool VirtualMemory::add(Kind kind, std::uint64_t bytes) {
  std::uint64_t given_back = 0;
  switch (kind) {
    case Kind::handle_create: unmapped_ += bytes; return true;
    case Kind::segment_map: bare_ += move(bytes, unmapped_, mapped_); return true;  // the rest: mapped a second time, or another's
    case Kind::handle_release: {
      // Most unmap memory before they release its handle; then that is the only handle without a mapping.
      const bool is_open = unmapped_ > bytes && mapped_ != 0;
      if (unmapped_ >= bytes)
        unmapped_ -= bytes;
      else
        move(move(bytes, mapped_, bare_), unmapped_, given_back);
      return !is_open;
    }
    case Kind::segment_unmap: {
      const bool is_open = bare_ > bytes && mapped_ != 0;
      if (bare_ >= bytes)
        bare_ -= bytes;
      else
        move(move(bytes, mapped_, unmapped_), bare_, given_back);
      return !is_open;
    }
    default: return true;
  }
}

DriverSums::DriverSums(const trace::Dictionary& names) {
  // A trace may name more heaps and devices than there can be: those have no sums.
  heaps_.resize(std::min<std::size_t>(names.heaps.size(), Block::max_heap + 1));
  for (const trace::Source& source : names.sources) known_ |= source.name == "driver";
  for (std::uint32_t id = 1; known_ && id < heaps_.size(); ++id) {
    const trace::Heap& heap = names.heaps[id];
    const std::string_view source = heap.source < names.sources.size() ? std::string_view(names.sources[heap.source].name) : "";
    heaps_[id].is_allocator = source == "c10";
    const bool is_device = heap.device_type == cuda_type && heap.device_index >= 0 && heap.device_index < most_devices;
    if (!is_device || (source != "driver" && source != "c10")) continue;
    heaps_[id].device = heap.device_index;
    heaps_[id].is_managed = names.string(heap.name).starts_with("managed:");
    devices_[heap.device_index].heaps.push_back(id);
  }
}

bool DriverSums::raise(Sum& sum, std::int64_t change, std::uint64_t event) const {
  sum.now = wrapping_sum(sum.now, change);
  if (!in_range_ || sum.now <= static_cast<std::int64_t>(sum.out.peak)) return false;
  sum.out.peak = at_least_zero(sum.now);
  sum.out.peak_event = event;
  return true;
}

// Only of what changed since: as many peaks as events cost no more than the events.
void DriverSums::note_peak(Device& device) {
  for (const std::uint32_t id : device.touched) {
    Heap& heap = heaps_[id];
    heap.is_touched = false;
    heap.peak_bytes = at_least_zero(heap.held());
    heap.peak_unmapped = heap.by_handles.unmapped();
  }
  device.touched.clear();
}

void DriverSums::add(Kind kind, std::uint32_t id, std::uint64_t size, std::uint64_t event) {
  if (!known_ || direction(kind) == 0 || id >= heaps_.size()) return;
  if (kind == Kind::host_alloc || kind == Kind::host_free) {
    raise(pinned_, signed_bytes(kind, size), event);
  } else if (kind == Kind::host_register || kind == Kind::host_unregister) {
    raise(registered_, signed_bytes(kind, size), event);
  } else if (heaps_[id].device >= 0) {
    add_to_device(kind, id, size, event);
  }
}

void DriverSums::add_to_device(Kind kind, std::uint32_t id, std::uint64_t size, std::uint64_t event) {
  Heap& heap = heaps_[id];
  Device& device = devices_[heap.device];
  if (heap.is_managed) {
    raise(device.managed, signed_bytes(kind, size), event);
    return;
  }
  const std::int64_t before = heap.held();
  if (kind == Kind::segment_alloc || kind == Kind::segment_free)
    heap.allocated = wrapping_sum(heap.allocated, signed_bytes(kind, size));
  else
    device.is_lower_bound |= !heap.by_handles.add(kind, size);
  if (!heap.is_touched) device.touched.push_back(id);
  heap.is_touched = true;
  const std::int64_t change = wrapping_difference(heap.held(), before);
  if (!heap.is_allocator) raise(device.outside, change, event);
  // A handle that is mapped at once is not mapped at the moment of its making: the state at the peak is the last one of that height.
  const bool is_mapping = kind == Kind::segment_map || kind == Kind::segment_unmap;
  const bool is_at_peak = in_range_ && device.held_until == no_event && device.held.now == static_cast<std::int64_t>(device.held.out.peak);
  if (raise(device.held, change, event)) {
    note_peak(device);
    device.held_until = no_event;
  } else if (is_at_peak && change == 0) {
    if (is_mapping) note_peak(device);
  } else if (in_range_ && device.held_until == no_event) {
    device.held_until = event;
  }
}

void DriverSums::open_range(std::uint64_t event) {
  in_range_ = true;
  const auto begin = [event](Sum& sum) {
    sum.out.peak = at_least_zero(sum.now);
    sum.out.peak_event = event;
  };
  for (auto& [number, device] : devices_) {
    begin(device.held);
    begin(device.outside);
    begin(device.managed);
    device.held_until = no_event;
    note_peak(device);
  }
  begin(pinned_);
  begin(registered_);
}

Counter DriverSums::finished(const Sum& sum) const {
  Counter counter = sum.out;
  counter.known = known_;
  counter.final = at_least_zero(sum.now);
  return counter;
}

DeviceMemory DriverSums::finished(int number) const {
  const Device& device = devices_.at(number);
  DeviceMemory memory{number, finished(device.held), finished(device.outside), finished(device.managed), {}, device.held_until,
                      0,      device.is_lower_bound};
  for (const std::uint32_t id : device.heaps) {
    if (heaps_[id].peak_bytes == 0) continue;
    memory.at_peak.push_back({id, heaps_[id].peak_bytes, heaps_[id].is_allocator});
    memory.unmapped_at_peak += heaps_[id].peak_unmapped;
  }
  return memory;
}

DriverMemory DriverSums::finish() {
  DriverMemory memory;
  memory.known = known_;
  for (const auto& each : devices_) memory.devices.push_back(finished(each.first));
  memory.pinned_host = finished(pinned_);
  memory.registered_host = finished(registered_);
  return memory;
}

}  // namespace liveset::ledger
