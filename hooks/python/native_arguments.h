// What the functions that the shim calls have in common. They raise nothing: arguments that are missing or of another type count as 0 or
// "".
#pragma once
#include <cstdint>

#include "hooks/python/cpython.h"

namespace liveset::python {

extern const CPython* py;  // set before the first of these functions is made

struct NativeFunctions {
  MethodDefinition* first;
  std::uint32_t count;
};
// Of tensors and slots: what they are, in which memory (native_tensors.cpp).
NativeFunctions tensor_functions();
// Of graphs, which are walked past Python (native_graph.cpp); none where this torch or this interpreter lacks what they need.
NativeFunctions graph_functions();
// Of tensors' contents (native_digests.cpp).
NativeFunctions digest_functions();

class Arguments {
 public:
  Arguments(Object* const* arguments, std::intptr_t count) : arguments_(arguments), count_(count) {}

  std::uint64_t number(std::intptr_t index) const {
    if (index >= count_) return 0;
    const std::uint64_t number = py->integer_mask(arguments_[index]);
    if (__builtin_expect(number == ~std::uint64_t{0}, 0) && py->error() != nullptr) {
      py->clear_error();
      return 0;
    }
    return number;
  }
  std::uint32_t id(std::intptr_t index) const { return static_cast<std::uint32_t>(number(index)); }
  // Never null; lives as long as the argument.
  const char* text(std::intptr_t index, std::intptr_t& length) const {
    const char* text = index < count_ ? py->string_text(arguments_[index], &length) : nullptr;
    if (text == nullptr) {
      if (py->error() != nullptr) py->clear_error();
      length = 0;
      return "";
    }
    return text;
  }

 private:
  Object* const* arguments_;
  std::intptr_t count_;
};

inline Object* none() {
  py->increase(py->none);
  return py->none;
}

inline Object* integer(std::int64_t number) { return py->new_integer(number); }

}  // namespace liveset::python
