// Two sides, their peaks and what lies between them: a trace beside a trace, or beside a model.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "viewer/compare/gap.h"
#include "viewer/compare/pace.h"
#include "viewer/compare/trace_side.h"
#include "viewer/model/predict.h"

namespace liveset::compare {

struct StepRow {
  std::int64_t number = 0;
  std::uint64_t measured = 0, predicted = 0;  // highest sums of blocks
};

struct PeakComparison {
  Side measured, predicted;
  Gap gap;
  Verdict verdict = Verdict::comparable;
  std::vector<StepRow> steps;                         // that both have
  std::optional<Pace> measured_pace, predicted_pace;  // of what was recorded
  // Whether the peaks are of one thing; otherwise neither their difference nor its classes mean anything.
  bool is_meaningful() const { return verdict != Verdict::another_network; }
  // Of the larger peak; 0 exactly when the peaks are equal.
  double error() const;
};

Result<PeakComparison> compare_traces(const trace::TraceFile& measured, const TraceOptions& measured_options,
                                      const trace::TraceFile& predicted, const TraceOptions& predicted_options);

// Of an error of these: one of the two tells nothing of memory. What they say of values can still be compared.
bool has_no_peak(const Error& error);

// Errors beside those of a side: a model without bytes, as a usage error that says so.
Result<PeakComparison> compare_with_model(const trace::TraceFile& measured, const TraceOptions& options, const model::Model& model,
                                          const model::Policy& policy, const std::string& model_file);

}  // namespace liveset::compare
