// Stacks of machine code, by the unwinder that the program has (libgcc's): for `run --stacks=native` and `both`.
//
// A frame is kept as build id, file and place in the file; names are found after the run. Some 4 microseconds a stack of a PyTorch job.
#pragma once
#include <cstdint>

namespace liveset::core {

// The calling thread's frames outside of this library on top of `root`, at most 64. They end before the first one in the file that holds
// the code at `stop` (0: nowhere). 0: the dictionary is full.
std::uint32_t native_stack(std::uint32_t root, std::uint64_t stop);

}  // namespace liveset::core
