// `liveset check --distributed`: the rules of a job of several ranks, or several devices. Three checks: "ranks" (the ranks recompute the
// same), "overlap" (recomputes end before the reduction of their gradients), "devices" (no region lies across devices).
#pragma once
#include <vector>

#include "viewer/report/check.h"

namespace liveset::report {

// Of the traces that have steps, the one of each rank.
Result<std::vector<Check>> check_distributed(const std::vector<trace::TraceFile>& files);

}  // namespace liveset::report
