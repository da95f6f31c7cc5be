// liveset: the command line. Parses, finds the command, maps errors to exit statuses; everything else is in the commands.
#include <langinfo.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "viewer/cli/commands.h"
#include "viewer/cli/traces.h"
#include "viewer/ledger/quantity.h"

namespace liveset::cli {

void Context::fail(const Error& error) {
  std::cerr << "liveset: " << report::printable(error.message(), style_of(*this)) << '\n';
  status = error.kind == ErrorKind::usage ? exit_usage : error.kind == ErrorKind::truncated ? exit_truncated : exit_unreadable;
}

void add_output_options(CLI::App& command, Context& context) {
  add_choice<Format>(command, "--format", {{"table", Format::table}, {"json", Format::json}, {"csv", Format::csv}, {"md", Format::md}},
                     "table (for people), json, csv or md", [&context](Format format) { context.format = format; });
  add_choice<bool>(command, "--units", {{"iec", false}, {"bytes", true}}, "sizes in tables: iec (GiB, MiB, KiB) or bytes",
                   [&context](bool exact) { context.exact_bytes = exact; });
  add_choice<bool>(command, "--color", {{"auto", context.color}, {"always", true}, {"never", false}},
                   "auto, always or never; NO_COLOR is honoured", [&context](bool color) { context.color = color; });
}

void add_strict_option(CLI::App& command, Context& context) {
  command.add_flag("--strict", context.strict, "a trace that can be read only in part is an error (exit status 4)");
}

CLI::Option* add_size_option(CLI::App& command, const std::string& name, const std::string& help,
                             const std::function<void(std::uint64_t)>& chosen, std::uint64_t least) {
  const auto read = [name, chosen, least](const std::string& text) {
    const Result<std::uint64_t> bytes = ledger::parse_byte_size(text);
    if (!bytes || *bytes < least)
      throw CLI::ValidationError(name,
                                 "'" + text + "' is no size" + (least == 0 ? "" : " above 0") + " (as 80GiB, 24GB or a number of bytes)");
    chosen(*bytes);
  };
  return command.add_option_function<std::string>(name, read, help)->option_text("BYTES");
}

namespace {

// Help in lines of at most 80 characters; what is folded stands under the text of its option.
std::string folded(const std::string& help) {
  constexpr std::size_t columns = 80;
  std::string text;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line.find_first_not_of(' ') == std::string::npos) continue;  // of an option group without a description
    const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
    const std::size_t gap = line.find("  ", begin);
    std::size_t indent = gap == std::string::npos ? begin : line.find_first_not_of(' ', gap);
    if (indent == std::string::npos || indent > columns / 2) indent = begin;
    while (line.size() > columns) {
      const std::size_t space = line.rfind(' ', columns);
      if (space == std::string::npos || space <= indent) break;
      text += line.substr(0, space) + "\n";
      line = std::string(indent, ' ') + line.substr(space + 1);
    }
    text += line + "\n";
  }
  return text;
}

// Whether somebody reads on: a reader that has seen enough (`| head`) is no error. Left to itself SIGPIPE ends us
// before this is asked; whoever starts us may have it ignored.
bool reader_left() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

// The one place that looks whether the output arrived: on a full disk, say, an answer is no answer.
void finish_output(Context& context) {
  errno = 0;
  std::cout.flush();
  if (std::cout || reader_left()) return;
  const std::string reason = errno == 0 ? "" : std::string(": ") + std::strerror(errno);
  context.fail({ErrorKind::unreadable, "", std::nullopt, "the output could not be written" + reason,
                "is the disk full, or standard output closed?"});
}

// `liveset TRACE` is `liveset summary TRACE`, `liveset help COMMAND` is `liveset COMMAND --help`. False when the first
// word is neither a command nor a trace.
bool name_command(std::vector<std::string>& arguments, const std::vector<std::string>& commands) {
  if (arguments.empty() || arguments[0].rfind('-', 0) == 0) return true;
  const std::string first = arguments[0];
  if (std::find(commands.begin(), commands.end(), first) != commands.end()) return true;
  std::error_code code;
  if (std::filesystem::exists(first, code) || std::filesystem::exists(first + ".d", code) ||
      first.find_first_of("./") != std::string::npos) {
    arguments.insert(arguments.begin(), "summary");
    return true;
  }
  if (first != "help") return false;
  arguments.erase(arguments.begin());
  arguments.push_back("--help");
  return true;
}

}  // namespace

}  // namespace liveset::cli

int main(int argc, char** argv) {
  using namespace liveset::cli;
  using liveset::ErrorKind;
  std::setlocale(LC_ALL, "");
  Context context;
  context.program = argv[0];
  context.ascii = std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0;
  context.color = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;

  winsize size{};
  if (isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40) context.columns = size.ws_col;

  CLI::App app{"liveset: which activations are live at the peak of a training job, why, and what should have been"};
  app.name("liveset");  // parse() is not given argv[0]
  app.set_help_flag("-h,--help", "print this help and exit");
  app.set_version_flag("--version", "liveset " LIVESET_VERSION, "print the version and exit");
  app.fallthrough(false);
  add_run(app, context);
  add_dryrun(app, context);
  add_summary(app, context);
  add_peak(app, context);
  add_recompute(app, context);
  add_leaks(app, context);
  add_fragmentation(app, context);
  add_ledger(app, context);
  add_model(app, context);
  add_predict(app, context);
  add_plan(app, context);
  add_compare(app, context);
  add_whatif(app, context);
  add_check(app, context);
  add_info(app, context);
  add_dump(app, context);
  add_import(app, context);

  std::vector<std::string> arguments(argv + 1, argv + argc), commands;
  for (const CLI::App* command : app.get_subcommands(nullptr)) commands.push_back(command->get_name());
  if (!name_command(arguments, commands)) {
    context.fail({ErrorKind::usage, "", std::nullopt, "'" + arguments[0] + "' is no command and no trace",
                  "the commands are " + CLI::detail::join(commands, ", ")});
    return context.status;
  }
  if (const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
      dashes != arguments.end() && (arguments[0] == "run" || arguments[0] == "dryrun" || arguments[0] == "model")) {
    context.job.assign(dashes + 1, arguments.end());
    arguments.erase(dashes, arguments.end());
  }
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
    if (app.get_subcommands().empty())
      context.fail({ErrorKind::usage, "", std::nullopt, "no command is named", "liveset --help lists them; liveset TRACE shows a trace"});
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      std::cout << folded(error.get_name() == "CallForHelp" ? app.help() : std::string(error.what()) + "\n");
    } else {
      const std::string name = app.get_subcommands().empty() ? "" : app.get_subcommands().front()->get_name() + " ";
      context.fail({ErrorKind::usage, "", std::nullopt, error.what(), "liveset " + name + "--help"});
    }
  } catch (const std::bad_alloc&) {
    context.fail({ErrorKind::unreadable, "", std::nullopt, "not enough memory", "a smaller --range needs less"});
  } catch (const std::exception& error) {
    context.fail(
        {ErrorKind::unreadable, "", std::nullopt, std::string("internal error: ") + error.what(), "please report it, with the trace"});
  }
  finish_output(context);
  return context.status;
}
