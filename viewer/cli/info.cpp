#include "viewer/cli/commands.h"

namespace liveset::cli {

void add_info(CLI::App& app, Context&) { app.add_subcommand("info", "(being built)"); }

}  // namespace liveset::cli
