// What the command of a dry run would run: which Python, with which PyTorch, or which other program.
#pragma once
#include <string>
#include <vector>

namespace liveset::launch {

struct JobProgram {
  std::vector<std::string> python;  // starts the job's interpreter with the job's options for it; "-c TEXT" may follow
  std::string program;              // the path of a program that is no Python
  std::string problem;              // one line
};

// Finds the interpreter of `python train.py`, of scripts such as torchrun and accelerate, behind env, nice and their like, and behind
// tools that bring an environment (`uv run python train.py`). A shell is taken to run the Python of PATH.
JobProgram find_job_program(const std::vector<std::string>& command);

struct TorchInstall {
  std::string folder;                // of the package torch
  std::string version, cuda;         // "2.14.1+cu130", "13.0"
  std::vector<std::string> nvidia;   // the folders of the package nvidia; none when its wheels are not installed
  bool ignores_environment = false;  // the interpreter was started with -E or -I: it does not look at PYTHONPATH
  std::string problem;               // one line: the Python could not be asked, or has no torch, or one without CUDA
};

// Asks the interpreter, without importing torch.
TorchInstall find_torch(const std::vector<std::string>& python);

}  // namespace liveset::launch
