// How a command is added: one file pair is not needed, one function is. Write viewer/cli/<name>.cpp with
// `void add_<name>(CLI::App& app, Context& context)`, and add one line to commands.h and CMakeLists.txt.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "viewer/trace/result.h"

namespace liveset::cli {

enum class Format { table, json, csv, md };

// Exit statuses (design: product.md).
enum Exit : int { exit_ok = 0, exit_difference = 1, exit_usage = 2, exit_unreadable = 3, exit_truncated = 4, exit_interrupted = 130 };

struct Context {
  Format format = Format::table;
  bool exact_bytes = false;  // --units bytes
  bool color = false;
  bool ascii = false;   // the locale is not UTF-8
  bool strict = false;  // --strict: a truncated trace is an error (exit 4)
  unsigned columns = 80;
  int status = exit_ok;          // what main returns
  std::string program;           // argv[0], to find our own files
  std::vector<std::string> job;  // of `run` and `dryrun`: everything behind the first "--", which is not ours to parse

  // Prints "liveset: MESSAGE" on stderr and sets the status that belongs to the error's kind.
  void fail(const Error& error);
};

// Adds --format, --units and --color to a subcommand.
void add_output_options(CLI::App& command, Context& context);
// Adds --strict to a subcommand that reads traces.
void add_strict_option(CLI::App& command, Context& context);

// An option that takes one of a few words; `chosen` gets what stands for it.
template <class T>
CLI::Option* add_choice(CLI::App& command, const std::string& name, const std::vector<std::pair<std::string, T>>& choices,
                        const std::string& help, const std::function<void(T)>& chosen) {
  std::string words;
  for (const auto& [word, value] : choices) words += (words.empty() ? "" : "|") + word;
  const auto choose = [name, choices, words, chosen](const std::string& text) {
    for (const auto& [word, value] : choices) {
      if (CLI::detail::to_lower(text) == word) return chosen(value);
    }
    throw CLI::ValidationError(name, "'" + text + "' is none of " + words);
  };
  return command.add_option_function<std::string>(name, choose, help)->option_text(words);
}

// An option that takes a size of at least `least` bytes, 1 or 0 ("80GiB"); `chosen` gets its bytes.
CLI::Option* add_size_option(CLI::App& command, const std::string& name, const std::string& help,
                             const std::function<void(std::uint64_t)>& chosen, std::uint64_t least = 1);

// What the command does once its words are known: `run(options, context)` gives a Status.
template <class Options, class Run>
void on_parse(CLI::App& command, const std::shared_ptr<Options>& options, Context& context, const Run& run) {
  command.callback([options, &context, run] {
    if (const Status status = run(*options, context); !status) context.fail(status.error());
  });
}

}  // namespace liveset::cli
