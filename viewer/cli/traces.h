// What every command that reads traces shares: opening them, --range, --strict, and a progress bar.
#pragma once
#include <chrono>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/cli/command.h"
#include "viewer/ledger/physical.h"
#include "viewer/ledger/range.h"
#include "viewer/report/text.h"
#include "viewer/trace/trace_file.h"

namespace liveset::cli {

// A *.liveset file, or a file that viewer/import reads, which is made a trace in memory under its own name.
Result<trace::TraceFile> open_trace(const std::string& path);
// The traces of a run: OUT and all of OUT.d/. The first one is the one to show: the first that has steps, else OUT.
// Files of OUT.d that cannot be read are named on stderr, and in `unread` where one is given. Fails when nothing can be read.
Result<std::vector<trace::TraceFile>> open_run(const std::string& path, std::vector<Error>* unread = nullptr);
// Only the one to show.
Result<trace::TraceFile> open_shown(const std::string& path);

// What --range names of the trace to show. A range that is none is an error before a file is read: a typo costs no waiting.
struct Reading {
  trace::TraceFile file;
  ledger::Range range;
};
Result<Reading> open_reading(const std::string& path, const std::string& range);

// By content: model files are text, and no other file is. What cannot be read is left to who reads it.
bool is_model_file(const std::string& path);

// Of what asks for autograd's graph: an error that says why a memory snapshot has none, and what has.
Status refuse_snapshot(const trace::TraceFile& file);

// The first bytes of a file, as importers want them; empty when it cannot be read.
std::string beginning_of(const std::string& path);

// A command's output replaces nothing but an empty file and what has one of `marks` in its first 64 bytes: what such a command wrote.
Status check_output(const std::string& path, std::initializer_list<std::string_view> marks);

// Of the argument TRACE.
inline constexpr const char* trace_help =
    "a *.liveset file (of a run with several, the others are found beside it), or a memory snapshot of PyTorch";
// With line feeds, as people and tools read it.
void print_json(const nlohmann::ordered_json& json);

// A trace that was read only in part: with --strict that is an error (exit 4), otherwise stderr says so. To be called
// after the output was printed.
void report_health(const trace::TraceFile& file, Context& context);

report::Style style_of(const Context& context);
report::TableFormat table_format(const Context& context);

// A bar on stderr: only on a terminal, only after half a second, gone at the end.
class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  // Valid as long as the bar. Empty when no terminal watches.
  ledger::Progress callback();

 private:
  void show(std::size_t done, std::size_t all);
  std::string what_;
  std::chrono::steady_clock::time_point start_;
  int percent_ = -1;
  bool terminal_;
};

// What an option says that takes a whole number from 0 on; throws CLI::ValidationError for what is none.
std::uint64_t parse_number(const std::string& option, const std::string& text);
// Adds --top, which outlives the command's run.
void add_top_option(CLI::App& command, std::size_t& top, const std::string& help);

// Adds TRACE and --range to a command.
struct ReadOptions {
  std::string trace, range;
};
void add_read_options(CLI::App& command, ReadOptions& options);
// Adds --heap and --counter: which peak.
void add_peak_options(CLI::App& command, std::string& heap, std::string& counter);

}  // namespace liveset::cli
