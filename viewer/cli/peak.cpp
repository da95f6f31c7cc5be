#include "viewer/cli/commands.h"

namespace liveset::cli {

void add_peak(CLI::App& app, Context&) { app.add_subcommand("peak", "(being built)"); }

}  // namespace liveset::cli
