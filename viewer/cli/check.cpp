// `liveset check`: gates for scripts. Exit status 1 when one of them finds something.
#include "viewer/report/check.h"

#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "profiler/launch/byte_size.h"
#include "viewer/cli/commands.h"
#include "viewer/cli/traces.h"
#include "viewer/report/peak.h"
#include "viewer/report/ranks.h"

namespace liveset::cli {
namespace {

struct Options {
  std::string trace, other;
  bool equivalence = false, replay = false, distributed = false;
  std::optional<std::int64_t> max_peak;
};

Result<report::Check> check_max_peak(const trace::TraceFile& file, std::uint64_t most) {
  Result<report::PeakReport> peak = report::build_peak(file, {});
  if (!peak) return peak.take_error();
  report::Check check;
  check.name = "max-peak";
  const std::uint64_t bytes = peak->is_empty ? 0 : peak->peak.bytes;
  check.coverage = {{"bytes", bytes}, {"max_bytes", most}};
  const std::string text = "the peak of allocated is " + report::format_bytes(bytes, true) + " bytes" +
                           (peak->peak.heap.empty() ? "" : " on " + peak->peak.heap) + ", the limit " + report::format_bytes(most, true);
  if (bytes > most) {
    report::Finding finding;
    finding.kind = "peak";
    finding.detail = text;
    check.findings.push_back(finding);
  } else {
    check.notes.push_back(text);
  }
  return check;
}

Status run(const Options& options, Context& context) {
  if (!options.replay && !options.distributed && !options.max_peak && !options.equivalence)
    return Error{ErrorKind::usage,
                 "",
                 {},
                 "check: no check is named",
                 "--replay, --distributed, --max-peak BYTES, --equivalence: liveset check --help"};
  if (options.equivalence == options.other.empty())
    return Error{
        ErrorKind::usage, "", {}, "check: --equivalence compares two traces, the others look at one", "liveset check A B --equivalence"};
  Result<std::vector<trace::TraceFile>> files = open_run(options.trace);
  if (!files) return files.take_error();
  std::vector<report::Check> checks;
  if (options.replay) {
    Result<report::Check> check = report::check_replay(*files);
    if (!check) return check.take_error();
    checks.push_back(std::move(*check));
  }
  if (options.distributed) {
    Result<std::vector<report::Check>> found = report::check_distributed(*files);
    if (!found) return found.take_error();
    std::move(found->begin(), found->end(), std::back_inserter(checks));
  }
  if (options.max_peak) {
    Result<report::Check> check = check_max_peak(files->front(), static_cast<std::uint64_t>(*options.max_peak));
    if (!check) return check.take_error();
    checks.push_back(std::move(*check));
  }
  if (options.equivalence) {
    Result<trace::TraceFile> other = open_shown(options.other);
    if (!other) return other.take_error();
    Result<report::Check> check = report::check_equivalence(files->front(), *other);
    if (!check) return check.take_error();
    checks.push_back(std::move(*check));
    report_health(*other, context);
  }
  switch (context.format) {
    case Format::table: std::cout << report::check_text(checks, style_of(context)); break;
    case Format::json:
      std::cout << report::check_json(checks).dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
      break;
    default: std::cout << report::check_table(checks, table_format(context), style_of(context));
  }
  if (std::any_of(checks.begin(), checks.end(), [](const report::Check& check) { return !check.ok(); })) context.status = exit_difference;
  for (const trace::TraceFile& file : *files) report_health(file, context);
  return Done{};
}

}  // namespace

void add_check(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("check", "gates for scripts: exit status 1 when one of them finds something");
  command->footer(
      "  liveset run --check-replay -o run.liveset -- python train.py\n"
      "  liveset check run.liveset --replay --max-peak 20GiB\n"
      "  liveset check plain.liveset checkpointed.liveset --equivalence\n"
      "The exit status is 0 when all checks pass, 1 when one does not, 2 when the trace was not recorded for it.");
  const auto options = std::make_shared<Options>();
  command->add_option("TRACE", options->trace, "a *.liveset file; of a run with several, the others are found beside it")
      ->required()
      ->option_text(" ");
  command->add_option("OTHER", options->other, "of --equivalence: the trace of the run to compare with")->option_text(" ");
  command->add_flag("--equivalence", options->equivalence,
                    "did two runs from the same state compute the same losses, gradients and parameters? Needs run --fingerprint of both");
  command->add_flag("--replay", options->replay,
                    "did each recompute of a checkpointed region do what its forward did? Needs run --check-replay");
  command->add_flag("--distributed", options->distributed,
                    "do all ranks recompute the same, do recomputes end before the reduction of their gradients, does no region lie across "
                    "devices?");
  command
      ->add_option_function<std::string>(
          "--max-peak",
          [options](const std::string& text) {
            options->max_peak = launch::parse_byte_size(text);
            if (!options->max_peak)
              throw CLI::ValidationError("--max-peak", "'" + text + "' is no size above 0 (as 80GiB, 24GB or a number of bytes)");
          },
          "the largest peak of allocated bytes (of the fullest CUDA device, else of the CPU) that passes: 80GiB, 24GB")
      ->option_text("BYTES");
  add_output_options(*command, context);
  add_strict_option(*command, context);
  command->callback([options, &context] {
    if (const Status status = run(*options, context); !status) context.fail(status.error());
  });
}

}  // namespace liveset::cli
