#include "viewer/cli/traces.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "viewer/import/importer.h"
#include "viewer/ledger/imported.h"
#include "viewer/trace/columns.h"

namespace liveset::cli {
namespace {

// Cheap: only kinds are decoded, and training jobs begin their first step early.
bool has_steps(const trace::TraceFile& file) {
  trace::Columns columns;
  for (std::size_t chunk = 0; chunk < file.chunks().size(); ++chunk) {
    if (!file.read_chunk(chunk, trace::column::kind, columns)) return false;
    if (std::find(columns.kind.begin(), columns.kind.end(), static_cast<std::uint8_t>(trace::Kind::step_begin)) != columns.kind.end())
      return true;
  }
  return false;
}

std::vector<std::string> siblings(const std::string& path) {
  std::vector<std::string> files;
  std::error_code code;
  for (std::filesystem::directory_iterator it(path + ".d", code), end; !code && it != end; it.increment(code)) {
    if (it->path().extension() == ".liveset") files.push_back(it->path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// A file without a name, gone with its descriptor: in memory where the system has that.
class NamelessFile {
 public:
  NamelessFile() : fd_(memfd_create("liveset-import", MFD_CLOEXEC)) {
    if (fd_ < 0) fd_ = ::open(std::filesystem::temp_directory_path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  }
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;
  ~NamelessFile() {
    if (fd_ >= 0) close(fd_);
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

}  // namespace

bool is_model_file(const std::string& path) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) return !std::filesystem::is_directory(path + ".d", code);
  std::ifstream file(path, std::ios::binary);
  char head[4096];
  file.read(head, sizeof head);
  const std::string_view text(head, static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  if (imports::importer_of(text) != nullptr) return false;  // some are text, too
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r' && c != '\t'; });
}

Status refuse_snapshot(const trace::TraceFile& file) {
  const Result<std::optional<ledger::Imported>> imported = ledger::find_imported(file);
  if (!imported) return imported.error();
  if (!*imported || (*imported)->from != "torch-snapshot") return Done{};
  return Error{ErrorKind::usage,
               file.path(),
               {},
               "is a memory snapshot: it tells of blocks, and not what autograd's graph holds of them, so what a step takes under another "
               "policy does not follow from it",
               "record a step, liveset run -- python train.py, or dry-run it, liveset dryrun -- python train.py"};
}

Status check_output(const std::string& path, std::initializer_list<std::string_view> marks) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return Done{};
  const std::string beginning = beginning_of(path);
  const bool is_regular = std::filesystem::is_regular_file(path, code);
  const bool is_empty = is_regular && std::filesystem::file_size(path, code) == 0;
  // A device, a pipe: nothing is lost there.
  if (!is_regular || is_empty || std::any_of(marks.begin(), marks.end(), [&](std::string_view mark) {
        return std::string_view(beginning).substr(0, 64).find(mark) != std::string_view::npos;
      }))
    return Done{};
  return Error{ErrorKind::usage, path, {}, "is there already, and nothing that this command wrote", "name another one with -o"};
}

std::string beginning_of(const std::string& path) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) return {};  // a pipe must not be waited for
  std::string beginning(imports::beginning_bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  beginning.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return beginning;
}

Result<trace::TraceFile> open_trace(const std::string& path) {
  const imports::Importer* importer = imports::importer_of(beginning_of(path));
  if (importer == nullptr) return trace::TraceFile::open(path);
  const NamelessFile file;
  std::string error;
  std::unique_ptr<writer::Sink> sink = writer::open_file_sink(file.path(), &error);
  if (sink == nullptr)
    return Error{ErrorKind::unreadable, path, {}, "no room to make a trace of it: " + error, "liveset import " + path + " -o OUT.liveset"};
  if (Status status = importer->run(path, std::move(sink)); !status) return status.take_error();
  return trace::TraceFile::open_as(file.path(), path);
}

Result<std::vector<trace::TraceFile>> open_run(const std::string& path, std::vector<Error>* unread) {
  std::vector<trace::TraceFile> files;
  const std::vector<std::string> more = siblings(path);
  std::error_code code;
  if (more.empty() || std::filesystem::exists(path, code)) {
    Result<trace::TraceFile> first = open_trace(path);
    if (!first) return first.take_error();
    files.push_back(std::move(*first));
  }
  for (const std::string& name : more) {
    Result<trace::TraceFile> file = trace::TraceFile::open(name);
    if (file) {
      files.push_back(std::move(*file));
    } else {
      std::cerr << "liveset: " << report::printable(file.error().message(), {}) << '\n';
      if (unread != nullptr) unread->push_back(file.take_error());
    }
  }
  if (files.empty()) return Error{ErrorKind::unreadable, path, std::nullopt, "no trace of this run can be read", "the reasons stand above"};
  if (files.size() > 1) {
    const auto shown = std::find_if(files.begin(), files.end(), has_steps);
    if (shown != files.end()) std::rotate(files.begin(), shown, shown + 1);
  }
  return files;
}

Result<trace::TraceFile> open_shown(const std::string& path) {
  Result<std::vector<trace::TraceFile>> files = open_run(path);
  if (!files) return files.take_error();
  return std::move(files->front());
}

Result<Reading> open_reading(const std::string& path, const std::string& range) {
  Result<ledger::RangeSpec> spec = ledger::parse_range(range);
  if (!spec) return spec.take_error();
  Result<trace::TraceFile> file = open_shown(path);
  if (!file) return file.take_error();
  Result<ledger::Range> resolved = ledger::resolve_range(*file, *spec);
  if (!resolved) return resolved.take_error();
  return Reading{std::move(*file), *resolved};
}

void print_json(const nlohmann::ordered_json& json) {
  std::cout << json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
}

void report_health(const trace::TraceFile& file, Context& context) {
  const trace::Health& health = file.health();
  if (!health.truncated && health.damaged_packets == 0) return;
  if (context.strict) {
    // The note says where.
    context.fail(
        {ErrorKind::truncated, file.path(), std::nullopt, health.note.empty() ? "the trace could be read only in part" : health.note, ""});
  } else {
    std::cerr << "liveset: " << report::printable(file.path() + ": read in part: " + health.note, style_of(context)) << '\n';
  }
}

report::Style style_of(const Context& context) { return {context.exact_bytes, context.ascii, context.color, context.columns}; }

report::TableFormat table_format(const Context& context) {
  return context.format == Format::csv  ? report::TableFormat::csv
         : context.format == Format::md ? report::TableFormat::md
                                        : report::TableFormat::text;
}

ProgressBar::ProgressBar(std::string what)
    : what_(std::move(what)), start_(std::chrono::steady_clock::now()), terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
  if (percent_ >= 0) std::cerr << "\r\033[K" << std::flush;
}

ledger::Progress ProgressBar::callback() {
  if (!terminal_) return {};
  return [this](std::size_t done, std::size_t all) { show(done, all); };
}

void ProgressBar::show(std::size_t done, std::size_t all) {
  const int percent = all == 0 ? 100 : static_cast<int>(100 * done / all);
  if (percent == percent_ || std::chrono::steady_clock::now() - start_ < std::chrono::milliseconds(500)) return;
  percent_ = percent;
  constexpr int width = 30;
  const int filled = width * percent / 100;
  std::cerr << "\r" << report::printable(what_, {}) << " [" << std::string(static_cast<std::size_t>(filled), '#')
            << std::string(static_cast<std::size_t>(width - filled), '.') << "] " << percent << "%" << std::flush;
}

std::uint64_t parse_number(const std::string& option, const std::string& text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range || number == ledger::no_event)
    throw CLI::ValidationError(option, "'" + text + "' is too large");
  if (error != std::errc() || end != text.data() + text.size())
    throw CLI::ValidationError(option, "'" + text + "' is not a whole number of 0 or more");
  return number;
}

void add_top_option(CLI::App& command, std::size_t& top, const std::string& help) {
  command
      .add_option_function<std::string>(
          "--top", [&top](const std::string& text) { top = parse_number("--top", text); }, help)
      ->option_text("N");
}

void add_read_options(CLI::App& command, ReadOptions& options) {
  command.add_option("TRACE", options.trace, trace_help)->required()->option_text(" ");
  command.add_option("--range", options.range, "step:A..B (inclusive), 1.5s..2s or event:A..B (half-open)")->option_text("RANGE");
}

void add_peak_options(CLI::App& command, std::string& heap, std::string& counter) {
  command.add_option("--heap", heap, "whose peak (default: the fullest CUDA device, else cpu)")->option_text("NAME");
  command
      .add_option("--counter", counter,
                  "which counter's peak: that of blocks (default; allocated, or requested of a snapshot), reserved, ...")
      ->option_text("NAME");
}

}  // namespace liveset::cli
