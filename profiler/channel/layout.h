// What lies in the memory that a recorded job shares with the collector, and what travels over their socket.
//
// The job makes two kinds of memory files: one region per process (control page, then the dictionary) and one ring per
// recording thread. It hands their descriptors over in single messages, each on a connection of its own that is closed at
// once: the job keeps no descriptor that its children would inherit or that it could close by accident.
//
// Both sides come from one build and check layout_version; this is no file format.
#pragma once
#include <atomic>
#include <cstdint>

#include "profiler/channel/clock.h"

namespace liveset::channel {

inline constexpr std::uint32_t layout_version = 6;
inline constexpr std::uint64_t ring_magic = 0x676e697274657376;    // "vsetring"
inline constexpr std::uint64_t region_magic = 0x6e67657274657376;  // "vsetregn"

// ---- Rings: 32-byte units. An event is one unit, and further ones when it carries more.

struct alignas(32) Unit {
  std::uint64_t ticks;
  std::uint64_t a;      // address; counters, marks, nodes and sequence: the number; attribute: key; kernel: stream; thread: tid
  std::uint64_t b;      // bytes; counter, kernel and node: name; attribute: JSON; thread: id
  std::uint32_t scope;  // current scope of the thread; scope events: the scope that begins or ends
  std::uint8_t kind;    // proto EventKind | kind_extended
  std::uint8_t phase;
  std::uint16_t heap;
};
static_assert(sizeof(Unit) == 32);

// The numbers of proto EventKind that either side needs to know; neither may include generated code (a unit test compares).
enum EventKind : std::uint8_t {
  kind_alloc = 1,
  kind_free = 2,
  kind_segment_alloc = 5,
  kind_segment_free = 6,
  kind_segment_map = 7,
  kind_segment_unmap = 8,
  kind_pool_create = 9,
  kind_pool_destroy = 10,
  kind_pool_trim = 11,
  kind_host_alloc = 12,
  kind_host_free = 13,
  kind_host_register = 14,
  kind_host_unregister = 15,
  kind_out_of_memory = 16,
  kind_counter = 17,
  kind_kernel = 18,
  kind_handle_create = 19,
  kind_handle_release = 20,
  kind_graph_alloc = 21,
  kind_graph_free = 22,
  kind_address_reserve = 23,
  kind_address_free = 24,
  kind_import_begin = 25,
  kind_import_end = 26,
  kind_step_begin = 32,
  kind_step_end = 33,
  kind_microbatch_begin = 34,
  kind_microbatch_end = 35,
  kind_phase = 36,
  kind_scope_begin = 37,
  kind_scope_end = 38,
  kind_attribute = 39,
  kind_backward_begin = 40,
  kind_backward_end = 41,
  kind_graph_node = 42,
  kind_node_begin = 43,
  kind_node_end = 44,
  kind_node_returned = 45,
  kind_retain = 65,
  kind_drop = 66,
  kind_use = 67,
  kind_remake = 68,
  kind_offload = 72,
  kind_storage = 80,
  kind_collective = 82,
  kind_holder = 83,
  kind_sequence = 84
};

// Of proto MemoryClass.
enum MemoryClass : std::uint8_t { class_parameter = 1, class_activation = 7, class_communication = 11, class_library = 15 };

inline constexpr std::uint8_t kind_extended = 0x80;  // of block events: an Extension follows
// The events that follow in this ring are of the thread stated; a ThreadName follows. Stamped when the thread asked for a ring; heap 1:
// its first event, which comes next, happened then.
inline constexpr std::uint8_t kind_thread = 0x7f;
inline constexpr std::uint8_t first_value_kind = 64;  // value and storage events: a ValueUnit follows, then ReadsUnits

struct alignas(32) Extension {
  std::uint64_t allocated, reserved, stream;
  std::uint32_t flags, stack;
};
// Flags of an Extension. With a sequence a SequenceUnit follows, and a SEQUENCE goes before the event; with a return, a NODE_RETURNED. They
// are one event in the ring: what states a total happened after what its thread stamped before it, so nothing of its own may be stamped in
// between.
inline constexpr std::uint32_t extension_has_totals = 1, extension_has_sequence = 2, extension_has_return = 4;
struct alignas(32) SequenceUnit {
  std::uint64_t number;
};
struct alignas(32) ThreadName {
  char name[32];
};
struct alignas(32) ValueUnit {
  std::int64_t number;
  std::uint32_t value, name, read_count, memory_class;
  std::uint32_t reads[2];
};
struct alignas(32) ReadsUnit {
  std::uint32_t reads[8];
};
static_assert(sizeof(Extension) == 32 && sizeof(ThreadName) == 32 && sizeof(ValueUnit) == 32 && sizeof(ReadsUnit) == 32);
static_assert(sizeof(SequenceUnit) == 32);
inline constexpr std::uint32_t max_reads = 4096;

constexpr bool is_value_kind(std::uint8_t kind) { return kind >= first_value_kind && kind < kind_thread && kind != kind_sequence; }
constexpr std::uint32_t value_units(std::uint32_t reads) { return 2 + (reads > 2 ? (reads - 2 + 7) / 8 : 0); }
// Units of the event that begins with `unit`, which `next` follows.
inline std::uint32_t event_units(const Unit& unit, const Unit& next) {
  if (unit.kind == kind_thread) return 2;
  if ((unit.kind & kind_extended) != 0) {
    Extension extension;
    __builtin_memcpy(&extension, &next, sizeof extension);
    return (extension.flags & extension_has_sequence) != 0 ? 3 : 2;
  }
  if (!is_value_kind(unit.kind)) return 1;
  ValueUnit value;
  __builtin_memcpy(&value, &next, sizeof value);
  return value_units(value.read_count < max_reads ? value.read_count : max_reads);
}

struct RingHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t ring;
  std::uint64_t capacity;  // units, a power of two
  // Written by the job: units published, times two, plus one while an event is being stamped and written. One word, so
  // that the collector sees both at one moment.
  alignas(64) std::atomic<std::uint64_t> head;
  std::atomic<std::uint64_t> dropped;  // events, because the ring was full
  // Written by the collector: units taken.
  alignas(64) std::atomic<std::uint64_t> tail;
};
inline constexpr std::uint64_t ring_data_offset = 4096;
static_assert(sizeof(RingHeader) <= ring_data_offset);

// ---- Region: control page, then dictionary.

// Indexes of Control::lost: proto Loss::Reason.
enum class LossReason : std::uint32_t { unknown = 0, ring_full = 1, no_memory = 2, disk_full = 3, dictionary_full = 4, collector_bug = 5 };

struct Control {
  std::uint64_t magic;
  std::uint32_t version;
  std::atomic<std::uint32_t> exiting;  // the process's exit handlers ran
  // Threads that have stamped their first event and are still getting a ring for it. Their rings are busy when they are no longer
  // counted here. A thread joins one of two generations, before the stamp: that of the collector's choice, who so sees the others come
  // to an end however many new ones follow.
  std::atomic<std::uint32_t> attaching[2];
  std::atomic<std::uint32_t> generation;
  alignas(64) std::atomic<std::uint64_t> lost[8];
  // Bytes of whole entries. The collector reads it after the rings' heads: an id in a ring was published here before.
  alignas(64) std::atomic<std::uint64_t> dictionary_used;
};
inline constexpr std::uint64_t dictionary_offset = 4096;
static_assert(sizeof(Control) <= dictionary_offset);

enum class EntryType : std::uint32_t { string = 1, scope = 2, heap = 3, value = 4, source = 5, frame = 6, stack = 7 };
struct EntryHeader {
  std::uint32_t bytes;  // of the whole entry, a multiple of 8
  EntryType type;
  std::uint32_t id;      // dense per type, from 1
  std::uint32_t length;  // of the payload that follows
};
struct ScopeEntry {
  std::uint32_t parent, kind, name;
};
struct HeapEntry {
  std::uint32_t name;
  std::int32_t device_type, device_index;
  std::uint32_t source;
};
struct ValueEntry {
  std::int64_t layer;
  std::uint32_t name, group;
};
struct FrameEntry {
  std::uint32_t function, file, line;
  std::uint32_t build_id;  // native code: string, and the place in the file
  std::uint64_t offset;
};
struct StackEntry {
  std::uint32_t parent, frame;
};
// string: the text. source: name, version, covers, cannot_see, each ended by a 0 byte.

// ---- Messages: one SOCK_SEQPACKET packet each, with one descriptor.

enum class MessageType : std::uint32_t { hello = 1, ring = 2 };
struct Message {
  std::uint64_t magic;  // region_magic
  std::uint32_t version;
  MessageType type;
  std::uint64_t process;  // token that the process chose: joins a ring to its hello
  std::uint64_t bytes;    // of the memory file
  // hello only; the text "executable 0 argument 0 argument 0 ..." follows in the packet
  std::int64_t pid, parent_pid;
  std::int32_t rank, world_size, local_rank;  // of a distributed job, as its environment says; -1: it does not
  std::uint64_t start_time;                   // field 22 of /proc/self/stat
  ClockKind clock;
  std::uint32_t text_bytes;
  std::uint64_t start_ticks, start_monotonic_ns, start_realtime_ns;
};
inline constexpr std::uint32_t max_message_text = 64 * 1024;

}  // namespace liveset::channel
