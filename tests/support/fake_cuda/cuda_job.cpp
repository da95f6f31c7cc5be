// A program that calls CUDA in every way in which programs do, for the tests of the driver hook. Linked to the fake libraries beside it.
//
//   cuda_job linked      every kind of allocation, by the driver's functions that it is linked to
//   cuda_job looked-up   the same functions as a runtime inside a program finds them: dlsym, then by name, version and flags
//   cuda_job runtime     through the runtime, from the program, from a plug-in (RTLD_LOCAL) and from a library with its own runtime
//   cuda_job allocator   as PyTorch's allocator: segments, and mappings through looked-up functions
//   cuda_job graphs      memory nodes, added and captured
//   cuda_job launches    kernels
//   cuda_job threads     eight threads, each a thousand allocations and frees
//   cuda_job fork        an allocation, a fork whose child allocates (silently), an allocation
//   cuda_job contexts    memory that ends with its context
//   cuda_job devices     of high numbers
//   cuda_job hashed      a library that is unloaded and loaded again, with a runtime of its own
//   cuda_job semantics   what dlsym answers; prints what is wrong, nothing when all is right
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

using Word = std::uint64_t;

extern "C" {
void fake_set_device(int number);
void fake_set_capturing(Word stream, bool on);
void fake_set_context(Word context);
void fake_lose(Word address);
void fake_fail_next_free();
int cuCtxDestroy_v2(Word context);
int cuDevicePrimaryCtxRetain(Word* out, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuDevicePrimaryCtxReset_v2(int device);
int cuMemAlloc_v2(Word* out, Word bytes);
int cuMemAllocPitch_v2(Word* out, Word* pitch, Word width, Word height, unsigned element);
int cuMemAllocManaged(Word* out, Word bytes, unsigned flags);
int cuMemAllocAsync(Word* out, Word bytes, Word stream);
int cuMemAllocFromPoolAsync(Word* out, Word bytes, Word pool, Word stream);
int cuMemFree_v2(Word address);
int cuMemFreeAsync(Word address, Word stream);
int cuArrayCreate_v2(Word* out, const void* descriptor);
int cuArray3DCreate_v2(Word* out, const void* descriptor);
int cuMipmappedArrayCreate(Word* out, const void* descriptor, unsigned levels);
int cuArrayDestroy(Word array);
int cuMipmappedArrayDestroy(Word array);
int cuMemHostAlloc(Word* out, Word bytes, unsigned flags);
int cuMemAllocHost_v2(Word* out, Word bytes);
int cuMemFreeHost(Word address);
int cuMemHostRegister_v2(Word address, Word bytes, unsigned flags);
int cuMemHostUnregister(Word address);
int cuMemPoolCreate(Word* out, const void* properties);
int cuMemPoolDestroy(Word pool);
int cuMemPoolTrimTo(Word pool, Word keep);
int cuMemAddressReserve(Word* out, Word bytes, Word alignment, Word hint, Word flags);
int cuMemAddressFree(Word address, Word bytes);
int cuMemCreate(Word* out, Word bytes, const void* properties, Word flags);
int cuMemRelease(Word handle);
int cuMemMap(Word address, Word bytes, Word offset, Word handle, Word flags);
int cuMemUnmap(Word address, Word bytes);
int cuMemRetainAllocationHandle(Word* out, Word address);
int cuMemImportFromShareableHandle(Word* out, void* shared, int type);
struct Ipc {
  char bytes[64];
};
int cuIpcOpenMemHandle_v2(Word* out, Ipc handle, unsigned flags);
int cuIpcCloseMemHandle(Word address);
int cuImportExternalMemory(Word* out, const void* descriptor);
int cuExternalMemoryGetMappedBuffer(Word* out, Word object, const void* descriptor);
int cuDestroyExternalMemory(Word object);
int cuGraphAddMemAllocNode(Word* out, Word graph, const Word* after, Word count, void* parameters);
int cuGraphAddMemFreeNode(Word* out, Word graph, const Word* after, Word count, Word address);
int cuGraphAddNode_v2(Word* out, Word graph, const Word* after, const void* edges, Word count, void* parameters);
int cuGraphInstantiateWithFlags(Word* out, Word graph, Word flags);
int cuGraphLaunch(Word executable, Word stream);
int cuGraphExecDestroy(Word executable);
int cuDeviceGraphMemTrim(int device);
int cuLaunchKernel(Word function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Word stream, void**, void**);
int cuLaunchKernelEx(const void* configuration, Word function, void** arguments, void** extra);
int cuLaunchCooperativeKernel(Word function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Word stream, void**);
int cudaMalloc(Word* out, Word bytes);
struct Extent {
  Word width, height, depth;
};
int cudaMalloc3D(Word* out, Extent extent);
int cudaFree(Word address);
int cudaMallocAsync(Word* out, Word bytes, Word stream);
int cudaHostAlloc(Word* out, Word bytes, unsigned flags);
int cudaGetDriverEntryPoint(const char* name, void** out, Word flags, int* status);
}

namespace {

void expect(int error, int expected, const char* what) {
  if (error == expected) return;
  std::printf("%s: error %d instead of %d\n", what, error, expected);
  std::exit(1);
}
#define WORKS(call) expect(call, 0, #call)
#define FAILS(call, error) expect(call, error, #call)

struct Properties {  // of an allocation or a pool on device 0
  int type = 1, handles = 0, location = 1, device = 0;
  Word security = 0, most_bytes = 0;
  char rest[128] = {};
};

void plain() {
  Word address = 0, pitch = 0, other = 0;
  WORKS(cuMemAlloc_v2(&address, 1000));
  fake_fail_next_free();
  FAILS(cuMemFree_v2(address), 1);  // is taken back in the trace
  WORKS(cuMemFree_v2(address));
  FAILS(cuMemFree_v2(address), 1);  // no event
  WORKS(cuMemFree_v2(0) == 1 ? 0 : 0);
  FAILS(cuMemAlloc_v2(&other, Word{1} << 41), 2);
  WORKS(cuMemAllocPitch_v2(&address, &pitch, 100, 10, 4));
  WORKS(cuMemFree_v2(address));
  fake_set_device(1);
  WORKS(cuMemAllocManaged(&address, 3000, 1));
  fake_set_device(0);
  WORKS(cuMemFree_v2(address));  // of device 1, whatever is current
}

void async_and_pools() {
  Word address = 0, pool = 0;
  WORKS(cuMemAllocAsync(&address, 4000, 5));
  WORKS(cuMemFreeAsync(address, 5));
  Properties properties;
  properties.most_bytes = 1 << 20;
  WORKS(cuMemPoolCreate(&pool, &properties));
  WORKS(cuMemAllocFromPoolAsync(&address, 5000, pool, 6));
  WORKS(cuMemFree_v2(address));
  WORKS(cuMemPoolTrimTo(pool, 0));
  WORKS(cuMemPoolDestroy(pool));
}

void arrays() {
  struct {
    Word width = 64, height = 32;
    int format = 0x20, channels = 4;
  } plane;
  struct {
    Word width = 8, height = 8, depth = 4;
    int format = 1, channels = 1, flags = 0;
  } space;
  Word array = 0;
  WORKS(cuArrayCreate_v2(&array, &plane));
  WORKS(cuArrayDestroy(array));
  WORKS(cuArray3DCreate_v2(&array, &space));
  WORKS(cuArrayDestroy(array));
  WORKS(cuMipmappedArrayCreate(&array, &space, 3));
  WORKS(cuMipmappedArrayDestroy(array));
}

void host() {
  Word address = 0;
  WORKS(cuMemHostAlloc(&address, 7000, 0));
  WORKS(cuMemFreeHost(address));
  WORKS(cuMemAllocHost_v2(&address, 8000));
  WORKS(cuMemFreeHost(address));
  WORKS(cuMemHostRegister_v2(0x5000, 4096, 0));
  FAILS(cuMemHostRegister_v2(0x5000, 4096, 0), 1);
  WORKS(cuMemHostUnregister(0x5000));
}

void virtual_memory() {
  constexpr Word granule = 2 << 20;
  Word range = 0, first = 0, second = 0, retained = 0;
  const Properties properties;
  WORKS(cuMemAddressReserve(&range, 4 * granule, 0, 0, 0));
  WORKS(cuMemCreate(&first, granule, &properties, 0));
  WORKS(cuMemCreate(&second, granule, &properties, 0));
  WORKS(cuMemMap(range, granule, 0, first, 0));
  WORKS(cuMemMap(range + granule, granule, 0, second, 0));
  WORKS(cuMemRetainAllocationHandle(&retained, first));
  FAILS(cuMemUnmap(range + 1, granule), 1);  // no event: no mapping begins there
  WORKS(cuMemUnmap(range, 2 * granule));     // both at once
  WORKS(cuMemRelease(first));                // still retained
  WORKS(cuMemRelease(second));
  WORKS(cuMemImportFromShareableHandle(&retained, nullptr, 1));
  WORKS(cuMemMap(range, granule, 0, retained, 0));
  WORKS(cuMemUnmap(range, granule));
  WORKS(cuMemAddressFree(range, 4 * granule));
}

void foreign() {
  Ipc ipc{};
  ipc.bytes[63] = 2;
  Word address = 0, object = 0;
  WORKS(cuIpcOpenMemHandle_v2(&address, ipc, 1));
  WORKS(cuIpcCloseMemHandle(address));
  struct {
    int type = 1, padding = 0;
    Word handle[2] = {}, bytes = 9000;
  } descriptor;
  struct {
    Word offset = 0, bytes = 600;
  } buffer;
  WORKS(cuImportExternalMemory(&object, &descriptor));
  WORKS(cuExternalMemoryGetMappedBuffer(&address, object, &buffer));
  WORKS(cuMemFree_v2(address));
  WORKS(cuDestroyExternalMemory(object));
}

int linked() {
  plain();
  async_and_pools();
  arrays();
  host();
  virtual_memory();
  foreign();
  return 0;
}

int graphs() {
  struct {
    Properties properties;
    char padding[256] = {};
  } parameters;
  auto* bytes = reinterpret_cast<char*>(&parameters);
  const Word size = 6000;
  std::memcpy(bytes + 104, &size, sizeof size);
  Word node = 0, address = 0, executable = 0, captured = 0;
  WORKS(cuGraphAddMemAllocNode(&node, 1, nullptr, 0, bytes));
  std::memcpy(&address, bytes + 112, sizeof address);
  WORKS(cuGraphInstantiateWithFlags(&executable, 1, 0));
  WORKS(cuGraphLaunch(executable, 3));  // brings the memory
  WORKS(cuGraphLaunch(executable, 3));  // which is there already
  WORKS(cuMemFreeAsync(address, 3));
  WORKS(cuGraphExecDestroy(executable));
  // One that frees what it makes.
  char generic[320] = {};
  const int alloc = 10;
  std::memcpy(generic, &alloc, sizeof alloc);
  std::memcpy(generic + 16, bytes, 128);
  WORKS(cuGraphAddNode_v2(&node, 2, nullptr, nullptr, 0, generic));
  std::memcpy(&address, generic + 16 + 112, sizeof address);
  WORKS(cuGraphAddMemFreeNode(&node, 2, nullptr, 0, address));
  WORKS(cuGraphInstantiateWithFlags(&executable, 2, 0));
  WORKS(cuGraphLaunch(executable, 4));
  // Captured: neither is memory now.
  fake_set_capturing(7, true);
  WORKS(cuMemAllocAsync(&captured, 500, 7));
  WORKS(cuGraphLaunch(executable, 7));  // becomes part of what is captured
  WORKS(cuMemFreeAsync(captured, 7));
  fake_set_capturing(7, false);
  WORKS(cuDeviceGraphMemTrim(0));
  return 0;
}

using Ask = int (*)(const char*, void**, int, Word, int*);

template <class Function>
Function find(Ask ask, const char* name, int version, Word flags) {
  void* found = nullptr;
  expect(ask(name, &found, version, flags, nullptr), 0, name);
  return reinterpret_cast<Function>(found);
}

int looked_up() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  auto ask = reinterpret_cast<Ask>(dlsym(library, "cuGetProcAddress_v2"));
  ask = find<Ask>(ask, "cuGetProcAddress", 12000, 0);
  Word address = 0;
  std::uint32_t narrow = 0;
  WORKS(find<int (*)(Word*, Word)>(ask, "cuMemAlloc", 3020, 0)(&address, 100));
  WORKS(find<int (*)(Word)>(ask, "cuMemFree", 13000, 0)(address));
  WORKS(find<int (*)(std::uint32_t*, unsigned)>(ask, "cuMemAlloc", 3010, 0)(&narrow, 200));
  WORKS(find<int (*)(std::uint32_t)>(ask, "cuMemFree", 2000, 0)(narrow));
  WORKS(find<int (*)(Word*, Word, Word)>(ask, "cuMemAllocAsync", 11020, 0)(&address, 300, 9));
  WORKS(find<int (*)(Word, Word)>(ask, "cuMemFreeAsync", 11020, 2)(address, 8));
  WORKS(find<int (*)(Word*, Word, Word)>(ask, "cuMemAllocAsync", 11020, 2)(&address, 400, 0));
  WORKS(reinterpret_cast<int (*)(Word)>(dlsym(library, "cuMemFree_v2"))(address));
  // The same, asked in the older way.
  using AskOld = int (*)(const char*, void**, int, Word);
  void* found = nullptr;
  WORKS(find<AskOld>(ask, "cuGetProcAddress", 11030, 0)("cuMemHostAlloc", &found, 2020, 0));
  WORKS(reinterpret_cast<int (*)(Word*, Word, unsigned)>(found)(&address, 500, 0));
  WORKS(find<int (*)(Word)>(ask, "cuMemFreeHost", 2000, 0)(address));
  return 0;
}

template <class Function>
Function from(const char* library, const char* name) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) std::printf("%s\n", dlerror());
  return reinterpret_cast<Function>(dlsym(handle, name));
}

int runtime() {
  Word address = 0, other = 0;
  using Take = int (*)(Word*, Word);
  WORKS(cudaMalloc(&address, 1000));
  WORKS(cudaFree(address));
  WORKS(cudaMalloc3D(&address, {10, 20, 30}));
  WORKS(cudaMallocAsync(&other, 2000, 4));
  WORKS(cudaHostAlloc(&other, 3000, 0));
  WORKS(from<Take>("libplug-in.so", "take_memory")(&address, 4000));
  WORKS(from<Take>("libnccl.so.2", "take_memory")(&other, 5000));
  WORKS(cudaFree(address));
  void* found = nullptr;
  WORKS(cudaGetDriverEntryPoint("cuMemAlloc", &found, 0, nullptr));
  WORKS(reinterpret_cast<Take>(found)(&address, 6000));
  return 0;
}

int contexts() {
  Word context = 0, address = 0, of_pool = 0;
  WORKS(cuDevicePrimaryCtxRetain(&context, 0));
  WORKS(cuDevicePrimaryCtxRetain(&context, 0));
  WORKS(cuMemAlloc_v2(&address, 1000));
  WORKS(cuMemAllocAsync(&of_pool, 2000, 5));  // the device's, not the context's
  WORKS(cuDevicePrimaryCtxRelease_v2(0));
  WORKS(cuMemFree_v2(address));  // one holder was left
  WORKS(cuMemHostAlloc(&address, 3000, 0));
  WORKS(cuDevicePrimaryCtxRelease_v2(0));
  WORKS(cuDevicePrimaryCtxRetain(&context, 0));
  WORKS(cuMemAlloc_v2(&address, 4000));
  fake_set_device(1);
  WORKS(cuMemAlloc_v2(&address, 5000));
  fake_set_device(0);
  WORKS(cuDevicePrimaryCtxReset_v2(0));
  fake_set_context(0x200);
  WORKS(cuMemAlloc_v2(&address, 6000));
  fake_set_context(0);
  WORKS(cuCtxDestroy_v2(0x200));
  // Given out again though nobody saw it go.
  WORKS(cuMemAlloc_v2(&address, 7000));
  fake_lose(address);
  WORKS(cuMemAlloc_v2(&address, 8000));
  return 0;
}

int devices() {
  Word address = 0;
  for (const int device : {31, 32, 63, 64}) {
    fake_set_device(device);
    WORKS(cuMemAlloc_v2(&address, 100));
  }
  return 0;
}

int hashed() {
  for (const Word bytes : {100, 200}) {
    Word address = 0;
    void* library = dlopen("libhashed.so", RTLD_NOW | RTLD_LOCAL);
    WORKS(reinterpret_cast<int (*)(Word*, Word)>(dlsym(library, "take_memory"))(&address, bytes));
    dlclose(library);
  }
  return 0;
}

int allocator() {
  constexpr Word granule = 2 << 20;
  Word address = 0, handle = 0;
  WORKS(from<int (*)(Word*, Word)>("libc10_cuda.so", "take_memory")(&address, granule));
  WORKS(from<int (*)(Word, Word, Word*)>("libc10_cuda.so", "map_memory")(0x600000000000, granule, &handle));
  WORKS(from<int (*)(Word, Word, Word)>("libc10_cuda.so", "unmap_memory")(0x600000000000, granule, handle));
  WORKS(from<int (*)(Word*, Word)>("libc10_cuda.so", "take_memory")(&address, Word{1} << 41) == 2 ? 0 : 1);
  return 0;
}

int launches() {
  struct {
    unsigned numbers[8] = {};
    Word stream = 12, attributes = 0, count = 0;
  } configuration;
  WORKS(cuLaunchKernel(1, 1, 1, 1, 32, 1, 1, 0, 11, nullptr, nullptr));
  WORKS(cuLaunchKernelEx(&configuration, 2, nullptr, nullptr));
  WORKS(cuLaunchCooperativeKernel(3, 1, 1, 1, 32, 1, 1, 0, 13, nullptr));
  WORKS(cuLaunchKernel(1, 1, 1, 1, 32, 1, 1, 0, 11, nullptr, nullptr));
  WORKS(cuLaunchKernel(4, 1, 1, 1, 32, 1, 1, 0, 0, nullptr, nullptr));
  fake_set_capturing(7, true);
  WORKS(cuLaunchKernel(1, 1, 1, 1, 32, 1, 1, 0, 7, nullptr, nullptr));  // does not run now
  fake_set_capturing(7, false);
  WORKS(cuGraphLaunch(0x9001, 7));
  return 0;
}

int forked() {
  Word address = 0;
  WORKS(cuMemAlloc_v2(&address, 100));
  const pid_t child = fork();
  if (child == 0) {
    Word own = 0;
    for (int i = 0; i < 50; ++i) WORKS(cuMemAlloc_v2(&own, 1));
    WORKS(cuMemFree_v2(own));
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  WORKS(cuMemAlloc_v2(&address, 200));
  return status;
}

int threads() {
  std::vector<std::thread> all;
  for (int i = 0; i < 8; ++i) {
    all.emplace_back([] {
      for (int round = 0; round < 1000; ++round) {
        Word address = 0;
        WORKS(cudaMalloc(&address, 64));
        WORKS(cudaFree(address));
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  return 0;
}

void check(bool holds, const char* what) {
  if (!holds) std::printf("wrong: %s\n", what);
}

bool has_error() { return dlerror() != nullptr; }

// A process that has CUDA. Also run without the hook: what holds there must hold here.
int semantics() {
  dlerror();
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  check(dlsym(library, "cuInit") != nullptr && !has_error(), "a name that we leave alone");
  check(dlsym(library, "cuMemAlloc_v2") != nullptr && !has_error(), "one that we stand before");
  check(dlsym(library, "cuMemAlloc_v9") == nullptr && has_error(), "a name that nobody has: an error");
  check(!has_error(), "told once");
  check(dlsym(library, "cuMemAllocPitch") == nullptr && has_error(), "one of ours that this driver does not have");
  check(dlsym(library, "") == nullptr && has_error(), "an empty name");
  check(dlsym(library, "c") == nullptr && has_error(), "a name of one letter");
  check(dlsym(RTLD_DEFAULT, "malloc") != nullptr && !has_error(), "RTLD_DEFAULT");
  check(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != nullptr && !has_error(), "RTLD_DEFAULT finds the driver");
  check(dlsym(RTLD_DEFAULT, "cuMemAllocFromPoolAsync_ptsz") == nullptr && has_error(), "RTLD_DEFAULT: nothing that only we have");
  check(dlsym(dlopen(nullptr, RTLD_NOW), "cuMemAllocFromPoolAsync_ptsz") == nullptr && has_error(), "the program: the same");
  void* next = dlsym(RTLD_NEXT, "strlen");
  check(next != nullptr && !has_error(), "RTLD_NEXT from the program");
  Dl_info info{};
  // The search goes on behind the caller, not behind us: this program's own function is not behind it.
  check(dlsym(RTLD_NEXT, "only_in_the_program") == nullptr && has_error(), "RTLD_NEXT passes over the caller");
  check(dladdr(next, &info) != 0 && std::strstr(info.dli_fname, "libc") != nullptr, "RTLD_NEXT finds libc's");
  check(dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.14") != nullptr || has_error(), "versions");
  errno = 77;
  dlsym(library, "cuMemFree_v2");
  dlsym(RTLD_DEFAULT, "cuMemFree_v2");
  check(errno == 77, "errno is kept");
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void only_in_the_program() {}

int main(int count, char** words) {
  const std::string mode = count > 1 ? words[1] : "";
  if (mode == "linked") return linked();
  if (mode == "looked-up") return looked_up();
  if (mode == "runtime") return runtime();
  if (mode == "allocator") return allocator();
  if (mode == "graphs") return graphs();
  if (mode == "launches") return launches();
  if (mode == "threads") return threads();
  if (mode == "fork") return forked();
  if (mode == "contexts") return contexts();
  if (mode == "devices") return devices();
  if (mode == "hashed") return hashed();
  if (mode == "semantics") return semantics();
  std::printf("unknown mode %s\n", mode.c_str());
  return 2;
}
