#include "hooks/python/around.h"

#include <cstdint>
#include <initializer_list>

#include "hooks/python/cpython.h"

namespace liveset::python {
namespace {

const CPython* py = nullptr;

// All of the stable ABI.
Object* (*call)(Object* function, Object* arguments, Object* keywords) = nullptr;
Object* (*call_with)(Object* function, ...) = nullptr;
void (*fetch)(Object** type, Object** error, Object** traceback) = nullptr;
void (*restore)(Object* type, Object* error, Object* traceback) = nullptr;
Object* (*item)(Object* tuple, std::intptr_t place) = nullptr;  // borrowed
std::intptr_t (*size_of)(Object* tuple) = nullptr;
Object* (*pack)(std::intptr_t size, ...) = nullptr;
Object* (*bindable)(Object* function) = nullptr;
int (*is_true)(Object* object) = nullptr;

void release(Object* object) {
  if (object != nullptr) py->decrease(object);
}

using KeywordFunction = Object* (*)(Object* self, Object* arguments, Object* keywords);
constexpr int method_keywords = 0x0003;  // METH_VARARGS | METH_KEYWORDS

struct Pending {
  Object *type = nullptr, *error = nullptr, *traceback = nullptr;
};

// `self`: what around() was called with.
Object* call_around(Object* self, Object* arguments, Object* keywords) {
  Object* token = arguments;
  if (item(self, 0) != py->none) {
    token = call(item(self, 0), arguments, keywords);
    if (token == nullptr) return nullptr;
  } else {
    py->increase(token);
  }
  Object* given = arguments;
  if (size_of(self) > 3) {
    Object* both = token;
    token = py->none;
    if (size_of(both) == 2) {
      token = item(both, 0);
      given = item(both, 1);
    } else if (py->error() != nullptr) {
      py->clear_error();  // no tuple: an error of ours, so the call goes on as the job made it
    }
    py->increase(token);
    py->increase(given);
    release(both);
  } else {
    py->increase(given);
  }
  Object* result = call(item(self, 1), given, keywords);
  release(given);
  if (item(self, 2) == py->none) {
    release(token);
    return result;
  }
  Pending pending;
  if (result == nullptr) fetch(&pending.type, &pending.error, &pending.traceback);
  Object* done = call_with(item(self, 2), token, pending.type != nullptr ? pending.type : py->none, result != nullptr ? result : py->none,
                           static_cast<Object*>(nullptr));
  release(token);
  if (done == nullptr) {
    for (Object* object : {result, pending.type, pending.error, pending.traceback}) release(object);
    return nullptr;
  }
  release(done);
  if (result == nullptr) restore(pending.type, pending.error, pending.traceback);
  return result;
}

Object* around(Object*, Object* const* values, std::intptr_t count) {
  static MethodDefinition definition{"liveset_around", reinterpret_cast<FastFunction>(reinterpret_cast<void (*)()>(&call_around)),
                                     method_keywords, nullptr};
  Object* held = nullptr;
  const bool replaces = count > 3 && is_true(values[3]) != 0, method = count > 4 && is_true(values[4]) != 0;
  if (count >= 3 && count <= 5)
    held = replaces ? pack(4, values[0], values[1], values[2], values[3]) : pack(3, values[0], values[1], values[2]);
  if (held == nullptr) {
    if (py->error() != nullptr) return nullptr;
    py->increase(py->none);
    return py->none;
  }
  Object* function = py->new_function(&definition, held, nullptr);
  release(held);
  if (!method || function == nullptr) return function;
  Object* bound = bindable(function);
  release(function);
  return bound;
}

}  // namespace

Object* make_around(const CPython& interpreter) {
  py = &interpreter;
  const bool found = find(call, "PyObject_Call") && find(call_with, "PyObject_CallFunctionObjArgs") && find(fetch, "PyErr_Fetch") &&
                     find(restore, "PyErr_Restore") && find(item, "PyTuple_GetItem") && find(size_of, "PyTuple_Size") &&
                     find(pack, "PyTuple_Pack") && find(is_true, "PyObject_IsTrue") && find(bindable, "PyInstanceMethod_New");
  if (!found) return nullptr;
  static MethodDefinition definition{"around", around, method_fastcall, nullptr};
  return interpreter.new_function(&definition, nullptr, nullptr);
}

}  // namespace liveset::python
