// liveset: the command line. Parses, finds the command, maps errors to exit statuses; everything else is in the commands.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <langinfo.h>
#include <string>
#include <vector>

#include "viewer/cli/commands.h"

namespace liveset::cli {

void Context::fail(const Error& error) {
  std::cerr << "liveset: " << error.message() << '\n';
  status = error.kind == ErrorKind::usage ? exit_usage : error.kind == ErrorKind::truncated ? exit_truncated : exit_unreadable;
}

void add_output_options(CLI::App& command, Context& context) {
  static const std::map<std::string, Format> formats{
      {"table", Format::table}, {"json", Format::json}, {"csv", Format::csv}, {"md", Format::md}};
  command.add_option("--format", context.format, "table (for people), json, csv or md")
      ->transform(CLI::CheckedTransformer(formats, CLI::ignore_case))
      ->option_text("table|json|csv|md");
  static const std::map<std::string, bool> units{{"iec", false}, {"bytes", true}};
  command.add_option("--units", context.exact_bytes, "sizes in tables: iec (GiB, MiB, KiB) or bytes")
      ->transform(CLI::CheckedTransformer(units, CLI::ignore_case))
      ->option_text("iec|bytes");
  command
      .add_option_function<std::string>(
          "--color", [&context](const std::string& when) { context.color = when == "always" || (when == "auto" && context.color); },
          "auto, always or never; NO_COLOR is honoured")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->option_text("auto|always|never");
  command.add_flag("--strict", context.strict, "a trace that can be read only in part is an error (exit status 4)");
}

}  // namespace liveset::cli

int main(int argc, char** argv) {
  using namespace liveset::cli;
  std::setlocale(LC_ALL, "");
  Context context;
  context.program = argv[0];
  context.ascii = std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0;
  context.color = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;

  winsize size{};
  if (isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40) context.columns = size.ws_col;

  CLI::App app{"liveset: which activations are live at the peak of a training job, why, and what should have been"};
  app.name("liveset");  // parse() is not given argv[0]
  app.set_version_flag("--version", "liveset " LIVESET_VERSION);
  app.require_subcommand(1);
  app.fallthrough(false);
  add_run(app, context);
  add_summary(app, context);
  add_peak(app, context);
  add_ledger(app, context);
  add_predict(app, context);
  add_compare(app, context);
  add_info(app, context);
  add_dump(app, context);

  // `liveset TRACE` is `liveset summary TRACE`.
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto is_command = [&](const std::string& name) {
    return !app.get_subcommands([&](const CLI::App* command) { return command->get_name() == name; }).empty();
  };
  if (!arguments.empty() && arguments[0].rfind('-', 0) != 0 && !is_command(arguments[0])) arguments.insert(arguments.begin(), "summary");
  if (const auto dashes = std::find(arguments.begin(), arguments.end(), "--"); dashes != arguments.end() && arguments[0] == "run") {
    context.job.assign(dashes + 1, arguments.end());
    arguments.erase(dashes, arguments.end());
  }
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? exit_ok : exit_usage;
  }
  return context.status;
}
