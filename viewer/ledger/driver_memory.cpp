#include "viewer/ledger/driver_memory.h"

#include <algorithm>

namespace liveset::ledger {
namespace {

using trace::Kind;

constexpr int cuda_type = 1;

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

}  // namespace

DriverSums::DriverSums(const trace::Dictionary& names) {
  heaps_.resize(names.heaps.size());
  for (const trace::Source& source : names.sources) known_ |= source.name == "driver";
  for (std::size_t id = 1; known_ && id < names.heaps.size(); ++id) {
    const trace::Heap& heap = names.heaps[id];
    const std::string_view source = heap.source < names.sources.size() ? std::string_view(names.sources[heap.source].name) : "";
    heaps_[id].is_allocator = source == "c10";
    if (heap.device_type != cuda_type || (source != "driver" && source != "c10")) continue;
    heaps_[id].device = heap.device_index;
    device(heap.device_index);
  }
}

DriverSums::Device& DriverSums::device(int number) {
  const auto place = std::lower_bound(devices_.begin(), devices_.end(), number,
                                      [](const Device& device, int searched) { return device.number < searched; });
  if (place != devices_.end() && place->number == number) return *place;
  Device made;
  made.number = number;
  return *devices_.insert(place, made);
}

bool DriverSums::raise(Sum& sum, std::int64_t change, std::uint64_t event) const {
  sum.now += change;
  if (!in_range_ || sum.now <= static_cast<std::int64_t>(sum.out.peak)) return false;
  sum.out.peak = at_least_zero(sum.now);
  sum.out.peak_event = event;
  return true;
}

void DriverSums::note_peak(Device& device) const {
  device.at_peak.clear();
  device.unmapped_at_peak = 0;
  for (std::size_t id = 0; id < heaps_.size(); ++id) {
    const Heap& heap = heaps_[id];
    if (heap.device != device.number || heap.held() <= 0) continue;
    device.at_peak.push_back({static_cast<std::uint32_t>(id), at_least_zero(heap.held())});
    device.unmapped_at_peak += at_least_zero(heap.handles - heap.mapped);
  }
}

void DriverSums::add(Kind kind, std::uint32_t id, std::uint64_t size, std::uint64_t event) {
  const int sign = direction(kind);
  if (!known_ || sign == 0 || id >= heaps_.size()) return;
  const std::int64_t bytes = sign * static_cast<std::int64_t>(size);
  if (kind == Kind::host_alloc || kind == Kind::host_free) {
    raise(pinned_, bytes, event);
  } else if (kind == Kind::host_register || kind == Kind::host_unregister) {
    raise(registered_, bytes, event);
  } else if (Heap& heap = heaps_[id]; heap.device >= 0) {
    const std::int64_t before = heap.held();
    const bool is_mapping = kind == Kind::segment_map || kind == Kind::segment_unmap;
    const bool is_handle = kind == Kind::handle_create || kind == Kind::handle_release;
    (is_mapping ? heap.mapped : is_handle ? heap.handles : heap.allocated) += bytes;
    Device& where = device(heap.device);
    const std::int64_t change = heap.held() - before;
    if (!heap.is_allocator) raise(where.outside, change, event);
    // A handle that is mapped at once is not mapped at the moment of its making: the state at the peak is the last one of that height.
    const bool still_at_peak = in_range_ && is_mapping && where.held.now == static_cast<std::int64_t>(where.held.out.peak);
    if (raise(where.held, change, event) || still_at_peak) note_peak(where);
  }
}

void DriverSums::open_range(std::uint64_t event) {
  in_range_ = true;
  const auto begin = [event](Sum& sum) {
    sum.out.peak = at_least_zero(sum.now);
    sum.out.peak_event = event;
  };
  for (Device& each : devices_) {
    begin(each.held);
    begin(each.outside);
    note_peak(each);
  }
  begin(pinned_);
  begin(registered_);
}

DriverMemory DriverSums::finish() {
  DriverMemory memory;
  memory.known = known_;
  const auto finished = [this](const Sum& sum) {
    Counter counter = sum.out;
    counter.known = known_;
    counter.final = at_least_zero(sum.now);
    return counter;
  };
  for (const Device& each : devices_)
    memory.devices.push_back({each.number, finished(each.held), finished(each.outside), each.at_peak, each.unmapped_at_peak});
  memory.pinned_host = finished(pinned_);
  memory.registered_host = finished(registered_);
  return memory;
}

}  // namespace liveset::ledger
