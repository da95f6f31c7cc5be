// `liveset check`: gates for scripts. Exit status 1 when one of them finds something.
#include "viewer/report/check.h"

#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "viewer/cli/commands.h"
#include "viewer/cli/traces.h"
#include "viewer/report/peak.h"
#include "viewer/report/ranks.h"

namespace liveset::cli {
namespace {

struct Options {
  std::string trace, other;
  bool equivalence = false, replay = false, distributed = false, some_ranks = false;
  std::optional<std::uint64_t> max_peak;
  std::size_t top = 20;
};

bool is_whole(const trace::TraceFile& file) { return !file.health().truncated && file.health().damaged_packets == 0; }

// Each trace of the run is held to the limit: every rank has its device.
Result<report::Check> check_max_peak(const std::vector<trace::TraceFile>& files, std::uint64_t most) {
  report::Check check;
  check.name = "max-peak";
  std::uint64_t highest = 0, with_peak = 0;
  for (const trace::TraceFile& file : files) {
    Result<report::PeakReport> peak = report::build_peak(file, {});
    if (!peak) return peak.take_error();
    report::Finding finding;
    finding.file = files.size() > 1 ? file.path() : std::string();
    if (peak->is_empty) {
      if (is_whole(file)) continue;  // a process that allocated nothing
      finding.kind = "no_peak";
      finding.detail = "the trace could be read only in part, and that part has no allocation";
      check.findings.push_back(std::move(finding));
      continue;
    }
    ++with_peak;
    const std::uint64_t bytes = peak->peak.bytes;
    highest = std::max(highest, bytes);
    const std::string text = (peak->peak.is_known ? "the peak of " : "at the dump, ") + peak->peak.counter + " is " +
                             report::format_bytes(bytes, true) + " bytes on " + peak->peak.heap +
                             (is_whole(file) ? "" : ", as far as the trace can be read") + ", the limit " +
                             report::format_bytes(most, true);
    if (!peak->peak.is_known && bytes <= most) {
      finding.kind = "no_peak";
      finding.detail = "the file tells only the state at its end (" + report::format_bytes(bytes, true) + " bytes " + peak->peak.counter +
                       "): the peak is not known";
      check.findings.push_back(std::move(finding));
    } else if (bytes > most) {
      finding.kind = "peak";
      finding.detail = text;
      check.findings.push_back(std::move(finding));
    } else if (check.notes.size() < 8) {
      check.notes.push_back((files.size() > 1 ? file.path() + ": " : "") + text);
    }
  }
  if (with_peak == 0 && check.findings.empty())
    return Error{ErrorKind::usage,
                 files.front().path(),
                 {},
                 "has no allocation: there is no peak to hold to a limit",
                 "record a job that allocates: liveset run -- python train.py"};
  check.coverage = {{"bytes", highest}, {"max_bytes", most}, {"traces", with_peak}};
  return check;
}

// Traces that are beside the others and that no check could look at.
report::Check check_traces(const std::vector<Error>& unread) {
  report::Check check;
  check.name = "traces";
  for (const Error& error : unread) {
    report::Finding finding;
    finding.kind = "unreadable";
    finding.detail = "no check looked at this trace: " + error.message();
    finding.file = error.file;
    check.findings.push_back(std::move(finding));
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
  std::vector<Error> unread;
  Result<std::vector<trace::TraceFile>> files = open_run(options.trace, &unread);
  if (!files) return files.take_error();
  std::vector<report::Check> checks;
  if (options.replay) {
    Result<report::Check> check = report::check_replay(*files);
    if (!check) return check.take_error();
    checks.push_back(std::move(*check));
  }
  if (options.distributed) {
    Result<std::vector<report::Check>> found = report::check_distributed(*files, options.some_ranks);
    if (!found) return found.take_error();
    std::move(found->begin(), found->end(), std::back_inserter(checks));
  }
  if (options.max_peak) {
    Result<report::Check> check = check_max_peak(*files, *options.max_peak);
    if (!check) return check.take_error();
    checks.push_back(std::move(*check));
  }
  if (options.equivalence) {
    Result<std::vector<trace::TraceFile>> others = open_run(options.other, &unread);
    if (!others) return others.take_error();
    const trace::TraceFile& other = others->front();
    Result<report::Check> check = report::check_equivalence(files->front(), other);
    if (!check) return check.take_error();
    checks.push_back(std::move(*check));
    report_health(other, context);
  }
  if (!unread.empty()) checks.push_back(check_traces(unread));
  switch (context.format) {
    case Format::table: std::cout << report::check_text(checks, options.top, style_of(context)); break;
    case Format::json: print_json(report::check_json(checks)); break;
    default: std::cout << report::check_table(checks, table_format(context), style_of(context));
  }
  if (std::any_of(checks.begin(), checks.end(), [](const report::Check& check) { return !check.ok(); })) context.status = exit_difference;
  for (const trace::TraceFile& file : *files) report_health(file, context);
  if (context.strict && !unread.empty()) return unread.front();
  return Done{};
}

}  // namespace

void add_check(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("check", "gates for scripts: exit status 1 when one of them finds something");
  command->footer(
      "  liveset run --check-replay -o run.liveset -- python train.py\n"
      "  liveset check run.liveset --replay --max-peak 20GiB\n"
      "  liveset check plain.liveset checkpointed.liveset --equivalence\n"
      "The exit status is 0 when all checks pass, 1 when one does not, 2 when the trace was not recorded for it. A trace of the run that "
      "cannot be read is a finding; with --strict the status is then 3, and 4 when one could be read only in part.");
  const auto options = std::make_shared<Options>();
  command->add_option("TRACE", options->trace, "a *.liveset file; of a run with several, the others are found beside it")
      ->required()
      ->option_text(" ");
  command->add_option("OTHER", options->other, "of --equivalence: the trace of the run to compare with")->option_text(" ");
  command->add_flag("--equivalence", options->equivalence,
                    "did two runs from the same state compute the same losses, gradients and parameters? Needs run --fingerprint of both");
  command->add_flag("--replay", options->replay,
                    "did each recompute of a checkpointed region do what its forward did? Needs run --check-replay");
  CLI::Option* distributed =
      command->add_flag("--distributed", options->distributed,
                        "do all ranks recompute the same, do recomputes end before the reduction of their gradients, does no region lie "
                        "across devices?");
  command
      ->add_flag("--some-ranks", options->some_ranks,
                 "of --distributed: only some of the job's ranks are here (one node of several, say), and that is no finding")
      ->needs(distributed);
  add_size_option(
      *command, "--max-peak",
      "the largest peak of allocated bytes (of the fullest CUDA device, else of the CPU) that passes, in each trace of the run: "
      "80GiB, 24GB",
      [options](std::uint64_t bytes) { options->max_peak = bytes; });
  add_top_option(*command, options->top, "how many findings of each check the text lists (default 20)");
  add_output_options(*command, context);
  add_strict_option(*command, context);
  on_parse(*command, options, context, run);
}

}  // namespace liveset::cli
