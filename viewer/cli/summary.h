// `liveset summary`, which `dryrun` shows at its end.
#pragma once
#include "viewer/cli/traces.h"

namespace liveset::cli {

struct SummaryOptions : ReadOptions {
  std::string heap, counter = "allocated";
};

Status show_summary(const SummaryOptions& options, Context& context);

}  // namespace liveset::cli
