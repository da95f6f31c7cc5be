#include "viewer/cli/job_options.h"

#include <charconv>
#include <filesystem>
#include <functional>
#include <memory>

namespace liveset::cli {
namespace {

void add_variable(launch::RunOptions& options, const std::string& name, const std::string& text) {
  options.environment.emplace_back(name, text);
}

// A flag that may have a value behind "=". What stands behind a space is never its value: that is the job's program.
// What `chosen` throws is told with the option's name before it.
CLI::Option* add_flag_with_value(CLI::App& command, const std::string& name, const std::string& help,
                                 const std::function<void(const std::string&)>& chosen) {
  const auto text = std::make_shared<std::string>();
  return command.add_flag(name, *text, help)->each([text, chosen](const std::string& given) {
    chosen(given == "true" ? std::string() : given);
  });
}

std::string checked_steps(const std::string& text, const std::string& implied) {
  if (text.empty()) return implied;
  std::uint32_t steps = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), steps);
  if (error != std::errc() || end != text.data() + text.size() || steps == 0)
    throw CLI::ValidationError("'" + text + "' is no number of steps");
  return text;
}

std::string checked_rate(const std::string& text) {
  if (text.empty()) return "1";
  double rate = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rate);
  if (error != std::errc() || end != text.data() + text.size() || !(rate > 0 && rate <= 1))
    throw CLI::ValidationError("'" + text + "' is no share of the regions (above 0, at most 1)");
  return text;
}

std::string checked_stacks(const std::string& text) {
  if (text.empty() || text == "python") return "python";
  if (text != "native" && text != "both") throw CLI::ValidationError("'" + text + "' is none of python, native and both");
  return text;
}

}  // namespace

void add_job_options(CLI::App& command, launch::RunOptions& options) {
  command.prefix_command();
  command.add_flag("-q,--quiet", options.quiet, "no line on stderr at the end");
  command.add_option("-o,--output", options.output, "trace file to write; a trace there is replaced")->option_text("OUT");
  command
      .add_option_function<std::string>(
          "--on-full", [&options](const std::string& what) { options.wait_when_full = what == "wait"; },
          "when a thread's buffer is full: wait (default; at most 10 ms an event, then count the loss) or drop (count at once)")
      ->check(CLI::IsMember({"wait", "drop"}))
      ->option_text("wait|drop");
  command
      .add_option_function<std::string>(
          "--kernels", [&options](const std::string& what) { options.kernel_launches = what == "launches"; },
          "what to record of CUDA kernels: none (default), or launches: each with its name, stream and place")
      ->check(CLI::IsMember({"none", "launches"}))
      ->option_text("none|launches");
  add_flag_with_value(command, "--check-replay",
                      "compare each recompute of a checkpointed region with its forward: operators, values, random states and more, for "
                      "`liveset check --replay`; of all regions, or of a share of them: --check-replay=0.1. Costs time",
                      [&options](const std::string& text) { add_variable(options, "LIVESET_CHECK_REPLAY", checked_rate(text)); })
      ->option_text("[=RATE]");
  add_flag_with_value(command, "--who-holds",
                      "name the Python references that hold tensors, for `liveset leaks`: looked for at the end and at the end of every "
                      "tenth step, or of every Nth: --who-holds=N. Up to 0.2 s of processor time each (or as the "
                      "environment says: LIVESET_WHO_HOLDS_SECONDS)",
                      [&options](const std::string& text) { add_variable(options, "LIVESET_WHO_HOLDS", checked_steps(text, "10")); })
      ->option_text("[=N]");
  add_flag_with_value(
      command, "--stacks",
      "record the stack of every block, at its allocation and at its free, for `liveset peak --by stack`: of Python (default), "
      "native (some 4 us each), or both",
      [&options](const std::string& text) { add_variable(options, "LIVESET_STACKS", checked_stacks(text)); })
      ->option_text("[=python|native|both]");
  add_flag_with_value(command, "--fingerprint",
                      "record what the first steps (3, or --fingerprint=N) computed: hashes, norms and samples of losses, gradients and "
                      "parameters, for `liveset check A B --equivalence`",
                      [&options](const std::string& text) { add_variable(options, "LIVESET_FINGERPRINT", checked_steps(text, "3")); })
      ->option_text("[=STEPS]");
  command
      .add_flag("--fingerprint-values", options.fingerprint_values,
                "write these tensors whole, too, into the folder OUT.values, so that the largest difference is exact; needs -o")
      ->needs("--fingerprint");
  command
      .add_option("--log-level", options.log.level,
                  "of the collector's log: trace, debug, info (default with --log-file), warning, error or off (default)")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "critical", "off"}))
      ->option_text("LEVEL");
  command.add_option("--log-file", options.log.file, "where the collector logs; default standard error")->option_text("FILE");
}

bool take_job(const CLI::App& command, launch::RunOptions& options, Context& context) {
  const std::string name = command.get_name();
  const auto refuse = [&](const std::string& what, const std::string& hint) {
    context.fail({ErrorKind::usage, "", std::nullopt, name + ": " + what, hint});
    return false;
  };
  if (command.count("--output") != 0 && options.output.empty()) return refuse("-o is empty", "name a file, or leave -o out");
  if (options.fingerprint_values) {
    if (options.output.empty()) return refuse("--fingerprint-values needs -o: its folder is named by the trace", "liveset run -o OUT ...");
    add_variable(options, "LIVESET_FINGERPRINT_VALUES", std::filesystem::absolute(options.output).string() + ".values");
  }
  options.command = command.remaining();  // the "--" was forgotten
  if (!options.command.empty() && options.command.front().compare(0, 1, "-") == 0)
    return refuse("unknown option " + options.command.front(), "liveset " + name + " --help");
  if (!options.command.empty() && !context.job.empty()) options.command.push_back("--");  // one of the job's own
  options.command.insert(options.command.end(), context.job.begin(), context.job.end());
  if (options.command.empty()) return refuse("no program is named", "liveset " + name + " [-o OUT] -- python train.py");
  return true;
}

}  // namespace liveset::cli
