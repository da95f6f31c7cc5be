// The parts of `liveset ledger`: one file each, ledger.cpp chooses.
#pragma once
#include <string>

#include "viewer/cli/command.h"
#include "viewer/ledger/range.h"
#include "viewer/trace/trace_file.h"

namespace liveset::cli {

// `ledger --logical`: the value events one by one, with running ids and bytes.
Status print_logical_ledger(const trace::TraceFile& file, const ledger::Range& range, bool live, Context& context);
// `ledger --physical`: the events of a heap one by one, with running blocks and bytes. `heap` empty: the one that
// summary shows.
Status print_physical_ledger(const trace::TraceFile& file, const ledger::Range& range, const std::string& heap, Context& context);
// `ledger --at ADDRESS`: which blocks held the address, and when.
Status print_address(const trace::TraceFile& file, const ledger::Range& range, std::uint64_t address, Context& context);

}  // namespace liveset::cli
