// A fake libcuda.so.1 for the tests of the driver hook: gives out numbers for addresses, knows what is live, and refuses what is not.
// Nothing is computed. Device 1 is the current one after fake_set_device(1), a stream captures after fake_set_capturing(stream, true).
// Where no other context was set, the device's primary one is current: 0x100 and the device's number.
// Addresses begin at 0x700000000000 and are 4 GiB apart, 32-bit ones at 0x10000000 and 4 KiB apart; handles count from 0x1000.
#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

using Word = std::uint64_t;

namespace {

constexpr int ok = 0, invalid = 1, no_memory = 2, not_found = 500;
constexpr Word most_bytes = Word{1} << 40;

std::mutex mutex;
std::map<Word, int> device_by_address;  // of live device memory
std::set<Word> live;                    // everything else by its number
std::map<Word, Word> sizes;
Word next_address = 0x700000000000, next_narrow = 0x10000000, next_handle = 0x1000;
std::set<Word> capturing_streams;
thread_local int device = 0;
thread_local Word own_context = 0;
std::map<Word, Word> context_by_address;
std::map<int, int> holders;  // of primary contexts

Word primary_context(int number) { return 0x100 + static_cast<Word>(number); }
Word current_context() { return own_context != 0 ? own_context : primary_context(device); }

struct GraphNode {
  int type;
  Word address, bytes;
};
std::map<Word, std::vector<GraphNode>> graphs;
std::vector<GraphNode> all_nodes;

int give(Word* out, Word bytes, Word step = 0x100000000) {
  if (bytes > most_bytes) return no_memory;
  const std::lock_guard<std::mutex> guard(mutex);
  *out = next_address;
  next_address += step;
  device_by_address[*out] = device;
  context_by_address[*out] = current_context();
  sizes[*out] = bytes;
  return ok;
}

bool fails_next_free = false;

int take(Word address) {
  const std::lock_guard<std::mutex> guard(mutex);
  if (std::exchange(fails_next_free, false)) return invalid;
  return device_by_address.erase(address) == 1 ? ok : invalid;
}

int end_context(Word context) {
  const std::lock_guard<std::mutex> guard(mutex);
  for (const auto& [address, its_context] : context_by_address) {
    if (its_context == context) device_by_address.erase(address);
  }
  return ok;
}

int give_handle(Word* out) {
  const std::lock_guard<std::mutex> guard(mutex);
  *out = next_handle++;
  live.insert(*out);
  return ok;
}

int take_handle(Word handle) {
  const std::lock_guard<std::mutex> guard(mutex);
  return live.erase(handle) == 1 ? ok : invalid;
}

struct Ipc {
  char bytes[64];
};

Word word_at(const void* place, std::size_t offset) {
  Word word;
  std::memcpy(&word, static_cast<const char*>(place) + offset, sizeof word);
  return word;
}

void add_alloc_node(Word graph, void* parameters) {
  Word address = 0;
  give(&address, 0);
  std::memcpy(static_cast<char*>(parameters) + 112, &address, sizeof address);
  graphs[graph].push_back({10, address, word_at(parameters, 104)});
}

}  // namespace

extern "C" {

void fake_set_device(int number) { device = number; }
void fake_set_capturing(Word stream, bool on) {
  if (on) capturing_streams.insert(stream);
  if (!on) capturing_streams.erase(stream);
}

void fake_set_context(Word context) { own_context = context; }
// Goes without a call, and its address is the next one.
void fake_lose(Word address) {
  device_by_address.erase(address);
  next_address = address;
}
void fake_fail_next_free() { fails_next_free = true; }

int cuInit(unsigned) { return ok; }
int cuCtxGetDevice(int* out) { return *out = device, ok; }
int cuCtxGetCurrent(Word* out) { return *out = current_context(), ok; }
int cuCtxDestroy_v2(Word context) { return end_context(context); }
int cuDevicePrimaryCtxGetState(int number, unsigned*, int* active) { return *active = holders[number] != 0 ? 1 : 0, ok; }
int cuDevicePrimaryCtxRetain(Word* out, int number) { return *out = primary_context(number), ++holders[number], ok; }
int cuDevicePrimaryCtxRelease_v2(int number) { return --holders[number] != 0 ? ok : end_context(primary_context(number)); }
int cuDevicePrimaryCtxReset_v2(int number) { return holders[number] = 0, end_context(primary_context(number)); }
int cuPointerGetAttribute(void* out, int attribute, Word address) {
  const std::lock_guard<std::mutex> guard(mutex);
  const auto found = device_by_address.find(address);
  if (attribute != 9 || found == device_by_address.end()) return invalid;
  std::memcpy(out, &found->second, sizeof(int));
  return ok;
}
int cuStreamIsCapturing(Word stream, int* out) { return *out = capturing_streams.contains(stream) ? 1 : 0, ok; }
int cuMemGetAddressRange_v2(Word* base, Word* bytes, Word address) { return *base = address, *bytes = sizes[address], ok; }

int cuMemAlloc(std::uint32_t* out, std::uint32_t) {
  const std::lock_guard<std::mutex> guard(mutex);
  *out = static_cast<std::uint32_t>(next_narrow);
  next_narrow += 0x1000;
  device_by_address[*out] = device;
  return ok;
}
int cuMemAlloc_v2(Word* out, Word bytes) { return give(out, bytes); }
int cuMemAllocPitch_v2(Word* out, Word* pitch, Word width, Word height, unsigned) {
  *pitch = (width + 511) / 512 * 512;
  return give(out, *pitch * height);
}
int cuMemAllocManaged(Word* out, Word bytes, unsigned) { return give(out, bytes); }
int cuMemAllocAsync(Word* out, Word bytes, Word) { return give(out, bytes); }
int cuMemAllocAsync_ptsz(Word* out, Word bytes, Word) { return give(out, bytes); }
int cuMemAllocFromPoolAsync(Word* out, Word bytes, Word, Word) { return give(out, bytes); }
int cuMemFree(std::uint32_t address) { return take(address); }
int cuMemFree_v2(Word address) { return take(address); }
int cuMemFreeAsync(Word address, Word stream) { return capturing_streams.contains(stream) ? ok : take(address); }
int cuMemFreeAsync_ptsz(Word address, Word) { return take(address); }

int cuArrayCreate_v2(Word* out, const void*) { return give_handle(out); }
int cuArray3DCreate_v2(Word* out, const void*) { return give_handle(out); }
int cuMipmappedArrayCreate(Word* out, const void*, unsigned) { return give_handle(out); }
int cuArrayDestroy(Word array) { return take_handle(array); }
int cuMipmappedArrayDestroy(Word array) { return take_handle(array); }

int cuMemHostAlloc(Word* out, Word bytes, unsigned) { return give(out, bytes); }
// Uses another exported function for it: not to be seen twice.
int cuMemAllocHost_v2(Word* out, Word bytes) {
  return reinterpret_cast<int (*)(Word*, Word, unsigned)>(dlsym(RTLD_DEFAULT, "cuMemHostAlloc"))(out, bytes, 0);
}
int cuMemFreeHost(Word address) { return take(address); }
int cuMemHostRegister_v2(Word address, Word, unsigned) {
  const std::lock_guard<std::mutex> guard(mutex);
  return live.insert(address).second ? ok : invalid;
}
int cuMemHostUnregister(Word address) { return take_handle(address); }

int cuMemPoolCreate(Word* out, const void*) { return give_handle(out); }
int cuMemPoolDestroy(Word pool) { return take_handle(pool); }
int cuMemPoolTrimTo(Word, Word) { return ok; }

int cuMemAddressReserve(Word* out, Word bytes, Word, Word, Word) { return give(out, bytes); }
int cuMemAddressFree(Word address, Word) { return take(address); }
int cuMemCreate(Word* out, Word bytes, const void*, Word) { return bytes > most_bytes ? no_memory : give_handle(out); }
int cuMemRelease(Word handle) { return take_handle(handle); }
int cuMemMap(Word, Word, Word, Word, Word) { return ok; }
int cuMemUnmap(Word address, Word) { return address % 0x1000 == 0 ? ok : invalid; }
int cuMemRetainAllocationHandle(Word* out, Word handle_of) { return *out = handle_of, ok; }
int cuMemImportFromShareableHandle(Word* out, void*, int) { return give_handle(out); }
int cuMulticastCreate(Word* out, const void*) { return give_handle(out); }

int cuIpcOpenMemHandle_v2(Word* out, Ipc handle, unsigned) { return give(out, static_cast<Word>(handle.bytes[63]) << 20); }
int cuIpcCloseMemHandle(Word address) { return take(address); }
int cuImportExternalMemory(Word* out, const void*) { return give_handle(out); }
int cuExternalMemoryGetMappedBuffer(Word* out, Word, const void*) { return give(out, 0); }
int cuDestroyExternalMemory(Word object) { return take_handle(object); }

int cuGraphAddMemAllocNode(Word* out, Word graph, const Word*, Word, void* parameters) {
  add_alloc_node(graph, parameters);
  return *out = graphs[graph].size(), ok;
}
int cuGraphAddMemFreeNode(Word* out, Word graph, const Word*, Word, Word address) {
  graphs[graph].push_back({11, address, 0});
  return *out = graphs[graph].size(), ok;
}
int cuGraphAddNode_v2(Word* out, Word graph, const Word*, const void*, Word, void* parameters) {
  int type = 0;
  std::memcpy(&type, parameters, sizeof type);
  if (type == 10) add_alloc_node(graph, static_cast<char*>(parameters) + 16);
  if (type == 11) graphs[graph].push_back({11, word_at(parameters, 16), 0});
  return *out = graphs[graph].size(), ok;
}
int cuGraphGetNodes(Word graph, Word* out, Word* count) {
  const auto& nodes = graphs[graph];
  *count = nodes.size();
  for (std::size_t i = 0; out != nullptr && i < nodes.size(); ++i) {
    out[i] = all_nodes.size();
    all_nodes.push_back(nodes[i]);
  }
  return ok;
}
int cuGraphNodeGetType(Word node, int* type) { return *type = all_nodes[node].type, ok; }
int cuGraphMemAllocNodeGetParams(Word node, void* out) {
  std::memcpy(static_cast<char*>(out) + 104, &all_nodes[node].bytes, 8);
  std::memcpy(static_cast<char*>(out) + 112, &all_nodes[node].address, 8);
  return ok;
}
int cuGraphMemFreeNodeGetParams(Word node, Word* out) { return *out = all_nodes[node].address, ok; }
int cuGraphChildGraphNodeGetGraph(Word, Word*) { return invalid; }
int cuGraphInstantiateWithFlags(Word* out, Word graph, Word) { return *out = graph + 0x9000, ok; }
int cuGraphLaunch(Word, Word) { return ok; }
int cuGraphExecDestroy(Word) { return ok; }
int cuDeviceGraphMemTrim(int) { return ok; }

int cuLaunchKernel(Word, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Word, void**, void**) { return ok; }
int cuLaunchKernel_ptsz(Word, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Word, void**, void**) { return ok; }
int cuLaunchKernelEx(const void*, Word, void**, void**) { return ok; }
int cuLaunchCooperativeKernel(Word, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Word, void**) { return ok; }
int cuModuleUnload(Word) { return ok; }
int cuFuncGetName(const char** out, Word function) {
  static const char* const names[] = {"first_kernel", "second_kernel"};
  return function - 1 < 2 ? *out = names[function - 1], ok : invalid;
}
int cuKernelGetName(const char** out, Word kernel) { return *out = "third_kernel", kernel == 3 ? ok : invalid; }

int cuGetProcAddress_v2(const char* name, void** out, int version, Word flags, int* status);
int cuGetProcAddress(const char* name, void** out, int version, Word flags) {
  return cuGetProcAddress_v2(name, out, version, flags, nullptr);
}
int cuGetProcAddress_v2(const char* name, void** out, int version, Word flags, int* status) {
  struct Known {
    const char* name;
    int since;
    Word flags;
    void* function;
  };
#define KNOWN(name, since, flags, function) \
  { name, since, flags, reinterpret_cast<void*>(&function) }
  static const Known known[] = {
      KNOWN("cuInit", 2000, 0, cuInit),
      KNOWN("cuMemAlloc", 3020, 0, cuMemAlloc_v2),
      KNOWN("cuMemAlloc", 2000, 0, cuMemAlloc),
      KNOWN("cuMemFree", 3020, 0, cuMemFree_v2),
      KNOWN("cuMemFree", 2000, 0, cuMemFree),
      KNOWN("cuMemAllocAsync", 11020, 2, cuMemAllocAsync_ptsz),
      KNOWN("cuMemAllocAsync", 11020, 0, cuMemAllocAsync),
      KNOWN("cuMemFreeAsync", 11020, 2, cuMemFreeAsync_ptsz),
      KNOWN("cuMemFreeAsync", 11020, 0, cuMemFreeAsync),
      KNOWN("cuMemHostAlloc", 2020, 0, cuMemHostAlloc),
      KNOWN("cuMemFreeHost", 2000, 0, cuMemFreeHost),
      KNOWN("cuMemCreate", 10020, 0, cuMemCreate),
      KNOWN("cuMemMap", 10020, 0, cuMemMap),
      KNOWN("cuMemUnmap", 10020, 0, cuMemUnmap),
      KNOWN("cuMemRelease", 10020, 0, cuMemRelease),
      KNOWN("cuLaunchKernel", 7000, 2, cuLaunchKernel_ptsz),
      KNOWN("cuLaunchKernel", 4000, 0, cuLaunchKernel),
      KNOWN("cuGetProcAddress", 12000, 0, cuGetProcAddress_v2),
      KNOWN("cuGetProcAddress", 11030, 0, cuGetProcAddress),
  };
#undef KNOWN
  *out = nullptr;
  for (const Known& each : known) {
    if (std::strcmp(each.name, name) != 0 || each.since > version || (each.flags != 0 && (flags & 2) == 0)) continue;
    *out = each.function;
    break;
  }
  if (status != nullptr) *status = *out != nullptr ? 0 : 1;
  return *out != nullptr ? ok : not_found;
}
}
