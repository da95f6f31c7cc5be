#include "hooks/api/table.h"

#include <cstring>

#include "hooks/api/liveset.h"
#include "hooks/core/process.h"
#include "hooks/core/recorder.h"
#include "profiler/channel/layout.h"

namespace liveset::api {
namespace {

constexpr const char* source = "api";

std::uint32_t intern(const char* text) {
  return text != nullptr ? core::intern_string(text, static_cast<std::uint32_t>(std::strlen(text))) : 0;
}

liveset_heap open_heap(const char* name, int device_type, int device_index) {
  core::declare_source(source, "1", "what the program reports through liveset.h", "everything else");
  return core::intern_heap(name, device_type, device_index, source);
}

void alloc(liveset_heap heap, uint64_t address, uint64_t bytes, uint64_t stream) {
  core::record_alloc(heap, address, bytes, stream, core::Phase::other, nullptr);
}

void free_block(liveset_heap heap, uint64_t address) { core::record_free(heap, address, 0, core::Phase::other, nullptr); }

void segment(liveset_heap heap, uint64_t address, uint64_t bytes, int is_free) { core::record_segment(heap, address, bytes, is_free != 0); }

void counter(liveset_heap heap, const char* name, int64_t number) { core::record_counter(heap, intern(name), number); }

void scope_begin(int kind, const char* name, int64_t number) {
  switch (kind) {
    case LIVESET_STEP: return core::record_mark(channel::kind_step_begin, number);
    case LIVESET_MICROBATCH: return core::record_mark(channel::kind_microbatch_begin, number);
    case LIVESET_PHASE:
      return core::begin_phase(number >= 0 && number <= LIVESET_OPTIMIZER ? static_cast<core::Phase>(number) : core::Phase::other);
    case LIVESET_MODULE:
    case LIVESET_OP:
    case LIVESET_REGION:
      return core::scope_begin(
          core::intern_scope(core::current_scope(), static_cast<core::ScopeKind>(kind - LIVESET_MODULE + 1), intern(name)));
    default: return;
  }
}

void scope_end(int kind) {
  switch (kind) {
    case LIVESET_STEP: return core::record_mark(channel::kind_step_end, core::last_step());
    case LIVESET_MICROBATCH: return core::record_mark(channel::kind_microbatch_end, core::last_microbatch());
    case LIVESET_PHASE: return core::end_phase();
    case LIVESET_MODULE:
    case LIVESET_OP:
    case LIVESET_REGION: return core::scope_end();
    default: return;
  }
}

void attribute(const char* key, const char* json) { core::record_attribute(intern(key), intern(json)); }

liveset_value open_value(const char* name, const char* group, int64_t layer) {
  return core::intern_value(intern(name), intern(group), layer);
}

void value_event(int kind, liveset_value value, liveset_heap heap, uint64_t address, uint64_t bytes, const liveset_value* reads,
                 uint32_t read_count, int64_t number) {
  if (kind < LIVESET_CREATE || kind > LIVESET_PREFETCH) return;
  core::record_value(static_cast<std::uint8_t>(kind), value, heap, address, bytes, 0, 0, reads, reads != nullptr ? read_count : 0, number);
}

static_assert(static_cast<int>(core::ScopeKind::region) == LIVESET_REGION - LIVESET_MODULE + 1);

}  // namespace
}  // namespace liveset::api

// NOLINTNEXTLINE: the name is the interface.
extern "C" __attribute__((visibility("default"))) liveset_api liveset_api_v1;
constinit liveset_api liveset_api_v1 = {LIVESET_API_VERSION,      sizeof(liveset_api),     nullptr,
                                        liveset::api::open_heap,  liveset::api::alloc,     liveset::api::free_block,
                                        liveset::api::segment,    liveset::api::counter,   liveset::api::scope_begin,
                                        liveset::api::scope_end,  liveset::api::attribute, liveset::api::open_value,
                                        liveset::api::value_event};

namespace liveset::api {

void start() {
  core::flag_moved = [](const std::atomic<std::uint32_t>* flag) {
    static_assert(sizeof *flag == sizeof *liveset_api_v1.recording);
    __atomic_store_n(&liveset_api_v1.recording, reinterpret_cast<const volatile std::uint32_t*>(flag), __ATOMIC_RELEASE);
  };
  core::flag_moved(core::process.flag_address());
}

}  // namespace liveset::api
