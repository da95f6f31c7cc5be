// Graphs: nodes with their order, executables made of them, and the memory of their allocation nodes, whose address is known when
// the node is made and which exists from a launch until a free node or the program frees it. Thread-safe; a graph itself may be
// changed by one thread at a time, as the driver asks of programs too.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "hooks/standin/model/memory.h"

namespace standin {

// The driver's numbers.
enum class NodeType : int {
  kernel = 0,
  memcpy = 1,
  memset = 2,
  host = 3,
  graph = 4,
  empty = 5,
  wait_event = 6,
  event_record = 7,
  memory_allocation = 10,
  memory_free = 11,
};

struct Graph;

struct Node {
  NodeType type = NodeType::empty;
  std::string name;           // of a kernel
  std::function<void()> run;  // what a launch does; empty: nothing
  Address address = 0;        // of a memory node
  // The addresses of an allocation node, which its copies and the memory itself share: they go with the last of them.
  std::shared_ptr<void> range;
  std::size_t bytes = 0;
  int device = 0;
  std::vector<std::byte> parameters;  // as the program gave them, for the functions that give them back
  std::shared_ptr<Graph> child;
  std::vector<Node*> dependencies;
};

// Released when the last graph that holds it goes.
using UserObject = std::shared_ptr<void>;

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;  // in the order they were made: no node depends on a later one
  std::vector<UserObject> objects;

  std::unique_ptr<Graph> clone(std::unordered_map<const Node*, Node*>* copies = nullptr) const;
  bool has(const Node* node) const;
};

struct Executable {
  std::unique_ptr<Graph> graph;
  bool free_on_launch = false;
};

// Bytes of graphs' memory nodes on a device.
struct GraphMemory {
  std::uint64_t used = 0, used_high = 0;
};

class Graphs {
 public:
  explicit Graphs(Memory& memory) : memory_(memory) {}

  Graph* create();
  Error adopt(std::unique_ptr<Graph> graph, Graph** handle);
  Error destroy(Graph* graph);
  // Null unless it is one of ours that still lives.
  bool is_graph(const Graph* graph) const;
  Error clone(Graph* graph, Graph** copy);
  // Takes the node into the graph; every dependency must be a node of it.
  Error add(Graph* graph, std::unique_ptr<Node> node, Node** handle);
  Error remove(Node* node);
  Graph* graph_of(const Node* node) const;

  Error instantiate(Graph* graph, bool free_on_launch, Executable** executable);
  Error destroy(Executable* executable);
  // Takes over the nodes' work when the shapes agree: as many nodes of the same types.
  Error update(Executable* executable, Graph* graph);
  Error launch(Executable* executable);
  bool is_executable(const Executable* executable) const;

  // For an allocation node: an address for it, and what its device holds.
  Error reserve(Node& node);
  // Memory of a graph that the program frees itself.
  Error free(Address address);
  GraphMemory memory_of(int device) const;
  void reset_high(int device);

 private:
  Error run(const Graph& graph, bool free_on_launch);

  Memory& memory_;
  mutable std::mutex mutex_;
  std::unordered_map<const Graph*, std::unique_ptr<Graph>> graphs_;
  std::unordered_map<const Executable*, std::unique_ptr<Executable>> executables_;
  struct Live {
    int device;
    std::size_t bytes;
    std::shared_ptr<void> range;
  };
  std::unordered_map<Address, Live> live_;  // of memory nodes
  std::unordered_map<int, GraphMemory> usage_;
};

}  // namespace standin
