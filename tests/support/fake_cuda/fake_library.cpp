// A library that takes memory for itself, built under several names: with the runtime inside, as libnccl has it (its own way to the
// driver), and with the shared runtime, as a plug-in or PyTorch's allocator has it.
#include <dlfcn.h>

#include <cstdint>

using Word = std::uint64_t;

extern "C" {
#ifdef FAKE_STATIC_RUNTIME
int take_memory(Word* out, Word bytes) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  using Ask = int (*)(const char*, void**, int, Word, int*);
  const auto ask = reinterpret_cast<Ask>(dlsym(library, "cuGetProcAddress_v2"));
  void* found = nullptr;
  if (ask("cuMemAlloc", &found, 3020, 0, nullptr) != 0) return 1;
  return reinterpret_cast<int (*)(Word*, Word)>(found)(out, bytes);
}
#else
int cudaMalloc(Word* out, Word bytes);
int take_memory(Word* out, Word bytes) { return cudaMalloc(out, bytes); }
// What PyTorch's expandable segments do, with functions that the runtime gave out: the mapped address.
int cudaGetDriverEntryPointByVersion(const char* name, void** out, unsigned version, Word flags, int* status);
int map_memory(Word address, Word bytes, Word* handle) {
  struct {
    int type = 1, handles = 0, location = 1, device = 0;
    Word rest[2] = {};
  } properties;
  void* found[2] = {};
  if (cudaGetDriverEntryPointByVersion("cuMemCreate", &found[0], 12010, 0, nullptr) != 0) return 1;
  if (cudaGetDriverEntryPointByVersion("cuMemMap", &found[1], 12010, 0, nullptr) != 0) return 1;
  const int error = reinterpret_cast<int (*)(Word*, Word, const void*, Word)>(found[0])(handle, bytes, &properties, 0);
  return error != 0 ? error : reinterpret_cast<int (*)(Word, Word, Word, Word, Word)>(found[1])(address, bytes, 0, *handle, 0);
}
int unmap_memory(Word address, Word bytes, Word handle) {
  void* found[2] = {};
  if (cudaGetDriverEntryPointByVersion("cuMemUnmap", &found[0], 12010, 0, nullptr) != 0) return 1;
  if (cudaGetDriverEntryPointByVersion("cuMemRelease", &found[1], 12010, 0, nullptr) != 0) return 1;
  const int error = reinterpret_cast<int (*)(Word, Word)>(found[0])(address, bytes);
  return error != 0 ? error : reinterpret_cast<int (*)(Word)>(found[1])(handle);
}
#endif
}
