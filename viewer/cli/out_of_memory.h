// What lived when a job that failed had run out of memory.
#pragma once
#include <string>

#include "viewer/cli/command.h"

namespace liveset::cli {

// Looks at the traces of the run OUTPUT. Where the last thing that one of them tells of its steps is that an allocator had no memory,
// stderr gets the classes and the modules of that moment. Says nothing of what it cannot read.
void explain_out_of_memory(const std::string& output, const Context& context);

}  // namespace liveset::cli
