#include "hooks/driver/libraries.h"

#include <dlfcn.h>
#include <sys/auxv.h>

#include <cerrno>
#include <cstring>

#include "hooks/core/lock.h"
#include "hooks/core/old_symbols.h"

namespace liveset::driver {
namespace {

constexpr int most_libraries = 512;
constexpr unsigned page_bits = 12;
constexpr std::size_t cached_pages = 4096;

constinit Library libraries[most_libraries] = {};
constinit std::atomic<int> library_count{0};
constinit core::SpinLock lock;
// page number << 12 | library number + 1. Pages that fall into one place displace each other.
constinit std::atomic<std::uint64_t> pages[cached_pages] = {};

bool begins_with(const char* text, const char* begin) { return std::strncmp(text, begin, std::strlen(begin)) == 0; }

struct Name {
  const char *stem, *owner;
};
// By the beginning of the file's name, longer ones first.
constexpr Name known[] = {{"libcublas", "cublas"}, {"libcudnn", "cudnn"},   {"libcusolver", "cusolver"}, {"libcusparse", "cusparse"},
                          {"libcufft", "cufft"},   {"libcurand", "curand"}, {"libnvrtc", "nvrtc"},       {"libnvshmem", "nvshmem"},
                          {"libnccl", "nccl"},     {"libtorch", "torch"},   {"libc10", "torch"},         {"libcudart", "cudart"},
                          {"libcuda.", "driver"},  {"libnvidia-ml", "nvml"}};

void set_owner(Library& library, const char* file) {
  for (const Name& name : known) {
    if (begins_with(file, name.stem)) {
      std::strcpy(library.owner, name.owner);
      return;
    }
  }
  if (begins_with(file, "lib")) file += 3;
  std::size_t used = 0;
  for (; file[used] != 0 && used + 1 < sizeof library.owner; ++used) {
    const char c = file[used];
    if (c == '.') break;
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '+';
    library.owner[used] = plain ? c : '_';
  }
  library.owner[used] = 0;
  if (used == 0) std::strcpy(library.owner, "unnamed");
}

// A copy that outlives the library. Null: no room; then that library's own dependencies are not searched.
const char* kept(const char* path) {
  static constinit char room[1U << 16] = {};
  static constinit std::size_t used = 0;
  const std::size_t length = path != nullptr ? std::strlen(path) + 1 : 0;
  if (length == 0 || length > sizeof room - used) return nullptr;
  char* copy = room + used;
  std::memcpy(copy, path, length);
  used += length;
  return copy;
}

const char own_byte = 0;

bool is_our_own(const void* base) {
  Dl_info own{};
  return dladdr(&own_byte, &own) != 0 && own.dli_fbase == base;
}

void describe(Library& library, const Dl_info& info, bool is_program) {
  library.base = info.dli_fbase;
  library.path = kept(info.dli_fname);
  const char* slash = info.dli_fname != nullptr ? std::strrchr(info.dli_fname, '/') : nullptr;
  const char* file = slash != nullptr ? slash + 1 : info.dli_fname != nullptr ? info.dli_fname : "";
  library.is_runtime = begins_with(file, "libcudart") || is_our_own(info.dli_fbase);
  library.is_allocator = begins_with(file, "libc10_cuda.");
  if (is_program) {
    std::strcpy(library.owner, "program");
  } else {
    set_owner(library, file);
  }
}

// Code that no library holds was made at run time, by the program as far as we know.
Library& find_or_add(const void* code) {
  Dl_info info{};
  Dl_info entry{};
  const bool known_code = dladdr(code, &info) != 0;
  const bool known_entry = dladdr(reinterpret_cast<const void*>(getauxval(AT_ENTRY)), &entry) != 0;
  const bool is_program = !known_code || (known_entry && info.dli_fbase == entry.dli_fbase);
  const void* base = is_program ? nullptr : info.dli_fbase;
  const core::LockGuard guard(lock);
  const int count = library_count.load(std::memory_order_relaxed);
  for (int i = 0; i < count; ++i) {
    if (libraries[i].base == base) return libraries[i];
  }
  if (count == most_libraries) return libraries[0];
  describe(libraries[count], info, is_program);
  libraries[count].base = base;
  library_count.store(count + 1, std::memory_order_release);
  return libraries[count];
}

// A handle of the library that is loaded from there, without a count of its own to keep. Null: none.
void* loaded(const char* path) {
  void* handle = path != nullptr ? dlopen(path, RTLD_NOLOAD | RTLD_LAZY) : nullptr;
  if (handle != nullptr) dlclose(handle);
  return handle;
}

// The caller's own dependencies, and what they need.
void* in_dependencies(const char* name, const Library& caller) {
  void* handle = caller.base != nullptr && !is_our_own(caller.base) ? loaded(caller.path) : nullptr;
  return handle != nullptr ? real_dlsym()(handle, name) : nullptr;
}

bool is_of_cuda(const void* code) {
  const char* owner = library_of(code).owner;
  return std::strcmp(owner, "cudart") == 0 || std::strcmp(owner, "driver") == 0;
}

constexpr const char* driver_libraries[] = {"libcuda.so.1", "libcuda.so"};
constexpr const char* runtime_libraries[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so"};

void* in_known_libraries(const char* name) {
  const bool of_runtime = begins_with(name, "cuda");
  void* found = nullptr;
  const auto look = [&](const char* library) {
    void* handle = found == nullptr ? loaded(library) : nullptr;
    if (handle != nullptr) found = real_dlsym()(handle, name);
  };
  if (of_runtime) {
    for (const char* library : runtime_libraries) look(library);
  } else {
    for (const char* library : driver_libraries) look(library);
  }
  return found;
}

// The next one in the program's order is right when another preload put it there. Otherwise the one that the calling library itself
// is linked to: a process may hold two CUDA runtimes.
void* search(const char* name, const Library& caller) {
  void* next = real_dlsym()(RTLD_NEXT, name);
  if (next != nullptr && !is_of_cuda(next)) return next;
  void* own = in_dependencies(name, caller);
  if (own != nullptr) return own;
  return next != nullptr ? next : in_known_libraries(name);
}

}  // namespace

Library& library_of(const void* code) {
  const auto page = reinterpret_cast<std::uint64_t>(code) >> page_bits;
  std::atomic<std::uint64_t>& cached = pages[(page ^ page >> 12) % cached_pages];
  const std::uint64_t word = cached.load(std::memory_order_acquire);
  if (word != 0 && word >> 12 == page) return libraries[(word & 0xfff) - 1];
  const int error = errno;
  Library& library = find_or_add(code);
  cached.store(page << 12 | static_cast<std::uint64_t>(&library - libraries + 1), std::memory_order_release);
  errno = error;
  return library;
}

void* behind_us(int row, Library& caller) {
  void* real = caller.real[row].load(std::memory_order_acquire);
  if (real != nullptr) return real;
  const int error = errno;
  real = search(rows[row].name, caller);
  if (real != nullptr) {
    pin(real);
    caller.real[row].store(real, std::memory_order_release);
    dlerror();  // of the places where it was not
  } else {
    real_dlsym()(RTLD_NEXT, rows[row].name);  // so that dlerror() speaks of this name
  }
  errno = error;
  return real;
}

bool is_visible(int row, const Library* caller) {
  const char* name = rows[row].name;
  const int error = errno;
  void* found = real_dlsym()(RTLD_NEXT, name);
  if (found == nullptr) {  // opened RTLD_GLOBAL later; then a function is visible that we do not stand before
    void* witness = real_dlsym()(RTLD_DEFAULT, begins_with(name, "cuda") ? "cudaRuntimeGetVersion" : "cuInit");
    if (witness != nullptr) found = function_beside(witness, name);
  }
  if (found == nullptr && caller != nullptr) found = in_dependencies(name, *caller);
  if (found != nullptr) {
    dlerror();  // of the places where it was not
  } else {
    real_dlsym()(RTLD_NEXT, name);  // so that dlerror() speaks of this name
  }
  errno = error;
  return found != nullptr;
}

void* function_beside(const void* code, const char* name) {
  const int error = errno;
  Dl_info info{};
  void* handle = dladdr(code, &info) != 0 ? loaded(info.dli_fname) : nullptr;
  void* found = handle != nullptr ? real_dlsym()(handle, name) : nullptr;
  errno = error;
  return found;
}

void pin(const void* code) {
  const int error = errno;
  Dl_info info{};
  void* handle = dladdr(code, &info) != 0 ? dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY | RTLD_NODELETE) : nullptr;
  if (handle != nullptr) dlclose(handle);
  errno = error;
}

void* driver_function(const char* name) {
  const int error = errno;
  void* found = nullptr;
  for (const char* library : driver_libraries) {
    void* handle = found == nullptr ? loaded(library) : nullptr;
    if (handle != nullptr) found = real_dlsym()(handle, name);
  }
  if (found != nullptr) pin(found);
  dlerror();  // of the places where it was not
  errno = error;
  return found;
}

}  // namespace liveset::driver
