// The trace as plain records: what the rest of the viewer sees. Numbers equal those of proto/trace.proto (checked in
// trace_file.cpp).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace liveset::trace {

enum class Phase : std::uint8_t { other, forward, loss, backward, recompute, optimizer };
inline constexpr int phase_count = 6;
std::string_view phase_name(Phase phase);  // "forward", ...

enum class MemoryClass : std::uint8_t {
  none,
  parameter,
  gradient,
  optimizer_state,
  buffer,
  checkpoint_input,
  rng_state,
  activation,
  recomputed_activation,
  input,
  activation_gradient,
  communication,
  offloaded,
  loss,
  temporary,
  library,
  unattributed
};
inline constexpr int class_count = 17;
std::string_view class_name(MemoryClass memory_class);  // "checkpoint_input", ...

enum class Kind : std::uint8_t {
  none = 0,
  alloc = 1,
  free_requested,
  free_completed,
  free_unmatched,
  segment_alloc,
  segment_free,
  segment_map,
  segment_unmap,
  pool_create,
  pool_destroy,
  pool_trim,
  host_alloc,
  host_free,
  host_register,
  host_unregister,
  out_of_memory,
  counter,
  kernel,
  handle_create,
  handle_release,
  graph_alloc,
  graph_free,
  address_reserve,
  address_free,
  import_begin,
  import_end,
  step_begin = 32,
  step_end,
  microbatch_begin,
  microbatch_end,
  phase,
  scope_begin,
  scope_end,
  attribute,
  backward_begin,
  backward_end,
  graph_node,
  node_begin,
  node_end,
  node_returned,
  value_create = 64,
  value_retain,
  value_drop,
  value_use,
  value_remake,
  value_merge,
  value_release,
  value_alias,
  value_offload,
  value_prefetch,
  value_mutate,
  storage = 80,
  collective = 82,
  holder,
  sequence
};
std::string_view kind_name(Kind kind);  // JSON names; decisions: retain is "keep", remake is "rerun"

// What the NUMBER of a statement about a storage says of its tensor.
struct TensorFacts {
  static constexpr int no_dtype = -1;
  static constexpr std::int64_t no_index = -1;
  int dtype = no_dtype;           // proto DType
  std::int64_t index = no_index;  // of a slot of a checkpoint region
};
constexpr TensorFacts tensor_facts(std::int64_t number) {
  if (number <= 0) return {};
  return {static_cast<int>(number & 0xff) - 1, (number >> 8 & 0xffffff) - 1};
}
std::string_view dtype_name(int dtype);  // "float32", as torch says it; "" when it is not known

enum class ScopeKind : std::uint8_t { none, module, op, region };

struct Process {
  std::int64_t pid = 0, parent_pid = 0;
  std::int64_t rank = -1, world_size = -1, local_rank = -1;  // of a distributed job; -1: not known
  std::uint64_t start_time = 0;
  std::uint32_t exec_count = 0;
  std::string host, executable, boot_id;
  std::vector<std::string> command;
};
struct Header {
  std::uint32_t format_major = 0, format_minor = 0;
  std::string tool_version;
  int clock_kind = 0;
  std::uint64_t start_ticks = 0, start_monotonic_ns = 0, start_realtime_ns = 0;
  Process process;
};
struct Scope {
  std::uint32_t parent = 0, name = 0;
  ScopeKind kind = ScopeKind::none;
};
struct Heap {
  std::uint32_t name = 0, source = 0;
  int device_type = 0, device_index = 0;
};
struct Thread {
  std::int64_t tid = 0;
  std::string name;
};
struct Value {
  std::uint32_t name = 0, group = 0;
  std::int64_t layer = -1;
};
struct Frame {
  std::uint32_t function = 0, file = 0, line = 0;  // String ids, and a number
  std::uint32_t build_id = 0;                      // of native code: String id
  std::uint64_t offset = 0;                        // of native code: in the file
};
struct Stack {
  std::uint32_t parent = 0, frame = 0;  // Stack id of the caller, always a smaller one; Frame id
};
struct Source {
  std::string name, version, covers, cannot_see;
  std::uint64_t since_event = 0;  // the chunks before it were written before the source had said anything
};

// Vectors are indexed by id; entry 0 is the empty one. An id beyond the end reads as entry 0.
struct Dictionary {
  std::vector<std::string> strings;
  std::vector<Scope> scopes;
  std::vector<Heap> heaps;
  std::vector<Thread> threads;
  std::vector<Value> values;
  std::vector<Source> sources;
  std::vector<Frame> frames;
  std::vector<Stack> stacks;
  std::string_view string(std::uint32_t id) const { return id < strings.size() ? std::string_view(strings[id]) : std::string_view(); }
  // Names of the module scopes from the root, joined by "."; "" when none. What is longer than `most` bytes goes in its middle, and where
  // the way to the root is too long, at the beginning: both show as "...".
  static constexpr std::size_t max_path_bytes = 16384;
  std::string module_path(std::uint32_t scope, std::size_t most = max_path_bytes) const;
  std::string scope_path(std::uint32_t scope, std::size_t most = max_path_bytes) const;  // all scopes, joined by "/"
  // "train.py:57 forward < train.py:80 step", outside of torch where there are such frames; "(why there are none)"; "" for stack 0.
  std::string stack_text(std::uint32_t stack) const;
};

struct HeapTotal {
  std::uint32_t heap = 0;
  std::uint64_t live_bytes = 0, live_blocks = 0, peak_bytes = 0, peak_event = 0;
  bool has_allocator = false;
  std::uint64_t allocator_total = 0, allocator_reserved = 0;
  std::int64_t baseline_bytes = 0;
};
// Allocations are numbered without gaps over what can be read, so that arrays may be indexed by them. Event numbers are
// those of the recording: after a chunk that cannot be read, first_event jumps.
struct ChunkInfo {
  std::uint64_t offset = 0, first_event = 0, first_time_ns = 0, first_allocation = 0;
  std::uint32_t events = 0, allocations = 0;
  std::vector<HeapTotal> totals;  // after the chunk
};
struct Loss {
  int reason = 0;
  std::uint64_t events = 0, before_event = 0, time_ns = 0;
  bool of_names() const { return reason == 4; }  // proto Loss::DICTIONARY_FULL: `events` counts names
};

struct Health {
  std::uint64_t lost_events = 0;      // by the recorder's own account, and those of chunks that cannot be read
  std::uint64_t lost_names = 0;       // the recorder had no room for them
  std::uint64_t unknown_packets = 0;  // of a later version, or Snapshots: passed over
  std::uint64_t damaged_packets = 0;
  // By the footer; 0 without one (a pass over the events gives the true figures).
  std::uint64_t unmatched_frees = 0, implied_frees = 0, conservation_mismatches = 0;
  bool has_footer = false;
  std::string end;                   // how the process ended, by the footer: "exit", "killed", "exec"
  bool truncated = false;            // the tail is missing or damaged
  std::uint64_t readable_bytes = 0;  // of the file, up to the last good packet
  std::string note;                  // one line for people, with the offset, when truncated or damaged
  std::vector<Loss> losses;
};

// One decoded chunk, structure of arrays. Dense columns have one entry an event; sparse ones one entry for each event
// whose kind has the column (columns_of in proto/event_columns.h), in event order. A column that was not asked for is
// empty.
struct Columns {
  std::uint64_t first_event = 0, first_allocation = 0;
  std::uint32_t events = 0, allocations = 0;  // `allocations` of the events are ALLOC
  std::vector<std::uint8_t> kind;             // with the totals bit 0x80
  std::vector<std::uint64_t> time_ns;         // absolute
  std::vector<std::uint32_t> thread, scope;
  std::vector<std::uint8_t> phase;
  std::vector<std::uint32_t> heap;
  std::vector<std::uint64_t> stream, address, size;
  std::vector<std::uint64_t> age;  // never beyond the first allocation; 0: what is freed lies in a part of the file that cannot be read
  std::vector<std::int64_t> total_error;  // allocator's total - our running sum
  std::vector<std::int64_t> reserved_delta;
  std::vector<std::uint32_t> value, name, text, stack;
  std::vector<std::uint8_t> memory_class;
  std::vector<std::uint32_t> reads_begin;  // sparse: entry i's reads are reads[reads_begin[i] .. reads_begin[i + 1])
  std::vector<std::uint32_t> reads;
  std::vector<std::int64_t> number;
};

// One event with all its fields, for paths that are not hot. Fields that its kind does not have are 0.
inline constexpr std::uint64_t no_allocation = ~std::uint64_t{0};
struct Event {
  std::uint64_t index = 0, time_ns = 0;
  Kind kind = Kind::none;
  Phase phase = Phase::other;
  bool has_totals = false;
  std::uint32_t thread = 0, scope = 0, heap = 0, value = 0, name = 0, text = 0, stack = 0;
  MemoryClass memory_class = MemoryClass::none;
  std::uint64_t stream = 0, address = 0, size = 0;
  // alloc: its ordinal; matched free: ordinal of what is freed, `no_allocation` when that cannot be read
  // (Columns::age).
  std::uint64_t allocation = 0;
  std::int64_t total_error = 0, reserved_delta = 0, number = 0;
  const std::uint32_t* reads = nullptr;
  std::uint32_t read_count = 0;
};

}  // namespace liveset::trace
