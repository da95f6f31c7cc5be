// The Python frames of the calling thread, through functions of the interpreter that are looked up in the process.
#pragma once
#include <string>
#include <vector>

namespace standin {

// "file.py:12 function", innermost first, eight at most; empty outside Python. The thread must hold none of our locks. `may_wait`:
// the thread holds no lock of its caller either, so it may wait for the interpreter where it gave it up.
std::vector<std::string> python_stack(bool may_wait);

}  // namespace standin
