// Whether a trace's ledger fits into memory. Columns that are one number cost a file next to nothing, so a small file may
// state billions of allocations; it is refused before they are laid out, not by whoever kills this process.
#pragma once
#include <cstdint>

#include "viewer/trace/trace_file.h"

namespace liveset::ledger {

// `limit` bytes; 0: what the machine, the control group and the process's own limit leave, where they say so.
Status expect_room(const trace::TraceFile& file, std::uint64_t limit);

}  // namespace liveset::ledger
