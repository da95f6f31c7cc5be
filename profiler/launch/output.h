// Whether a run may write to OUT.
#pragma once
#include <string>

namespace liveset::launch {

struct Output {
  std::string problem;  // why OUT cannot be written, or must not be replaced; then no job is started
  int claim = -1;       // as long as a process has it open, no other run gets OUT
};

Output claim_output(const std::string& output);
// "." for a name without a slash.
std::string folder_of(const std::string& path);

}  // namespace liveset::launch
