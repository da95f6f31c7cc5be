// `run --stacks`: the Python stack of every block, at its allocation and at its free.
#pragma once

namespace liveset::python {

struct CPython;

// When the preload is loaded: from here on blocks carry a stack, or why they have none. Does nothing unless stacks are wanted.
void start_frames();

// In the main interpreter's main thread, with its lock, where any Python may run. The first call decides whether there will be stacks.
// `own_folder`: of the Python hooks, whose frames are left out.
void find_frames(const CPython& py, const char* own_folder);

void say_frames_exiting();

}  // namespace liveset::python
