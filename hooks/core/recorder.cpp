#include "hooks/core/recorder.h"

#include <cstring>

#include "hooks/core/process.h"
#include "hooks/core/stacks.h"
#include "hooks/core/thread.h"
#include "profiler/channel/layout.h"

namespace liveset::core {
namespace {

using channel::EntryType;
using channel::Unit;

std::uint8_t phase_of(const Thread& thread, Phase phase) { return phase == Phase::other ? thread.phase : static_cast<std::uint8_t>(phase); }

void record_block(std::uint8_t kind, std::uint32_t heap, std::uint64_t address, std::uint64_t bytes, std::uint64_t stream, Phase phase,
                  const Totals* totals, std::uint32_t stack = 0, std::uint64_t sequence = no_sequence) {
  if (heap == 0) return;
  Thread* thread = enter();
  if (thread == nullptr) return;
  const bool sequenced = sequence != no_sequence && sequence != thread->said_sequence;
  const bool returned = kind == channel::kind_alloc && thread->node_returned;
  const bool extended = totals != nullptr || stream != 0 || stack != 0 || sequenced || returned;
  const std::uint32_t units = 1U + (extended ? 1 : 0) + (sequenced ? 1 : 0);
  if (!has_room(*thread, units)) return;
  const std::uint64_t ticks = thread->ring.open(process.clock);
  const auto kind_byte = static_cast<std::uint8_t>(extended ? kind | channel::kind_extended : kind);
  thread->ring.unit(0) = Unit{ticks, address, bytes, thread->scope, kind_byte, phase_of(*thread, phase), static_cast<std::uint16_t>(heap)};
  if (extended) {
    thread->ring.unit_as<channel::Extension>(1) = {
        totals != nullptr ? totals->allocated : 0, totals != nullptr ? totals->reserved : 0, stream,
        (totals != nullptr ? channel::extension_has_totals : 0) | (sequenced ? channel::extension_has_sequence : 0) |
            (returned ? channel::extension_has_return : 0),
        stack};
    if (returned) thread->node_returned = false;
  }
  if (sequenced) {
    thread->ring.unit_as<channel::SequenceUnit>(2) = {sequence};
    thread->said_sequence = sequence;
  }
  leave(*thread, units);
}

// An event of one unit; `change` may alter the thread's state first, and does so even when the event is dropped: the events after it
// are told the truth, and each end still meets its begin.
template <class Change>
void record_simple(std::uint8_t kind, std::uint64_t a, std::uint64_t b, std::uint32_t heap, Change change) {
  Thread* thread = enter();
  if (thread == nullptr) return;
  const std::uint32_t scope = change(*thread);
  if (!has_room(*thread, 1)) return;
  const std::uint64_t ticks = thread->ring.open(process.clock);
  thread->ring.unit(0) = Unit{ticks, a, b, scope, kind, thread->phase, static_cast<std::uint16_t>(heap)};
  leave(*thread, 1);
}

std::uint32_t stack_now() {
  const auto source = stack_source;
  return __builtin_expect(source != nullptr, 0) && process.flag() == flag_on ? source() : 0;
}

std::uint64_t sequence_now() {
  const auto source = __atomic_load_n(&sequence_source, __ATOMIC_RELAXED);
  return source != nullptr && process.flag() == flag_on ? source() : no_sequence;
}

// A SEQUENCE of its own, where one is due.
void say_sequence() {
  const std::uint64_t sequence = sequence_now();
  if (sequence == no_sequence || (this_thread != nullptr && this_thread->said_sequence == sequence)) return;
  Thread* thread = enter();
  if (thread == nullptr || !has_room(*thread, 1)) return;
  const std::uint64_t ticks = thread->ring.open(process.clock);
  thread->ring.unit(0) = Unit{ticks, sequence, 0, thread->scope, channel::kind_sequence, thread->phase, 0};
  thread->said_sequence = sequence;
  leave(*thread, 1);
}

std::uint32_t same_scope(Thread& thread) { return thread.scope; }

std::uint32_t length_of(const char* text) { return text != nullptr ? static_cast<std::uint32_t>(std::strlen(text)) : 0; }

// State of the calling thread, also when it has recorded nothing yet. Null: off.
Thread* own_thread() { return this_thread != nullptr && process.flag() == flag_on ? this_thread : attach_thread(false); }

}  // namespace

std::uint64_t (*sequence_source)() = nullptr;

bool recording() {
  const std::uint32_t flag = process.flag();
  return flag == flag_on || (flag == flag_wanted && process.connect());
}

std::uint32_t intern_string(const char* text, std::uint32_t length) {
  if (text == nullptr || !recording()) return 0;
  return process.dictionary.intern(EntryType::string, text, length < 4096 ? length : 4095);
}

std::uint32_t intern_scope(std::uint32_t parent, ScopeKind kind, std::uint32_t name) {
  if (!recording()) return 0;
  const channel::ScopeEntry entry{parent, static_cast<std::uint32_t>(kind), name};
  return process.dictionary.intern(EntryType::scope, &entry, sizeof entry);
}

std::uint32_t intern_value(std::uint32_t name, std::uint32_t group, std::int64_t layer) {
  if (!recording()) return 0;
  const channel::ValueEntry entry{layer, name, group};
  return process.dictionary.intern(EntryType::value, &entry, sizeof entry);
}

void declare_source(const char* name, const char* version, const char* covers, const char* cannot_see) {
  if (name == nullptr || !recording()) return;
  char rest[2048];
  std::uint32_t used = 0;
  for (const char* text : {version, covers, cannot_see}) {
    std::uint32_t length = length_of(text);
    if (length > 680) length = 680;
    std::memcpy(rest + used, text != nullptr ? text : "", length);
    used += length;
    rest[used++] = 0;
  }
  process.dictionary.intern(EntryType::source, name, length_of(name) + 1, rest, used);
}

std::uint32_t intern_heap(const char* name, int device_type, int device_index, const char* source) {
  if (name == nullptr || !recording()) return 0;
  channel::HeapEntry entry{};
  entry.name = intern_string(name, length_of(name));
  entry.device_type = device_type;
  entry.device_index = device_index;
  if (source != nullptr) entry.source = process.dictionary.intern(EntryType::source, source, length_of(source) + 1, "\0\0", 3);
  const std::uint32_t id = process.dictionary.intern(EntryType::heap, &entry, sizeof entry);
  return id <= 0xffff ? id : 0;  // rings hold 16 bits
}

void record_alloc(std::uint32_t heap, std::uint64_t address, std::uint64_t bytes, std::uint64_t stream, Phase phase, const Totals* totals) {
  record_block(channel::kind_alloc, heap, address, bytes, stream, phase, totals, stack_now(), sequence_now());
  Thread* thread = this_thread;
  if (thread == nullptr || thread->stated_class == 0) [[likely]]
    return;
  record_value(channel::kind_storage, 0, heap, address, bytes, thread->stated_name, thread->stated_class, nullptr, 0, 0);
}

void begin_stating(std::uint8_t memory_class, std::uint32_t name) {
  Thread* thread = own_thread();
  if (thread == nullptr) return;
  thread->stated_class = memory_class;
  thread->stated_name = name;
}

void end_stating() {
  if (Thread* thread = own_thread()) thread->stated_class = 0;
}

void record_free(std::uint32_t heap, std::uint64_t address, std::uint64_t bytes, Phase phase, const Totals* totals) {
  record_block(channel::kind_free, heap, address, bytes, 0, phase, totals, stack_now());
}

void record_memory(std::uint8_t kind, std::uint32_t heap, std::uint64_t address, std::uint64_t bytes, std::uint64_t stream, Phase phase) {
  record_block(kind, heap, address, bytes, stream, phase, nullptr);
}

void record_kernel(std::uint32_t heap, std::uint64_t stream, std::uint32_t name, Phase phase) {
  Thread* thread = enter();
  if (thread == nullptr || !has_room(*thread, 1)) return;
  const std::uint64_t ticks = thread->ring.open(process.clock);
  thread->ring.unit(0) =
      Unit{ticks, stream, name, thread->scope, channel::kind_kernel, phase_of(*thread, phase), static_cast<std::uint16_t>(heap)};
  leave(*thread, 1);
}

void record_segment(std::uint32_t heap, std::uint64_t address, std::uint64_t bytes, bool is_free) {
  record_block(is_free ? channel::kind_segment_free : channel::kind_segment_alloc, heap, address, bytes, 0, Phase::other, nullptr);
}

void record_out_of_memory(std::uint32_t heap, std::uint64_t bytes, Phase phase, const Totals* totals) {
  record_block(channel::kind_out_of_memory, heap, 0, bytes, 0, phase, totals);
}

void record_counter(std::uint32_t heap, std::uint32_t name, std::int64_t number) {
  record_simple(channel::kind_counter, static_cast<std::uint64_t>(number), name, heap, same_scope);
}

void scope_begin(std::uint32_t scope) {
  say_sequence();
  record_simple(channel::kind_scope_begin, 0, 0, 0, [scope](Thread& thread) {
    if (thread.scope_depth < max_depth) {
      thread.scopes[thread.scope_depth] = thread.scope;
      thread.scope = scope;
    }
    ++thread.scope_depth;
    return scope;
  });
}

void scope_end() {
  const Thread* before = own_thread();
  if (before == nullptr || before->scope_depth == 0) return;  // ends more than it began
  say_sequence();
  record_simple(channel::kind_scope_end, 0, 0, 0, [](Thread& thread) {
    const std::uint32_t ended = thread.scope;
    --thread.scope_depth;
    if (thread.scope_depth < max_depth) thread.scope = thread.scopes[thread.scope_depth];
    return ended;
  });
}

std::uint32_t current_scope() {
  const Thread* thread = own_thread();
  return thread != nullptr ? thread->scope : 0;
}

void set_phase(Phase phase) {
  record_simple(channel::kind_phase, 0, 0, 0, [phase](Thread& thread) {
    thread.phase = static_cast<std::uint8_t>(phase);
    return thread.scope;
  });
}

void begin_phase(Phase phase) {
  record_simple(channel::kind_phase, 0, 0, 0, [phase](Thread& thread) {
    if (thread.phase_depth < max_depth) thread.phases[thread.phase_depth] = thread.phase;
    ++thread.phase_depth;
    thread.phase = static_cast<std::uint8_t>(phase);
    return thread.scope;
  });
}

void end_phase() {
  const Thread* before = own_thread();
  if (before == nullptr || before->phase_depth == 0) return;
  record_simple(channel::kind_phase, 0, 0, 0, [](Thread& thread) {
    --thread.phase_depth;
    if (thread.phase_depth < max_depth) thread.phase = thread.phases[thread.phase_depth];
    return thread.scope;
  });
}

Phase current_phase() {
  const Thread* thread = own_thread();
  return thread != nullptr ? static_cast<Phase>(thread->phase) : Phase::other;
}

void record_mark(std::uint8_t kind, std::int64_t number) {
  record_simple(kind, static_cast<std::uint64_t>(number), 0, 0, [kind, number](Thread& thread) {
    if (kind == channel::kind_step_begin) thread.step_number = number;
    if (kind == channel::kind_microbatch_begin) thread.microbatch_number = number;
    return thread.scope;
  });
}

std::int64_t last_step() {
  const Thread* thread = own_thread();
  return thread != nullptr ? thread->step_number : 0;
}

std::int64_t last_microbatch() {
  const Thread* thread = own_thread();
  return thread != nullptr ? thread->microbatch_number : 0;
}

void record_node(std::uint8_t kind, std::uint32_t name, std::int64_t number) {
  record_simple(kind, static_cast<std::uint64_t>(number), name, 0, same_scope);
}

const void* exchange_node(const void* node) {
  Thread* thread = this_thread;
  if (thread == nullptr) return nullptr;
  const void* before = thread->node;
  thread->node = node;
  return before;
}

const void* running_node() { return this_thread != nullptr ? this_thread->node : nullptr; }

void say_node_returned(bool returned) {
  if (Thread* thread = this_thread) thread->node_returned = returned;
}

void record_attribute(std::uint32_t key, std::uint32_t json) { record_simple(channel::kind_attribute, key, json, 0, same_scope); }

void record_value(std::uint8_t kind, std::uint32_t value, std::uint32_t heap, std::uint64_t address, std::uint64_t bytes,
                  std::uint32_t name, std::uint8_t memory_class, const std::uint32_t* reads, std::uint32_t read_count, std::int64_t number,
                  std::uint32_t scope) {
  if (!channel::is_value_kind(kind)) return;
  if (read_count > channel::max_reads) read_count = channel::max_reads;
  const std::uint32_t units = channel::value_units(read_count);
  Thread* thread = enter();
  if (thread == nullptr || !has_room(*thread, units)) return;
  const std::uint64_t ticks = thread->ring.open(process.clock);
  thread->ring.unit(0) =
      Unit{ticks, address, bytes, scope != 0 ? scope : thread->scope, kind, thread->phase, static_cast<std::uint16_t>(heap)};
  thread->ring.unit_as<channel::ValueUnit>(1) = {number,     value,        name,
                                                 read_count, memory_class, {read_count > 0 ? reads[0] : 0, read_count > 1 ? reads[1] : 0}};
  for (std::uint32_t unit = 2, done = 2; unit < units; ++unit, done += 8) {
    auto& more = thread->ring.unit_as<channel::ReadsUnit>(unit);
    std::memset(&more, 0, sizeof more);
    std::memcpy(more.reads, reads + done, (read_count - done < 8 ? read_count - done : 8) * sizeof *reads);
  }
  leave(*thread, units);
}

}  // namespace liveset::core
