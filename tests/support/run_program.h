// Runs a program of the build and takes what it prints.
#pragma once
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "tests/support/temporary_folder.h"

namespace liveset::test {

// Writes a file of the folder and gives its path.
inline std::string written(const TemporaryFolder& folder, const std::string& name, const std::string& content) {
  write_file(folder.file(name), content);
  return folder.file(name);
}

struct Ran {
  int status = -1;  // as a shell sees it
  std::string out, err;
};

// `command` is for the shell.
inline Ran run_command(const std::string& command) {
  const TemporaryFolder folder;
  Ran ran;
  const int raw = std::system(("{ " + command + "; } >" + folder.file("out") + " 2>" + folder.file("err") + " </dev/null").c_str());
  ran.status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
  ran.out = read_file(folder.file("out"));
  ran.err = read_file(folder.file("err"));
  return ran;
}

// A program of build/.../bin with its arguments.
inline Ran run_program(const std::string& name_and_arguments) {
  return run_command(std::string(LIVESET_BIN_DIR) + "/" + name_and_arguments);
}

}  // namespace liveset::test
