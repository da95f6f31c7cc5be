// Where our own files lie: beside the program in the build folder, or where they were installed.
#pragma once
#include <string>

namespace liveset::launch {

std::string own_path();  // of the running program; empty when the system does not tell
// The full path of a file or folder of ours ("libliveset_preload.so", "standin", "gpus"); empty when it is not there.
std::string find_own(const std::string& name);

}  // namespace liveset::launch
