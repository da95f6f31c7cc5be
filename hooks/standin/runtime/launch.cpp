// Kernels of the program: what the compiler's code registers before main, and launches. A fat binary becomes a library of the driver when
// one of its kernels is first needed, as NVIDIA's runtime does it by default.
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "hooks/standin/runtime/driver.h"

using namespace standin;

namespace {

struct FatBinary {
  const void* image = nullptr;
  Handle library = nullptr;
  std::vector<const void*> functions, variables;  // the program's addresses
};

struct Kernel {
  FatBinary* binary = nullptr;
  const char* name = nullptr;
  Handle handle = nullptr;
};

struct Variable {
  const char* name = nullptr;
  std::size_t bytes = 0;
  void* address = nullptr;  // on the device
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<const void*, Kernel> kernels;
  std::unordered_map<const void*, Variable> variables;
};
// Programs register before any initialiser of ours may have run, and take away after.
Registry& registry() {
  static auto* all = new Registry;
  return *all;
}

struct Configuration {
  Extent grid, block;
  std::size_t shared_bytes;
  Handle stream;
};
// Launches nest by calls within launch expressions, a few levels at most.
struct Pending {
  static constexpr int most = 16;
  Configuration configurations[most];
  int depth;
};
thread_local Pending pending;

int load_kernel(Kernel& kernel) {
  if (kernel.handle != nullptr) return success;
  if (int error = bind(); error != success) return error;
  if (kernel.binary->library == nullptr) {
    const int error = driver().library_load(&kernel.binary->library, kernel.binary->image, nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (error != success) return error;
  }
  return driver().library_kernel(&kernel.handle, kernel.binary->library, kernel.name);
}

int find_kernel(const void* function, Handle* handle) {
  if (function == nullptr) return invalid_device_function;
  {
    auto& all = registry();
    std::lock_guard lock(all.mutex);
    auto found = all.kernels.find(function);
    if (found != all.kernels.end()) {
      const int error = load_kernel(found->second);
      *handle = found->second.handle;
      return error;
    }
  }
  // Not a function of the program: a handle that the caller got from a library.
  *handle = const_cast<void*>(function);
  if (int error = bind(); error != success) return error;
  const char* name = nullptr;
  return driver().kernel_name(&name, *handle) == success ? success : invalid_device_function;
}

template <class Call>
int with_kernel(const void* function, Call&& call) {
  Handle kernel = nullptr;
  if (int error = find_kernel(function, &kernel); error != success) return result(error);
  return bound([&] { return call(kernel); });
}

}  // namespace

Handle standin::kernel_of(const void* function) {
  Handle kernel = nullptr;
  return find_kernel(function, &kernel) == success ? kernel : nullptr;
}

STANDIN_EXPORT FatBinary* __cudaRegisterFatBinary(const void* image) {
  auto* binary = new FatBinary;
  binary->image = image;
  return binary;
}
STANDIN_EXPORT void __cudaRegisterFatBinaryEnd(FatBinary*) {}
STANDIN_EXPORT void __cudaUnregisterFatBinary(FatBinary* binary) {
  auto& all = registry();
  std::lock_guard lock(all.mutex);
  for (const auto* function : binary->functions) all.kernels.erase(function);
  for (const auto* variable : binary->variables) all.variables.erase(variable);
  if (binary->library != nullptr) driver().library_unload(binary->library);
  delete binary;
}
STANDIN_EXPORT char __cudaInitModule(FatBinary*) { return 1; }
STANDIN_EXPORT void __cudaRegisterFunction(FatBinary* binary, const void* function, char*, const char* name, int, void*, void*, void*,
                                           void*, int*) {
  auto& all = registry();
  std::lock_guard lock(all.mutex);
  all.kernels[function] = {binary, name, nullptr};
  binary->functions.push_back(function);
}
STANDIN_EXPORT void __cudaRegisterVar(FatBinary* binary, const void* variable, char*, const char* name, int, std::size_t bytes, int, int) {
  auto& all = registry();
  std::lock_guard lock(all.mutex);
  all.variables[variable] = {name, bytes, nullptr};
  binary->variables.push_back(variable);
}
// The program reads the variable through the pointer, on the host too.
STANDIN_EXPORT void __cudaRegisterManagedVar(FatBinary* binary, void** variable, char*, const char* name, int, std::size_t bytes, int,
                                             int) {
  *variable = ::operator new(bytes);
  std::memset(*variable, 0, bytes);
  auto& all = registry();
  std::lock_guard lock(all.mutex);
  all.variables[variable] = {name, bytes, *variable};
  binary->variables.push_back(variable);
}
STANDIN_EXPORT void __cudaRegisterHostVar(FatBinary*, const char*, char*, std::size_t) {}
STANDIN_EXPORT void __cudaRegisterUnifiedTable(FatBinary*, void*) {}

STANDIN_EXPORT unsigned __cudaPushCallConfiguration(Extent grid, Extent block, std::size_t shared_bytes, Handle stream) {
  if (pending.depth == Pending::most) return 1;
  pending.configurations[pending.depth++] = {grid, block, shared_bytes, stream};
  return 0;
}
STANDIN_EXPORT int __cudaPopCallConfiguration(Extent* grid, Extent* block, std::size_t* shared_bytes, Handle* stream) {
  if (pending.depth == 0) return result(missing_configuration);
  const auto& last = pending.configurations[--pending.depth];
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  *stream = last.stream;
  return success;
}

STANDIN_EXPORT int __cudaGetKernel(Handle* kernel, const void* function) { return result(find_kernel(function, kernel)); }
STANDIN_EXPORT int cudaGetKernel(Handle* kernel, const void* function) { return __cudaGetKernel(kernel, function); }

STANDIN_STREAM_FUNCTION(__cudaLaunchKernel,
                        (Handle kernel, Extent grid, Extent block, void** arguments, std::size_t shared_bytes, Handle stream),
                        (kernel, grid, block, arguments, shared_bytes, own_stream(stream))) {
  return bound([&] {
    return driver().launch(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, static_cast<unsigned>(shared_bytes), stream,
                           arguments, nullptr);
  });
}
STANDIN_STREAM_FUNCTION(cudaLaunchKernel,
                        (const void* function, Extent grid, Extent block, void** arguments, std::size_t shared_bytes, Handle stream),
                        (function, grid, block, arguments, shared_bytes, own_stream(stream))) {
  Handle kernel = nullptr;
  if (int error = find_kernel(function, &kernel); error != success) return result(error);
  return __cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}
STANDIN_STREAM_FUNCTION(cudaLaunchCooperativeKernel,
                        (const void* function, Extent grid, Extent block, void** arguments, std::size_t shared_bytes, Handle stream),
                        (function, grid, block, arguments, shared_bytes, own_stream(stream))) {
  return with_kernel(function, [&](Handle kernel) {
    return driver().launch_cooperative(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, static_cast<unsigned>(shared_bytes),
                                       stream, arguments);
  });
}

namespace {

// As the driver's LaunchConfiguration, but for the wider shared bytes.
struct LaunchOfProgram {
  Extent grid, block;
  std::size_t shared_bytes;
  Handle stream;
  const LaunchAttribute* attributes;
  unsigned attribute_count;
};

LaunchConfiguration for_driver(const LaunchOfProgram& given, bool own) {
  return {given.grid,       given.block,          static_cast<unsigned>(given.shared_bytes), own ? own_stream(given.stream) : given.stream,
          given.attributes, given.attribute_count};
}

int launch_with(const LaunchOfProgram* configuration, const void* function, void** arguments, bool own) {
  if (configuration == nullptr) return result(invalid_value);
  const auto converted = for_driver(*configuration, own);
  return with_kernel(function, [&](Handle kernel) { return driver().launch_with(&converted, kernel, arguments, nullptr); });
}

}  // namespace

STANDIN_EXPORT int cudaLaunchKernelExC(const LaunchOfProgram* configuration, const void* function, void** arguments) {
  return launch_with(configuration, function, arguments, false);
}
STANDIN_EXPORT int cudaLaunchKernelExC_ptsz(const LaunchOfProgram* configuration, const void* function, void** arguments) {
  return launch_with(configuration, function, arguments, true);
}

namespace {

struct FunctionAttributes {
  std::size_t shared_bytes, constant_bytes, local_bytes;
  int values[13];  // threads, registers, PTX and binary version, caching, dynamic shared bytes, split, cluster's six
  int reserved[16];
};

}  // namespace

STANDIN_EXPORT int cudaFuncGetAttributes(FunctionAttributes* out, const void* function) {
  return with_kernel(function, [&](Handle kernel) {
    *out = {};
    constexpr int driver_numbers[] = {0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (std::size_t i = 0; i < std::size(driver_numbers); ++i)
      if (int error = driver().function_attribute(&out->values[i], driver_numbers[i], kernel); error != success) return error;
    return static_cast<int>(success);
  });
}
// The runtime's numbers are the driver's: 8 dynamic shared bytes, 9 preferred split, from 11 clusters.
STANDIN_EXPORT int cudaFuncSetAttribute(const void* function, int attribute, int value) {
  return with_kernel(function, [&](Handle kernel) { return driver().function_set_attribute(kernel, attribute, value); });
}
STANDIN_EXPORT int cudaKernelSetAttributeForDevice(Handle kernel, int attribute, int value, int device) {
  return bound([=] { return driver().kernel_set_attribute(attribute, value, kernel, device); });
}
STANDIN_EXPORT int cudaFuncSetCacheConfig(const void* function, int) {
  return with_kernel(function, [](Handle) { return static_cast<int>(success); });
}
STANDIN_EXPORT int cudaFuncSetSharedMemConfig(const void* function, int) { return cudaFuncSetCacheConfig(function, 0); }
STANDIN_EXPORT int cudaFuncGetName(const char** name, const void* function) {
  return with_kernel(function, [=](Handle kernel) { return driver().kernel_name(name, kernel); });
}
STANDIN_EXPORT int cudaGetFuncBySymbol(Handle* out, const void* function) { return __cudaGetKernel(out, function); }

STANDIN_EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int threads,
                                                                          std::size_t shared_bytes, unsigned flags) {
  return with_kernel(function, [=](Handle kernel) { return driver().occupancy(blocks, kernel, threads, shared_bytes, flags); });
}
STANDIN_EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads, std::size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared_bytes, 0);
}
STANDIN_EXPORT int cudaOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes, const void* function, int blocks, int threads) {
  return with_kernel(function, [=](Handle kernel) { return driver().occupancy_shared(bytes, kernel, blocks, threads); });
}
STANDIN_EXPORT int cudaOccupancyMaxPotentialClusterSize(int* size, const void* function, const LaunchOfProgram* configuration) {
  const auto converted = for_driver(*configuration, false);
  return with_kernel(function, [&](Handle kernel) { return driver().occupancy_cluster(size, kernel, &converted); });
}
STANDIN_EXPORT int cudaOccupancyMaxActiveClusters(int* count, const void* function, const LaunchOfProgram* configuration) {
  const auto converted = for_driver(*configuration, false);
  return with_kernel(function, [&](Handle kernel) { return driver().occupancy_clusters(count, kernel, &converted); });
}

STANDIN_EXPORT int cudaGetSymbolAddress(void** address, const void* symbol) {
  if (int error = bind(); error != success) return result(error);
  auto& all = registry();
  std::lock_guard lock(all.mutex);
  auto found = all.variables.find(symbol);
  if (found == all.variables.end()) return result(invalid_symbol);
  if (found->second.address == nullptr) found->second.address = liveset_standin_variable(found->second.bytes);
  *address = found->second.address;
  return result(*address == nullptr ? out_of_memory : success);
}
STANDIN_EXPORT int cudaGetSymbolSize(std::size_t* bytes, const void* symbol) {
  auto& all = registry();
  std::lock_guard lock(all.mutex);
  auto found = all.variables.find(symbol);
  if (found == all.variables.end()) return result(invalid_symbol);
  *bytes = found->second.bytes;
  return success;
}

namespace {

int copy_with_symbol(const void* symbol, std::size_t bytes, std::size_t offset, const void* from, void* to, Handle stream, bool wait) {
  void* address = nullptr;
  std::size_t room = 0;
  if (int error = cudaGetSymbolAddress(&address, symbol); error != success) return error;
  if (int error = cudaGetSymbolSize(&room, symbol); error != success) return error;
  if (offset > room || bytes > room - offset) return result(invalid_value);
  const auto place = address_of(address) + offset;
  return bound([&] {
    const auto target = to == nullptr ? place : address_of(to);
    const auto source = to == nullptr ? address_of(from) : place;
    return wait ? driver().copy(target, source, bytes) : driver().copy_async(target, source, bytes, stream);
  });
}

}  // namespace

STANDIN_EXPORT int cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes, std::size_t offset, int) {
  return copy_with_symbol(symbol, bytes, offset, from, nullptr, nullptr, true);
}
STANDIN_STREAM_FUNCTION(cudaMemcpyToSymbolAsync,
                        (const void* symbol, const void* from, std::size_t bytes, std::size_t offset, int kind, Handle stream),
                        (symbol, from, bytes, offset, kind, own_stream(stream))) {
  (void)kind;
  return copy_with_symbol(symbol, bytes, offset, from, nullptr, stream, false);
}
STANDIN_EXPORT int cudaMemcpyFromSymbol(void* to, const void* symbol, std::size_t bytes, std::size_t offset, int) {
  return copy_with_symbol(symbol, bytes, offset, nullptr, to, nullptr, true);
}
STANDIN_STREAM_FUNCTION(cudaMemcpyFromSymbolAsync,
                        (void* to, const void* symbol, std::size_t bytes, std::size_t offset, int kind, Handle stream),
                        (to, symbol, bytes, offset, kind, own_stream(stream))) {
  (void)kind;
  return copy_with_symbol(symbol, bytes, offset, nullptr, to, stream, false);
}

STANDIN_EXPORT int cudaLibraryLoadData(Handle* library, const void* code, int* options, void** values, unsigned count, int* library_options,
                                       void** library_values, unsigned library_count) {
  return bound(
      [=] { return driver().library_load(library, code, options, values, count, library_options, library_values, library_count); });
}
STANDIN_EXPORT int cudaLibraryUnload(Handle library) {
  return bound([=] { return driver().library_unload(library); });
}
STANDIN_EXPORT int cudaLibraryGetKernel(Handle* kernel, Handle library, const char* name) {
  return bound([=] { return driver().library_kernel(kernel, library, name); });
}
STANDIN_EXPORT int cudaLibraryGetGlobal(void** pointer, std::size_t* bytes, Handle library, const char* name) {
  return bound([=] {
    Address address = 0;
    const int error = driver().library_global(&address, bytes, library, name);
    if (error == success && pointer != nullptr) *pointer = pointer_of(address);
    return error;
  });
}
