// `liveset import`: another tool's file as a trace, kept.
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "viewer/cli/commands.h"
#include "viewer/cli/traces.h"
#include "viewer/import/importer.h"
#include "viewer/ledger/imported.h"

namespace liveset::cli {
namespace {

struct Options {
  std::string file, out, from;
};

std::string names() {
  std::string text;
  for (const imports::Importer& importer : imports::importers()) text += (text.empty() ? "" : ", ") + std::string(importer.name);
  return text;
}

Status run(const Options& options, Context& context) {
  if (context.format == Format::csv || context.format == Format::md)
    return Error{
        ErrorKind::usage, "", {}, "import makes a trace and has no table of its own", "--format json says what it made; summary shows it"};
  const imports::Importer* importer =
      options.from.empty() ? imports::importer_of(beginning_of(options.file)) : imports::importer_named(options.from);
  if (!options.from.empty() && importer == nullptr)
    return Error{ErrorKind::usage, "", {}, "--from " + options.from + " is no format that can be imported", "there is " + names()};
  std::error_code code;
  if (!std::filesystem::exists(options.file, code)) return Error{ErrorKind::unreadable, options.file, {}, "no such file", "check the name"};
  if (importer == nullptr && trace::TraceFile::open(options.file))
    return Error{ErrorKind::usage, options.file, {}, "is a trace already", "every command takes it as it is"};
  if (importer == nullptr)
    return Error{ErrorKind::unreadable, options.file, {}, "no importer knows a file that begins like this", "--from takes " + names()};
  std::string out = options.out;
  if (out.empty()) {
    out = std::filesystem::path(options.file).replace_extension(".liveset").string();
    if (std::filesystem::exists(out, code)) return Error{ErrorKind::usage, out, {}, "is there already", "name another one with -o"};
  } else if (std::filesystem::equivalent(options.file, out, code)) {
    return Error{ErrorKind::usage, out, {}, "is the file itself", "name another one with -o"};
  } else if (Status status = check_output(out, {"liveset trace"}); !status) {
    return status;
  }
  // Beside the goal first: what fails leaves nothing, and no older trace is lost.
  const std::string unfinished = out + ".unfinished";
  std::string error;
  std::unique_ptr<writer::Sink> sink = writer::open_file_sink(unfinished, &error);
  if (sink == nullptr) return Error{ErrorKind::unreadable, "", {}, error, "name another place with -o"};
  Status status = importer->run(options.file, std::move(sink));
  if (status) {
    std::filesystem::rename(unfinished, out, code);
    if (code) status = Error{ErrorKind::unreadable, out, {}, "cannot be written: " + code.message(), "name another place with -o"};
  }
  if (!status) {
    std::filesystem::remove(unfinished, code);
    return status;
  }
  Result<trace::TraceFile> file = trace::TraceFile::open(out);
  if (!file) return file.take_error();
  const Result<std::optional<ledger::Imported>> imported = ledger::find_imported(*file);
  if (!imported) return imported.error();
  const std::uint64_t contradictions = *imported ? (*imported)->contradictions() : 0;
  if (contradictions != 0)
    std::cerr << "liveset: "
              << report::printable(options.file + ": contradicts itself in " + report::counted(contradictions, "place") + ": liveset " +
                                       out + " says where",
                                   style_of(context))
              << '\n';
  if (context.format == Format::json) {
    print_json({{"schema", "liveset.import/1"},
                {"file", options.file},
                {"from", importer->name},
                {"trace", out},
                {"events", file->events()},
                {"contradictions", contradictions}});
  } else {
    std::cout << report::printable(out, style_of(context)) << "  (" << report::format_count(file->events()) << " events, from a "
              << importer->name << " file)\n";
  }
  return Done{};
}

}  // namespace

void add_import(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("import", "another tool's file as a trace: memory snapshots of PyTorch, logs of DTR");
  const auto options = std::make_shared<Options>();
  command->add_option("FILE", options->file, "what to read; which format it is, its first bytes tell")->required()->option_text(" ");
  command->add_option("-o,--output", options->out, "the trace to write (default: beside FILE, with the extension .liveset)")
      ->option_text("OUT");
  std::string formats;
  for (const imports::Importer& importer : imports::importers()) formats += (formats.empty() ? "" : "|") + std::string(importer.name);
  command->add_option("--from", options->from, "takes FILE for this format")->option_text(formats);
  std::string footer = "Every command that reads traces takes such a file itself: liveset peak snapshot.pickle\n";
  for (const imports::Importer& importer : imports::importers()) footer += "  " + std::string(importer.name) + ": " + importer.reads + "\n";
  command->footer(footer);
  add_output_options(*command, context);
  on_parse(*command, options, context, run);
}

}  // namespace liveset::cli
