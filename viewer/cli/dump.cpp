#include "viewer/cli/commands.h"

namespace liveset::cli {

void add_dump(CLI::App& app, Context&) { app.add_subcommand("dump", "(being built)"); }

}  // namespace liveset::cli
