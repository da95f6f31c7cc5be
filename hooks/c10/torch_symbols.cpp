#include "hooks/c10/torch_symbols.h"

#include <dlfcn.h>

#include "hooks/core/old_symbols.h"
#include "hooks/core/recorder.h"

namespace liveset::c10_hook {
namespace {

TorchSymbols symbols;
bool complete = false;
std::uint32_t calls = 0;
std::uint32_t next_search = 0;

template <typename Function>
void find(Function& target, void* library, const char* name) {
  if (library == nullptr || __atomic_load_n(&target, __ATOMIC_RELAXED) != nullptr) return;
  __atomic_store_n(&target, reinterpret_cast<Function>(dlsym(library, name)), __ATOMIC_RELEASE);
}

// RTLD_NEXT and RTLD_DEFAULT do not find libraries that Python loaded with RTLD_LOCAL: ask the loaded ones by name. Two
// threads may search at once; both store the same pointers.
void search() {
  void* c10 = dlopen("libc10.so", RTLD_NOLOAD | RTLD_LAZY);
  void* cpu = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
  find(symbols.profiling_enabled, c10, "_ZN3c1022memoryProfilingEnabledEv");
  find(symbols.report_usage, c10, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
  find(symbols.report_out_of_memory, c10, "_ZN3c1028reportOutOfMemoryToProfilerElmmNS_6DeviceE");
  find(symbols.graph_task_id, cpu, "_ZN5torch8autograd25get_current_graph_task_idEv");
  find(symbols.grad_enabled, c10, "_ZN3c108GradMode10is_enabledEv");
  find(symbols.grad_enabled, cpu, "_ZN3c108GradMode10is_enabledEv");  // its home up to torch 1.9
  find(core::sequence_source, cpu, "_ZN2at15sequence_number4peekEv");
  if (c10 != nullptr) dlclose(c10);
  if (cpu != nullptr) dlclose(cpu);
  if (symbols.profiling_enabled != nullptr && symbols.graph_task_id != nullptr && symbols.grad_enabled != nullptr) {
    __atomic_store_n(&complete, true, __ATOMIC_RELEASE);
  }
}

}  // namespace

const TorchSymbols& torch_symbols() {
  if (__builtin_expect(!__atomic_load_n(&complete, __ATOMIC_ACQUIRE), 0)) {
    const std::uint32_t call = __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    if (call >= __atomic_load_n(&next_search, __ATOMIC_RELAXED)) {
      __atomic_store_n(&next_search, call + call / 4 + 1, __ATOMIC_RELAXED);
      search();
    }
  }
  return symbols;
}

}  // namespace liveset::c10_hook
