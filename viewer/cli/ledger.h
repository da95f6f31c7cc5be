// The two halves of `liveset ledger`: one file each, ledger.cpp chooses.
#pragma once
#include <string>

#include "viewer/cli/command.h"
#include "viewer/ledger/range.h"
#include "viewer/trace/trace_file.h"

namespace liveset::cli {

// `ledger --logical`: the value events one by one, with running ids and bytes.
Status print_logical_ledger(const trace::TraceFile& file, const ledger::Range& range, Context& context);

}  // namespace liveset::cli
