// The loaded libraries that call CUDA: whose memory it is, and which real function stands behind an exported one for them.
#pragma once
#include <atomic>
#include <cstdint>

#include "hooks/driver/calls.h"

namespace liveset::driver {

inline constexpr int most_devices = 64;  // what lies on others is not recorded, and counted

struct Library {
  const void* base;
  const char* path;  // null: unknown
  char owner[32];    // "nccl", "torch", "program", ...; never empty
  bool is_runtime;   // libcudart (a wheel's may carry a hash in its name), or ourselves when it jumps on instead of calling: no owner while
                     // somebody is known to have called it
  bool is_allocator;  // PyTorch's caching allocator: its segments lie in its own heap
  // Interned heaps, 0: not yet. A race interns twice, to the same id.
  std::atomic<std::uint32_t> device_heaps[most_devices], managed_heaps[most_devices];
  std::atomic<std::uint32_t> host_heap;
  std::atomic<void*> real[row_count];  // for this library's calls of our exported functions; null: not looked for yet
};

// Never null; lock-free once the page that `code` lies in was seen. Where libraries are unloaded and others take their addresses, the
// new ones go by the old names.
Library& library_of(const void* code);

// The function that `caller` would call if we did not stand before it. Null: there is none. Then dlerror() has something to say.
void* behind_us(int row, Library& caller);
// Would a search of the whole program find it if we did not stand before it? `caller`: who also sees what it was loaded with; may be
// null. Libraries that were opened RTLD_LOCAL are not searched. False: dlerror() has something to say.
bool is_visible(int row, const Library* caller);
// The function of that name in the library that holds the code. Null: none.
void* function_beside(const void* code, const char* name);
// From now on the library that holds the code is not unloaded: somebody keeps a pointer to it.
void pin(const void* code);

// glibc's own dlsym, or that of another preload behind us (see dlsym.cpp).
using Dlsym = void* (*)(void*, const char*);
Dlsym real_dlsym();
// Path of the library that answers dlsym before us, or that stands between us and glibc; null: we are alone.
const char* other_dlsym(bool before_us);

// A function of the driver itself, never one of ours. Null: the driver has none such, or is not loaded.
void* driver_function(const char* name);

}  // namespace liveset::driver
