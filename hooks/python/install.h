// Brings the Python hooks (the shim) into the job: when torch first reports a block, the interpreter is asked to call
// us back at its next safe point, and there the shim is imported. It does not depend on a planted sitecustomize, which
// -I, -E and -S skip, and the user's own stays what it is.
#pragma once
#include <cstdint>

namespace liveset::python {

extern bool shim_wanted;  // false once the shim is there, or can never be

void ask_interpreter();

// Called for every block that torch reports, from any thread, with or without the GIL.
inline void on_torch_event() {
  if (__builtin_expect(__atomic_load_n(&shim_wanted, __ATOMIC_RELAXED), 0)) ask_interpreter();
}

}  // namespace liveset::python
