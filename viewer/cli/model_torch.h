// `liveset model --torch SCRIPT.py:FUNCTION`: a model file of a step that runs on fake tensors, in the user's own Python.
#pragma once
#include <string>

#include "viewer/cli/command.h"

namespace liveset::cli {

struct TorchModelOptions {
  std::string torch, output, python, gpu;
  bool cuda = false;
};
void add_torch_options(CLI::App& command, TorchModelOptions& options);  // `options` must live as long as the command
Status model_of_function(const TorchModelOptions& options, Context& context);

}  // namespace liveset::cli
