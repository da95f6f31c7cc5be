// `liveset summary`, which `dryrun` shows at its end.
#pragma once
#include <optional>

#include "viewer/cli/traces.h"

namespace liveset::cli {

struct SummaryOptions : ReadOptions {
  std::string heap, counter;
  std::optional<int> job_status = std::nullopt;  // where the caller ran the job
  std::string model, policy = "save-all";        // whose prediction is shown beside the peak; model empty: none
};

Status show_summary(const SummaryOptions& options, Context& context);

}  // namespace liveset::cli
