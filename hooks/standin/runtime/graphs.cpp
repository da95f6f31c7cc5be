// Graphs: the driver's, with the program's functions put in place of kernels.
#include <cstring>

#include "hooks/standin/runtime/driver.h"

using namespace standin;

namespace {

// As the driver's, with a function of the program in place of a kernel.
struct KernelNodeOfProgram {
  const void* function;
  Extent grid, block;
  unsigned shared_bytes;
  void** arguments;
  void** extra;
};
// The form for every type: its number, then 12 unused bytes, then the parameters of the type, 256 bytes in all.
struct NodeParameters {
  int type;
  int reserved[3];
  unsigned char body[240];
};

}  // namespace

STANDIN_EXPORT int cudaGraphCreate(Handle* graph, unsigned flags) {
  return bound([=] { return driver().graph_create(graph, flags); });
}
STANDIN_EXPORT int cudaGraphDestroy(Handle graph) {
  return bound([=] { return driver().graph_destroy(graph); });
}
STANDIN_EXPORT int cudaGraphClone(Handle* copy, Handle graph) {
  return bound([=] { return driver().graph_clone(copy, graph); });
}
STANDIN_EXPORT int cudaGraphGetNodes(Handle graph, Handle* nodes, std::size_t* count) {
  return bound([=] { return driver().graph_nodes(graph, nodes, count); });
}
STANDIN_EXPORT int cudaGraphGetRootNodes(Handle graph, Handle* nodes, std::size_t* count) {
  return bound([=] { return driver().graph_roots(graph, nodes, count); });
}
// CUDA 12 has no edges' data under the plain names: the count is one argument earlier.
STANDIN_EXPORT int cudaGraphGetEdges(Handle graph, Handle* from, Handle* to, void* edges, std::size_t* count) {
  return bound([=] {
    return liveset_standin_family == 12 ? driver().graph_edges(graph, from, to, nullptr, static_cast<std::size_t*>(edges))
                                        : driver().graph_edges(graph, from, to, edges, count);
  });
}
STANDIN_EXPORT int cudaGraphGetEdges_v2(Handle graph, Handle* from, Handle* to, void* edges, std::size_t* count) {
  return bound([=] { return driver().graph_edges(graph, from, to, edges, count); });
}
STANDIN_EXPORT int cudaGraphNodeGetDependencies(Handle node, Handle* nodes, void* edges, std::size_t* count) {
  return bound([=] {
    return liveset_standin_family == 12 ? driver().node_dependencies(node, nodes, nullptr, static_cast<std::size_t*>(edges))
                                        : driver().node_dependencies(node, nodes, edges, count);
  });
}
STANDIN_EXPORT int cudaGraphNodeGetDependencies_v2(Handle node, Handle* nodes, void* edges, std::size_t* count) {
  return bound([=] { return driver().node_dependencies(node, nodes, edges, count); });
}
STANDIN_EXPORT int cudaGraphAddDependencies(Handle graph, const Handle* from, const Handle* to, const void* edges, std::size_t count) {
  return bound([=] {
    return liveset_standin_family == 12 ? driver().graph_add_dependencies(graph, from, to, nullptr, reinterpret_cast<std::size_t>(edges))
                                        : driver().graph_add_dependencies(graph, from, to, edges, count);
  });
}
STANDIN_EXPORT int cudaGraphAddDependencies_v2(Handle graph, const Handle* from, const Handle* to, const void* edges, std::size_t count) {
  return bound([=] { return driver().graph_add_dependencies(graph, from, to, edges, count); });
}

STANDIN_EXPORT int cudaGraphAddEmptyNode(Handle* node, Handle graph, const Handle* dependencies, std::size_t count) {
  return bound([=] { return driver().graph_add_empty(node, graph, dependencies, count); });
}
STANDIN_EXPORT int cudaGraphAddKernelNode(Handle* node, Handle graph, const Handle* dependencies, std::size_t count,
                                          const KernelNodeOfProgram* parameters) {
  if (parameters == nullptr) return result(invalid_value);
  const KernelNodeParameters converted{kernel_of(parameters->function), parameters->grid,  parameters->block, parameters->shared_bytes,
                                       parameters->arguments,           parameters->extra, nullptr,           nullptr};
  if (converted.function == nullptr) return result(invalid_device_function);
  return bound([&] { return driver().graph_add_kernel(node, graph, dependencies, count, &converted); });
}
STANDIN_EXPORT int cudaGraphAddMemsetNode(Handle* node, Handle graph, const Handle* dependencies, std::size_t count,
                                          const void* parameters) {
  return bound([=] { return driver().graph_add_memset(node, graph, dependencies, count, parameters, nullptr); });
}
STANDIN_EXPORT int cudaGraphAddHostNode(Handle* node, Handle graph, const Handle* dependencies, std::size_t count, const void* parameters) {
  return bound([=] { return driver().graph_add_host(node, graph, dependencies, count, parameters); });
}
STANDIN_EXPORT int cudaGraphAddChildGraphNode(Handle* node, Handle graph, const Handle* dependencies, std::size_t count, Handle child) {
  return bound([=] { return driver().graph_add_child(node, graph, dependencies, count, child); });
}
STANDIN_EXPORT int cudaGraphAddMemAllocNode(Handle* node, Handle graph, const Handle* dependencies, std::size_t count, void* parameters) {
  return bound([=] { return driver().graph_add_allocation(node, graph, dependencies, count, parameters); });
}
STANDIN_EXPORT int cudaGraphAddMemFreeNode(Handle* node, Handle graph, const Handle* dependencies, std::size_t count, void* pointer) {
  return bound([=] { return driver().graph_add_free(node, graph, dependencies, count, address_of(pointer)); });
}

STANDIN_EXPORT int cudaGraphAddNode_v2(Handle* node, Handle graph, const Handle* dependencies, const void* edges, std::size_t count,
                                       NodeParameters* parameters) {
  if (parameters == nullptr) return result(invalid_value);
  if (constexpr int kernel = 0; parameters->type != kernel)
    return bound([=] { return driver().graph_add_node(node, graph, dependencies, edges, count, parameters); });
  KernelNodeOfProgram given;
  std::memcpy(&given, parameters->body, sizeof given);
  return cudaGraphAddKernelNode(node, graph, dependencies, count, &given);
}
STANDIN_EXPORT int cudaGraphAddNode(Handle* node, Handle graph, const Handle* dependencies, const void* edges, std::size_t count,
                                    NodeParameters* parameters) {
  if (liveset_standin_family != 12) return cudaGraphAddNode_v2(node, graph, dependencies, edges, count, parameters);
  return cudaGraphAddNode_v2(node, graph, dependencies, nullptr, reinterpret_cast<std::size_t>(edges),
                             reinterpret_cast<NodeParameters*>(count));
}
STANDIN_EXPORT int cudaGraphNodeGetType(Handle node, int* type) {
  return bound([=] { return driver().node_type(node, type); });
}
STANDIN_EXPORT int cudaGraphDestroyNode(Handle node) {
  return bound([=] { return driver().node_destroy(node); });
}
STANDIN_EXPORT int cudaGraphKernelNodeGetParams(Handle node, KernelNodeOfProgram* out) {
  return bound([=] {
    KernelNodeParameters found;
    const int error = driver().node_kernel(node, &found);
    if (error == success) *out = {found.function, found.grid, found.block, found.shared_bytes, found.arguments, found.extra};
    return error;
  });
}

STANDIN_EXPORT int cudaGraphInstantiateWithFlags(Handle* executable, Handle graph, unsigned long long flags) {
  return bound([=] { return driver().graph_instantiate(executable, graph, flags); });
}
STANDIN_EXPORT int cudaGraphInstantiate(Handle* executable, Handle graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(executable, graph, flags);
}
// flags, stream of the upload, node of an error, result
STANDIN_STREAM_FUNCTION(cudaGraphInstantiateWithParams, (Handle * executable, Handle graph, unsigned long long* parameters),
                        (executable, graph, parameters)) {
  if (parameters == nullptr) return result(invalid_value);
  const int error = cudaGraphInstantiateWithFlags(executable, graph, parameters[0]);
  parameters[2] = 0;
  parameters[3] = error == success ? 0 : 1;
  return error;
}
STANDIN_EXPORT int cudaGraphExecUpdate(Handle executable, Handle graph, void* info) {
  return bound([=] { return driver().graph_update(executable, graph, info); });
}
STANDIN_EXPORT int cudaGraphExecDestroy(Handle executable) {
  return bound([=] { return driver().executable_destroy(executable); });
}
STANDIN_STREAM_FUNCTION(cudaGraphLaunch, (Handle executable, Handle stream), (executable, own_stream(stream))) {
  return bound([=] { return driver().graph_launch(executable, stream); });
}
STANDIN_STREAM_FUNCTION(cudaGraphUpload, (Handle executable, Handle stream), (executable, own_stream(stream))) {
  return bound([=] { return driver().graph_upload(executable, stream); });
}

STANDIN_EXPORT int cudaDeviceGetGraphMemAttribute(int device, int attribute, void* value) {
  return bound([=] { return driver().graph_memory(device, attribute, value); });
}
STANDIN_EXPORT int cudaDeviceSetGraphMemAttribute(int device, int attribute, void* value) {
  return bound([=] { return driver().graph_set_memory(device, attribute, value); });
}
STANDIN_EXPORT int cudaDeviceGraphMemTrim(int device) {
  return bound([=] { return driver().graph_trim(device); });
}
STANDIN_EXPORT int cudaUserObjectCreate(Handle* object, void* pointer, void (*destroy)(void*), unsigned references, unsigned flags) {
  return bound([=] { return driver().object_create(object, pointer, destroy, references, flags); });
}
STANDIN_EXPORT int cudaUserObjectRetain(Handle object, unsigned count) {
  return bound([=] { return driver().object_retain(object, count); });
}
STANDIN_EXPORT int cudaUserObjectRelease(Handle object, unsigned count) {
  return bound([=] { return driver().object_release(object, count); });
}
STANDIN_EXPORT int cudaGraphRetainUserObject(Handle graph, Handle object, unsigned count, unsigned flags) {
  return bound([=] { return driver().graph_retain_object(graph, object, count, flags); });
}
STANDIN_EXPORT int cudaGraphReleaseUserObject(Handle graph, Handle object, unsigned count) {
  return bound([=] { return driver().graph_release_object(graph, object, count); });
}
