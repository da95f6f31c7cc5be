#include "viewer/cli/commands.h"

namespace liveset::cli {

void add_compare(CLI::App& app, Context&) { app.add_subcommand("compare", "(being built)"); }

}  // namespace liveset::cli
