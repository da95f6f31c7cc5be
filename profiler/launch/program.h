// Which file a command would run, and whether our library can be preloaded into it.
#pragma once
#include <string>

namespace liveset::launch {

struct Program {
  std::string path;     // what execve gets; empty when `problem` is set
  std::string problem;  // why it cannot be recorded, with what to try
};

// Looks `name` up as execvp does. A script is judged by its interpreter.
Program find_program(const std::string& name);

}  // namespace liveset::launch
