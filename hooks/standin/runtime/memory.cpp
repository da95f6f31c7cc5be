// Memory: allocation, copies, fills, pools, what an address is, handles between processes.
#include <algorithm>
#include <cstring>

#include "hooks/standin/runtime/driver.h"

using namespace standin;

STANDIN_EXPORT int cudaMalloc(void** pointer, std::size_t bytes) {
  return bound([=] {
    if (pointer == nullptr) return static_cast<int>(invalid_value);
    *pointer = nullptr;
    Address address = 0;
    const int error = bytes == 0 ? static_cast<int>(success) : driver().allocate(&address, bytes);
    if (error == success) *pointer = pointer_of(address);
    return error;
  });
}
STANDIN_EXPORT int cudaMallocManaged(void** pointer, std::size_t bytes, unsigned flags) {
  return bound([=] {
    Address address = 0;
    const int error = driver().allocate_managed(&address, bytes, flags);
    if (error == success) *pointer = pointer_of(address);
    return error;
  });
}
STANDIN_EXPORT int cudaMallocPitch(void** pointer, std::size_t* pitch, std::size_t width, std::size_t height) {
  return bound([=] {
    Address address = 0;
    const int error = driver().allocate_pitch(&address, pitch, width, height, 4);
    if (error == success) *pointer = pointer_of(address);
    return error;
  });
}
STANDIN_EXPORT int cudaFree(void* pointer) {
  return bound([=] { return pointer == nullptr ? static_cast<int>(success) : driver().release(address_of(pointer)); });
}
STANDIN_EXPORT int cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  return bound([=] { return driver().memory_info(available, total); });
}

STANDIN_EXPORT int cudaHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
  return bound([=] {
    if (pointer == nullptr) return static_cast<int>(invalid_value);
    *pointer = nullptr;
    return bytes == 0 ? static_cast<int>(success) : driver().host_allocate(pointer, bytes, flags);
  });
}
STANDIN_EXPORT int cudaMallocHost(void** pointer, std::size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }
STANDIN_EXPORT int cudaFreeHost(void* pointer) {
  return bound([=] { return pointer == nullptr ? static_cast<int>(success) : driver().host_free(pointer); });
}
STANDIN_EXPORT int cudaHostRegister(void* pointer, std::size_t bytes, unsigned flags) {
  return bound([=] { return driver().host_register(pointer, bytes, flags); });
}
STANDIN_EXPORT int cudaHostUnregister(void* pointer) {
  return bound([=] { return driver().host_unregister(pointer); });
}
STANDIN_EXPORT int cudaHostGetDevicePointer(void** device, void* host, unsigned flags) {
  return bound([=] {
    Address address = 0;
    const int error = driver().host_device_pointer(&address, host, flags);
    if (error == success) *device = pointer_of(address);
    return error;
  });
}
STANDIN_EXPORT int cudaHostGetFlags(unsigned* flags, void* host) {
  return bound([=] { return driver().host_flags(flags, host); });
}

namespace {

struct PointerAttributes {
  int type;  // 0 unknown to CUDA, 1 host, 2 device, 3 managed
  int device;
  void* device_pointer;
  void* host_pointer;
};

}  // namespace

STANDIN_EXPORT int cudaPointerGetAttributes(PointerAttributes* out, const void* pointer) {
  return bound([=] {
    const auto address = address_of(pointer);
    unsigned type = 0, managed = 0;
    constexpr int unknown_device = -2;
    *out = {0, unknown_device, nullptr, const_cast<void*>(pointer)};
    if (driver().pointer_attribute(&type, 2, address) != success) return static_cast<int>(success);
    driver().pointer_attribute(&managed, 8, address);
    driver().pointer_attribute(&out->device, 9, address);
    out->type = managed ? 3 : static_cast<int>(type);
    out->device_pointer = const_cast<void*>(pointer);
    if (out->type == 2) out->host_pointer = nullptr;
    return static_cast<int>(success);
  });
}

// Stream-ordered allocation. The twins look their driver functions up with the flag for threads' streams, as NVIDIA's do.
namespace {

template <class Call>
int allocate_with(void** pointer, Call&& call) {
  return bound([&] {
    Address address = 0;
    const int error = call(&address);
    if (error == success) *pointer = pointer_of(address);
    return error;
  });
}

}  // namespace

STANDIN_EXPORT int cudaMallocAsync(void** pointer, std::size_t bytes, Handle stream) {
  return allocate_with(pointer, [=](Address* address) { return driver().allocate_async(address, bytes, stream); });
}
STANDIN_EXPORT int cudaMallocAsync_ptsz(void** pointer, std::size_t bytes, Handle stream) {
  return allocate_with(pointer, [=](Address* address) { return driver().allocate_async_of_thread(address, bytes, stream); });
}
STANDIN_EXPORT int cudaMallocFromPoolAsync(void** pointer, std::size_t bytes, Handle pool, Handle stream) {
  return allocate_with(pointer, [=](Address* address) { return driver().allocate_from_pool(address, bytes, pool, stream); });
}
STANDIN_EXPORT int cudaMallocFromPoolAsync_ptsz(void** pointer, std::size_t bytes, Handle pool, Handle stream) {
  return allocate_with(pointer, [=](Address* address) { return driver().allocate_from_pool_of_thread(address, bytes, pool, stream); });
}
STANDIN_EXPORT int cudaFreeAsync(void* pointer, Handle stream) {
  return bound([=] { return driver().free_async(address_of(pointer), stream); });
}
STANDIN_EXPORT int cudaFreeAsync_ptsz(void* pointer, Handle stream) {
  return bound([=] { return driver().free_async_of_thread(address_of(pointer), stream); });
}
STANDIN_EXPORT int cudaDeviceGetDefaultMemPool(Handle* pool, int device) {
  return bound([=] { return driver().default_pool(pool, device); });
}
STANDIN_EXPORT int cudaDeviceGetMemPool(Handle* pool, int device) {
  return bound([=] { return driver().current_pool(pool, device); });
}
STANDIN_EXPORT int cudaDeviceSetMemPool(int device, Handle pool) {
  return bound([=] { return driver().set_pool(device, pool); });
}
STANDIN_EXPORT int cudaMemPoolCreate(Handle* pool, const void* properties) {
  return bound([=] { return driver().pool_create(pool, properties); });
}
STANDIN_EXPORT int cudaMemPoolDestroy(Handle pool) {
  return bound([=] { return driver().pool_destroy(pool); });
}
STANDIN_EXPORT int cudaMemPoolTrimTo(Handle pool, std::size_t keep) {
  return bound([=] { return driver().pool_trim(pool, keep); });
}
STANDIN_EXPORT int cudaMemPoolGetAttribute(Handle pool, int attribute, void* value) {
  return bound([=] { return driver().pool_get(pool, attribute, value); });
}
STANDIN_EXPORT int cudaMemPoolSetAttribute(Handle pool, int attribute, void* value) {
  return bound([=] { return driver().pool_set(pool, attribute, value); });
}
STANDIN_EXPORT int cudaMemPoolSetAccess(Handle pool, const void* descriptions, std::size_t count) {
  return bound([=] { return driver().pool_set_access(pool, descriptions, count); });
}
STANDIN_EXPORT int cudaMemPoolGetAccess(int* flags, Handle pool, const void* location) {
  return bound([=] { return driver().pool_access(flags, pool, location); });
}

STANDIN_EXPORT int cudaMemcpy(void* to, const void* from, std::size_t bytes, int kind) {
  if (kind < 0 || kind > 4) return result(invalid_memcpy_direction);
  return bound([=] { return bytes == 0 ? static_cast<int>(success) : driver().copy(address_of(to), address_of(from), bytes); });
}
STANDIN_EXPORT int cudaMemcpy_ptds(void* to, const void* from, std::size_t bytes, int kind) { return cudaMemcpy(to, from, bytes, kind); }
STANDIN_STREAM_FUNCTION(cudaMemcpyAsync, (void* to, const void* from, std::size_t bytes, int kind, Handle stream),
                        (to, from, bytes, kind, own_stream(stream))) {
  if (kind < 0 || kind > 4) return result(invalid_memcpy_direction);
  return bound([=] { return driver().copy_async(address_of(to), address_of(from), bytes, stream); });
}
STANDIN_EXPORT int cudaMemcpyPeer(void* to, int, const void* from, int, std::size_t bytes) { return cudaMemcpy(to, from, bytes, 3); }
STANDIN_STREAM_FUNCTION(cudaMemcpyPeerAsync, (void* to, int to_device, const void* from, int from_device, std::size_t bytes, Handle stream),
                        (to, to_device, from, from_device, bytes, own_stream(stream))) {
  (void)to_device, (void)from_device;
  return cudaMemcpyAsync(to, from, bytes, 3, stream);
}

namespace {

int copy_rectangle(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width, std::size_t height,
                   int kind, Handle stream) {
  if (kind < 0 || kind > 4) return result(invalid_memcpy_direction);
  constexpr int either = 4;
  const Copy2D rectangle{{0, 0, either, nullptr, address_of(from), nullptr, from_pitch},
                         {0, 0, either, nullptr, address_of(to), nullptr, to_pitch},
                         width,
                         height};
  return bound([&] { return width == 0 || height == 0 ? static_cast<int>(success) : driver().copy2d_async(&rectangle, stream); });
}

}  // namespace

STANDIN_STREAM_FUNCTION(cudaMemcpy2DAsync,
                        (void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width, std::size_t height,
                         int kind, Handle stream),
                        (to, to_pitch, from, from_pitch, width, height, kind, own_stream(stream))) {
  return copy_rectangle(to, to_pitch, from, from_pitch, width, height, kind, stream);
}
STANDIN_EXPORT int cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                                std::size_t height, int kind) {
  const int error = copy_rectangle(to, to_pitch, from, from_pitch, width, height, kind, nullptr);
  return error != success ? error : result(driver().stream_synchronize(nullptr));
}

STANDIN_EXPORT int cudaMemset(void* to, int value, std::size_t bytes) {
  return bound([=] { return driver().fill8(address_of(to), static_cast<unsigned char>(value), bytes); });
}
STANDIN_EXPORT int cudaMemset_ptds(void* to, int value, std::size_t bytes) { return cudaMemset(to, value, bytes); }
STANDIN_STREAM_FUNCTION(cudaMemsetAsync, (void* to, int value, std::size_t bytes, Handle stream), (to, value, bytes, own_stream(stream))) {
  return bound([=] { return driver().fill8_async(address_of(to), static_cast<unsigned char>(value), bytes, stream); });
}
STANDIN_STREAM_FUNCTION(cudaMemset2DAsync, (void* to, std::size_t pitch, int value, std::size_t width, std::size_t height, Handle stream),
                        (to, pitch, value, width, height, own_stream(stream))) {
  return bound([=] { return driver().fill2d_async(address_of(to), pitch, static_cast<unsigned char>(value), width, height, stream); });
}
STANDIN_EXPORT int cudaMemset2D(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height) {
  return cudaMemset2DAsync(to, pitch, value, width, height, nullptr);
}

// The attributes only say how a batch may be scheduled. CUDA 12 has one more argument before the stream: where a batch failed.
STANDIN_EXPORT int cudaMemcpyBatchAsync(void* const* to, const void* const* from, const std::size_t* bytes, std::size_t count, const void*,
                                        const std::size_t*, std::size_t, Handle stream, Handle stream_of_cuda12) {
  const auto used = liveset_standin_family == 12 ? stream_of_cuda12 : stream;
  for (std::size_t i = 0; i < count; ++i)
    if (int error = cudaMemcpyAsync(to[i], from[i], bytes[i], 4, used); error != success) return error;
  return success;
}

// Pools by location (CUDA 13): only devices have any.
STANDIN_EXPORT int cudaMemGetDefaultMemPool(Handle* pool, const Location* location, int) {
  return location->type == 1 ? cudaDeviceGetDefaultMemPool(pool, location->id) : result(not_supported);
}
STANDIN_EXPORT int cudaMemGetMemPool(Handle* pool, const Location* location, int) {
  return location->type == 1 ? cudaDeviceGetMemPool(pool, location->id) : result(not_supported);
}
STANDIN_EXPORT int cudaMemSetMemPool(const Location* location, int, Handle pool) {
  return location->type == 1 ? cudaDeviceSetMemPool(location->id, pool) : result(not_supported);
}

// Advice and moves of managed memory, in both families' forms: nothing changes.
STANDIN_EXPORT int cudaMemAdvise(const void*, std::size_t, int, int) {
  return bound([] { return 0; });
}
STANDIN_EXPORT int cudaMemPrefetchAsync(const void*, std::size_t, int, Handle) {
  return bound([] { return 0; });
}

STANDIN_EXPORT int cudaIpcGetMemHandle(SharedHandle* handle, void* pointer) {
  return bound([=] { return driver().ipc_get(handle, address_of(pointer)); });
}
STANDIN_EXPORT int cudaIpcOpenMemHandle(void** pointer, SharedHandle handle, unsigned flags) {
  return allocate_with(pointer, [=](Address* address) { return driver().ipc_open(address, handle, flags); });
}
STANDIN_EXPORT int cudaIpcCloseMemHandle(void* pointer) {
  return bound([=] { return driver().ipc_close(address_of(pointer)); });
}
STANDIN_EXPORT int cudaIpcGetEventHandle(SharedHandle* handle, Handle event) {
  return bound([=] { return driver().ipc_get_event(handle, event); });
}
STANDIN_EXPORT int cudaIpcOpenEventHandle(Handle* event, SharedHandle handle) {
  return bound([=] { return driver().ipc_open_event(event, handle); });
}
