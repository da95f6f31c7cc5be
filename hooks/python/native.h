// The recorder's functions as Python functions, for the shim.
#pragma once

namespace liveset::python {

struct CPython;
struct Object;

// A new dict {name: builtin function}; null when the interpreter refuses. Needs the GIL.
Object* make_native(const CPython& py);

}  // namespace liveset::python
