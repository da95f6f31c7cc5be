// Nodes of graphs and their order. What a kernel node ran with is gone by the time of a launch (its arguments lived in the caller's frame),
// so kernels of a graph do nothing; copies, fills, host functions and memory nodes do what they do outside of graphs.
#include <algorithm>
#include <cstring>

#include "hooks/standin/driver/copies.h"

using namespace standin;

namespace {

std::vector<std::byte> bytes_of(const void* structure, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(structure);
  return {begin, begin + bytes};
}

std::unique_ptr<Node> make_node(NodeType type, Node* const* dependencies, std::size_t count) {
  auto node = std::make_unique<Node>();
  node->type = type;
  node->dependencies.assign(dependencies, dependencies + count);
  return node;
}

int add(Node** handle, Graph* graph, std::unique_ptr<Node> node) {
  auto* all = machine();
  return all == nullptr ? not_initialized : all->graphs.add(graph, std::move(node), handle);
}

// Copies up to the caller's room, or tells how many there are.
template <class Range>
int give(const Range& items, Node** out, std::size_t* count) {
  if (count == nullptr) return invalid_value;
  if (out != nullptr) {
    auto kept = std::min(*count, items.size());
    std::copy_n(items.begin(), kept, out);
    std::fill(out + kept, out + *count, nullptr);
    if (*count < items.size()) return success;
  }
  *count = items.size();
  return success;
}

void set_memset(Node& node, const MemsetNodeParameters& parameters) {
  node.parameters = bytes_of(&parameters, sizeof parameters);
  node.run = [all = machine(), parameters] {
    for (std::size_t row = 0; row < std::max<std::size_t>(parameters.rows, 1); ++row)
      all->memory.fill(parameters.to + row * parameters.pitch, parameters.value, parameters.width, parameters.columns);
  };
}

}  // namespace

STANDIN_EXPORT int cuGraphAddEmptyNode(Node** handle, Graph* graph, Node* const* dependencies, std::size_t count) {
  return add(handle, graph, make_node(NodeType::empty, dependencies, count));
}

STANDIN_EXPORT int cuGraphAddKernelNode_v2(Node** handle, Graph* graph, Node* const* dependencies, std::size_t count,
                                           const KernelNodeParameters* parameters) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (parameters == nullptr) return invalid_value;
  const auto* function = static_cast<const Function*>(parameters->function ? parameters->function : parameters->kernel);
  if (!all->modules.is_function(function)) return invalid_handle;
  auto node = make_node(NodeType::kernel, dependencies, count);
  node->name = function->name;
  node->parameters = bytes_of(parameters, sizeof *parameters);
  return add(handle, graph, std::move(node));
}
STANDIN_EXPORT int cuGraphAddKernelNode(Node** handle, Graph* graph, Node* const* dependencies, std::size_t count,
                                        const KernelNodeParameters* parameters) {
  if (parameters == nullptr) return invalid_value;
  KernelNodeParameters whole{};
  std::memcpy(&whole, parameters, offsetof(KernelNodeParameters, kernel));
  return cuGraphAddKernelNode_v2(handle, graph, dependencies, count, &whole);
}

STANDIN_EXPORT int cuGraphAddMemsetNode(Node** handle, Graph* graph, Node* const* dependencies, std::size_t count,
                                        const MemsetNodeParameters* parameters, void*) {
  if (parameters == nullptr || (parameters->width != 1 && parameters->width != 2 && parameters->width != 4)) return invalid_value;
  auto node = make_node(NodeType::memset, dependencies, count);
  set_memset(*node, *parameters);
  return add(handle, graph, std::move(node));
}

STANDIN_EXPORT int cuGraphAddMemcpyNode(Node** handle, Graph* graph, Node* const* dependencies, std::size_t count, const Copy3D* parameters,
                                        void*) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (parameters == nullptr) return invalid_value;
  BoxCopy copy;
  if (auto error = plan(*all, *parameters, &copy); error != success) return error;
  auto node = make_node(NodeType::memcpy, dependencies, count);
  node->parameters = bytes_of(parameters, sizeof *parameters);
  node->run = copy;
  return add(handle, graph, std::move(node));
}

STANDIN_EXPORT int cuGraphAddHostNode(Node** handle, Graph* graph, Node* const* dependencies, std::size_t count,
                                      const HostNodeParameters* parameters) {
  if (parameters == nullptr || parameters->function == nullptr) return invalid_value;
  auto node = make_node(NodeType::host, dependencies, count);
  node->parameters = bytes_of(parameters, sizeof *parameters);
  node->run = [call = *parameters] { call.function(call.data); };
  return add(handle, graph, std::move(node));
}

STANDIN_EXPORT int cuGraphAddChildGraphNode(Node** handle, Graph* graph, Node* const* dependencies, std::size_t count, Graph* child) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (!all->graphs.is_graph(child)) return invalid_value;
  auto node = make_node(NodeType::graph, dependencies, count);
  node->child = child->clone();
  return add(handle, graph, std::move(node));
}

STANDIN_EXPORT int cuGraphAddEventRecordNode(Node** handle, Graph* graph, Node* const* dependencies, std::size_t count, void* event) {
  auto node = make_node(NodeType::event_record, dependencies, count);
  node->run = [all = machine(), event, device = here().context ? here().device() : 0] {
    (void)all->streams.record(event, {nullptr, device});
  };
  return add(handle, graph, std::move(node));
}
STANDIN_EXPORT int cuGraphAddEventWaitNode(Node** handle, Graph* graph, Node* const* dependencies, std::size_t count, void*) {
  return add(handle, graph, make_node(NodeType::wait_event, dependencies, count));
}

STANDIN_EXPORT int cuGraphAddMemAllocNode(Node** handle, Graph* graph, Node* const* dependencies, std::size_t count,
                                          AllocationNodeParameters* parameters) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (parameters == nullptr || parameters->bytes == 0) return invalid_value;
  if (auto place = at_device(parameters->pool.location.id); place.error != success) return place.error;
  auto node = make_node(NodeType::memory_allocation, dependencies, count);
  node->bytes = parameters->bytes;
  node->device = parameters->pool.location.id;
  if (auto error = all->graphs.reserve(*node); error != success) return error;
  parameters->address = node->address;
  node->parameters = bytes_of(parameters, sizeof *parameters);
  return add(handle, graph, std::move(node));
}

STANDIN_EXPORT int cuGraphAddMemFreeNode(Node** handle, Graph* graph, Node* const* dependencies, std::size_t count, Address address) {
  if (address == 0) return invalid_value;
  auto node = make_node(NodeType::memory_free, dependencies, count);
  node->address = address;
  return add(handle, graph, std::move(node));
}

// The form for every type: its number, 12 bytes, then the parameters of the type.
STANDIN_EXPORT int cuGraphAddNode_v2(Node** handle, Graph* graph, Node* const* dependencies, const void*, std::size_t count,
                                     void* parameters) {
  if (parameters == nullptr) return invalid_value;
  int type = 0;
  std::memcpy(&type, parameters, sizeof type);
  auto* body = static_cast<std::byte*>(parameters) + 16;
  switch (static_cast<NodeType>(type)) {
    case NodeType::empty: return cuGraphAddEmptyNode(handle, graph, dependencies, count);
    case NodeType::kernel:
      return cuGraphAddKernelNode_v2(handle, graph, dependencies, count, reinterpret_cast<const KernelNodeParameters*>(body));
    case NodeType::memset:
      return cuGraphAddMemsetNode(handle, graph, dependencies, count, reinterpret_cast<const MemsetNodeParameters*>(body), nullptr);
    case NodeType::host: return cuGraphAddHostNode(handle, graph, dependencies, count, reinterpret_cast<const HostNodeParameters*>(body));
    case NodeType::graph: return cuGraphAddChildGraphNode(handle, graph, dependencies, count, *reinterpret_cast<Graph**>(body));
    case NodeType::event_record: return cuGraphAddEventRecordNode(handle, graph, dependencies, count, *reinterpret_cast<void**>(body));
    case NodeType::wait_event: return cuGraphAddEventWaitNode(handle, graph, dependencies, count, *reinterpret_cast<void**>(body));
    case NodeType::memory_allocation:
      return cuGraphAddMemAllocNode(handle, graph, dependencies, count, reinterpret_cast<AllocationNodeParameters*>(body));
    case NodeType::memory_free: return cuGraphAddMemFreeNode(handle, graph, dependencies, count, *reinterpret_cast<Address*>(body));
    default: return not_supported;
  }
}
STANDIN_EXPORT int cuGraphAddNode(Node** handle, Graph* graph, Node* const* dependencies, std::size_t count, void* parameters) {
  return cuGraphAddNode_v2(handle, graph, dependencies, nullptr, count, parameters);
}

STANDIN_EXPORT int cuGraphDestroyNode(Node* node) {
  auto* all = machine();
  return all == nullptr ? not_initialized : all->graphs.remove(node);
}

namespace {

template <class Parameters>
int give_parameters(const Node* node, NodeType type, Parameters* out) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (out == nullptr || all->graphs.graph_of(node) == nullptr || node->type != type || node->parameters.size() != sizeof *out)
    return invalid_value;
  std::memcpy(out, node->parameters.data(), sizeof *out);
  return success;
}

}  // namespace

STANDIN_EXPORT int cuGraphKernelNodeGetParams_v2(Node* node, KernelNodeParameters* out) {
  return give_parameters(node, NodeType::kernel, out);
}
STANDIN_EXPORT int cuGraphMemsetNodeGetParams(Node* node, MemsetNodeParameters* out) {
  return give_parameters(node, NodeType::memset, out);
}
STANDIN_EXPORT int cuGraphMemcpyNodeGetParams(Node* node, Copy3D* out) { return give_parameters(node, NodeType::memcpy, out); }
STANDIN_EXPORT int cuGraphHostNodeGetParams(Node* node, HostNodeParameters* out) { return give_parameters(node, NodeType::host, out); }
STANDIN_EXPORT int cuGraphMemAllocNodeGetParams(Node* node, AllocationNodeParameters* out) {
  if (give_parameters(node, NodeType::memory_allocation, out) == success) return success;
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (out == nullptr || all->graphs.graph_of(node) == nullptr || node->type != NodeType::memory_allocation) return invalid_value;
  *out = {};  // captured: nobody gave parameters
  out->pool.location = {1, node->device};
  out->bytes = node->bytes;
  out->address = node->address;
  return success;
}
STANDIN_EXPORT int cuGraphMemFreeNodeGetParams(Node* node, Address* out) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (all->graphs.graph_of(node) == nullptr || node->type != NodeType::memory_free) return invalid_value;
  *out = node->address;
  return success;
}

STANDIN_EXPORT int cuGraphNodeGetType(Node* node, int* type) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (type == nullptr || all->graphs.graph_of(node) == nullptr) return invalid_value;
  *type = static_cast<int>(node->type);
  return success;
}

STANDIN_EXPORT int cuGraphGetNodes(Graph* graph, Node** nodes, std::size_t* count) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (!all->graphs.is_graph(graph)) return invalid_value;
  std::vector<Node*> found;
  for (const auto& node : graph->nodes) found.push_back(node.get());
  return give(found, nodes, count);
}
STANDIN_EXPORT int cuGraphGetRootNodes(Graph* graph, Node** nodes, std::size_t* count) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (!all->graphs.is_graph(graph)) return invalid_value;
  std::vector<Node*> found;
  for (const auto& node : graph->nodes)
    if (node->dependencies.empty()) found.push_back(node.get());
  return give(found, nodes, count);
}
STANDIN_EXPORT int cuGraphGetEdges_v2(Graph* graph, Node** from, Node** to, void*, std::size_t* count) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (!all->graphs.is_graph(graph)) return invalid_value;
  std::vector<Node*> froms, tos;
  for (const auto& node : graph->nodes) {
    froms.insert(froms.end(), node->dependencies.begin(), node->dependencies.end());
    tos.insert(tos.end(), node->dependencies.size(), node.get());
  }
  auto room = *count;
  if (int error = give(froms, from, count); error != success) return error;
  return give(tos, to, &room);
}
STANDIN_EXPORT int cuGraphGetEdges(Graph* graph, Node** from, Node** to, std::size_t* count) {
  return cuGraphGetEdges_v2(graph, from, to, nullptr, count);
}
STANDIN_EXPORT int cuGraphNodeGetDependencies_v2(Node* node, Node** nodes, void*, std::size_t* count) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  return all->graphs.graph_of(node) == nullptr ? static_cast<int>(invalid_value) : give(node->dependencies, nodes, count);
}
STANDIN_EXPORT int cuGraphNodeGetDependencies(Node* node, Node** nodes, std::size_t* count) {
  return cuGraphNodeGetDependencies_v2(node, nodes, nullptr, count);
}
STANDIN_EXPORT int cuGraphAddDependencies_v2(Graph* graph, Node* const* from, Node* const* to, const void*, std::size_t count) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (!all->graphs.is_graph(graph)) return invalid_value;
  for (std::size_t i = 0; i < count; ++i) {
    if (!graph->has(from[i]) || !graph->has(to[i])) return invalid_value;
    to[i]->dependencies.push_back(from[i]);
  }
  return success;
}
STANDIN_EXPORT int cuGraphAddDependencies(Graph* graph, Node* const* from, Node* const* to, std::size_t count) {
  return cuGraphAddDependencies_v2(graph, from, to, nullptr, count);
}

STANDIN_EXPORT int cuGraphRemoveDependencies_v2(Graph* graph, Node* const* from, Node* const* to, const void*, std::size_t count) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  if (!all->graphs.is_graph(graph)) return invalid_value;
  for (std::size_t i = 0; i < count; ++i)
    if (!graph->has(to[i]) || std::erase(to[i]->dependencies, from[i]) == 0) return invalid_value;
  return success;
}
STANDIN_EXPORT int cuGraphRemoveDependencies(Graph* graph, Node* const* from, Node* const* to, std::size_t count) {
  return cuGraphRemoveDependencies_v2(graph, from, to, nullptr, count);
}
STANDIN_EXPORT int cuGraphNodeGetDependentNodes_v2(Node* node, Node** nodes, void*, std::size_t* count) {
  auto* all = machine();
  if (all == nullptr) return not_initialized;
  const auto* graph = all->graphs.graph_of(node);
  if (graph == nullptr) return invalid_value;
  std::vector<Node*> found;
  for (const auto& other : graph->nodes)
    if (std::find(other->dependencies.begin(), other->dependencies.end(), node) != other->dependencies.end()) found.push_back(other.get());
  return give(found, nodes, count);
}
STANDIN_EXPORT int cuGraphNodeGetDependentNodes(Node* node, Node** nodes, std::size_t* count) {
  return cuGraphNodeGetDependentNodes_v2(node, nodes, nullptr, count);
}
