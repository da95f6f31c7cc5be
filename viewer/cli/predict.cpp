#include "viewer/cli/commands.h"

namespace liveset::cli {

void add_predict(CLI::App& app, Context&) { app.add_subcommand("predict", "(being built)"); }

}  // namespace liveset::cli
