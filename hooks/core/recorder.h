// The recorder inside the job: what every hook calls. No exceptions, no C++ runtime, no allocation on the hot path.
//
// Every function may be called at any time from any thread: it does nothing when this process is not recorded. Nothing here
// changes errno. What cannot be recorded is counted, and so is an event of a signal handler that came in the middle of another one.
#pragma once
#include <cstdint>

namespace liveset::core {

// Numbers are those of proto/trace.proto (checked by profiler/writer).
enum class Phase : std::uint8_t { other = 0, forward = 1, loss = 2, backward = 3, recompute = 4, optimizer = 5 };
enum class ScopeKind : std::uint8_t { none = 0, module = 1, op = 2, region = 3 };

// True once a collector takes this process's events. The first call of a process connects; a forked child says false.
bool recording();

// Interned names; ids as in the trace's dictionary. 0 when the dictionary is full or nothing records. Longer texts are cut to
// 4,095 bytes. The same name gives the same id, without a lock; callers on hot paths still keep their ids.
std::uint32_t intern_string(const char* text, std::uint32_t length);
std::uint32_t intern_scope(std::uint32_t parent, ScopeKind kind, std::uint32_t name);
std::uint32_t intern_heap(const char* name, int device_type, int device_index, const char* source);
std::uint32_t intern_value(std::uint32_t name, std::uint32_t group, std::int64_t layer);
// Before the first intern_heap() of that source.
void declare_source(const char* name, const char* version, const char* covers, const char* cannot_see);

// Autograd's sequence number of the next node of the calling thread. The recorder knows no torch: who does sets this at any time, and then
// a SEQUENCE goes before each ALLOC and each begin and end of a scope where the number is not what the thread's last one says.
inline constexpr std::uint64_t no_sequence = ~std::uint64_t{0};
extern std::uint64_t (*sequence_source)();

// Physical events. `phase` Phase::other means "the thread's own".
struct Totals {
  std::uint64_t allocated;  // the allocator's own counters after the event, bytes
  std::uint64_t reserved;
};
void record_alloc(std::uint32_t heap, std::uint64_t address, std::uint64_t bytes, std::uint64_t stream, Phase phase, const Totals* totals);
// `bytes`: of the block, 0 when the allocator does not say; needed with `totals`, whose chain orders events of several threads.
// The blocks that this thread allocates until end_stating() are of that class: each is followed by its STORAGE. Does not nest.
void begin_stating(std::uint8_t memory_class, std::uint32_t name);
void end_stating();
void record_free(std::uint32_t heap, std::uint64_t address, std::uint64_t bytes, Phase phase, const Totals* totals);
// Events about memory of a driver; `kind` is a proto EventKind that has the columns of a block and is neither ALLOC nor a free of one.
void record_memory(std::uint8_t kind, std::uint32_t heap, std::uint64_t address, std::uint64_t bytes, std::uint64_t stream, Phase phase);
void record_kernel(std::uint32_t heap, std::uint64_t stream, std::uint32_t name, Phase phase);
void record_segment(std::uint32_t heap, std::uint64_t address, std::uint64_t bytes, bool is_free);
void record_out_of_memory(std::uint32_t heap, std::uint64_t bytes, Phase phase, const Totals* totals);
void record_counter(std::uint32_t heap, std::uint32_t name, std::int64_t number);

// Scopes of the calling thread. At most 256 deep; deeper ones are recorded as events of their own, and events inside them carry
// the innermost scope that was kept.
void scope_begin(std::uint32_t scope);  // its parent should be current_scope()
void scope_end();
std::uint32_t current_scope();
// The phase of the calling thread, until the next call. begin_phase() and end_phase() nest instead.
void set_phase(Phase phase);
void begin_phase(Phase phase);
void end_phase();
Phase current_phase();
void record_mark(std::uint8_t kind, std::int64_t number);  // STEP_*, MICROBATCH_*, BACKWARD_*
// Number of the calling thread's last STEP_BEGIN (MICROBATCH_BEGIN) of record_mark.
std::int64_t last_step();
std::int64_t last_microbatch();
void record_node(std::uint8_t kind, std::uint32_t name, std::int64_t number);  // GRAPH_NODE, NODE_*
// The node of autograd's that this thread runs from now on; gives the one before. Null: none, or nothing was recorded in this thread yet.
const void* exchange_node(const void* node);
const void* running_node();
// The function of that node has returned (true); the engine is through with what it gave (false). A NODE_RETURNED goes before the first
// block in between.
void say_node_returned(bool returned);
void record_attribute(std::uint32_t key, std::uint32_t json);

// Values and storages; `kind` is a proto EventKind (VALUE_*, STORAGE, COLLECTIVE, HOLDER), `memory_class` a proto MemoryClass. Reads
// beyond the first 4,096 are cut off. `scope`: what it is said of; 0: the thread's own.
void record_value(std::uint8_t kind, std::uint32_t value, std::uint32_t heap, std::uint64_t address, std::uint64_t bytes,
                  std::uint32_t name, std::uint8_t memory_class, const std::uint32_t* reads, std::uint32_t read_count, std::int64_t number,
                  std::uint32_t scope = 0);

}  // namespace liveset::core
