// A comparison of two peaks as JSON, text and tables. Fields and csv call the sides measured and predicted whatever they are. What people
// read calls the second predicted where it is a model, or a dry run beside a recording, and then the first measured, or dry run where it
// is one; of two recordings, two dry runs, and a recording behind a dry run none predicts the other: first and second.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "viewer/compare/peaks.h"
#include "viewer/report/text.h"

namespace liveset::report {

// What is said of a side beside its figures.
struct SideLabel {
  std::string label;   // of a dry run or a model: "exact", "estimate"; empty: measured, or predicted without assumptions
  std::string policy;  // of a model
  bool is_dry_run = false;
};

struct GapReport {
  compare::PeakComparison found;
  SideLabel measured, predicted;
};

// Fields: measured{}, predicted{}, difference, peak_error, gap{} (sums to difference), gap_rows{}, values{}, paired_by_size, verdict,
// steps[], warnings[]. Where the two share no name of a value, difference and gap are null.
nlohmann::ordered_json gap_json(const GapReport& report);
std::string gap_text(const GapReport& report, const Style& style);
std::string gap_markdown(const GapReport& report, const Style& style);
// A row for each name in each class, one without a name for what has none; they sum to the difference.
std::string gap_csv(const GapReport& report);

// In a summary: what was predicted, and the difference.
nlohmann::ordered_json prediction_json(const GapReport& report);
std::string prediction_text(const GapReport& report, const Style& style);
std::string prediction_markdown(const GapReport& report, const Style& style);

// What the verdict says, empty where the two are comparable.
std::string verdict_text(const GapReport& report);

}  // namespace liveset::report
