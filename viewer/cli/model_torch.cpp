// `liveset model --torch SCRIPT.py:FUNCTION`: a model file of a step that runs on fake tensors, in the user's own Python.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "profiler/launch/dry_run.h"
#include "profiler/launch/library_folder.h"
#include "profiler/launch/program.h"
#include "viewer/cli/model_torch.h"

namespace liveset::cli {
namespace {

Error refused(std::string what, std::string hint) { return {ErrorKind::usage, "", {}, "model: " + std::move(what), std::move(hint)}; }

// That of an activated environment, else the one of the shell.
std::string users_python() {
  const char* environment = std::getenv("VIRTUAL_ENV");
  if (environment != nullptr && *environment != 0) {
    const std::string python = std::string(environment) + "/bin/python";
    if (access(python.c_str(), X_OK) == 0) return python;
  }
  for (const char* name : {"python3", "python"})
    if (std::string found = launch::find_in_path(name); !found.empty()) return found;
  return {};
}

// The status as a shell has it.
Result<int> run_to_end(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& each : command) arguments.push_back(const_cast<char*>(each.c_str()));
  arguments.push_back(nullptr);
  pid_t child = -1;
  if (const int error = posix_spawn(&child, arguments.front(), nullptr, nullptr, arguments.data(), environ); error != 0)
    return refused(command.front() + ": " + std::strerror(error), "name another Python: --python PATH");
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return refused(std::string("waiting for Python: ") + std::strerror(errno), "");
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// On a stand-in of a GPU: autograd asks the device for its streams, even where tensors are fake. The trace of it has no use.
int run_on_stand_in(const TorchModelOptions& options, const std::vector<std::string>& command) {
  const char* folder = std::getenv("TMPDIR");
  std::string trace = std::string(folder != nullptr && *folder != 0 ? folder : "/tmp") + "/liveset-model-XXXXXX";
  const int file = mkstemp(trace.data());
  if (file >= 0) close(file);
  launch::DryRunOptions dry;
  dry.run.command = command;
  dry.run.output = trace;
  dry.run.quiet = true;
  dry.python = command.front();
  if (!options.gpu.empty()) dry.gpu = options.gpu;
  if (file >= 0) unlink(trace.c_str());  // only the name is wanted: a file that is no trace would not be replaced
  const int status = launch::dry_run(dry).status;
  unlink(trace.c_str());
  return status;
}

}  // namespace

Status model_of_function(const TorchModelOptions& options, Context& context) {
  if (!options.gpu.empty() && !options.cuda) return refused("--gpu is for --device cuda", "--device cuda --gpu " + options.gpu);
  const std::string script = launch::find_own("model/fake_step.py");
  if (script.empty()) return refused("fake_step.py is missing beside " + launch::own_path(), "install liveset again");
  const std::string python = options.python.empty() ? users_python() : launch::find_in_path(options.python);
  if (python.empty())
    return refused(options.python.empty() ? "no python3 in PATH" : options.python + ": no such program",
                   "name a Python that has torch: --python PATH");
  std::vector<std::string> command{python, script, options.torch, "--device", options.cuda ? "cuda" : "cpu"};
  if (!options.output.empty()) command.insert(command.end(), {"--output", options.output});
  if (!context.job.empty()) command.push_back("--");
  command.insert(command.end(), context.job.begin(), context.job.end());
  if (options.cuda) {
    context.status = run_on_stand_in(options, command);
    return Done{};
  }
  Result<int> status = run_to_end(command);
  if (!status) return status.take_error();
  context.status = *status;
  return Done{};
}

void add_torch_options(CLI::App& command, TorchModelOptions& options) {
  command.add_option("--torch", options.torch, "a function in a script, which is imported and not run")->option_text("SCRIPT.py:FUNCTION");
  command.add_option("-o,--output", options.output, "model file to write (default: standard output)")->option_text("OUT");
  command.add_option("--python", options.python, "a Python that has torch (default: $VIRTUAL_ENV's, else python3 in PATH)")
      ->option_text("PATH")
      ->needs("--torch");
  add_choice<bool>(command, "--device", {{"cpu", false}, {"cuda", true}},
                   "where tensors without a device of their own are (default cpu); cuda: on a stand-in, as in `liveset dryrun`",
                   [&options](bool cuda) { options.cuda = cuda; })
      ->needs("--torch");
  command.add_option("--gpu", options.gpu, "of --device cuda: which GPU to stand in for (default h100)")
      ->option_text("NAME|FILE")
      ->needs("--torch");
}

}  // namespace liveset::cli
