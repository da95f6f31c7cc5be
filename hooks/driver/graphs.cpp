// Memory of CUDA graphs. A memory node is an address when it is added or captured, and memory when the graph is launched: an allocation
// whose graph does not free it lives on until it is freed in whatever way, and is not made again while it lives.
#include <sys/mman.h>

#include "hooks/driver/call.h"
#include "profiler/channel/layout.h"

namespace liveset::driver {
namespace {

// Offsets in the parameters of a memory node, and of a node of any type.
constexpr std::size_t bytes_offset = 104, address_offset = 112, node_union_offset = 16;
constexpr std::int32_t alloc_type = 10, free_type = 11, graph_type = 4;
constexpr std::uint64_t most_nodes = 1U << 20;  // of all instantiated graphs together
constexpr int deepest = 16;                     // graphs within graphs

struct Node {
  Word address;
  bool is_free;
};
// Nodes of instantiated graphs, one graph's behind the other's. What was instantiated once stays: graphs are few and long-lived.
Node* nodes = nullptr;
std::uint64_t node_count = 0;
core::SpinLock lock;
// No memory node was ever seen: then no graph needs to be looked at.
bool has_memory_nodes = false;

void add_alloc(const Call& call, Word address, Word bytes, int device) {
  Entry entry;
  entry.key = address;
  entry.bytes = bytes;
  entry.space = Space::graph_node;
  entry.heap = device >= 0 ? device_heap(call, device) : host_heap(call);
  live_memory.put(entry);
  __atomic_store_n(&has_memory_nodes, true, __ATOMIC_RELAXED);
  record(channel::kind_graph_alloc, entry.heap, address, bytes);
}

void add_free(Word address) {
  Entry entry;
  if (!live_memory.find(Space::graph_node, address, &entry) && !live_memory.find(Space::address, address, &entry)) return;
  __atomic_store_n(&has_memory_nodes, true, __ATOMIC_RELAXED);
  record(channel::kind_graph_free, entry.heap, address, entry.bytes);
}

void after_add_alloc(const Call& call, Word parameters) {
  add_alloc(call, read(parameters, address_offset), read(parameters, bytes_offset), device_of_properties(parameters));
}

void after_add_node(const Call& call, Word parameters) {
  switch (read<std::int32_t>(parameters)) {
    case alloc_type: return after_add_alloc(call, parameters + node_union_offset);
    case free_type: return add_free(read(parameters, node_union_offset));
    default: return;
  }
}

struct GraphFunctions {
  int (*nodes)(Word graph, Word* out, Word* count) = nullptr;
  int (*type)(Word node, std::int32_t* out) = nullptr;
  int (*alloc)(Word node, void* out) = nullptr;
  int (*free)(Word node, Word* out) = nullptr;
  int (*child)(Word node, Word* out) = nullptr;
  bool whole() const { return nodes != nullptr && type != nullptr && alloc != nullptr && free != nullptr && child != nullptr; }
};

template <class Function>
void find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(driver_function(name));
}

GraphFunctions graph_functions() {
  GraphFunctions functions;
  find(functions.nodes, "cuGraphGetNodes");
  find(functions.type, "cuGraphNodeGetType");
  find(functions.alloc, "cuGraphMemAllocNodeGetParams");
  find(functions.free, "cuGraphMemFreeNodeGetParams");
  find(functions.child, "cuGraphChildGraphNodeGetGraph");
  return functions;
}

void add(Word address, bool is_free) {
  if (nodes == nullptr) {
    void* memory = mmap(nullptr, most_nodes * sizeof(Node), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return count_lost();
    nodes = static_cast<Node*>(memory);
  }
  if (node_count == most_nodes) return count_lost();
  nodes[node_count++] = {address, is_free};
}

// Appends the memory nodes of the graph and of those within it. Under the lock.
void collect(const GraphFunctions& ask, Word graph, int depth) {
  Word count = 0;
  if (depth > deepest) return count_lost();
  if (ask.nodes(graph, nullptr, &count) != 0 || count == 0) return;
  const std::size_t bytes = count * sizeof(Word);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return count_lost();
  auto* handles = static_cast<Word*>(memory);
  if (ask.nodes(graph, handles, &count) != 0) count = 0;
  for (Word i = 0; i < count; ++i) {
    std::int32_t type = -1;
    if (ask.type(handles[i], &type) != 0) continue;
    alignas(8) char parameters[256] = {};
    Word word = 0;
    if (type == alloc_type && ask.alloc(handles[i], parameters) == 0) {
      add(read(reinterpret_cast<Word>(parameters), address_offset), false);
    } else if (type == free_type && ask.free(handles[i], &word) == 0) {
      add(word, true);
    } else if (type == graph_type && ask.child(handles[i], &word) == 0) {
      collect(ask, word, depth + 1);
    }
  }
  munmap(memory, bytes);
}

void after_instantiate(Word executable, Word graph) {
  const GraphFunctions ask = graph_functions();
  if (!ask.whole()) return;
  Entry entry;
  entry.key = executable;
  entry.space = Space::graph;
  {
    const core::LockGuard guard(lock);
    entry.other = node_count;
    collect(ask, graph, 0);
    entry.bytes = node_count - entry.other;  // how many nodes
  }
  if (entry.bytes != 0) live_memory.put(entry);
}

void begin_life(Word address, Word stream) {
  Entry entry;
  if (live_memory.find(Space::address, address, &entry) || !live_memory.find(Space::graph_node, address, &entry)) return;
  entry.space = Space::address;
  live_memory.put(entry);
  record_given(entry, stream);
}

void end_life(Word address, Word stream) {
  Entry entry;
  if (!live_memory.begin_leaving(Space::address, address, &entry)) return;
  record_taken(entry, stream);
  live_memory.end_leaving(Space::address, address, true);
}

void after_graph_launch(const Call& call, Word executable, Word stream) {
  Entry entry;
  if (is_capturing(call, stream)) return;  // becomes a node of the graph there
  if (!live_memory.find(Space::graph, executable, &entry)) return;
  for (const bool is_free : {false, true}) {  // all that one launch brings lives at once, as far as we can tell
    for (Word i = entry.other; i < entry.other + entry.bytes; ++i) {
      if (nodes[i].is_free == is_free) (is_free ? end_life : begin_life)(nodes[i].address, stream);
    }
  }
}

}  // namespace

void note_captured(const Call& call, Word address, Word bytes) { add_alloc(call, address, bytes, current_device()); }

void note_captured_free(const Call& call, Word address) {
  if (is_capturing(call, call.argument(call.what().b))) add_free(address);
}

void after_graph(const Call& call) {
  const Row& what = call.what();
  const Word first = call.argument(what.a);
  switch (what.meaning) {
    case Meaning::graph_add_alloc: return after_add_alloc(call, first);
    case Meaning::graph_add_free: return add_free(first);
    case Meaning::graph_add_node: return after_add_node(call, first);
    case Meaning::graph_instantiate:
      if (__atomic_load_n(&has_memory_nodes, __ATOMIC_RELAXED)) after_instantiate(read(first), call.argument(what.b));
      return;
    case Meaning::graph_launch:
      if (__atomic_load_n(&has_memory_nodes, __ATOMIC_RELAXED)) after_graph_launch(call, first, call.argument(what.b));
      return after_launch(call);
    case Meaning::graph_destroy: {
      Entry entry;
      if (live_memory.begin_leaving(Space::graph, first, &entry)) live_memory.end_leaving(Space::graph, first, true);
      return;
    }
    default: return;
  }
}

}  // namespace liveset::driver
