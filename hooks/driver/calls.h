// Every function of CUDA's driver and runtime that the hook stands before: one row each. Types are our own; positions, names and
// versions are facts of the interface.
#pragma once
#include <cstdint>

namespace liveset::driver {

// An argument that travels as an integer: a pointer, a handle, a size, a flag. Passing one more than the function takes does no harm
// in the calling conventions of x86-64 and aarch64, so one shape serves most functions.
using Word = std::uint64_t;
struct IpcHandle {
  char bytes[64];
};
struct Extent {
  Word width, height, depth;
};
using Words = int(Word, Word, Word, Word, Word, Word);
using Launch = int(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);
using OpenIpc = int(Word, IpcHandle, Word);
using WithExtent = int(Word, Extent);
using ArrayWithExtent = int(Word, Word, Extent, Word, Word);

enum class Variant : std::uint8_t {
  plain,
  ptsz,   // the null stream is the calling thread's own
  narrow  // of before CUDA 3.2: addresses and sizes of 32 bits
};

// What a call does. (a, b, c): what the row's three numbers are the positions of.
enum class Meaning : std::uint8_t {
  caller,             // of the runtime: ends in the driver; whoever calls it is the owner of what happens there
  look_up,            // gives out a driver function (version, flags, the name is 0 and the answer 1)
  allocate,           // (address out, size, stream)
  allocate_managed,   // (address out, size)
  allocate_pitch,     // (address out, pitch out, height)
  release,            // (address, stream)
  array_create,       // (array out, descriptor)
  array_3d_create,    // (array out, descriptor)
  mipmap_create,      // (array out, descriptor, levels)
  array_destroy,      // (array)
  host_allocate,      // (address out, size)
  host_release,       // (address)
  host_register,      // (address, size)
  host_unregister,    // (address)
  pool_create,        // (pool out, properties)
  pool_destroy,       // (pool)
  pool_trim,          // (pool)
  reserve,            // (address out, size)
  unreserve,          // (address)
  handle_create,      // (handle out, size, properties)
  handle_release,     // (handle)
  handle_retain,      // (handle out)
  handle_import,      // (handle out)
  handle_multicast,   // (handle out): an object over the memory of others
  map,                // (address, size, handle)
  unmap,              // (address, size)
  import_address,     // (address out)
  import_end,         // (address)
  external_import,    // (object out, descriptor)
  external_buffer,    // (address out, descriptor)
  external_end,       // (object)
  graph_add_alloc,    // (parameters)
  graph_add_free,     // (address)
  graph_add_node,     // (parameters)
  graph_instantiate,  // (executable out, graph)
  graph_launch,       // (executable, stream)
  graph_destroy,      // (executable)
  graph_trim,         // (device)
  context_end,        // (context)
  primary_end,        // (device): its primary context, if nobody holds it any more
  launch,             // (function, stream)
  launch_config,      // (configuration, function)
  unload              // functions end to exist
};

inline constexpr std::int8_t none = -1;

// name, shape, name to ask cuGetProcAddress for, CUDA version from which on that means this function, variant, meaning, a, b, c
#define LIVESET_DRIVER_CALLS(X)                                                                                           \
  X(cuGetProcAddress, Words, "cuGetProcAddress", 11030, plain, look_up, 2, 3, none)                                       \
  X(cuGetProcAddress_v2, Words, "cuGetProcAddress", 12000, plain, look_up, 2, 3, none)                                    \
  X(cuGetProcAddress_v2_ptsz, Words, "cuGetProcAddress", 12000, ptsz, look_up, 2, 3, none)                                \
  X(cuMemAlloc, Words, "cuMemAlloc", 2000, narrow, allocate, 0, 1, none)                                                  \
  X(cuMemAlloc_v2, Words, "cuMemAlloc", 3020, plain, allocate, 0, 1, none)                                                \
  X(cuMemAllocPitch, Words, "cuMemAllocPitch", 2000, narrow, allocate_pitch, 0, 1, 3)                                     \
  X(cuMemAllocPitch_v2, Words, "cuMemAllocPitch", 3020, plain, allocate_pitch, 0, 1, 3)                                   \
  X(cuMemAllocManaged, Words, "cuMemAllocManaged", 6000, plain, allocate_managed, 0, 1, none)                             \
  X(cuMemAllocAsync, Words, "cuMemAllocAsync", 11020, plain, allocate, 0, 1, 2)                                           \
  X(cuMemAllocAsync_ptsz, Words, "cuMemAllocAsync", 11020, ptsz, allocate, 0, 1, 2)                                       \
  X(cuMemAllocFromPoolAsync, Words, "cuMemAllocFromPoolAsync", 11020, plain, allocate, 0, 1, 3)                           \
  X(cuMemAllocFromPoolAsync_ptsz, Words, "cuMemAllocFromPoolAsync", 11020, ptsz, allocate, 0, 1, 3)                       \
  X(cuMemFree, Words, "cuMemFree", 2000, narrow, release, 0, none, none)                                                  \
  X(cuMemFree_v2, Words, "cuMemFree", 3020, plain, release, 0, none, none)                                                \
  X(cuMemFreeAsync, Words, "cuMemFreeAsync", 11020, plain, release, 0, 1, none)                                           \
  X(cuMemFreeAsync_ptsz, Words, "cuMemFreeAsync", 11020, ptsz, release, 0, 1, none)                                       \
  X(cuArrayCreate, Words, "cuArrayCreate", 2000, narrow, array_create, 0, 1, none)                                        \
  X(cuArrayCreate_v2, Words, "cuArrayCreate", 3020, plain, array_create, 0, 1, none)                                      \
  X(cuArray3DCreate, Words, "cuArray3DCreate", 2000, narrow, array_3d_create, 0, 1, none)                                 \
  X(cuArray3DCreate_v2, Words, "cuArray3DCreate", 3020, plain, array_3d_create, 0, 1, none)                               \
  X(cuMipmappedArrayCreate, Words, "cuMipmappedArrayCreate", 5000, plain, mipmap_create, 0, 1, 2)                         \
  X(cuArrayDestroy, Words, "cuArrayDestroy", 2000, plain, array_destroy, 0, none, none)                                   \
  X(cuMipmappedArrayDestroy, Words, "cuMipmappedArrayDestroy", 5000, plain, array_destroy, 0, none, none)                 \
  X(cuMemAllocHost, Words, "cuMemAllocHost", 2000, narrow, host_allocate, 0, 1, none)                                     \
  X(cuMemAllocHost_v2, Words, "cuMemAllocHost", 3020, plain, host_allocate, 0, 1, none)                                   \
  X(cuMemHostAlloc, Words, "cuMemHostAlloc", 2020, plain, host_allocate, 0, 1, none)                                      \
  X(cuMemFreeHost, Words, "cuMemFreeHost", 2000, plain, host_release, 0, none, none)                                      \
  X(cuMemHostRegister, Words, "cuMemHostRegister", 4000, plain, host_register, 0, 1, none)                                \
  X(cuMemHostRegister_v2, Words, "cuMemHostRegister", 6050, plain, host_register, 0, 1, none)                             \
  X(cuMemHostUnregister, Words, "cuMemHostUnregister", 4000, plain, host_unregister, 0, none, none)                       \
  X(cuMemPoolCreate, Words, "cuMemPoolCreate", 11020, plain, pool_create, 0, 1, none)                                     \
  X(cuMemPoolDestroy, Words, "cuMemPoolDestroy", 11020, plain, pool_destroy, 0, none, none)                               \
  X(cuMemPoolTrimTo, Words, "cuMemPoolTrimTo", 11020, plain, pool_trim, 0, none, none)                                    \
  X(cuMemPoolImportPointer, Words, "cuMemPoolImportPointer", 11020, plain, import_address, 0, none, none)                 \
  X(cuMemAddressReserve, Words, "cuMemAddressReserve", 10020, plain, reserve, 0, 1, none)                                 \
  X(cuMemAddressFree, Words, "cuMemAddressFree", 10020, plain, unreserve, 0, none, none)                                  \
  X(cuMemCreate, Words, "cuMemCreate", 10020, plain, handle_create, 0, 1, 2)                                              \
  X(cuMemRelease, Words, "cuMemRelease", 10020, plain, handle_release, 0, none, none)                                     \
  X(cuMemRetainAllocationHandle, Words, "cuMemRetainAllocationHandle", 11000, plain, handle_retain, 0, none, none)        \
  X(cuMemImportFromShareableHandle, Words, "cuMemImportFromShareableHandle", 10020, plain, handle_import, 0, none, none)  \
  X(cuMulticastCreate, Words, "cuMulticastCreate", 12010, plain, handle_multicast, 0, none, none)                         \
  X(cuMemMap, Words, "cuMemMap", 10020, plain, map, 0, 1, 3)                                                              \
  X(cuMemUnmap, Words, "cuMemUnmap", 10020, plain, unmap, 0, 1, none)                                                     \
  X(cuIpcOpenMemHandle, OpenIpc, "cuIpcOpenMemHandle", 4010, plain, import_address, 0, none, none)                        \
  X(cuIpcOpenMemHandle_v2, OpenIpc, "cuIpcOpenMemHandle", 11000, plain, import_address, 0, none, none)                    \
  X(cuIpcCloseMemHandle, Words, "cuIpcCloseMemHandle", 4010, plain, import_end, 0, none, none)                            \
  X(cuImportExternalMemory, Words, "cuImportExternalMemory", 10000, plain, external_import, 0, 1, none)                   \
  X(cuExternalMemoryGetMappedBuffer, Words, "cuExternalMemoryGetMappedBuffer", 10000, plain, external_buffer, 0, 2, none) \
  X(cuDestroyExternalMemory, Words, "cuDestroyExternalMemory", 10000, plain, external_end, 0, none, none)                 \
  X(cuGraphAddMemAllocNode, Words, "cuGraphAddMemAllocNode", 11040, plain, graph_add_alloc, 4, none, none)                \
  X(cuGraphAddMemFreeNode, Words, "cuGraphAddMemFreeNode", 11040, plain, graph_add_free, 4, none, none)                   \
  X(cuGraphAddNode, Words, "cuGraphAddNode", 12020, plain, graph_add_node, 4, none, none)                                 \
  X(cuGraphAddNode_v2, Words, "cuGraphAddNode", 12030, plain, graph_add_node, 5, none, none)                              \
  X(cuGraphInstantiate, Words, "cuGraphInstantiate", 10000, plain, graph_instantiate, 0, 1, none)                         \
  X(cuGraphInstantiate_v2, Words, "cuGraphInstantiate", 11000, plain, graph_instantiate, 0, 1, none)                      \
  X(cuGraphInstantiateWithFlags, Words, "cuGraphInstantiateWithFlags", 11040, plain, graph_instantiate, 0, 1, none)       \
  X(cuGraphInstantiateWithParams, Words, "cuGraphInstantiateWithParams", 12000, plain, graph_instantiate, 0, 1, none)     \
  X(cuGraphInstantiateWithParams_ptsz, Words, "cuGraphInstantiateWithParams", 12000, ptsz, graph_instantiate, 0, 1, none) \
  X(cuGraphLaunch, Words, "cuGraphLaunch", 10000, plain, graph_launch, 0, 1, none)                                        \
  X(cuGraphLaunch_ptsz, Words, "cuGraphLaunch", 10000, ptsz, graph_launch, 0, 1, none)                                    \
  X(cuGraphExecDestroy, Words, "cuGraphExecDestroy", 10000, plain, graph_destroy, 0, none, none)                          \
  X(cuDeviceGraphMemTrim, Words, "cuDeviceGraphMemTrim", 11040, plain, graph_trim, 0, none, none)                         \
  X(cuCtxDestroy, Words, "cuCtxDestroy", 2000, plain, context_end, 0, none, none)                                         \
  X(cuCtxDestroy_v2, Words, "cuCtxDestroy", 4000, plain, context_end, 0, none, none)                                      \
  X(cuDevicePrimaryCtxRelease, Words, "cuDevicePrimaryCtxRelease", 7000, plain, primary_end, 0, none, none)               \
  X(cuDevicePrimaryCtxRelease_v2, Words, "cuDevicePrimaryCtxRelease", 11000, plain, primary_end, 0, none, none)           \
  X(cuDevicePrimaryCtxReset, Words, "cuDevicePrimaryCtxReset", 7000, plain, primary_end, 0, none, none)                   \
  X(cuDevicePrimaryCtxReset_v2, Words, "cuDevicePrimaryCtxReset", 11000, plain, primary_end, 0, none, none)               \
  X(cuLaunchKernel, Launch, "cuLaunchKernel", 4000, plain, launch, 0, 8, none)                                            \
  X(cuLaunchKernel_ptsz, Launch, "cuLaunchKernel", 7000, ptsz, launch, 0, 8, none)                                        \
  X(cuLaunchCooperativeKernel, Launch, "cuLaunchCooperativeKernel", 9000, plain, launch, 0, 8, none)                      \
  X(cuLaunchCooperativeKernel_ptsz, Launch, "cuLaunchCooperativeKernel", 9000, ptsz, launch, 0, 8, none)                  \
  X(cuLaunchKernelEx, Words, "cuLaunchKernelEx", 11060, plain, launch_config, 0, 1, none)                                 \
  X(cuLaunchKernelEx_ptsz, Words, "cuLaunchKernelEx", 11060, ptsz, launch_config, 0, 1, none)                             \
  X(cuLaunch, Words, "cuLaunch", 2000, plain, launch, 0, none, none)                                                      \
  X(cuLaunchGrid, Words, "cuLaunchGrid", 2000, plain, launch, 0, none, none)                                              \
  X(cuLaunchGridAsync, Words, "cuLaunchGridAsync", 2000, plain, launch, 0, 3, none)                                       \
  X(cuModuleUnload, Words, "cuModuleUnload", 2000, plain, unload, none, none, none)                                       \
  X(cuLibraryUnload, Words, "cuLibraryUnload", 12000, plain, unload, none, none, none)                                    \
  X(cudaGetDriverEntryPoint, Words, "", 0, plain, look_up, none, 2, none)                                                 \
  X(cudaGetDriverEntryPoint_ptsz, Words, "", 0, ptsz, look_up, none, 2, none)                                             \
  X(cudaGetDriverEntryPointByVersion, Words, "", 0, plain, look_up, 2, 3, none)                                           \
  X(cudaGetDriverEntryPointByVersion_ptsz, Words, "", 0, ptsz, look_up, 2, 3, none)                                       \
  X(cudaMalloc, Words, "", 0, plain, caller, none, none, none)                                                            \
  X(cudaMallocPitch, Words, "", 0, plain, caller, none, none, none)                                                       \
  X(cudaMalloc3D, WithExtent, "", 0, plain, caller, none, none, none)                                                     \
  X(cudaMallocManaged, Words, "", 0, plain, caller, none, none, none)                                                     \
  X(cudaMallocAsync, Words, "", 0, plain, caller, none, none, none)                                                       \
  X(cudaMallocAsync_ptsz, Words, "", 0, plain, caller, none, none, none)                                                  \
  X(cudaMallocFromPoolAsync, Words, "", 0, plain, caller, none, none, none)                                               \
  X(cudaMallocFromPoolAsync_ptsz, Words, "", 0, plain, caller, none, none, none)                                          \
  X(cudaMallocArray, Words, "", 0, plain, caller, none, none, none)                                                       \
  X(cudaMalloc3DArray, ArrayWithExtent, "", 0, plain, caller, none, none, none)                                           \
  X(cudaMallocMipmappedArray, ArrayWithExtent, "", 0, plain, caller, none, none, none)                                    \
  X(cudaMallocHost, Words, "", 0, plain, caller, none, none, none)                                                        \
  X(cudaHostAlloc, Words, "", 0, plain, caller, none, none, none)                                                         \
  X(cudaHostRegister, Words, "", 0, plain, caller, none, none, none)                                                      \
  X(cudaMemPoolCreate, Words, "", 0, plain, caller, none, none, none)                                                     \
  X(cudaMemPoolImportPointer, Words, "", 0, plain, caller, none, none, none)                                              \
  X(cudaIpcOpenMemHandle, OpenIpc, "", 0, plain, caller, none, none, none)                                                \
  X(cudaImportExternalMemory, Words, "", 0, plain, caller, none, none, none)                                              \
  X(cudaExternalMemoryGetMappedBuffer, Words, "", 0, plain, caller, none, none, none)                                     \
  X(cudaGraphAddMemAllocNode, Words, "", 0, plain, caller, none, none, none)                                              \
  X(cudaGraphAddNode, Words, "", 0, plain, caller, none, none, none)                                                      \
  X(cudaGraphAddNode_v2, Words, "", 0, plain, caller, none, none, none)

enum RowNumber : int {
#define LIVESET_NUMBER(name, ...) row_##name,
  LIVESET_DRIVER_CALLS(LIVESET_NUMBER)
#undef LIVESET_NUMBER
      row_count
};

struct Row {
  const char* name;
  const char* base;  // "": not given out by cuGetProcAddress
  std::int32_t since;
  Variant variant;
  Meaning meaning;
  std::int8_t a, b, c;
};
extern const Row rows[row_count];

// The row of an exported name; -1: none.
int row_named(const char* name);
// The row that cuGetProcAddress(name, version, flags) means; -1: none. Names may carry the suffix of an exported one.
int row_asked_for(const char* name, std::int64_t version, Word flags);
// The same for a runtime that does not tell its version; -1 also where versions differ in where their arguments stand.
int row_asked_for_at_any_version(const char* name, Word flags);

}  // namespace liveset::driver
