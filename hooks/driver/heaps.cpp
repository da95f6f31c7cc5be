// Whose memory it is, and on which device.
#include <cstring>

#include "hooks/core/process.h"
#include "hooks/core/recorder.h"
#include "hooks/driver/call.h"
#include "hooks/driver/hook.h"
#include "hooks/driver/nesting.h"
#include "hooks/driver/wrappers.h"

namespace liveset::driver {

constinit thread_local Nesting nesting __attribute__((tls_model("initial-exec"))) = {};

namespace {

constexpr int cpu_type = 0, cuda_type = 1;  // of a heap
constexpr int device_ordinal_attribute = 9;
constexpr Word per_thread_stream = 2;
constexpr const char* source = "driver";

Neighbours around{};
bool declared = false;

char* append(char* out, char* end, const char* text) {
  while (*text != 0 && out + 1 < end) *out++ = *text++;
  *out = 0;
  return out;
}

// Once, at the first event: by then the libraries that look functions up have been loaded.
void declare() {
  if (__atomic_exchange_n(&declared, true, __ATOMIC_RELAXED)) return;
  char blind[680];
  char* end = blind + sizeof blind;
  char* out = append(blind, end,
                     "memory that the driver takes itself: contexts, modules, local memory, what its pools and graphs keep; sparse arrays; "
                     "the padding of arrays; what was allocated before the recording; what torch.cuda.MemPool takes by an allocator of "
                     "its own is told twice: as its library's, and in reserved");
  if (!kernels_wanted()) out = append(out, end, "; kernel launches (run --kernels launches)");
  for (const bool before_us : {true, false}) {
    const char* other = other_dlsym(before_us);
    if (other == nullptr) continue;
    out = append(append(out, end, "; what goes around us by another hook of dlsym "), end, before_us ? "before us: " : "behind us: ");
    out = append(out, end, other);
  }
  core::declare_source(
      source, "1", "what each library takes from the CUDA driver: device, host and managed memory, mappings, pools, graphs' nodes", blind);
}

template <class Function>
Function find(std::atomic<void*>& cached, const char* name) {
  void* found = cached.load(std::memory_order_relaxed);
  if (found == nullptr) {
    found = driver_function(name);
    cached.store(found, std::memory_order_relaxed);
  }
  return reinterpret_cast<Function>(found);
}

std::uint32_t intern(const char* place, int device, const char* owner) {
  char name[64];
  char* const end = name + sizeof name;
  char* out = append(name, end, place);
  if (device >= 0) {
    char digits[3] = {static_cast<char>('0' + device / 10), static_cast<char>('0' + device % 10), 0};
    out = append(out, end, device < 10 ? digits + 1 : digits);
  }
  append(append(out, end, "/"), end, owner);
  return core::intern_heap(name, device >= 0 ? cuda_type : cpu_type, device >= 0 ? device : 0, source);
}

bool is_recorded(int device) {
  const bool has_place = device >= 0 && device < most_devices;
  if (!has_place) count_lost();
  return has_place;
}

}  // namespace

void start(const Neighbours& neighbours) { around = neighbours; }

void say_exiting() {
  if (core::process.flag() == core::flag_on && driver_function("cuInit") != nullptr) declare();
}

Library& owner_of(const Call& call) {
  Library& library = library_of(call.caller);
  const void* outer = nesting.caller;
  return library.is_runtime && outer != nullptr ? library_of(outer) : library;
}

std::uint32_t device_heap(const Call& call, int device) {
  if (!is_recorded(device)) return 0;
  Library& library = owner_of(call);
  std::uint32_t heap = library.device_heaps[device].load(std::memory_order_relaxed);
  if (heap != 0) return heap;
  declare();
  const bool is_allocators = library.is_allocator && around.allocator_heap != nullptr;
  heap = is_allocators ? around.allocator_heap(cuda_type, device) : intern("cuda:", device, library.owner);
  library.device_heaps[device].store(heap, std::memory_order_relaxed);
  return heap;
}

std::uint32_t managed_heap(const Call& call, int device) {
  if (!is_recorded(device)) return 0;
  Library& library = owner_of(call);
  std::uint32_t heap = library.managed_heaps[device].load(std::memory_order_relaxed);
  if (heap != 0) return heap;
  declare();
  heap = intern("managed:", device, library.owner);
  library.managed_heaps[device].store(heap, std::memory_order_relaxed);
  return heap;
}

std::uint32_t host_heap(const Call& call) {
  Library& library = owner_of(call);
  std::uint32_t heap = library.host_heap.load(std::memory_order_relaxed);
  if (heap != 0) return heap;
  declare();
  heap = intern("host", -1, library.owner);
  library.host_heap.store(heap, std::memory_order_relaxed);
  return heap;
}

int current_device() {
  static constinit std::atomic<void*> cached{nullptr};
  const auto ask = find<int (*)(int*)>(cached, "cuCtxGetDevice");
  int device = 0;
  return ask != nullptr && ask(&device) == 0 ? device : 0;
}

int device_of(Word address) {
  static constinit std::atomic<void*> cached{nullptr};
  const auto ask = find<int (*)(void*, int, Word)>(cached, "cuPointerGetAttribute");
  int device = -1;
  const bool known = ask != nullptr && ask(&device, device_ordinal_attribute, address) == 0;
  return known && device >= 0 ? device : current_device();
}

bool is_capturing(const Call& call, Word stream) {
  static constinit std::atomic<void*> cached{nullptr};
  const auto ask = find<int (*)(Word, int*)>(cached, "cuStreamIsCapturing");
  if (stream == 0 && call.is(Variant::ptsz)) stream = per_thread_stream;
  int status = 0;
  return ask != nullptr && ask(stream, &status) == 0 && status != 0;
}

Word current_context() {
  static constinit std::atomic<void*> cached{nullptr};
  const auto ask = find<int (*)(Word*)>(cached, "cuCtxGetCurrent");
  Word context = 0;
  return ask != nullptr && ask(&context) == 0 ? context : 0;
}

void count_lost() {
  if (core::process.flag() == core::flag_on) core::process.count_lost(channel::LossReason::unknown);
}

core::Phase phase_now() { return around.phase != nullptr ? around.phase() : core::Phase::other; }

void record(std::uint8_t kind, std::uint32_t heap, Word address, Word bytes, Word stream) {
  core::record_memory(kind, heap, address, bytes, stream, phase_now());
}

void record_launch(Word stream, std::uint32_t name) {
  // The device's, whoever launched: the runtime's own launching functions are not stood before.
  static constinit std::atomic<std::uint32_t> heaps[most_devices] = {};
  const int device = current_device();
  if (!is_recorded(device)) return;
  std::uint32_t heap = heaps[device].load(std::memory_order_relaxed);
  if (heap == 0) {
    declare();
    heap = intern("cuda:", device, "kernels");
    heaps[device].store(heap, std::memory_order_relaxed);
  }
  core::record_kernel(heap, stream, name, phase_now());
}

int device_of_properties(Word properties) {
  constexpr std::size_t type_offset = 8, number_offset = 12;
  constexpr std::int32_t on_device = 1;
  return read<std::int32_t>(properties, type_offset) == on_device ? read<std::int32_t>(properties, number_offset) : -1;
}

}  // namespace liveset::driver
