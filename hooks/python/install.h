// Brings the Python hooks (the shim) into the job: when torch first reports a block, the interpreter is asked to call
// us back at its next safe point, and there the shim is imported. It does not depend on a planted sitecustomize, which
// -I, -E and -S skip, and the user's own stays what it is.
#pragma once
#include <cstdint>

namespace liveset::python {

// To be called for every block that torch reports, from any thread, with or without the GIL. False: not any more, the shim is there
// or can never be.
bool ask_interpreter();

// Reports that came while the shim was not there.
std::uint32_t reports_so_far();

// At the end of the process: a job whose interpreter never called back is told what it lacks.
void say_exiting();

}  // namespace liveset::python
