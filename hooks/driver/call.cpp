#include "hooks/driver/call.h"

#include <dlfcn.h>

#include <cerrno>

#include "hooks/core/recorder.h"
#include "hooks/driver/nesting.h"
#include "hooks/driver/wrappers.h"
#include "profiler/channel/layout.h"

namespace liveset::driver {
namespace {

constexpr int out_of_memory = 2;  // CUDA's error

Word narrowed(const Call& call, Word value) { return call.is(Variant::narrow) ? value & 0xffffffffU : value; }

Word answer(const Call& call) {
  const Word place = call.argument(call.what().a);
  return call.is(Variant::narrow) && call.what().meaning != Meaning::host_allocate ? read<std::uint32_t>(place) : read(place);
}

// Memory that ends with the calling thread's context, or goes its own way.
enum class Ends : std::uint8_t { with_context, alone };

// What was given out: notes and records it.
void give(Space space, Word key, Word bytes, std::uint32_t heap, Ends ends, Word stream = 0, bool is_foreign = false) {
  Entry entry;
  entry.key = key;
  entry.bytes = bytes;
  entry.heap = heap;
  entry.space = space;
  entry.context = ends == Ends::with_context ? current_context() : 0;
  entry.is_foreign = is_foreign;
  keep(entry);
  record_given(entry, stream);
}

// ---- What is given out

void after_allocate(const Call& call, Word bytes, Word stream, bool has_stream) {
  const Word address = answer(call);
  if (has_stream && is_capturing(call, stream)) return note_captured(call, address, bytes);
  const bool is_managed = call.what().meaning == Meaning::allocate_managed;
  const std::uint32_t heap = (is_managed ? managed_heap : device_heap)(call, device_of(address));
  give(Space::address, address, bytes, heap, has_stream ? Ends::alone : Ends::with_context, stream);
}

void after_pitch(const Call& call) {
  const Word place = call.argument(call.what().b);
  const Word pitch = call.is(Variant::narrow) ? read<std::uint32_t>(place) : read(place);
  after_allocate(call, pitch * narrowed(call, call.argument(call.what().c)), 0, false);
}

// Bytes of one channel of an array's element, by the number of its format. Formats of several planes count as one byte.
Word channel_bytes(std::uint32_t format) {
  switch (format) {
    case 0x02:
    case 0x09:
    case 0x10: return 2;  // 16-bit integers, half
    case 0x03:
    case 0x0a:
    case 0x20: return 4;  // 32-bit integers, float
    default: return 1;
  }
}

// Without the padding that the device adds. A layered array counts its layers as depth.
Word array_bytes(const Call& call, bool has_depth, Word levels) {
  const Word descriptor = call.argument(call.what().b);
  const std::size_t width_of_number = call.is(Variant::narrow) ? 4 : 8;
  Word extents[3] = {1, 1, 1};
  const int dimensions = has_depth ? 3 : 2;
  for (int i = 0; i < dimensions; ++i) {
    const std::size_t offset = width_of_number * static_cast<std::size_t>(i);
    extents[i] = width_of_number == 4 ? read<std::uint32_t>(descriptor, offset) : read(descriptor, offset);
  }
  const std::size_t after = width_of_number * static_cast<std::size_t>(dimensions);
  const Word element = channel_bytes(read<std::uint32_t>(descriptor, after)) * read<std::uint32_t>(descriptor, after + 4);
  constexpr std::uint32_t layered = 1;
  const bool has_layers = has_depth && (read<std::uint32_t>(descriptor, after + 8) & layered) != 0;
  Word bytes = 0;
  for (Word level = 0; level < levels; ++level) {
    bytes += element * (extents[0] != 0 ? extents[0] : 1) * (extents[1] != 0 ? extents[1] : 1) * (extents[2] != 0 ? extents[2] : 1);
    for (int i = 0; i < (has_layers ? 2 : 3); ++i) extents[i] /= 2;
  }
  return bytes;
}

void after_array(const Call& call, bool has_depth, Word levels) {
  const Word array = read(call.argument(call.what().a));
  const Word bytes = array_bytes(call, has_depth, levels);
  give(Space::array, array, bytes, device_heap(call, current_device()), Ends::with_context);
}

void after_host(const Call& call, Space space, Word address, Ends ends) {
  const Word bytes = narrowed(call, call.argument(call.what().b));
  give(space, address, bytes, host_heap(call), ends);
}

void after_pool(const Call& call) {
  constexpr std::size_t most_bytes_offset = 24;
  const Word pool = read(call.argument(call.what().a)), properties = call.argument(call.what().b);
  const int device = device_of_properties(properties);
  const std::uint32_t heap = device >= 0 ? device_heap(call, device) : host_heap(call);
  const Word most_bytes = read(properties, most_bytes_offset);
  give(Space::pool, pool, most_bytes, heap, Ends::alone);
}

void after_import(const Call& call, Space space, Word key, Word bytes) {
  const std::uint32_t heap = device_heap(call, space == Space::external ? current_device() : device_of(key));
  Entry entry;
  if (live_memory.find(space, key, &entry) && entry.is_foreign) {  // opened once more
    live_memory.count(space, key, 1);
    return;
  }
  const Ends ends = call.row == row_cuMemPoolImportPointer ? Ends::alone : Ends::with_context;
  give(space, key, bytes, heap, ends, 0, true);
}

Word bytes_at(Word address) {
  const auto ask = reinterpret_cast<int (*)(Word*, Word*, Word)>(driver_function("cuMemGetAddressRange_v2"));
  Word base = 0, bytes = 0;
  return ask != nullptr && ask(&base, &bytes, address) == 0 ? bytes : 0;
}

void after_look_up(const Call& call) {
  const auto* name = reinterpret_cast<const char*>(call.words[0]);
  const Word place = call.words[1];
  if (name == nullptr || place == 0 || read(place) == 0) return;
  const Row& what = call.what();
  const Word flags = call.argument(what.b) | (what.variant == Variant::ptsz && call.argument(what.b) == 0 ? 2U : 0U);
  int version = static_cast<std::int32_t>(call.argument(what.a));
  bool is_known = what.a >= 0;
  if (!is_known) {  // that runtime asks for what it was made for
    const auto ask = reinterpret_cast<int (*)(int*)>(function_beside(call.real, "cudaRuntimeGetVersion"));
    is_known = ask != nullptr && ask(&version) == 0;
  }
  const int row = is_known ? row_asked_for(name, version, flags) : row_asked_for_at_any_version(name, flags);
  if (row < 0 || !is_wanted(row)) return;
  *reinterpret_cast<void**>(place) = wrap(row, *reinterpret_cast<void**>(place));
}

// ---- What is taken away: recorded before it goes, and taken back when it could not go.

Space space_of(Meaning meaning) {
  switch (meaning) {
    case Meaning::array_destroy: return Space::array;
    case Meaning::host_release: return Space::host;
    case Meaning::host_unregister: return Space::registered;
    case Meaning::pool_destroy: return Space::pool;
    case Meaning::unreserve: return Space::reservation;
    case Meaning::external_end: return Space::external;
    default: return Space::address;
  }
}

void before_release(Call& call) {
  const Space space = space_of(call.what().meaning);
  const Word key = narrowed(call, call.argument(call.what().a));
  Entry entry;
  if (key == 0 || !live_memory.find(space, key, &entry)) return;
  if (entry.is_foreign && entry.other > 1) return;  // still open for others; counted when it worked
  call.takes = live_memory.begin_leaving(space, key, &call.entry);
  if (call.takes) record_taken(call.entry, call.argument(call.what().b));
}

void after_release(const Call& call, int error) {
  const Space space = space_of(call.what().meaning);
  const Word key = narrowed(call, call.argument(call.what().a));
  if (!call.takes) {
    Entry entry;
    if (error == 0 && live_memory.find(space, key, &entry) && entry.is_foreign && entry.other > 1) live_memory.count(space, key, -1);
    return;
  }
  live_memory.end_leaving(space, key, error == 0);
  if (error != 0) record_given(call.entry);
}

// ---- Both sides of every meaning

void before(Call& call) {
  switch (call.what().meaning) {
    case Meaning::release: {
      const std::int8_t stream = call.what().b;
      if (stream >= 0 && is_capturing(call, call.argument(stream))) return;
      return before_release(call);
    }
    case Meaning::array_destroy:
    case Meaning::host_release:
    case Meaning::host_unregister:
    case Meaning::pool_destroy:
    case Meaning::unreserve:
    case Meaning::import_end:
    case Meaning::external_end: return before_release(call);
    case Meaning::handle_release: return before_handle_release(call);
    case Meaning::unmap: return before_unmap(call);
    case Meaning::context_end:
    case Meaning::primary_end: return before_context_end(call);
    default: return;
  }
}

void after_success(const Call& call) {
  const Row& what = call.what();
  const Word first = call.argument(what.a);
  switch (what.meaning) {
    case Meaning::allocate: return after_allocate(call, narrowed(call, call.argument(what.b)), call.argument(what.c), what.c >= 0);
    case Meaning::allocate_managed: return after_allocate(call, call.argument(what.b), 0, false);
    case Meaning::allocate_pitch: return after_pitch(call);
    case Meaning::array_create: return after_array(call, false, 1);
    case Meaning::array_3d_create: return after_array(call, true, 1);
    case Meaning::mipmap_create: return after_array(call, true, call.argument(what.c) & 0xffffffffU);
    case Meaning::host_allocate: return after_host(call, Space::host, read(first), Ends::with_context);
    case Meaning::host_register: return after_host(call, Space::registered, first, Ends::alone);
    case Meaning::pool_create: return after_pool(call);
    case Meaning::pool_trim: return record(channel::kind_pool_trim, device_heap(call, current_device()), first, 0);
    case Meaning::graph_trim: return record(channel::kind_pool_trim, device_heap(call, static_cast<std::int32_t>(first)), 0, 0);
    case Meaning::reserve:
      return give(Space::reservation, read(first), call.argument(what.b), device_heap(call, current_device()), Ends::alone);
    case Meaning::import_address: return after_import(call, Space::address, read(first), bytes_at(read(first)));
    case Meaning::external_import: return after_import(call, Space::external, read(first), read(call.argument(what.b), 24));
    case Meaning::external_buffer: return after_import(call, Space::address, read(first), read(call.argument(what.b), 8));
    case Meaning::handle_create:
    case Meaning::handle_retain:
    case Meaning::handle_import:
    case Meaning::handle_multicast: return after_handle(call);
    case Meaning::map: return after_map(call);
    case Meaning::graph_add_alloc:
    case Meaning::graph_add_free:
    case Meaning::graph_add_node:
    case Meaning::graph_instantiate:
    case Meaning::graph_launch:
    case Meaning::graph_destroy: return after_graph(call);
    case Meaning::context_end:
    case Meaning::primary_end: return after_context_end(call);
    case Meaning::launch:
    case Meaning::launch_config: return after_launch(call);
    case Meaning::unload: return forget_kernel_names();
    case Meaning::release:
      if (!call.takes && what.b >= 0) note_captured_free(call, first);
      return;
    default: return;
  }
}

void after(const Call& call, int error) {
  const Meaning meaning = call.what().meaning;
  if (space_of(meaning) != Space::address || meaning == Meaning::release || meaning == Meaning::import_end) after_release(call, error);
  if (meaning == Meaning::handle_release) after_handle_release(call, error);
  if (meaning == Meaning::unmap) after_unmap(call, error);
  if (error == 0) return after_success(call);
  const bool asks = meaning == Meaning::allocate || meaning == Meaning::allocate_managed || meaning == Meaning::handle_create;
  if (error != out_of_memory || !asks) return;
  // PyTorch's allocator says itself when it gives up; here it only begins to look for memory that it can give back. Its backend that
  // allocates in stream order says nothing.
  const bool in_stream_order = meaning == Meaning::allocate && call.what().c >= 0;
  if (owner_of(call).is_allocator && !in_stream_order) return;
  core::record_out_of_memory(device_heap(call, current_device()), narrowed(call, call.argument(call.what().b)), core::Phase::other,
                             nullptr);
}

}  // namespace

bool begin(Call& call) {
  const Meaning meaning = call.what().meaning;
  if (meaning == Meaning::look_up) return true;
  if (meaning == Meaning::caller) {
    if (nesting.caller != nullptr) return false;
    nesting.caller = call.caller;
    return true;
  }
  if (nesting.depth != 0 || !is_wanted(call.row) || !core::recording()) return false;
  nesting.depth = 1;
  const int error = errno;
  before(call);
  errno = error;
  return true;
}

void end(Call& call, int error) {
  const Meaning meaning = call.what().meaning;
  if (meaning == Meaning::caller) {
    nesting.caller = nullptr;
    return;
  }
  const int before = errno;
  if (meaning == Meaning::look_up) {
    if (error == 0) after_look_up(call);
  } else {
    after(call, error);
    nesting.depth = 0;
  }
  errno = before;
}

}  // namespace liveset::driver
