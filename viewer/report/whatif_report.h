// A recorded step under other policies, for people and as JSON ("liveset.whatif/1").
#pragma once
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "viewer/model/recorded_step.h"
#include "viewer/report/model_report.h"
#include "viewer/report/text.h"

namespace liveset::report {

struct WhatIfReport {
  std::string trace;
  model::RecordedStep step;
  model::CounterKind counter = model::CounterKind::requested;
  std::vector<model::Outcome> outcomes;
};

// Of the first policy what outcome_json() has, at the top; of all of them in policies[].
nlohmann::ordered_json whatif_json(const WhatIfReport& report);
std::string whatif_text(const WhatIfReport& report, const Style& style);
std::string whatif_table(const WhatIfReport& report, TableFormat format, const Style& style);

}  // namespace liveset::report
