// The walk of a graph past Python (hooks/autograd/graph_walk.h).
#include <dlfcn.h>

#include <cstdint>

#include "hooks/autograd/graph_walk.h"
#include "hooks/autograd/node_events.h"
#include "hooks/core/old_symbols.h"
#include "hooks/core/recorder.h"
#include "hooks/python/native_arguments.h"
#include "hooks/python/native_tensors.h"
#include "profiler/channel/layout.h"

namespace liveset::python {
namespace {

using autograd::NodeClass;

int (*append)(Object* list, Object* item) = nullptr;

// torch::autograd::functionToPyObject: the object of a node, made when there is none; a new reference. Its argument is a smart pointer,
// whose class differs between versions.
Object* (*object_of)(void* const* node) = nullptr;
constexpr const char* object_of_names[] = {
    "_ZN5torch8autograd18functionToPyObjectERKN3c1013intrusive_ptrINS0_4NodeENS1_6detail34intrusive_target_default_null_typeIS3_EEEE",
    "_ZN5torch8autograd18functionToPyObjectERKSt10shared_ptrINS0_4NodeEE",
};

constinit autograd::EdgePlace edge_place;
constinit autograd::NodeClasses classes;
constinit autograd::Reachable reachable;

// learn_edges(node, nodes that follow...) -> 1: more should be said, 0: their place is known, -1: it cannot be found. All written in C++,
// none left out.
Object* learn_edges(Object*, Object* const* values, std::intptr_t count) {
  constexpr std::intptr_t most = 16;
  const auto answer = [] { return integer(edge_place.open() ? 1 : edge_place.known() ? 0 : -1); };
  if (count < 2 || count > most + 1 || !edge_place.open()) return answer();
  std::uint64_t following[most];
  for (std::intptr_t index = 1; index < count; ++index)
    following[index - 1] = reinterpret_cast<std::uint64_t>(*autograd::node_in(values[index]));
  edge_place.learn(reinterpret_cast<std::uint64_t>(*autograd::node_in(values[0])), following, static_cast<std::uint32_t>(count - 1));
  return answer();
}

// learn_class(node, name id, (slot, name id)...) -> whether the class of this node, written in C++, is known now. The slots are
// SavedTensors, all that it has.
Object* learn_class(Object*, Object* const* values, std::intptr_t count) {
  constexpr std::uint64_t largest_node = 1 << 14;  // bytes
  const std::intptr_t slots = (count - 2) / 2;
  if (count < 2 || count % 2 != 0 || slots > NodeClass::most_slots || !edge_place.known()) return integer(0);
  const Arguments arguments(values, count);
  const auto* node = static_cast<const char*>(*autograd::node_in(values[0]));
  NodeClass learned{*reinterpret_cast<const void* const*>(node), arguments.id(1), static_cast<std::uint32_t>(slots), {}, {}};
  for (std::intptr_t slot = 0; slot < slots; ++slot) {
    const void* found = slot_in(values[2 + 2 * slot]);
    const auto offset = reinterpret_cast<std::uint64_t>(found) - reinterpret_cast<std::uint64_t>(node);
    if (found == nullptr || offset >= largest_node) return integer(0);  // it is no member of the node
    learned.slot_offsets[slot] = static_cast<std::uint16_t>(offset);
    learned.slot_names[slot] = arguments.id(3 + 2 * slot);
  }
  return integer(classes.add(learned) ? 1 : 0);
}

// What a node of a known class retains. False: something in it is for Python to say, and nothing was said.
bool say(const char* node) {
  const NodeClass* known = classes.find(*reinterpret_cast<const void* const*>(node));
  if (known == nullptr) return false;
  if (known->slots == 0) return true;
  Content contents[NodeClass::most_slots];
  for (std::uint32_t slot = 0; slot < known->slots; ++slot) {
    if (!read_slot(const_cast<char*>(node) + known->slot_offsets[slot], contents[slot])) return false;
  }
  core::record_node(channel::kind_graph_node, known->name, autograd::number_of(node));
  for (std::uint32_t slot = 0; slot < known->slots; ++slot) say_retained(contents[slot], known->slot_names[slot]);
  return true;
}

// walk_graph(list, roots...) -> how many nodes are below these, or 0 when that cannot be said yet. The roots are written in C++. Says
// what nodes of known classes retain; puts all other nodes on the list.
Object* walk_graph(Object*, Object* const* values, std::intptr_t count) {
  static bool walking = false;  // only under Python's lock
  if (walking || count < 2 || !edge_place.known() || !autograd::numbers_are_known() || !slots_are_known() || !reachable.begin())
    return integer(0);
  walking = true;
  bool whole = true;
  for (std::intptr_t index = 1; index < count && whole; ++index) whole = reachable.add(autograd::node_in(values[index]), edge_place);
  // First all that needs no Python, which may run anything when it makes an object: another walk, too.
  std::uint64_t others = 0;
  for (std::uint64_t index = 0; index < reachable.count() && whole; ++index) {
    if (!say(static_cast<const char*>(*reachable[index]))) reachable.keep(others++, index);
  }
  for (std::uint64_t index = 0; index < others && whole; ++index) {
    Object* object = object_of(reachable[index]);
    whole = object != nullptr && append(values[0], object) == 0;
    if (object != nullptr) py->decrease(object);
    if (!whole && py->error() != nullptr) py->clear_error();
  }
  const std::uint64_t nodes = reachable.count();
  reachable.end();
  walking = false;
  return integer(whole ? static_cast<std::int64_t>(nodes) : 0);
}

bool find_torch() {
  void* handle = dlopen("libtorch_python.so", RTLD_NOLOAD | RTLD_LAZY);
  if (handle == nullptr) return false;
  for (const char* name : object_of_names) {
    if (object_of == nullptr) object_of = reinterpret_cast<Object* (*)(void* const*)>(dlsym(handle, name));
  }
  dlclose(handle);
  return object_of != nullptr;
}

MethodDefinition methods[] = {
    {"learn_edges", learn_edges, method_fastcall, nullptr},
    {"learn_class", learn_class, method_fastcall, nullptr},
    {"walk_graph", walk_graph, method_fastcall, nullptr},
};

}  // namespace

NativeFunctions graph_functions() {
  const bool found = find(append, "PyList_Append") && find_torch();
  return {methods, found ? static_cast<std::uint32_t>(sizeof methods / sizeof *methods) : 0};
}

}  // namespace liveset::python
