// The driver as the runtime reaches it: every function through cuGetProcAddress by name, version and flags, as NVIDIA's runtime does, so
// that an interposer sees the same look-ups. Also the steps that every function of the runtime begins and ends with.
#pragma once
#include <cstddef>
#include <cstdint>

#include "hooks/standin/functions.h"
#include "hooks/standin/interface.h"
#include "hooks/standin/model/errors.h"
#include "hooks/standin/structures.h"

// Which CUDA family this library is of: 12 or 13 (hooks/standin/generate.py).
extern "C" const int liveset_standin_family;

namespace standin {

using Address = std::uint64_t;
using Handle = void*;

// name in the table, name in the driver, version, flags (2: streams of threads), parameters
#define STANDIN_DRIVER_FUNCTIONS(X)                                                                                               \
  X(init, "cuInit", 2000, 0, (unsigned))                                                                                          \
  X(driver_version, "cuDriverGetVersion", 2020, 0, (int*))                                                                        \
  X(device_count, "cuDeviceGetCount", 2000, 0, (int*))                                                                            \
  X(device_name, "cuDeviceGetName", 2000, 0, (char*, int, int))                                                                   \
  X(device_uuid, "cuDeviceGetUuid", 11040, 0, (void*, int))                                                                       \
  X(device_total, "cuDeviceTotalMem", 3020, 0, (std::size_t*, int))                                                               \
  X(device_attribute, "cuDeviceGetAttribute", 2000, 0, (int*, int, int))                                                          \
  X(device_bus, "cuDeviceGetPCIBusId", 4010, 0, (char*, int, int))                                                                \
  X(device_by_bus, "cuDeviceGetByPCIBusId", 4010, 0, (int*, const char*))                                                         \
  X(can_access_peer, "cuDeviceCanAccessPeer", 4000, 0, (int*, int, int))                                                          \
  X(peer_attribute, "cuDeviceGetP2PAttribute", 8000, 0, (int*, int, int, int))                                                    \
  X(primary_retain, "cuDevicePrimaryCtxRetain", 7000, 0, (Handle*, int))                                                          \
  X(primary_reset, "cuDevicePrimaryCtxReset", 11000, 0, (int))                                                                    \
  X(primary_set_flags, "cuDevicePrimaryCtxSetFlags", 11000, 0, (int, unsigned))                                                   \
  X(primary_state, "cuDevicePrimaryCtxGetState", 7000, 0, (int, unsigned*, int*))                                                 \
  X(context_get, "cuCtxGetCurrent", 4000, 0, (Handle*))                                                                           \
  X(context_set, "cuCtxSetCurrent", 4000, 0, (Handle))                                                                            \
  X(context_device, "cuCtxGetDevice", 2000, 0, (int*))                                                                            \
  X(context_synchronize, "cuCtxSynchronize", 2000, 0, ())                                                                         \
  X(context_priorities, "cuCtxGetStreamPriorityRange", 5050, 0, (int*, int*))                                                     \
  X(context_limit, "cuCtxGetLimit", 3010, 0, (std::size_t*, int))                                                                 \
  X(context_set_limit, "cuCtxSetLimit", 3010, 0, (int, std::size_t))                                                              \
  X(enable_peer, "cuCtxEnablePeerAccess", 4000, 0, (Handle, unsigned))                                                            \
  X(disable_peer, "cuCtxDisablePeerAccess", 4000, 0, (Handle))                                                                    \
  X(allocate, "cuMemAlloc", 3020, 0, (Address*, std::size_t))                                                                     \
  X(allocate_pitch, "cuMemAllocPitch", 3020, 0, (Address*, std::size_t*, std::size_t, std::size_t, unsigned))                     \
  X(allocate_managed, "cuMemAllocManaged", 6000, 0, (Address*, std::size_t, unsigned))                                            \
  X(release, "cuMemFree", 3020, 0, (Address))                                                                                     \
  X(memory_info, "cuMemGetInfo", 3020, 0, (std::size_t*, std::size_t*))                                                           \
  X(host_allocate, "cuMemHostAlloc", 2020, 0, (void**, std::size_t, unsigned))                                                    \
  X(host_free, "cuMemFreeHost", 2000, 0, (void*))                                                                                 \
  X(host_register, "cuMemHostRegister", 6050, 0, (void*, std::size_t, unsigned))                                                  \
  X(host_unregister, "cuMemHostUnregister", 4000, 0, (void*))                                                                     \
  X(host_device_pointer, "cuMemHostGetDevicePointer", 3020, 0, (Address*, void*, unsigned))                                       \
  X(host_flags, "cuMemHostGetFlags", 2030, 0, (unsigned*, void*))                                                                 \
  X(pointer_attribute, "cuPointerGetAttribute", 4000, 0, (void*, int, Address))                                                   \
  X(allocate_async, "cuMemAllocAsync", 11020, 0, (Address*, std::size_t, Handle))                                                 \
  X(allocate_async_of_thread, "cuMemAllocAsync", 11020, 2, (Address*, std::size_t, Handle))                                       \
  X(allocate_from_pool, "cuMemAllocFromPoolAsync", 11020, 0, (Address*, std::size_t, Handle, Handle))                             \
  X(allocate_from_pool_of_thread, "cuMemAllocFromPoolAsync", 11020, 2, (Address*, std::size_t, Handle, Handle))                   \
  X(free_async, "cuMemFreeAsync", 11020, 0, (Address, Handle))                                                                    \
  X(free_async_of_thread, "cuMemFreeAsync", 11020, 2, (Address, Handle))                                                          \
  X(default_pool, "cuDeviceGetDefaultMemPool", 11020, 0, (Handle*, int))                                                          \
  X(current_pool, "cuDeviceGetMemPool", 11020, 0, (Handle*, int))                                                                 \
  X(set_pool, "cuDeviceSetMemPool", 11020, 0, (int, Handle))                                                                      \
  X(pool_create, "cuMemPoolCreate", 11020, 0, (Handle*, const void*))                                                             \
  X(pool_destroy, "cuMemPoolDestroy", 11020, 0, (Handle))                                                                         \
  X(pool_trim, "cuMemPoolTrimTo", 11020, 0, (Handle, std::size_t))                                                                \
  X(pool_get, "cuMemPoolGetAttribute", 11020, 0, (Handle, int, void*))                                                            \
  X(pool_set, "cuMemPoolSetAttribute", 11020, 0, (Handle, int, void*))                                                            \
  X(pool_set_access, "cuMemPoolSetAccess", 11020, 0, (Handle, const void*, std::size_t))                                          \
  X(pool_access, "cuMemPoolGetAccess", 11020, 0, (int*, Handle, const void*))                                                     \
  X(copy, "cuMemcpy", 4000, 0, (Address, Address, std::size_t))                                                                   \
  X(copy_async, "cuMemcpyAsync", 4000, 0, (Address, Address, std::size_t, Handle))                                                \
  X(fill8, "cuMemsetD8", 3020, 0, (Address, unsigned char, std::size_t))                                                          \
  X(fill8_async, "cuMemsetD8Async", 3020, 0, (Address, unsigned char, std::size_t, Handle))                                       \
  X(fill2d_async, "cuMemsetD2D8Async", 3020, 0, (Address, std::size_t, unsigned char, std::size_t, std::size_t, Handle))          \
  X(copy2d_async, "cuMemcpy2DAsync", 3020, 0, (const void*, Handle))                                                              \
  X(copy3d_async, "cuMemcpy3DAsync", 3020, 0, (const void*, Handle))                                                              \
  X(ipc_get, "cuIpcGetMemHandle", 4010, 0, (void*, Address))                                                                      \
  X(ipc_open, "cuIpcOpenMemHandle", 11000, 0, (Address*, SharedHandle, unsigned))                                                 \
  X(ipc_close, "cuIpcCloseMemHandle", 4010, 0, (Address))                                                                         \
  X(ipc_get_event, "cuIpcGetEventHandle", 4010, 0, (void*, Handle))                                                               \
  X(ipc_open_event, "cuIpcOpenEventHandle", 4010, 0, (Handle*, SharedHandle))                                                     \
  X(stream_create, "cuStreamCreateWithPriority", 5050, 0, (Handle*, unsigned, int))                                               \
  X(stream_destroy, "cuStreamDestroy", 4000, 0, (Handle))                                                                         \
  X(stream_query, "cuStreamQuery", 2000, 0, (Handle))                                                                             \
  X(stream_synchronize, "cuStreamSynchronize", 2000, 0, (Handle))                                                                 \
  X(stream_wait, "cuStreamWaitEvent", 3020, 0, (Handle, Handle, unsigned))                                                        \
  X(stream_priority, "cuStreamGetPriority", 5050, 0, (Handle, int*))                                                              \
  X(stream_flags, "cuStreamGetFlags", 5050, 0, (Handle, unsigned*))                                                               \
  X(stream_id, "cuStreamGetId", 12000, 0, (Handle, unsigned long long*))                                                          \
  X(stream_device, "cuStreamGetDevice", 12080, 0, (Handle, int*))                                                                 \
  X(stream_attribute, "cuStreamGetAttribute", 11000, 0, (Handle, int, void*))                                                     \
  X(stream_set_attribute, "cuStreamSetAttribute", 11000, 0, (Handle, int, const void*))                                           \
  X(host_function, "cuLaunchHostFunc", 10000, 0, (Handle, void (*)(void*), void*))                                                \
  X(callback, "cuStreamAddCallback", 5000, 0, (Handle, void (*)(Handle, int, void*), void*, unsigned))                            \
  X(capture_begin, "cuStreamBeginCapture", 10010, 0, (Handle, int))                                                               \
  X(capture_begin_to, "cuStreamBeginCaptureToGraph", 12030, 0, (Handle, Handle, const Handle*, const void*, std::size_t, int))    \
  X(capture_end, "cuStreamEndCapture", 10000, 0, (Handle, Handle*))                                                               \
  X(capture_status, "cuStreamIsCapturing", 10000, 0, (Handle, int*))                                                              \
  X(capture_info, "cuStreamGetCaptureInfo", 12030, 0,                                                                             \
    (Handle, int*, unsigned long long*, Handle*, const Handle**, const void**, std::size_t*))                                     \
  X(capture_update, "cuStreamUpdateCaptureDependencies", 12030, 0, (Handle, Handle*, const void*, std::size_t, unsigned))         \
  X(capture_mode, "cuThreadExchangeStreamCaptureMode", 10010, 0, (int*))                                                          \
  X(event_create, "cuEventCreate", 2000, 0, (Handle*, unsigned))                                                                  \
  X(event_destroy, "cuEventDestroy", 4000, 0, (Handle))                                                                           \
  X(event_record, "cuEventRecord", 2000, 0, (Handle, Handle))                                                                     \
  X(event_record_flags, "cuEventRecordWithFlags", 11010, 0, (Handle, Handle, unsigned))                                           \
  X(event_query, "cuEventQuery", 2000, 0, (Handle))                                                                               \
  X(event_synchronize, "cuEventSynchronize", 2000, 0, (Handle))                                                                   \
  X(event_elapsed, "cuEventElapsedTime", 12080, 0, (float*, Handle, Handle))                                                      \
  X(library_load, "cuLibraryLoadData", 12000, 0, (Handle*, const void*, int*, void**, unsigned, int*, void**, unsigned))          \
  X(library_unload, "cuLibraryUnload", 12000, 0, (Handle))                                                                        \
  X(library_kernel, "cuLibraryGetKernel", 12000, 0, (Handle*, Handle, const char*))                                               \
  X(library_global, "cuLibraryGetGlobal", 12000, 0, (Address*, std::size_t*, Handle, const char*))                                \
  X(kernel_name, "cuKernelGetName", 12030, 0, (const char**, Handle))                                                             \
  X(function_attribute, "cuFuncGetAttribute", 2020, 0, (int*, int, Handle))                                                       \
  X(function_set_attribute, "cuFuncSetAttribute", 9000, 0, (Handle, int, int))                                                    \
  X(kernel_set_attribute, "cuKernelSetAttribute", 12000, 0, (int, int, Handle, int))                                              \
  X(occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", 7000, 0, (int*, Handle, int, std::size_t, unsigned))       \
  X(occupancy_shared, "cuOccupancyAvailableDynamicSMemPerBlock", 10020, 0, (std::size_t*, Handle, int, int))                      \
  X(occupancy_cluster, "cuOccupancyMaxPotentialClusterSize", 11070, 0, (int*, Handle, const void*))                               \
  X(occupancy_clusters, "cuOccupancyMaxActiveClusters", 11070, 0, (int*, Handle, const void*))                                    \
  X(launch, "cuLaunchKernel", 4000, 0,                                                                                            \
    (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**, void**))                       \
  X(launch_with, "cuLaunchKernelEx", 11060, 0, (const void*, Handle, void**, void**))                                             \
  X(launch_cooperative, "cuLaunchCooperativeKernel", 9000, 0,                                                                     \
    (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**))                               \
  X(graph_create, "cuGraphCreate", 10000, 0, (Handle*, unsigned))                                                                 \
  X(graph_destroy, "cuGraphDestroy", 10000, 0, (Handle))                                                                          \
  X(graph_clone, "cuGraphClone", 10000, 0, (Handle*, Handle))                                                                     \
  X(graph_nodes, "cuGraphGetNodes", 10000, 0, (Handle, Handle*, std::size_t*))                                                    \
  X(graph_roots, "cuGraphGetRootNodes", 10000, 0, (Handle, Handle*, std::size_t*))                                                \
  X(graph_edges, "cuGraphGetEdges", 12030, 0, (Handle, Handle*, Handle*, void*, std::size_t*))                                    \
  X(graph_add_dependencies, "cuGraphAddDependencies", 12030, 0, (Handle, const Handle*, const Handle*, const void*, std::size_t)) \
  X(graph_add_node, "cuGraphAddNode", 12030, 0, (Handle*, Handle, const Handle*, const void*, std::size_t, void*))                \
  X(graph_add_empty, "cuGraphAddEmptyNode", 10000, 0, (Handle*, Handle, const Handle*, std::size_t))                              \
  X(graph_add_kernel, "cuGraphAddKernelNode", 12000, 0, (Handle*, Handle, const Handle*, std::size_t, const void*))               \
  X(graph_add_memset, "cuGraphAddMemsetNode", 10000, 0, (Handle*, Handle, const Handle*, std::size_t, const void*, Handle))       \
  X(graph_add_host, "cuGraphAddHostNode", 10000, 0, (Handle*, Handle, const Handle*, std::size_t, const void*))                   \
  X(graph_add_child, "cuGraphAddChildGraphNode", 10000, 0, (Handle*, Handle, const Handle*, std::size_t, Handle))                 \
  X(graph_add_allocation, "cuGraphAddMemAllocNode", 11040, 0, (Handle*, Handle, const Handle*, std::size_t, void*))               \
  X(graph_add_free, "cuGraphAddMemFreeNode", 11040, 0, (Handle*, Handle, const Handle*, std::size_t, Address))                    \
  X(node_type, "cuGraphNodeGetType", 10000, 0, (Handle, int*))                                                                    \
  X(node_dependencies, "cuGraphNodeGetDependencies", 12030, 0, (Handle, Handle*, void*, std::size_t*))                            \
  X(node_kernel, "cuGraphKernelNodeGetParams", 12000, 0, (Handle, void*))                                                         \
  X(node_destroy, "cuGraphDestroyNode", 10000, 0, (Handle))                                                                       \
  X(graph_instantiate, "cuGraphInstantiateWithFlags", 11040, 0, (Handle*, Handle, unsigned long long))                            \
  X(graph_update, "cuGraphExecUpdate", 12000, 0, (Handle, Handle, void*))                                                         \
  X(graph_launch, "cuGraphLaunch", 10000, 0, (Handle, Handle))                                                                    \
  X(graph_upload, "cuGraphUpload", 11010, 0, (Handle, Handle))                                                                    \
  X(executable_destroy, "cuGraphExecDestroy", 10000, 0, (Handle))                                                                 \
  X(graph_memory, "cuDeviceGetGraphMemAttribute", 11040, 0, (int, int, void*))                                                    \
  X(graph_set_memory, "cuDeviceSetGraphMemAttribute", 11040, 0, (int, int, void*))                                                \
  X(graph_trim, "cuDeviceGraphMemTrim", 11040, 0, (int))                                                                          \
  X(object_create, "cuUserObjectCreate", 11030, 0, (Handle*, void*, void (*)(void*), unsigned, unsigned))                         \
  X(object_retain, "cuUserObjectRetain", 11030, 0, (Handle, unsigned))                                                            \
  X(object_release, "cuUserObjectRelease", 11030, 0, (Handle, unsigned))                                                          \
  X(graph_retain_object, "cuGraphRetainUserObject", 11030, 0, (Handle, Handle, unsigned, unsigned))                               \
  X(graph_release_object, "cuGraphReleaseUserObject", 11030, 0, (Handle, Handle, unsigned))                                       \
  X(array_create, "cuArray3DCreate", 3020, 0, (Handle*, const void*))                                                             \
  X(array_destroy, "cuArrayDestroy", 2000, 0, (Handle))

struct Driver {
#define STANDIN_MEMBER(member, name, version, flags, parameters) int(*member) parameters = nullptr;
  STANDIN_DRIVER_FUNCTIONS(STANDIN_MEMBER)
#undef STANDIN_MEMBER
  int (*look_up)(const char*, void**, int, std::uint64_t, int*) = nullptr;
  int start = not_initialized;  // what cuInit said
};

// Loaded and initialised by the first call.
const Driver& driver();

// Makes sure that the thread has a context: the current one, or its device's primary one. Success or the error to return.
int bind();
int current_device();
int set_device(int device, bool make_context);
Handle primary_context(int device);
int reset_device();  // of the thread

// Keeps an error for cudaGetLastError.
int result(int error);

// bind(), then the call, then result().
template <class Call>
int bound(Call&& call) {
  const int error = bind();
  return result(error != success ? error : call());
}

inline Handle own_stream(Handle stream) { return stream == nullptr ? reinterpret_cast<Handle>(std::uintptr_t{2}) : stream; }
inline Address address_of(const void* pointer) { return reinterpret_cast<Address>(pointer); }
inline void* pointer_of(Address address) { return reinterpret_cast<void*>(address); }

// The kernel of a function of the program (a host stub's address), or a kernel handle itself; null when it is neither.
Handle kernel_of(const void* function);

}  // namespace standin
