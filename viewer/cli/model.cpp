// `liveset model TRACE`, `liveset model --torch F:f`: a model file derived from a recorded step, or from a function without running one.
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>

#include "viewer/cli/commands.h"
#include "viewer/cli/model_torch.h"
#include "viewer/cli/step_options.h"
#include "viewer/cli/traces.h"
#include "viewer/model/model.h"

namespace liveset::cli {
namespace {

struct Options : StepOptions {
  std::string trace;
  TorchModelOptions torch;
};

Status write_file(const std::string& path, const std::string& text) {
  const auto failed = [&] { return Error{ErrorKind::unreadable, path, {}, std::string("cannot be written: ") + std::strerror(errno), ""}; };
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  if (!stream) return failed();
  stream << text;
  stream.close();
  if (!stream) return failed();
  return Done{};
}

Status run(const Options& options, Context& context) {
  if (options.trace.empty() == options.torch.torch.empty())
    return Error{ErrorKind::usage,
                 "",
                 {},
                 options.trace.empty() ? "model: nothing to make a model of" : "model: a trace and --torch are both given",
                 "liveset model run.liveset -o m.textproto, or liveset model --torch train.py:step -o m.textproto"};
  if (!options.torch.output.empty())
    if (Status status = check_output(options.torch.output, {"# Derived by liveset", "# One training step on fake tensors"}); !status)
      return status;
  if (!options.torch.torch.empty()) {
    if (Status status = refuse_step_options(options, "", "--torch takes a function"); !status) return status;
    if (context.strict) return Error{ErrorKind::usage, "", {}, "--strict is for a trace, and --torch takes a function", ""};
    return model_of_function(options.torch, context);
  }
  if (!context.job.empty())
    return Error{ErrorKind::usage, options.trace, {}, "what stands behind -- is for the script of --torch, and this is a trace", ""};
  const Result<trace::TraceFile> file = open_shown(options.trace);
  if (!file) return file.error();
  Result<model::RecordedStep> step = recorded_step(*file, options, context);
  if (!step) return step.take_error();
  std::string text = "# Derived by liveset from step " + std::to_string(step->step) + " of a recorded run, heap " + step->heap +
                     ". Costs are nanoseconds on the host.\n" + model::model_text(step->model);
  if (options.torch.output.empty()) {
    std::cout << text;
  } else {
    if (Status status = write_file(options.torch.output, text); !status) return status;
    std::cerr << "liveset: " << options.torch.output << ": step " << step->step << " of heap " << step->heap << ", "
              << step->model.ops.size() << " ops, " << step->model.units.size() << " layers ("
              << (step->model.unit_pattern.empty() ? "ops" : step->model.unit_pattern) << ")\n";
  }
  report_health(*file, context);
  return Done{};
}

constexpr const char* what_it_says =
    R"(Of a TRACE: a step that was recorded without checkpointing. The file says every
block that the step made, which operator made it, what the graph held of it and
when it was freed; predict FILE --policy P then says what the step would take
under P.

Of a --torch function nothing runs on a device. FUNCTION builds the model and
gives the loss, on tensors that have shapes and no data: neither a device nor
the memory is needed, and it takes seconds.
  def step():
      model, x, y = Net(), torch.randn(64, 256), torch.randint(0, 10, (64,))
      return F.cross_entropy(model(x), y), torch.optim.AdamW(model.parameters())
It gives a loss; or (module, arguments) or (module, arguments, keywords): then
the module's output, or its .loss, is summed. An optimizer behind these is
followed through its second step, which finds the states of the first. A
function that calls backward itself gives nothing.
What the function lets go of when it returns is gone in backward, but for what
lived before the first module was called: a batch stays.

  liveset model --torch train.py:step -o m.textproto
  liveset predict m.textproto --policy full
  liveset model --torch train.py:step --device cuda --gpu h100 -- --batch 8
      what stands behind -- are the script's own arguments

Counted is what tensors take. What lives inside of one operator is not seen (a
library's workspace, a copy that a kernel makes, the buffers of collectives),
but for CPU convolutions, losses that reduce in place and cuBLAS, which are
estimated. Costs are floating point operations where they are known, else bytes
moved. torch.compile is off. A step that checkpoints is refused: the model is of
the step without, and predict --policy says what checkpointing makes of it. So
is a step that differentiates its own backward (create_graph=True). Where values
decide what runs (.item(), `if x.sum() > 0`) there is no fake step: record it.

The exit status is 2 when the call is at fault, 3 when the step cannot be
followed.
)";

}  // namespace

void add_model(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand(
      "model", "a model file for predict, plan and compare: of a recorded step, or of a step that was never run (--torch)");
  command->footer(what_it_says);
  const auto options = std::make_shared<Options>();
  command->add_option("TRACE", options->trace, "a *.liveset file; of a run with several, the others are found beside it")->option_text(" ");
  add_torch_options(*command, options->torch);
  add_step_options(*command, *options);
  add_strict_option(*command, context);
  on_parse(*command, options, context, run);
}

}  // namespace liveset::cli
