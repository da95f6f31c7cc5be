// Virtual memory: device memory behind handles, and where it is mapped.
#include "hooks/driver/call.h"

namespace liveset::driver {
namespace {

void after_create(const Call& call, Entry entry) {
  const int device = device_of_properties(call.argument(call.what().c));
  entry.bytes = call.argument(call.what().b);
  entry.heap = device >= 0 ? device_heap(call, device) : host_heap(call);
  keep(entry);
  record_given(entry);
}

// Calls visit(mapping) for those that the range holds. They follow each other without gaps.
template <class Visit>
void for_each_mapping(const Call& call, Visit visit) {
  const Word begin = call.argument(call.what().a), end = begin + call.argument(call.what().b);
  Entry entry;
  for (Word at = begin; at < end && live_memory.find(Space::mapping, at, &entry) && entry.bytes != 0; at += entry.bytes) visit(entry);
}

}  // namespace

void after_handle(const Call& call) {
  const Word handle = read(call.argument(call.what().a));
  Entry entry;
  entry.key = handle;
  entry.space = Space::handle;
  switch (call.what().meaning) {
    case Meaning::handle_create: return after_create(call, entry);
    case Meaning::handle_retain:
      if (live_memory.count(Space::handle, handle, 1) != 0) return;
      entry.is_foreign = true;  // of what was mapped before we saw anything
      break;
    case Meaning::handle_multicast: entry.is_multicast = true; break;
    default: entry.is_foreign = true; break;
  }
  if (!live_memory.find(Space::handle, handle, &entry)) keep(entry);
}

void before_handle_release(Call& call) {
  const Word handle = call.argument(call.what().a);
  Entry entry;
  if (!live_memory.find(Space::handle, handle, &entry) || entry.other > 1) return;
  call.takes = live_memory.begin_leaving(Space::handle, handle, &call.entry);
  if (call.takes) record_taken(call.entry);
}

void after_handle_release(const Call& call, int error) {
  const Word handle = call.argument(call.what().a);
  if (!call.takes) {
    Entry entry;
    if (error == 0 && live_memory.find(Space::handle, handle, &entry) && entry.other > 1) live_memory.count(Space::handle, handle, -1);
    return;
  }
  live_memory.end_leaving(Space::handle, handle, error == 0);
  if (error != 0) record_given(call.entry);
}

void after_map(const Call& call) {
  Entry mapping;
  mapping.key = call.argument(call.what().a);
  mapping.bytes = call.argument(call.what().b);
  mapping.space = Space::mapping;
  Entry handle;
  const bool known = live_memory.find(Space::handle, call.argument(call.what().c), &handle);
  mapping.is_foreign = known && handle.is_foreign;
  mapping.is_multicast = known && handle.is_multicast;
  const bool has_heap = known && !handle.is_foreign && !handle.is_multicast;
  mapping.heap = has_heap ? handle.heap : device_heap(call, current_device());
  keep(mapping);
  record_given(mapping);
}

void before_unmap(Call& call) {
  for_each_mapping(call, [&](const Entry& mapping) {
    Entry entry;
    if (!live_memory.begin_leaving(Space::mapping, mapping.key, &entry)) return;
    call.takes = true;
    record_taken(entry);
  });
}

void after_unmap(const Call& call, int error) {
  if (!call.takes) return;
  for_each_mapping(call, [&](const Entry& mapping) {
    live_memory.end_leaving(Space::mapping, mapping.key, error == 0);
    if (error != 0 && mapping.is_leaving) record_given(mapping);
  });
}

}  // namespace liveset::driver
