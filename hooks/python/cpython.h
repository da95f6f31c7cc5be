// The part of CPython's C API that the hooks use, found at run time in the interpreter that the job runs. Nothing is
// built against Python's headers: every function here is in the stable ABI or has been exported unchanged since
// Python 3.8.
#pragma once
#include <cstdint>

namespace liveset::python {

struct Object;  // PyObject, opaque

// Layout of PyMethodDef, fixed by the stable ABI.
using FastFunction = Object* (*)(Object* self, Object* const* arguments, std::intptr_t count);
struct MethodDefinition {
  const char* name;
  FastFunction function;
  int flags;
  const char* documentation;
};
constexpr int method_fastcall = 0x0080;
constexpr int file_input = 257;  // Py_file_input

struct CPython {
  int (*is_initialized)();
  int (*add_pending_call)(int (*function)(void*), void* argument);
  Object* (*new_function)(MethodDefinition* definition, Object* self, Object* module);
  Object* (*new_dict)();
  int (*dict_set)(Object* dict, const char* key, Object* item);
  Object* (*dict_get)(Object* dict, const char* key);  // borrowed
  Object* (*builtins)();                               // borrowed
  Object* (*compile)(const char* text, const char* filename, int start);
  Object* (*evaluate)(Object* code, Object* globals, Object* locals);
  Object* (*call)(Object* function, Object* arguments);  // arguments: a tuple or null
  Object* (*new_string)(const char* text);
  const char* (*string_text)(Object* string, std::intptr_t* length);
  Object* (*new_integer)(long long number);
  long long (*integer)(Object* number);
  unsigned long long (*integer_mask)(Object* number);
  Object* (*error)();  // borrowed; null when no exception is set
  void (*clear_error)();
  void (*decrease)(Object* object);
  void (*increase)(Object* object);
  Object* (*this_interpreter)();  // null before Python 3.9
  Object* (*main_interpreter)();  // null before Python 3.7
  Object* none;
};

// What the process exports under that name, or null.
void* symbol(const char* name);

template <typename Function>
bool find(Function& target, const char* name) {
  target = reinterpret_cast<Function>(symbol(name));
  return target != nullptr;
}

// The interpreter of this process, or null when there is none (or one that lacks a function above).
const CPython* cpython();

}  // namespace liveset::python
