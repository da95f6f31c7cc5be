// Streams, events, captures.
#include <cstring>

#include "hooks/standin/driver/state.h"

using namespace standin;

STANDIN_EXPORT int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  auto place = here();
  return place.error != success ? place.error : place.machine->streams.create(place.device(), flags, priority, stream);
}
STANDIN_EXPORT int cuStreamCreate(void** stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

STANDIN_EXPORT int cuStreamDestroy_v2(void* stream) {
  auto* all = machine();
  return all == nullptr ? not_initialized : all->streams.destroy(stream);
}

namespace {

template <class Answer>
int with_facts(void* stream, Answer&& answer) {
  auto place = here();
  if (place.error != success) return place.error;
  Stream facts;
  auto error = place.machine->streams.facts(place.stream(stream), &facts);
  if (error == success) answer(facts);
  return error;
}

bool is_capturing(const Here& place, void* stream) {
  CaptureInfo info;
  return place.machine->streams.capture_info(place.stream(stream), &info) == success && info.status != CaptureStatus::none;
}

// What a wait for a stream or an event lets pools give back.
int after_waiting(const Here& place, Error error) {
  if (error == success) place.machine->pools.synchronized(place.device());
  return error;
}

}  // namespace

STANDIN_STREAM_FUNCTION(cuStreamGetPriority, (void* stream, int* priority), (own_stream(stream), priority)) {
  return with_facts(stream, [&](const Stream& facts) { *priority = facts.priority; });
}
STANDIN_STREAM_FUNCTION(cuStreamGetFlags, (void* stream, unsigned* flags), (own_stream(stream), flags)) {
  return with_facts(stream, [&](const Stream& facts) { *flags = facts.flags; });
}
STANDIN_STREAM_FUNCTION(cuStreamGetId, (void* stream, unsigned long long* id), (own_stream(stream), id)) {
  return with_facts(stream, [&](const Stream& facts) { *id = facts.id; });
}
STANDIN_STREAM_FUNCTION(cuStreamGetDevice, (void* stream, int* device), (own_stream(stream), device)) {
  return with_facts(stream, [&](const Stream& facts) { *device = facts.device; });
}
STANDIN_STREAM_FUNCTION(cuStreamGetCtx, (void* stream, Context** context), (own_stream(stream), context)) {
  return with_facts(stream, [&](const Stream&) { *context = here().context; });
}
STANDIN_STREAM_FUNCTION(cuStreamGetCtx_v2, (void* stream, Context** context, void** green_context),
                        (own_stream(stream), context, green_context)) {
  if (green_context != nullptr) *green_context = nullptr;
  return cuStreamGetCtx(stream, context);
}
STANDIN_STREAM_FUNCTION(cuStreamCopyAttributes, (void* to, void* from), (own_stream(to), own_stream(from))) {
  const int error = with_facts(to, [](const Stream&) {});
  return error != success ? error : with_facts(from, [](const Stream&) {});
}
STANDIN_STREAM_FUNCTION(cuStreamGetAttribute, (void* stream, int attribute, void* value), (own_stream(stream), attribute, value)) {
  return with_facts(stream, [&](const Stream& facts) {
    std::memset(value, 0, 64);
    if (attribute == 8) std::memcpy(value, &facts.priority, sizeof facts.priority);
  });
}
STANDIN_STREAM_FUNCTION(cuStreamSetAttribute, (void* stream, int attribute, const void* value), (own_stream(stream), attribute, value)) {
  (void)attribute, (void)value;
  return with_facts(stream, [](const Stream&) {});
}
STANDIN_STREAM_FUNCTION(cuStreamAttachMemAsync, (void* stream, Address address, std::size_t bytes, unsigned flags),
                        (own_stream(stream), address, bytes, flags)) {
  (void)address, (void)bytes, (void)flags;
  return with_facts(stream, [](const Stream&) {});
}

STANDIN_STREAM_FUNCTION(cuStreamQuery, (void* stream), (own_stream(stream))) {
  auto place = here();
  return place.error != success ? place.error : place.machine->streams.query(place.stream(stream));
}
STANDIN_STREAM_FUNCTION(cuStreamSynchronize, (void* stream), (own_stream(stream))) {
  auto place = here();
  return place.error != success ? place.error : after_waiting(place, place.machine->streams.synchronize(place.stream(stream)));
}
STANDIN_STREAM_FUNCTION(cuStreamWaitEvent, (void* stream, void* event, unsigned flags), (own_stream(stream), event, flags)) {
  auto place = here();
  if (place.error != success) return place.error;
  if (flags > 1) return invalid_value;
  if (flags == 1 && is_capturing(place, stream)) return enqueue(place, stream, NodeType::wait_event, [] {});
  return place.machine->streams.wait(place.stream(stream), event);
}
STANDIN_STREAM_FUNCTION(cuLaunchHostFunc, (void* stream, void (*function)(void*), void* data), (own_stream(stream), function, data)) {
  if (function == nullptr) return invalid_value;
  return enqueue(here(), stream, NodeType::host, [function, data] { function(data); });
}
STANDIN_STREAM_FUNCTION(cuStreamAddCallback, (void* stream, void (*function)(void*, int, void*), void* data, unsigned flags),
                        (own_stream(stream), function, data, flags)) {
  if (function == nullptr || flags != 0) return invalid_value;
  return enqueue(here(), stream, NodeType::host, [=] { function(stream, success, data); });
}

// A value that another party waits for, and waiting for one: what is enqueued is done at once, so a wait is always over.
namespace {

int write_value(void* stream, Address address, const void* value, std::size_t bytes) {
  std::uint32_t words[2] = {};
  std::memcpy(words, value, bytes);
  auto place = here();
  return enqueue(place, stream, NodeType::memset, [all = place.machine, address, bytes, low = words[0], high = words[1]] {
    all->memory.fill(address, low, 4, 1);
    if (bytes == 8) all->memory.fill(address + 4, high, 4, 1);
  });
}

int wait_for_value(void* stream) {
  return enqueue(here(), stream, NodeType::empty, [] {});
}

}  // namespace

#define STANDIN_VALUE_FUNCTIONS(version)                                                                                       \
  STANDIN_STREAM_FUNCTION(cuStreamWriteValue32##version, (void* stream, Address address, std::uint32_t value, unsigned flags), \
                          (own_stream(stream), address, value, flags)) {                                                       \
    return flags > 1 ? static_cast<int>(invalid_value) : write_value(stream, address, &value, sizeof value);                   \
  }                                                                                                                            \
  STANDIN_STREAM_FUNCTION(cuStreamWriteValue64##version, (void* stream, Address address, std::uint64_t value, unsigned flags), \
                          (own_stream(stream), address, value, flags)) {                                                       \
    return flags > 1 ? static_cast<int>(invalid_value) : write_value(stream, address, &value, sizeof value);                   \
  }                                                                                                                            \
  STANDIN_STREAM_FUNCTION(cuStreamWaitValue32##version, (void* stream, Address address, std::uint32_t, unsigned),              \
                          (own_stream(stream), address, 0, 0)) {                                                               \
    return address == 0 ? static_cast<int>(invalid_value) : wait_for_value(stream);                                            \
  }                                                                                                                            \
  STANDIN_STREAM_FUNCTION(cuStreamWaitValue64##version, (void* stream, Address address, std::uint64_t, unsigned),              \
                          (own_stream(stream), address, 0, 0)) {                                                               \
    return address == 0 ? static_cast<int>(invalid_value) : wait_for_value(stream);                                            \
  }
STANDIN_VALUE_FUNCTIONS()
STANDIN_VALUE_FUNCTIONS(_v2)

STANDIN_EXPORT int cuEventCreate(void** event, unsigned flags) {
  auto place = here();
  return place.error != success ? place.error : place.machine->streams.create_event(place.device(), flags, event);
}
STANDIN_EXPORT int cuEventDestroy_v2(void* event) {
  auto* all = machine();
  return all == nullptr ? not_initialized : all->streams.destroy_event(event);
}
STANDIN_STREAM_FUNCTION(cuEventRecord, (void* event, void* stream), (event, own_stream(stream))) {
  auto place = here();
  return place.error != success ? place.error : place.machine->streams.record(event, place.stream(stream));
}
// Flag 1: in a capture the event is recorded, or waited for, by a node at each launch, and is no part of the capture.
STANDIN_STREAM_FUNCTION(cuEventRecordWithFlags, (void* event, void* stream, unsigned flags), (event, own_stream(stream), flags)) {
  if (flags > 1) return invalid_value;
  auto place = here();
  if (flags == 0 || place.error != success || !is_capturing(place, stream)) return cuEventRecord(event, stream);
  return enqueue(place, stream, NodeType::event_record, [all = place.machine, event, device = place.device()] {
    (void)all->streams.record(event, {nullptr, device});
  });
}

namespace {
thread_local bool last_query_was_early;
}
STANDIN_EXPORT int cuEventQuery(void* event) {
  auto* all = machine();
  return all == nullptr ? not_initialized : all->streams.query_event(event, &last_query_was_early);
}
bool liveset_standin_query_was_early() { return last_query_was_early; }
STANDIN_EXPORT int cuEventSynchronize(void* event) {
  auto place = here();
  return place.error != success ? place.error : after_waiting(place, place.machine->streams.synchronize_event(event));
}
STANDIN_EXPORT int cuEventElapsedTime_v2(float* milliseconds, void* begin, void* end) {
  auto* all = machine();
  return all == nullptr ? not_initialized : all->streams.elapsed(begin, end, milliseconds);
}
STANDIN_EXPORT int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  return cuEventElapsedTime_v2(milliseconds, begin, end);
}

STANDIN_STREAM_FUNCTION(cuStreamBeginCapture_v2, (void* stream, int mode), (own_stream(stream), mode)) {
  auto place = here();
  return place.error != success ? place.error : place.machine->streams.begin_capture(place.stream(stream), nullptr, mode);
}
STANDIN_STREAM_FUNCTION(cuStreamBeginCaptureToGraph,
                        (void* stream, Graph* graph, Node* const* dependencies, const void* edges, std::size_t count, int mode),
                        (own_stream(stream), graph, dependencies, edges, count, mode)) {
  (void)edges;
  auto place = here();
  if (place.error != success) return place.error;
  if (graph == nullptr) return invalid_value;
  auto error = place.machine->streams.begin_capture(place.stream(stream), graph, mode);
  if (error != success || count == 0) return error;
  return place.machine->streams.set_dependencies(place.stream(stream), {dependencies, dependencies + count}, false);
}
STANDIN_STREAM_FUNCTION(cuStreamEndCapture, (void* stream, Graph** graph), (own_stream(stream), graph)) {
  auto place = here();
  return place.error != success ? place.error : place.machine->streams.end_capture(place.stream(stream), graph);
}
STANDIN_STREAM_FUNCTION(cuStreamIsCapturing, (void* stream, int* status), (own_stream(stream), status)) {
  auto place = here();
  if (place.error != success) return place.error;
  CaptureInfo info;
  auto error = place.machine->streams.capture_info(place.stream(stream), &info);
  if (error == success) *status = static_cast<int>(info.status);
  return error;
}

// The dependencies are the thread's until its next call.
STANDIN_STREAM_FUNCTION(cuStreamGetCaptureInfo_v2,
                        (void* stream, int* status, std::uint64_t* id, Graph** graph, Node* const** dependencies, std::size_t* count),
                        (own_stream(stream), status, id, graph, dependencies, count)) {
  auto place = here();
  if (place.error != success) return place.error;
  thread_local CaptureInfo info;
  auto error = place.machine->streams.capture_info(place.stream(stream), &info);
  if (error != success) return error;
  *status = static_cast<int>(info.status);
  if (info.status != CaptureStatus::active) return success;
  if (id != nullptr) *id = info.id;
  if (graph != nullptr) *graph = info.graph;
  if (dependencies != nullptr) *dependencies = info.dependencies.data();
  if (count != nullptr) *count = info.dependencies.size();
  return success;
}
STANDIN_STREAM_FUNCTION(cuStreamGetCaptureInfo_v3,
                        (void* stream, int* status, std::uint64_t* id, Graph** graph, Node* const** dependencies, const void** edges,
                         std::size_t* count),
                        (own_stream(stream), status, id, graph, dependencies, edges, count)) {
  if (edges != nullptr) *edges = nullptr;
  return cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count);
}
STANDIN_STREAM_FUNCTION(cuStreamGetCaptureInfo, (void* stream, int* status, std::uint64_t* id), (own_stream(stream), status, id)) {
  return cuStreamGetCaptureInfo_v2(stream, status, id, nullptr, nullptr, nullptr);
}
STANDIN_STREAM_FUNCTION(cuStreamUpdateCaptureDependencies, (void* stream, Node** dependencies, std::size_t count, unsigned flags),
                        (own_stream(stream), dependencies, count, flags)) {
  auto place = here();
  if (place.error != success) return place.error;
  return flags > 1 ? invalid_value
                   : place.machine->streams.set_dependencies(place.stream(stream), {dependencies, dependencies + count}, flags == 0);
}
STANDIN_STREAM_FUNCTION(cuStreamUpdateCaptureDependencies_v2,
                        (void* stream, Node** dependencies, const void* edges, std::size_t count, unsigned flags),
                        (own_stream(stream), dependencies, edges, count, flags)) {
  (void)edges;
  return cuStreamUpdateCaptureDependencies(stream, dependencies, count, flags);
}
STANDIN_EXPORT int cuThreadExchangeStreamCaptureMode(int* mode) {
  if (mode == nullptr || *mode < 0 || *mode > 2) return invalid_value;
  std::swap(*mode, thread_state().capture_mode);
  return success;
}
