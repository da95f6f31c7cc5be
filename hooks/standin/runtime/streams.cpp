// Streams, events, captures.
#include <dlfcn.h>

#include <cstring>

#include "hooks/standin/runtime/driver.h"

using namespace standin;

STANDIN_EXPORT int cudaStreamCreateWithPriority(Handle* stream, unsigned flags, int priority) {
  return bound([=] { return driver().stream_create(stream, flags, priority); });
}
STANDIN_EXPORT int cudaStreamCreateWithFlags(Handle* stream, unsigned flags) { return cudaStreamCreateWithPriority(stream, flags, 0); }
STANDIN_EXPORT int cudaStreamCreate(Handle* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
STANDIN_EXPORT int cudaStreamDestroy(Handle stream) {
  return bound([=] { return driver().stream_destroy(stream); });
}
STANDIN_STREAM_FUNCTION(cudaStreamQuery, (Handle stream), (own_stream(stream))) {
  return bound([=] { return driver().stream_query(stream); });
}
STANDIN_STREAM_FUNCTION(cudaStreamSynchronize, (Handle stream), (own_stream(stream))) {
  return bound([=] { return driver().stream_synchronize(stream); });
}
STANDIN_STREAM_FUNCTION(cudaStreamWaitEvent, (Handle stream, Handle event, unsigned flags), (own_stream(stream), event, flags)) {
  return bound([=] { return driver().stream_wait(stream, event, flags); });
}
STANDIN_STREAM_FUNCTION(cudaStreamGetPriority, (Handle stream, int* priority), (own_stream(stream), priority)) {
  return bound([=] { return driver().stream_priority(stream, priority); });
}
STANDIN_STREAM_FUNCTION(cudaStreamGetFlags, (Handle stream, unsigned* flags), (own_stream(stream), flags)) {
  return bound([=] { return driver().stream_flags(stream, flags); });
}
STANDIN_STREAM_FUNCTION(cudaStreamGetId, (Handle stream, unsigned long long* id), (own_stream(stream), id)) {
  return bound([=] { return driver().stream_id(stream, id); });
}
STANDIN_STREAM_FUNCTION(cudaStreamGetDevice, (Handle stream, int* device), (own_stream(stream), device)) {
  return bound([=] { return driver().stream_device(stream, device); });
}
STANDIN_STREAM_FUNCTION(cudaStreamGetAttribute, (Handle stream, int attribute, void* value), (own_stream(stream), attribute, value)) {
  return bound([=] { return driver().stream_attribute(stream, attribute, value); });
}
STANDIN_STREAM_FUNCTION(cudaStreamSetAttribute, (Handle stream, int attribute, const void* value), (own_stream(stream), attribute, value)) {
  return bound([=] { return driver().stream_set_attribute(stream, attribute, value); });
}
STANDIN_STREAM_FUNCTION(cudaStreamCopyAttributes, (Handle to, Handle from), (own_stream(to), own_stream(from))) {
  (void)from;
  return bound([=] {
    unsigned flags = 0;
    return driver().stream_flags(to, &flags);
  });
}
STANDIN_STREAM_FUNCTION(cudaStreamAttachMemAsync, (Handle stream, void* pointer, std::size_t bytes, unsigned flags),
                        (own_stream(stream), pointer, bytes, flags)) {
  (void)pointer, (void)bytes, (void)flags;
  return cudaStreamCopyAttributes(stream, stream);
}
STANDIN_STREAM_FUNCTION(cudaLaunchHostFunc, (Handle stream, void (*function)(void*), void* data), (own_stream(stream), function, data)) {
  return bound([=] { return driver().host_function(stream, function, data); });
}
STANDIN_STREAM_FUNCTION(cudaStreamAddCallback, (Handle stream, void (*function)(Handle, int, void*), void* data, unsigned flags),
                        (own_stream(stream), function, data, flags)) {
  return bound([=] { return driver().callback(stream, function, data, flags); });
}

STANDIN_EXPORT int cudaEventCreateWithFlags(Handle* event, unsigned flags) {
  return bound([=] { return driver().event_create(event, flags); });
}
STANDIN_EXPORT int cudaEventCreate(Handle* event) { return cudaEventCreateWithFlags(event, 0); }
STANDIN_EXPORT int cudaEventDestroy(Handle event) {
  return bound([=] { return driver().event_destroy(event); });
}
STANDIN_STREAM_FUNCTION(cudaEventRecord, (Handle event, Handle stream), (event, own_stream(stream))) {
  return bound([=] { return driver().event_record(event, stream); });
}
STANDIN_STREAM_FUNCTION(cudaEventRecordWithFlags, (Handle event, Handle stream, unsigned flags), (event, own_stream(stream), flags)) {
  return bound([=] { return driver().event_record_flags(event, stream, flags); });
}
STANDIN_EXPORT int cudaEventSynchronize(Handle event) {
  return bound([=] { return driver().event_synchronize(event); });
}
STANDIN_EXPORT int cudaEventElapsedTime(float* milliseconds, Handle begin, Handle end) {
  return bound([=] { return driver().event_elapsed(milliseconds, begin, end); });
}
STANDIN_EXPORT int cudaEventElapsedTime_v2(float* milliseconds, Handle begin, Handle end) {
  return cudaEventElapsedTime(milliseconds, begin, end);
}

namespace {

// PyTorch's caching allocator: it asks events whether a block that another stream used may be given out again.
bool is_caching_allocator(const void* caller) {
  // A thread asks from the same place over and over, and finding an address's library is slow.
  thread_local const void* last_caller = nullptr;
  thread_local bool last_answer = false;
  if (caller != last_caller) {
    Dl_info info{};
    last_answer = dladdr(caller, &info) != 0 && info.dli_fname != nullptr && std::strstr(info.dli_fname, "libc10_cuda.so") != nullptr;
    last_caller = caller;
  }
  return last_answer;
}

}  // namespace

STANDIN_EXPORT int cudaEventQuery(Handle event) {
  return bound([event, caller = __builtin_return_address(0)] {
    const int error = driver().event_query(event);
    if (error == success && liveset_standin_query_was_early() && is_caching_allocator(caller))
      liveset_standin_estimate("side_stream_free", nullptr);
    return error;
  });
}

STANDIN_STREAM_FUNCTION(cudaStreamBeginCapture, (Handle stream, int mode), (own_stream(stream), mode)) {
  return bound([=] { return driver().capture_begin(stream, mode); });
}
STANDIN_STREAM_FUNCTION(cudaStreamBeginCaptureToGraph,
                        (Handle stream, Handle graph, const Handle* dependencies, const void* edges, std::size_t count, int mode),
                        (own_stream(stream), graph, dependencies, edges, count, mode)) {
  return bound([=] { return driver().capture_begin_to(stream, graph, dependencies, edges, count, mode); });
}
STANDIN_STREAM_FUNCTION(cudaStreamEndCapture, (Handle stream, Handle* graph), (own_stream(stream), graph)) {
  return bound([=] { return driver().capture_end(stream, graph); });
}
STANDIN_STREAM_FUNCTION(cudaStreamIsCapturing, (Handle stream, int* status), (own_stream(stream), status)) {
  return bound([=] { return driver().capture_status(stream, status); });
}

// CUDA 12 has three forms under three names: without graph, without edges, whole. CUDA 13 has the whole one under the first name.
STANDIN_STREAM_FUNCTION(cudaStreamGetCaptureInfo_v3,
                        (Handle stream, int* status, unsigned long long* id, Handle* graph, const Handle** dependencies, const void** edges,
                         std::size_t* count),
                        (own_stream(stream), status, id, graph, dependencies, edges, count)) {
  return bound([=] { return driver().capture_info(stream, status, id, graph, dependencies, edges, count); });
}
STANDIN_STREAM_FUNCTION(cudaStreamGetCaptureInfo_v2,
                        (Handle stream, int* status, unsigned long long* id, Handle* graph, const Handle** dependencies,
                         std::size_t* count),
                        (own_stream(stream), status, id, graph, dependencies, count)) {
  return cudaStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, nullptr, count);
}
STANDIN_STREAM_FUNCTION(cudaStreamGetCaptureInfo,
                        (Handle stream, int* status, unsigned long long* id, Handle* graph, const Handle** dependencies, const void** edges,
                         std::size_t* count),
                        (own_stream(stream), status, id, graph, dependencies, edges, count)) {
  if (liveset_standin_family == 12) return cudaStreamGetCaptureInfo_v3(stream, status, id, nullptr, nullptr, nullptr, nullptr);
  return cudaStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, edges, count);
}
STANDIN_STREAM_FUNCTION(cudaStreamUpdateCaptureDependencies_v2,
                        (Handle stream, Handle* dependencies, const void* edges, std::size_t count, unsigned flags),
                        (own_stream(stream), dependencies, edges, count, flags)) {
  return bound([=] { return driver().capture_update(stream, dependencies, edges, count, flags); });
}
// CUDA 12 has no edges here: count and flags are one argument earlier.
STANDIN_STREAM_FUNCTION(cudaStreamUpdateCaptureDependencies,
                        (Handle stream, Handle* dependencies, const void* edges, std::size_t count, unsigned flags),
                        (own_stream(stream), dependencies, edges, count, flags)) {
  if (liveset_standin_family == 12)
    return cudaStreamUpdateCaptureDependencies_v2(stream, dependencies, nullptr, reinterpret_cast<std::size_t>(edges),
                                                  static_cast<unsigned>(count));
  return cudaStreamUpdateCaptureDependencies_v2(stream, dependencies, edges, count, flags);
}
STANDIN_EXPORT int cudaThreadExchangeStreamCaptureMode(int* mode) {
  return result(driver().capture_mode ? driver().capture_mode(mode) : 0);
}
