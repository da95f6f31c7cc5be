// The recorder inside the job: what every hook calls. No exceptions, no C++ runtime, no allocation on the hot path.
//
// A call that comes from inside another call of this library on the same thread (the recursion guard) is dropped silently:
// it is our own doing. Everything else that cannot be recorded is counted in the control page.
#pragma once
#include <cstdint>

namespace liveset::core {

// Numbers are those of proto/trace.proto (checked by profiler/writer).
enum class Phase : std::uint8_t { other = 0, forward = 1, loss = 2, backward = 3, recompute = 4, optimizer = 5 };
enum class ScopeKind : std::uint8_t { none = 0, module = 1, op = 2, region = 3 };

// True once a collector takes this process's events. The first call of a process connects; a forked child says false.
bool recording();

// Interned names; ids as in the trace's dictionary. 0 when the dictionary is full. `length` < 4096.
std::uint32_t intern_string(const char* text, std::uint32_t length);
std::uint32_t intern_scope(std::uint32_t parent, ScopeKind kind, std::uint32_t name);
std::uint32_t intern_heap(const char* name, int device_type, int device_index, const char* source);
std::uint32_t intern_value(std::uint32_t name, std::uint32_t group, std::int64_t layer);
void declare_source(const char* name, const char* version, const char* covers, const char* cannot_see);

// Physical events. `phase` Phase::other means "the thread's own".
struct Totals {
  std::uint64_t allocated;  // the allocator's own counters after the event, bytes
  std::uint64_t reserved;
};
void record_alloc(std::uint32_t heap, std::uint64_t address, std::uint64_t bytes, std::uint64_t stream, Phase phase,
                  const Totals* totals);
void record_free(std::uint32_t heap, std::uint64_t address, Phase phase, const Totals* totals);
void record_segment(std::uint32_t heap, std::uint64_t address, std::uint64_t bytes, bool is_free);
void record_out_of_memory(std::uint32_t heap, std::uint64_t bytes, Phase phase, const Totals* totals);
void record_counter(std::uint32_t heap, std::uint32_t name, std::int64_t number);

// Scopes of the calling thread.
void scope_begin(std::uint32_t scope);  // its parent should be current_scope()
void scope_end();
std::uint32_t current_scope();
void set_phase(Phase phase);  // of the calling thread
Phase current_phase();
void record_mark(std::uint8_t kind, std::int64_t number);  // STEP_*, MICROBATCH_*, BACKWARD_*
void record_attribute(std::uint32_t key, std::uint32_t json);

// Values and storages; `kind` is a proto EventKind (VALUE_* or STORAGE), `memory_class` a proto MemoryClass.
void record_value(std::uint8_t kind, std::uint32_t value, std::uint32_t heap, std::uint64_t address, std::uint64_t bytes,
                  std::uint32_t name, std::uint8_t memory_class, const std::uint32_t* reads, std::uint32_t read_count,
                  std::int64_t number);

}  // namespace liveset::core
