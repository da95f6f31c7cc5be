// Which file a command would run, and whether our library can be preloaded into it.
#pragma once
#include <string>
#include <vector>

namespace liveset::launch {

struct Program {
  std::string path;     // what execve gets; empty when `problem` is set
  std::string problem;  // why it cannot be recorded, with what to try
};

// Looks `name` up as execvp does. A script is judged by its interpreter.
Program find_program(const std::string& name);

// The file that execvp would take for `name`; empty when PATH has none. A name with a slash is given back.
std::string find_in_path(const std::string& name);
// The words of a script's "#!" line; empty when the file has none, or cannot be read.
std::vector<std::string> script_interpreter(const std::string& path);

}  // namespace liveset::launch
