// Autograd's engine, interposed: every node that a backward runs, in the thread that runs it (NODE_BEGIN, NODE_END), and
// where its function has returned before blocks are taken for it (NODE_RETURNED).
//
// A node is known by the name of its class (from its RTTI) and by autograd's sequence number, which stands somewhere in
// the node: where, differs from torch to torch, and is learned from nodes of which the walk of the graph knows both the
// number and the place (sequence_number.h). A node written in Python is of one C++ class whatever it does: its name is
// the one that the walk said of that number.
#pragma once
#include <cstdint>

namespace liveset::autograd {

// Once, when the library is loaded. `heap_of`: the heap of a device's allocator.
void start(std::uint32_t (*heap_of)(int device_type, int device_index));

// The walk found a node: `object` is its PyObject, of a node written in C++ when `is_python` is false. Returns whether more nodes
// written in C++ should be said.
bool walked(std::uint64_t object, std::int64_t number, std::uint32_t name, bool is_python);

// The number of a live node, once the place of numbers is known; else -1.
bool numbers_are_known();
std::int64_t number_of(const void* node);

// Marks of a backward, by which buckets are counted and by which it is known what of torch cannot be seen.
void backward_begins();
void backward_ends();

// At the end of the process: what this torch does not show, when nothing has said it before.
void say_exiting();

}  // namespace liveset::autograd
