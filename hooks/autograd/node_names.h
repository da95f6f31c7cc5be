// Names of autograd's nodes in the trace.
#pragma once
#include <cstdint>

namespace liveset::autograd {

struct NodeName {
  std::uint32_t id;  // of the trace's string; 0: the dictionary is full
  bool is_python;    // a node written in Python: one class for all of them
};

// Of the node's class: "AddmmBackward0". Kept by the address of its virtual table.
NodeName name_of(const void* node);

// "N5torch8autograd9generated14AddmmBackward0E" -> "AddmmBackward0", without template arguments; "" when it is no such name.
// The answer points into `mangled`.
const char* last_name(const char* mangled, std::uint32_t& length);

// Names of Python's nodes by their sequence number, of the last few thousand that were walked.
void keep_python_name(std::int64_t number, std::uint32_t name);
std::uint32_t python_name(std::int64_t number);  // 0: not kept

}  // namespace liveset::autograd
