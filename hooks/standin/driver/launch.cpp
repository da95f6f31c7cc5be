// Modules, functions, launches, occupancy. A kernel does nothing, unless the program has a host twin for it: an exported function
// liveset_host_twin_NAME(void** arguments, const unsigned grid[3], const unsigned block[3]) that computes the same.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "hooks/standin/driver/state.h"

using namespace standin;

namespace {

using HostTwin = void (*)(void** arguments, const unsigned grid[3], const unsigned block[3]);

// Kernels that appear once in an operation whose result's size depends on values: part of the mangled name, and the operation.
struct SizeChooser {
  std::string_view part;
  const char* operation;
};
constexpr SizeChooser size_choosers[] = {
    {"DeviceSelectSweep", "select (nonzero, masked_select, boolean index)"},
    {"UniqueAgent", "unique"},
    {"DeviceReduceByKeyKernel", "unique (counts)"},
    {"compute_cuda_kernel", "repeat_interleave"},
};

const char* operation_of(std::string_view name) {
  for (const auto& chooser : size_choosers)
    if (name.find(chooser.part) != std::string_view::npos) return chooser.operation;
  return nullptr;
}

// What a job's libraries are known to name their kernels.
void know_by_name(Function& function) {
  function.spins = function.name.find("spin_kernel") != std::string::npos;
  function.chooses_size = operation_of(function.name);
  if (function.name.starts_with("triton_")) liveset_standin_estimate("compiled", nullptr);
}

Error function_of(Module* module, const char* name, Function** function) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  auto error = all->modules.function(module, name, function);
  if (error != success || (*function)->is_known) return error;
  know_by_name(**function);
  // A twin reads and writes device memory, so there must be some.
  if (all->configuration.backing != Backing::none)
    (*function)->host_twin = dlsym(RTLD_DEFAULT, ("liveset_host_twin_" + (*function)->name).c_str());
  (*function)->is_known = true;
  return success;
}

int load(const void* image, Module** module, bool in_memory = true) {
  auto* all = machine();
  return all == nullptr ? not_initialized : all->modules.load(image, in_memory, module);
}

int load_file(const char* file, Module** module) {
  if (file == nullptr) return invalid_value;
  FILE* opened = std::fopen(file, "re");
  if (opened == nullptr) return file_not_found;
  std::fclose(opened);
  return load(file, module, false);
}

int launch(const Here& place, const Function* function, const Extent& grid, const Extent& block, unsigned shared_bytes, void* stream,
           void** arguments) {
  if (place.error != success) return place.error;
  auto& all = *place.machine;
  if (!all.modules.is_function(function)) return invalid_handle;
  const auto threads = std::uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535) return invalid_value;
  if (shared_bytes > static_cast<unsigned>(multiprocessor_of(all.configuration.capability).shared_bytes_per_block)) return invalid_value;
  bool capturing = false;
  if (auto error = all.streams.enter(place.stream(stream), &capturing); error != success) return error;
  if (function->chooses_size != nullptr) liveset_standin_estimate("dynamic_shape", function->chooses_size);
  if (capturing) {
    auto node = std::make_unique<Node>();
    node->type = NodeType::kernel;
    node->name = function->name;
    KernelNodeParameters parameters{};
    parameters.function = const_cast<Function*>(function);
    parameters.grid = grid;
    parameters.block = block;
    parameters.shared_bytes = shared_bytes;
    node->parameters.resize(sizeof parameters);
    std::memcpy(node->parameters.data(), &parameters, sizeof parameters);
    return all.streams.add_node(place.stream(stream), std::move(node));
  }
  if (function->spins && arguments != nullptr) {
    std::int64_t cycles = 0;
    std::memcpy(&cycles, arguments[0], sizeof cycles);
    const auto kilohertz = device_attribute(all.configuration, 13, place.device());
    all.streams.occupy(place.stream(stream), cycles * 1'000'000 / std::max(kilohertz, 1));
  }
  if (function->host_twin != nullptr) {
    const unsigned grid_sizes[] = {grid.x, grid.y, grid.z}, block_sizes[] = {block.x, block.y, block.z};
    reinterpret_cast<HostTwin>(function->host_twin)(arguments, grid_sizes, block_sizes);
  }
  return success;
}

}  // namespace

STANDIN_EXPORT int cuModuleLoadData(Module** module, const void* image) { return load(image, module); }
STANDIN_EXPORT int cuModuleLoadDataEx(Module** module, const void* image, unsigned, int*, void**) { return load(image, module); }
STANDIN_EXPORT int cuModuleLoadFatBinary(Module** module, const void* image) { return load(image, module); }
STANDIN_EXPORT int cuModuleLoad(Module** module, const char* file) { return load_file(file, module); }
STANDIN_EXPORT int cuModuleUnload(Module* module) {
  auto* all = machine();
  return all == nullptr ? not_initialized : all->modules.unload(module);
}
STANDIN_EXPORT int cuModuleGetFunction(Function** function, Module* module, const char* name) {
  return function_of(module, name, function);
}
STANDIN_EXPORT int cuModuleGetGlobal_v2(Address* address, std::size_t* bytes, Module* module, const char* name) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  Variable variable;
  auto error = all->modules.variable(module, name, 0, &variable);
  if (error != success) return error;
  if (address != nullptr) *address = variable.address;
  if (bytes != nullptr) *bytes = variable.bytes;
  return success;
}
STANDIN_EXPORT int cuModuleGetLoadingMode(int* mode) {
  *mode = 2;  // lazy
  return machine() == nullptr ? not_initialized : success;
}
STANDIN_EXPORT int cuModuleGetFunctionCount(unsigned* count, Module* module) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  *count = static_cast<unsigned>(all->modules.functions_of(module).size());
  return all->modules.is_module(module) ? success : invalid_handle;
}

STANDIN_EXPORT int cuLibraryLoadData(Module** library, const void* code, int*, void**, unsigned, int*, void**, unsigned) {
  return load(code, library);
}
STANDIN_EXPORT int cuLibraryLoadFromFile(Module** library, const char* file, int*, void**, unsigned, int*, void**, unsigned) {
  return load_file(file, library);
}
STANDIN_EXPORT int cuLibraryUnload(Module* library) { return cuModuleUnload(library); }
STANDIN_EXPORT int cuLibraryGetKernel(Function** kernel, Module* library, const char* name) { return function_of(library, name, kernel); }
STANDIN_EXPORT int cuLibraryGetModule(Module** module, Module* library) {
  *module = library;
  return machine() != nullptr && machine()->modules.is_module(library) ? success : invalid_handle;
}
STANDIN_EXPORT int cuLibraryGetGlobal(Address* address, std::size_t* bytes, Module* library, const char* name) {
  return cuModuleGetGlobal_v2(address, bytes, library, name);
}
STANDIN_EXPORT int cuLibraryGetKernelCount(unsigned* count, Module* library) { return cuModuleGetFunctionCount(count, library); }

namespace {

int name_of(const char** name, const Function* function) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (name == nullptr) return invalid_value;
  if (!all->modules.is_function(function)) return invalid_handle;
  *name = function->name.c_str();
  return success;
}

int attribute_of(int* value, int attribute, const Function* function) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (value == nullptr || attribute < 0 || attribute > 15) return invalid_value;
  if (!all->modules.is_function(function)) return invalid_handle;
  *value = function->attributes[static_cast<std::size_t>(attribute)];
  return success;
}

// Dynamic shared bytes (8), preferred split (9) and what concerns clusters (from 10) can be set.
int set_attribute(Function* function, int attribute, int value) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (!all->modules.is_function(function)) return invalid_handle;
  if (attribute < 8 || attribute > 15) return invalid_value;
  if (attribute == 8 && (value < 0 || value > multiprocessor_of(all->configuration.capability).shared_bytes_per_block))
    return invalid_value;
  function->attributes[static_cast<std::size_t>(attribute)] = value;
  return success;
}

}  // namespace

STANDIN_EXPORT int cuFuncGetName(const char** name, const Function* function) { return name_of(name, function); }
STANDIN_EXPORT int cuKernelGetName(const char** name, const Function* kernel) { return name_of(name, kernel); }
STANDIN_EXPORT int cuFuncGetAttribute(int* value, int attribute, const Function* function) {
  return attribute_of(value, attribute, function);
}
STANDIN_EXPORT int cuKernelGetAttribute(int* value, int attribute, const Function* kernel, int) {
  return attribute_of(value, attribute, kernel);
}
STANDIN_EXPORT int cuFuncSetAttribute(Function* function, int attribute, int value) { return set_attribute(function, attribute, value); }
STANDIN_EXPORT int cuKernelSetAttribute(int attribute, int value, Function* kernel, int) { return set_attribute(kernel, attribute, value); }
STANDIN_EXPORT int cuFuncSetCacheConfig(const Function* function, int) {
  auto* all = machine();
  return all == nullptr ? not_initialized : all->modules.is_function(function) ? success : invalid_handle;
}
STANDIN_EXPORT int cuKernelSetCacheConfig(const Function* kernel, int config, int) { return cuFuncSetCacheConfig(kernel, config); }
STANDIN_EXPORT int cuFuncSetSharedMemConfig(const Function* function, int config) { return cuFuncSetCacheConfig(function, config); }
STANDIN_EXPORT int cuFuncGetModule(Module** module, const Function* function) {
  const int error = cuFuncSetCacheConfig(function, 0);
  if (error == success) *module = function->module;
  return error;
}
STANDIN_EXPORT int cuKernelGetLibrary(Module** library, const Function* kernel) { return cuFuncGetModule(library, kernel); }
STANDIN_EXPORT int cuKernelGetFunction(Function** function, Function* kernel) {
  const int error = cuFuncSetCacheConfig(kernel, 0);
  if (error == success) *function = kernel;
  return error;
}
STANDIN_EXPORT int cuFuncLoad(const Function* function) { return cuFuncSetCacheConfig(function, 0); }
STANDIN_EXPORT int cuFuncIsLoaded(int* loaded, const Function* function) {
  *loaded = 1;
  return cuFuncSetCacheConfig(function, 0);
}

STANDIN_STREAM_FUNCTION(cuLaunchKernel,
                        (const Function* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                         unsigned block_z, unsigned shared_bytes, void* stream, void** arguments, void** extra),
                        (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, own_stream(stream), arguments, extra)) {
  (void)extra;
  return launch(here(), function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, stream, arguments);
}
STANDIN_STREAM_FUNCTION(cuLaunchCooperativeKernel,
                        (const Function* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                         unsigned block_z, unsigned shared_bytes, void* stream, void** arguments),
                        (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, own_stream(stream), arguments)) {
  return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, arguments, nullptr);
}
STANDIN_EXPORT int cuLaunchKernelEx(const LaunchConfiguration* configuration, const Function* function, void** arguments, void**) {
  if (configuration == nullptr) return invalid_value;
  return launch(here(), function, configuration->grid, configuration->block, configuration->shared_bytes, configuration->stream, arguments);
}
STANDIN_EXPORT int cuLaunchKernelEx_ptsz(const LaunchConfiguration* configuration, const Function* function, void** arguments, void**) {
  if (configuration == nullptr) return invalid_value;
  return launch(here(), function, configuration->grid, configuration->block, configuration->shared_bytes, own_stream(configuration->stream),
                arguments);
}

STANDIN_EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const Function* function, int threads,
                                                               std::size_t shared_bytes) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (blocks == nullptr || threads <= 0) return invalid_value;
  if (!all->modules.is_function(function)) return invalid_handle;
  *blocks = occupancy(all->configuration, threads, shared_bytes);
  return success;
}
STANDIN_EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const Function* function, int threads,
                                                                        std::size_t shared_bytes, unsigned) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared_bytes);
}
STANDIN_EXPORT int cuOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes, const Function* function, int blocks, int) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (blocks <= 0) return invalid_value;
  if (!all->modules.is_function(function)) return invalid_handle;
  const auto& facts = multiprocessor_of(all->configuration.capability);
  const int fair = facts.shared_bytes / blocks - facts.reserved_shared_bytes;
  *bytes = static_cast<std::size_t>(std::clamp(fair, 0, facts.shared_bytes_per_block));
  return success;
}
STANDIN_EXPORT int cuOccupancyMaxPotentialBlockSize(int* grid, int* block, const Function* function, std::size_t (*)(int), std::size_t,
                                                    int limit) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (!all->modules.is_function(function)) return invalid_handle;
  *block = limit > 0 ? std::min(limit, 1024) : 1024;
  *grid = all->configuration.multiprocessors * std::max(1, occupancy(all->configuration, *block, 0));
  return success;
}
// Clusters of 8 blocks are what every part that has clusters can do.
STANDIN_EXPORT int cuOccupancyMaxPotentialClusterSize(int* size, const Function* function, const LaunchConfiguration*) {
  *size = 8;
  return cuFuncSetCacheConfig(function, 0);
}
STANDIN_EXPORT int cuOccupancyMaxActiveClusters(int* count, const Function* function, const LaunchConfiguration*) {
  const int error = cuFuncSetCacheConfig(function, 0);
  if (error == success) *count = machine()->configuration.multiprocessors / 2;
  return error;
}

// A description of a tensor for the copy engine: 128 bytes that only kernels read.
STANDIN_EXPORT int cuTensorMapEncodeTiled(void* map, int, unsigned, void*, const void*, const void*, const void*, const void*, int, int,
                                          int, int) {
  if (map == nullptr) return invalid_value;
  std::memset(map, 0, 128);
  return success;
}
