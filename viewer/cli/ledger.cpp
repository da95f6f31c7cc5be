#include "viewer/cli/commands.h"

namespace liveset::cli {

void add_ledger(CLI::App& app, Context&) { app.add_subcommand("ledger", "(being built)"); }

}  // namespace liveset::cli
