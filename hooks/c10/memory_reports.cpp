// PyTorch's memory reporting, interposed: the three functions below stand before libc10's own in the lookup order,
// because this library is preloaded and libc10 calls them through its PLT. Every block of the CPU allocator and of the
// caching allocators of the devices arrives here with the allocator's own counters.
#include "hooks/c10/memory_reports.h"

#include <dlfcn.h>

#include "hooks/c10/mapped_blocks.h"
#include "hooks/c10/torch_symbols.h"
#include "hooks/core/old_symbols.h"
#include "hooks/core/recorder.h"

namespace liveset::c10_hook {

bool (*after_report)() = nullptr;

namespace {

constexpr int max_devices = 32;
constexpr int cpu_type = 0;
constexpr int cuda_type = 1;
constexpr int meta_type = 14;
// c10::DeviceType up to the last of torch 2.14; private backends are 20.
constexpr int max_types = 24;

// Interned ids, filled on first use. A race interns twice, to the same id.
std::uint32_t heaps[max_types][max_devices];
std::uint32_t mapped_heap = 0;
constinit MappedBlocks mapped;
int create_graph_backwards = 0;
bool reported = false;
// In a dry run the stand-in driver's; otherwise null. See hooks/standin/interface.h.
void (*forget_contents)(void* address, std::size_t bytes) = nullptr;

// Appends `text` to `out`; both are ours and short.
char* append(char* out, const char* text) {
  while (*text != '\0') *out++ = *text++;
  return out;
}

char* append_number(char* out, int number) {
  if (number >= 10) out = append_number(out, number / 10);
  *out++ = static_cast<char>('0' + number % 10);
  return out;
}

void declare() {
  char cannot_see[680];
  char* end =
      append(cannot_see,
             "requested sizes (blocks are rounded); a block that record_stream still holds after its free; memory that libraries take "
             "from the system or the driver themselves; pinned host memory; allocators that were replaced by a plug-in");
  if (torch_symbols().graph_task_id != nullptr && core::sequence_source == nullptr) {
    end = append(end, "; which node of autograd a block is of (this torch has no at::sequence_number::peek)");
  }
  *end = '\0';
  core::declare_source(
      "c10", "", "every block of PyTorch's CPU allocator and of its caching allocators (CUDA and others that report to c10)", cannot_see);
}

void find_standin_driver() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  if (driver == nullptr) return;
  __atomic_store_n(&forget_contents, reinterpret_cast<void (*)(void*, std::size_t)>(dlsym(driver, "liveset_standin_forget")),
                   __ATOMIC_RELEASE);
  dlclose(driver);
}

std::uint32_t intern(int type, int index) {
  char name[32];
  char* end = name;
  if (type == cpu_type) {
    end = append(end, "cpu");
  } else if (type == cuda_type) {
    end = append_number(append(end, "cuda:"), index);
    find_standin_driver();
  } else {
    end = append_number(append(append_number(append(end, "device"), type), ":"), index);
  }
  *end = '\0';
  declare();
  return core::intern_heap(name, type, index, "c10");
}

// Phase of the calling thread as autograd sees it; `other` leaves it to the recorder, which knows what the Python hooks
// said of the thread.
core::Phase autograd_phase(const TorchSymbols& torch) {
  if (torch.graph_task_id == nullptr || torch.graph_task_id() < 0) return core::Phase::other;
  const core::Phase own = core::current_phase();
  // Said by the Python hooks for this very stretch: a checkpoint's recompute, or an optimizer that runs inside
  // backward.
  if (own == core::Phase::recompute || own == core::Phase::optimizer) return own;
  if (torch.grad_enabled != nullptr && torch.grad_enabled() && __atomic_load_n(&create_graph_backwards, __ATOMIC_RELAXED) == 0) {
    return core::Phase::recompute;
  }
  return core::Phase::backward;
}

// Blocks of the CPU that are mappings (see mapped_blocks.h) are a heap of their own, without totals.
bool record_mapped(std::uint64_t address, std::int64_t size, std::size_t allocated, core::Phase phase) {
  if (size > 0 && allocated < static_cast<std::uint64_t>(size)) {
    std::uint32_t heap = __atomic_load_n(&mapped_heap, __ATOMIC_RELAXED);
    if (heap == 0) {
      declare();
      heap = core::intern_heap("cpu/mapped", cpu_type, 0, "c10");
      __atomic_store_n(&mapped_heap, heap, __ATOMIC_RELAXED);
    }
    mapped.add(address);
    core::record_alloc(heap, address, static_cast<std::uint64_t>(size), 0, phase, nullptr);
    return true;
  }
  if (size < 0 && allocated == 0 && mapped.remove(address)) {
    core::record_free(__atomic_load_n(&mapped_heap, __ATOMIC_RELAXED), address, static_cast<std::uint64_t>(-size), phase, nullptr);
    return true;
  }
  return false;
}

void record_report(void* block, std::int64_t size, const core::Totals& totals, c10::Device device, const TorchSymbols& torch) {
  const auto address = reinterpret_cast<std::uint64_t>(block);
  const core::Phase phase = autograd_phase(torch);
  if (device.type == cpu_type && record_mapped(address, size, totals.allocated, phase)) return;
  const std::uint32_t heap = heap_of(device.type, device.index);
  if (size > 0) {
    const auto forget = __atomic_load_n(&forget_contents, __ATOMIC_ACQUIRE);
    if (__builtin_expect(forget != nullptr && device.type == cuda_type, 0)) forget(block, static_cast<std::size_t>(size));
    core::record_alloc(heap, address, static_cast<std::uint64_t>(size), 0, phase, &totals);
  } else if (size < 0) {
    core::record_free(heap, address, static_cast<std::uint64_t>(-size), phase, &totals);
  }
}

void mark_reported() {
  if (__builtin_expect(!__atomic_load_n(&reported, __ATOMIC_RELAXED), 0)) __atomic_store_n(&reported, true, __ATOMIC_RELAXED);
  const auto call = __atomic_load_n(&after_report, __ATOMIC_RELAXED);
  if (__builtin_expect(call != nullptr, 0) && !call()) __atomic_store_n(&after_report, nullptr, __ATOMIC_RELAXED);
}

}  // namespace

std::uint32_t heap_of(int device_type, int device_index) {
  const int index = device_index < 0 ? 0 : device_index;
  if (device_type < 0 || device_type >= max_types || index >= max_devices || device_type == meta_type) return 0;
  std::uint32_t& slot = heaps[device_type][index];
  std::uint32_t heap = __atomic_load_n(&slot, __ATOMIC_RELAXED);
  if (__builtin_expect(heap == 0, 0)) {
    heap = intern(device_type, index);
    __atomic_store_n(&slot, heap, __ATOMIC_RELAXED);
  }
  return heap;
}

std::uint32_t heap_holding(std::uint32_t heap, std::uint64_t address) {
  if (heap != __atomic_load_n(&heaps[cpu_type][0], __ATOMIC_RELAXED) || !mapped.contains(address)) return heap;
  return __atomic_load_n(&mapped_heap, __ATOMIC_RELAXED);
}

core::Phase phase_now() { return autograd_phase(torch_symbols()); }

void create_graph_backward(int change) { __atomic_fetch_add(&create_graph_backwards, change, __ATOMIC_RELAXED); }

bool any_report() { return __atomic_load_n(&reported, __ATOMIC_RELAXED); }

}  // namespace liveset::c10_hook

namespace c10 {

using liveset::c10_hook::torch_symbols;
namespace core = liveset::core;

// libc10 asks this before every report. While we record the answer is yes, whether or not a profiler of torch runs.
__attribute__((visibility("default"))) bool memoryProfilingEnabled() {
  if (__builtin_expect(core::recording(), 1)) return true;
  const auto real = torch_symbols().profiling_enabled;
  return real != nullptr && real();
}

__attribute__((visibility("default"))) void reportMemoryUsageToProfiler(void* block, std::int64_t size, std::size_t allocated,
                                                                        std::size_t reserved, Device device) {
  const liveset::c10_hook::TorchSymbols& torch = torch_symbols();
  if (__builtin_expect(core::recording(), 1)) {
    liveset::c10_hook::record_report(block, size, {allocated, reserved}, device, torch);
    liveset::c10_hook::mark_reported();
  }
  // Only for a profiler that asked: otherwise libc10 would not have called its own function either.
  if (torch.profiling_enabled != nullptr && torch.report_usage != nullptr && torch.profiling_enabled()) {
    torch.report_usage(block, size, allocated, reserved, device);
  }
}

__attribute__((visibility("default"))) void reportOutOfMemoryToProfiler(std::int64_t size, std::size_t allocated, std::size_t reserved,
                                                                        Device device) {
  const liveset::c10_hook::TorchSymbols& torch = torch_symbols();
  if (core::recording()) {
    const std::uint32_t heap = liveset::c10_hook::heap_of(device.type, device.index);
    const core::Totals totals{allocated, reserved};
    core::record_out_of_memory(heap, static_cast<std::uint64_t>(size), liveset::c10_hook::autograd_phase(torch), &totals);
  }
  if (torch.profiling_enabled != nullptr && torch.report_out_of_memory != nullptr && torch.profiling_enabled()) {
    torch.report_out_of_memory(size, allocated, reserved, device);
  }
}

}  // namespace c10
