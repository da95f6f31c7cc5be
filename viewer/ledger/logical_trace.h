// The logical ledger of a recorded trace.
//
// Two kinds of evidence. A program that names its values (liveset.h) says itself what is made, kept, dropped, used and released.
// Of a PyTorch job the graph says which storages it retains when backward begins: each of them is created at its block's
// allocation, kept at the walk, and released when its block is freed. Blocks that a recomputed checkpoint region makes and that
// outlive the region are shown as reruns; which dropped value each replaces is not known from this evidence, so they have names
// of their own and no reads.
#pragma once
#include "viewer/ledger/logical.h"
#include "viewer/ledger/range.h"
#include "viewer/trace/trace_file.h"

namespace liveset::ledger {

// Takes memory proportional to the logical events (and, of a PyTorch trace, to the blocks that live at once), not to the trace.
Result<LogicalLedger> build_logical(const trace::TraceFile& file, const Range& range);

}  // namespace liveset::ledger
