#include "viewer/cli/commands.h"

namespace liveset::cli {

void add_summary(CLI::App& app, Context&) { app.add_subcommand("summary", "(being built)"); }

}  // namespace liveset::cli
