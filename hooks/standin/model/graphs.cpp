#include "hooks/standin/model/graphs.h"

#include <algorithm>

namespace standin {

std::unique_ptr<Graph> Graph::clone(std::unordered_map<const Node*, Node*>* copies) const {
  std::unordered_map<const Node*, Node*> own;
  auto& copy_of = copies ? *copies : own;
  auto result = std::make_unique<Graph>();
  result->objects = objects;
  for (const auto& node : nodes) {
    auto copy = std::make_unique<Node>(*node);
    copy_of[node.get()] = copy.get();
    for (auto*& dependency : copy->dependencies) dependency = copy_of.at(dependency);
    result->nodes.push_back(std::move(copy));
  }
  return result;
}

bool Graph::has(const Node* node) const {
  return std::any_of(nodes.begin(), nodes.end(), [node](const auto& own) { return own.get() == node; });
}

Graph* Graphs::create() {
  auto graph = std::make_unique<Graph>();
  auto* handle = graph.get();
  std::lock_guard lock(mutex_);
  graphs_[handle] = std::move(graph);
  return handle;
}

Error Graphs::adopt(std::unique_ptr<Graph> graph, Graph** handle) {
  if (handle == nullptr) return invalid_value;
  *handle = graph.get();
  std::lock_guard lock(mutex_);
  graphs_[*handle] = std::move(graph);
  return success;
}

Error Graphs::destroy(Graph* graph) {
  std::unique_ptr<Graph> last;  // user objects run their callbacks without our lock
  std::lock_guard lock(mutex_);
  auto found = graphs_.find(graph);
  if (found == graphs_.end()) return invalid_value;
  last = std::move(found->second);
  graphs_.erase(found);
  return success;
}

bool Graphs::is_graph(const Graph* graph) const {
  std::lock_guard lock(mutex_);
  return graphs_.count(graph) > 0;
}

Error Graphs::clone(Graph* graph, Graph** copy) {
  if (!is_graph(graph)) return invalid_value;
  return adopt(graph->clone(), copy);
}

Error Graphs::add(Graph* graph, std::unique_ptr<Node> node, Node** handle) {
  if (!is_graph(graph)) return invalid_value;
  for (const auto* dependency : node->dependencies)
    if (!graph->has(dependency)) return invalid_value;
  if (handle != nullptr) *handle = node.get();
  graph->nodes.push_back(std::move(node));
  return success;
}

Graph* Graphs::graph_of(const Node* node) const {
  std::lock_guard lock(mutex_);
  for (const auto& [handle, graph] : graphs_)
    if (graph->has(node)) return graph.get();
  return nullptr;
}

Error Graphs::remove(Node* node) {
  auto* graph = graph_of(node);
  if (graph == nullptr) return invalid_value;
  for (auto& other : graph->nodes) std::erase(other->dependencies, node);
  std::erase_if(graph->nodes, [node](const auto& own) { return own.get() == node; });
  return success;
}

Error Graphs::instantiate(Graph* graph, bool free_on_launch, Executable** executable) {
  if (executable == nullptr || !is_graph(graph)) return invalid_value;
  auto result = std::make_unique<Executable>(Executable{graph->clone(), free_on_launch});
  *executable = result.get();
  std::lock_guard lock(mutex_);
  executables_[*executable] = std::move(result);
  return success;
}

Error Graphs::destroy(Executable* executable) {
  std::unique_ptr<Executable> last;
  std::lock_guard lock(mutex_);
  auto found = executables_.find(executable);
  if (found == executables_.end()) return invalid_value;
  last = std::move(found->second);
  executables_.erase(found);
  return success;
}

bool Graphs::is_executable(const Executable* executable) const {
  std::lock_guard lock(mutex_);
  return executables_.count(executable) > 0;
}

Error Graphs::update(Executable* executable, Graph* graph) {
  if (!is_executable(executable) || !is_graph(graph)) return invalid_value;
  const auto& old_nodes = executable->graph->nodes;
  const bool same = std::equal(old_nodes.begin(), old_nodes.end(), graph->nodes.begin(), graph->nodes.end(),
                               [](const auto& left, const auto& right) { return left->type == right->type; });
  if (!same) return graph_update_failure;
  executable->graph = graph->clone();
  return success;
}

Error Graphs::reserve(Node& node) {
  if (node.bytes == 0) return invalid_value;
  node.address = memory_.reserve(node.bytes, AddressSpace::alignment);
  if (node.address == 0) return out_of_memory;
  node.range = {nullptr, [this, address = node.address, bytes = node.bytes](void*) { memory_.unreserve(address, bytes); }};
  return success;
}

Error Graphs::free(Address address) {
  std::lock_guard lock(mutex_);
  auto found = live_.find(address);
  if (found == live_.end()) return invalid_value;
  const auto [device, bytes, range] = std::move(found->second);
  live_.erase(found);
  usage_[device].used -= bytes;
  memory_.remove(address, true);
  memory_.discharge(device, bytes);
  return success;
}

Error Graphs::run(const Graph& graph, bool free_on_launch) {
  for (const auto& node : graph.nodes) {
    if (node->child) {
      if (auto error = run(*node->child, free_on_launch); error != success) return error;
    } else if (node->type == NodeType::memory_allocation) {
      if (free_on_launch) (void)free(node->address);
      std::lock_guard lock(mutex_);
      if (live_.count(node->address) > 0) return invalid_value;
      if (auto error = memory_.charge(node->device, node->bytes); error != success) return error;
      if (auto error = memory_.add({node->address, node->bytes, node->device, Kind::graph}, true); error != success) {
        memory_.discharge(node->device, node->bytes);
        return error;
      }
      live_[node->address] = {node->device, node->bytes, node->range};
      auto& usage = usage_[node->device];
      usage.used += node->bytes;
      usage.used_high = std::max(usage.used_high, usage.used);
    } else if (node->type == NodeType::memory_free) {
      if (auto error = free(node->address); error != success) return error;
    } else if (node->run) {
      node->run();
    }
  }
  return success;
}

Error Graphs::launch(Executable* executable) {
  if (!is_executable(executable)) return invalid_value;
  return run(*executable->graph, executable->free_on_launch);
}

GraphMemory Graphs::memory_of(int device) const {
  std::lock_guard lock(mutex_);
  auto found = usage_.find(device);
  return found == usage_.end() ? GraphMemory{} : found->second;
}

void Graphs::reset_high(int device) {
  std::lock_guard lock(mutex_);
  usage_[device].used_high = usage_[device].used;
}

}  // namespace standin
