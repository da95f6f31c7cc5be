#include "hooks/python/cpython.h"

#include <dlfcn.h>

#include "hooks/core/old_symbols.h"

namespace liveset::python {
namespace {

CPython table;
int state = 0;  // 0: not looked for, 1: complete, 2: there is none

bool fill(CPython& py) {
  const bool found =
      find(py.is_initialized, "Py_IsInitialized") && find(py.add_pending_call, "Py_AddPendingCall") &&
      find(py.new_function, "PyCFunction_NewEx") && find(py.new_dict, "PyDict_New") && find(py.dict_set, "PyDict_SetItemString") &&
      find(py.dict_get, "PyDict_GetItemString") && find(py.builtins, "PyEval_GetBuiltins") && find(py.compile, "Py_CompileString") &&
      find(py.evaluate, "PyEval_EvalCode") && find(py.call, "PyObject_CallObject") && find(py.new_string, "PyUnicode_FromString") &&
      find(py.string_text, "PyUnicode_AsUTF8AndSize") && find(py.new_integer, "PyLong_FromLongLong") &&
      find(py.integer, "PyLong_AsLongLong") && find(py.integer_mask, "PyLong_AsUnsignedLongLongMask") && find(py.error, "PyErr_Occurred") &&
      find(py.clear_error, "PyErr_Clear") && find(py.decrease, "Py_DecRef") && find(py.increase, "Py_IncRef") &&
      find(py.none, "_Py_NoneStruct");
  find(py.this_interpreter, "PyInterpreterState_Get");
  find(py.main_interpreter, "PyInterpreterState_Main");
  return found;
}

}  // namespace

void* symbol(const char* name) { return dlsym(RTLD_DEFAULT, name); }

const CPython* cpython() {
  int now = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
  if (now == 0) {
    // Two threads may fill it at once: with the same addresses. An embedded interpreter that is loaded later is not
    // looked for again: the process then has no Python hooks.
    now = fill(table) ? 1 : 2;
    __atomic_store_n(&state, now, __ATOMIC_RELEASE);
  }
  return now == 1 ? &table : nullptr;
}

}  // namespace liveset::python
