// What is kept of what the driver gave out, the events about it, and how a context takes along what lies in it.
#include "hooks/driver/call.h"
#include "profiler/channel/layout.h"

namespace liveset::driver {
namespace {

// Of an entry's events: given out, taken away. 0: it has none.
struct Kinds {
  std::uint8_t given = 0, taken = 0;
};

Kinds kinds_of(const Entry& entry) {
  constexpr Kinds import{channel::kind_import_begin, channel::kind_import_end};
  switch (entry.space) {
    case Space::host: return {channel::kind_host_alloc, channel::kind_host_free};
    case Space::registered: return {channel::kind_host_register, channel::kind_host_unregister};
    case Space::pool: return {channel::kind_pool_create, channel::kind_pool_destroy};
    case Space::reservation: return {channel::kind_address_reserve, channel::kind_address_free};
    case Space::handle:
      return entry.bytes != 0 ? Kinds{channel::kind_handle_create, channel::kind_handle_release} : Kinds{};  // 0: not of our making
    case Space::mapping:
      if (entry.is_multicast) return {};
      return entry.is_foreign ? import : Kinds{channel::kind_segment_map, channel::kind_segment_unmap};
    case Space::external: return import;
    case Space::address:
    case Space::array: return entry.is_foreign ? import : Kinds{channel::kind_segment_alloc, channel::kind_segment_free};
    default: return {};
  }
}

bool has_primary_context(std::int32_t device) {
  const auto ask = reinterpret_cast<int (*)(std::int32_t, unsigned*, int*)>(driver_function("cuDevicePrimaryCtxGetState"));
  unsigned flags = 0;
  int is_active = 0;
  return ask != nullptr && ask(device, &flags, &is_active) == 0 && is_active != 0;
}

// The context's number where the driver keeps one for each device. Asking for it holds it for a moment; one that is not there is not made.
Word primary_context(std::int32_t device) {
  const auto hold = reinterpret_cast<int (*)(Word*, std::int32_t)>(driver_function("cuDevicePrimaryCtxRetain"));
  void* found = driver_function("cuDevicePrimaryCtxRelease_v2");
  if (found == nullptr) found = driver_function("cuDevicePrimaryCtxRelease");
  const auto let_go = reinterpret_cast<int (*)(std::int32_t)>(found);
  Word context = 0;
  if (hold == nullptr || let_go == nullptr || !has_primary_context(device) || hold(&context, device) != 0) return 0;
  let_go(device);
  return context;
}

}  // namespace

void record_given(const Entry& entry, Word stream) {
  if (const std::uint8_t kind = kinds_of(entry).given) record(kind, entry.heap, entry.key, entry.bytes, stream);
}

void record_taken(const Entry& entry, Word stream) {
  if (const std::uint8_t kind = kinds_of(entry).taken) record(kind, entry.heap, entry.key, entry.bytes, stream);
}

void keep(const Entry& entry) {
  Entry before;
  live_memory.put(entry, &before);
  if (before.space != Space::unused && !before.is_leaving) record_taken(before);
}

void before_context_end(Call& call) {
  const Word first = call.argument(call.what().a);
  call.entry.context = call.what().meaning == Meaning::context_end ? first : primary_context(static_cast<std::int32_t>(first));
}

// The memory's address may have been given out again by now, in another context: then keep() has recorded that it went.
void after_context_end(const Call& call) {
  if (call.entry.context == 0) return;
  const auto device = static_cast<std::int32_t>(call.argument(call.what().a));
  if (call.what().meaning == Meaning::primary_end && has_primary_context(device)) return;  // others hold it
  LiveMemory::Walk walk;
  Entry taken;
  while (live_memory.take_of_context(call.entry.context, &walk, &taken)) record_taken(taken);
}

}  // namespace liveset::driver
