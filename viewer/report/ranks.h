// `liveset check --distributed`: the rules of a job of several ranks, or several devices. Three checks: "ranks" (the ranks recompute the
// same), "overlap" (recomputes end before the reduction of their gradients), "devices" (no region lies across devices).
#pragma once
#include <vector>

#include "viewer/report/check.h"

namespace liveset::report {

// Of the traces that have steps, the one of each rank. That ranks of the job are missing is a finding, unless `some_ranks` says that it is
// known: then it is among what was not observed.
Result<std::vector<Check>> check_distributed(const std::vector<trace::TraceFile>& files, bool some_ranks = false);

}  // namespace liveset::report
