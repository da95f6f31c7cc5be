// Every command, in the order in which --help lists them. One line each.
#pragma once
#include "viewer/cli/command.h"

namespace liveset::cli {

void add_run(CLI::App& app, Context& context);
void add_dryrun(CLI::App& app, Context& context);
void add_summary(CLI::App& app, Context& context);
void add_peak(CLI::App& app, Context& context);
void add_recompute(CLI::App& app, Context& context);
void add_leaks(CLI::App& app, Context& context);
void add_fragmentation(CLI::App& app, Context& context);
void add_ledger(CLI::App& app, Context& context);
void add_model(CLI::App& app, Context& context);
void add_predict(CLI::App& app, Context& context);
void add_plan(CLI::App& app, Context& context);
void add_compare(CLI::App& app, Context& context);
void add_whatif(CLI::App& app, Context& context);
void add_check(CLI::App& app, Context& context);
void add_info(CLI::App& app, Context& context);
void add_dump(CLI::App& app, Context& context);
void add_import(CLI::App& app, Context& context);

}  // namespace liveset::cli
