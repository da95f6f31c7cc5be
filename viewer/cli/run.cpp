#include "viewer/cli/commands.h"

namespace liveset::cli {

void add_run(CLI::App& app, Context&) { app.add_subcommand("run", "(being built)"); }

}  // namespace liveset::cli
