// Graphs as wholes: made, instantiated, launched; their memory and what they own. Nodes: graph_nodes.cpp.
#include <algorithm>

#include "hooks/standin/driver/state.h"

using namespace standin;

STANDIN_EXPORT int cuGraphCreate(Graph** graph, unsigned flags) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (graph == nullptr || flags != 0) return invalid_value;
  *graph = all->graphs.create();
  return success;
}
STANDIN_EXPORT int cuGraphDestroy(Graph* graph) {
  auto* all = machine();
  return all == nullptr ? not_initialized : all->graphs.destroy(graph);
}
STANDIN_EXPORT int cuGraphClone(Graph** copy, Graph* graph) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  return copy == nullptr ? invalid_value : all->graphs.clone(graph, copy);
}

STANDIN_EXPORT int cuGraphInstantiateWithFlags(Executable** executable, Graph* graph, unsigned long long flags) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  constexpr unsigned long long free_on_launch = 1;
  return all->graphs.instantiate(graph, (flags & free_on_launch) != 0, executable);
}
STANDIN_EXPORT int cuGraphInstantiate_v2(Executable** executable, Graph* graph, Node**, char*, std::size_t) {
  return cuGraphInstantiateWithFlags(executable, graph, 0);
}
STANDIN_STREAM_FUNCTION(cuGraphInstantiateWithParams, (Executable * *executable, Graph* graph, unsigned long long* parameters),
                        (executable, graph, parameters)) {
  if (parameters == nullptr) return invalid_value;
  // flags, stream of the upload, node of an error, result
  const int error = cuGraphInstantiateWithFlags(executable, graph, parameters[0]);
  parameters[2] = 0;
  parameters[3] = error == success ? 0 : 1;
  return error;
}
STANDIN_EXPORT int cuGraphExecDestroy(Executable* executable) {
  auto* all = machine();
  return all == nullptr ? not_initialized : all->graphs.destroy(executable);
}
STANDIN_EXPORT int cuGraphExecUpdate_v2(Executable* executable, Graph* graph, int* result) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  auto error = all->graphs.update(executable, graph);
  if (result != nullptr) *result = error == success ? 0 : error == graph_update_failure ? 2 : 1;
  return error;
}
STANDIN_EXPORT int cuGraphExecGetFlags(Executable* executable, unsigned long long* flags) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (!all->graphs.is_executable(executable)) return invalid_value;
  *flags = executable->free_on_launch;
  return success;
}
STANDIN_EXPORT int cuGraphExecKernelNodeSetParams_v2(Executable* executable, Node*, const KernelNodeParameters*) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  return all->graphs.is_executable(executable) ? success : invalid_value;
}
STANDIN_STREAM_FUNCTION(cuGraphUpload, (Executable * executable, void* stream), (executable, own_stream(stream))) {
  auto place = here();
  if (place.error != success) return place.error;
  return place.machine->graphs.is_executable(executable) ? enqueue(place, stream, NodeType::empty, [] {}) : invalid_value;
}
STANDIN_STREAM_FUNCTION(cuGraphLaunch, (Executable * executable, void* stream), (executable, own_stream(stream))) {
  auto place = here();
  if (place.error != success) return place.error;
  if (!place.machine->graphs.is_executable(executable)) return invalid_value;
  bool capturing = false;
  if (auto error = place.machine->streams.enter(place.stream(stream), &capturing); error != success) return error;
  if (!capturing) return place.machine->graphs.launch(executable);
  auto node = std::make_unique<Node>();
  node->type = NodeType::graph;
  node->child = executable->graph->clone();
  return place.machine->streams.add_node(place.stream(stream), std::move(node));
}

STANDIN_EXPORT int cuDeviceGetGraphMemAttribute(int device, int attribute, std::uint64_t* value) {
  auto place = at_device(device);
  if (place.error != success) return place.error;
  const auto usage = place.machine->graphs.memory_of(device);
  if (attribute < 0 || attribute > 3) return invalid_value;
  *value = attribute % 2 == 0 ? usage.used : usage.used_high;  // 0, 1: used; 2, 3: reserved, which is the same here
  return success;
}
STANDIN_EXPORT int cuDeviceSetGraphMemAttribute(int device, int attribute, std::uint64_t* value) {
  auto place = at_device(device);
  if (place.error != success) return place.error;
  if ((attribute != 1 && attribute != 3) || *value != 0) return invalid_value;
  place.machine->graphs.reset_high(device);
  return success;
}
STANDIN_EXPORT int cuDeviceGraphMemTrim(int device) { return at_device(device).error; }

namespace {

// Owned by the program (its references) and by graphs; the last one to let go calls the program's function.
struct OwnedObject {
  UserObject object;
  unsigned references;
};

}  // namespace

STANDIN_EXPORT int cuUserObjectCreate(OwnedObject** handle, void* pointer, void (*destroy)(void*), unsigned references, unsigned flags) {
  if (machine() == nullptr) return not_initialized;
  if (handle == nullptr || destroy == nullptr || references == 0 || flags != 1) return invalid_value;
  *handle = new OwnedObject{UserObject(pointer, destroy), references};
  return success;
}
STANDIN_EXPORT int cuUserObjectRetain(OwnedObject* handle, unsigned count) {
  if (handle == nullptr || count == 0) return invalid_value;
  handle->references += count;
  return success;
}
STANDIN_EXPORT int cuUserObjectRelease(OwnedObject* handle, unsigned count) {
  if (handle == nullptr || count == 0 || count > handle->references) return invalid_value;
  handle->references -= count;
  if (handle->references == 0) delete handle;
  return success;
}
STANDIN_EXPORT int cuGraphRetainUserObject(Graph* graph, OwnedObject* handle, unsigned count, unsigned flags) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  constexpr unsigned move = 1;
  if (!all->graphs.is_graph(graph) || handle == nullptr || count == 0) return invalid_value;
  graph->objects.insert(graph->objects.end(), count, handle->object);
  return flags == move ? cuUserObjectRelease(handle, count) : static_cast<int>(success);
}
STANDIN_EXPORT int cuGraphReleaseUserObject(Graph* graph, OwnedObject* handle, unsigned count) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (!all->graphs.is_graph(graph) || handle == nullptr) return invalid_value;
  for (; count > 0; --count) {
    auto found = std::find(graph->objects.begin(), graph->objects.end(), handle->object);
    if (found == graph->objects.end()) return invalid_value;
    graph->objects.erase(found);
  }
  return success;
}
STANDIN_EXPORT int cuGraphDebugDotPrint(Graph* graph, const char*, unsigned) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  return all->graphs.is_graph(graph) ? not_supported : invalid_value;
}
