#include "viewer/compare/peaks.h"

#include <algorithm>
#include <unordered_map>

#include "viewer/compare/model_side.h"

namespace liveset::compare {

constexpr std::string_view no_bytes = "the model states no bytes, so it predicts no peak";

double PeakComparison::error() const {
  const std::uint64_t a = measured.peak.bytes.value_or(0), b = predicted.peak.bytes.value_or(0);
  return a == b ? 0 : static_cast<double>(std::max(a, b) - std::min(a, b)) / static_cast<double>(std::max(a, b));
}

namespace {

bool has_counter(const Side& side, const std::string& counter) {
  return std::any_of(side.counters.begin(), side.counters.end(), [&](const KnownCounter& known) { return known.name == counter; });
}

// Two peaks of one counter. Where none is asked for: the one that the first side's blocks are counted in, or else that of the second's, if
// both have it.
Status read_both(const trace::TraceFile& measured, TraceOptions measured_options, const trace::TraceFile& predicted,
                 TraceOptions predicted_options, std::optional<TraceSide>& left, std::optional<TraceSide>& right) {
  const auto read = [](const trace::TraceFile& file, const TraceOptions& options, std::optional<TraceSide>& side) -> Status {
    Result<TraceSide> made = TraceSide::read(file, options);
    if (!made) return made.take_error();
    side.emplace(std::move(*made));
    return Done{};
  };
  const bool is_free = measured_options.counter.empty() && predicted_options.counter.empty();
  if (Status status = read(measured, measured_options, left); !status) return status;
  if (Status status = read(predicted, predicted_options, right); !status) return status;
  if (!is_free || left->side.counter == right->side.counter) return Done{};
  if (has_counter(right->side, left->side.counter)) {
    predicted_options.counter = left->side.counter;
    return read(predicted, predicted_options, right);
  }
  measured_options.counter = right->side.counter;
  return read(measured, measured_options, left);
}

}  // namespace

bool has_no_peak(const Error& error) { return error.what == no_allocation || error.what == no_bytes; }

Result<PeakComparison> compare_traces(const trace::TraceFile& measured, const TraceOptions& measured_options,
                                      const trace::TraceFile& predicted, const TraceOptions& predicted_options) {
  std::optional<TraceSide> left, right;
  if (Status status = read_both(measured, measured_options, predicted, predicted_options, left, right); !status) return status.take_error();
  if (Status status = right->look_at(left->side.peak.place); !status) return status.take_error();
  if (Status status = right->prefer_other(left->side.peak.block_bytes); !status) return status.take_error();
  if (Status status = left->look_at(right->side.peak.place); !status) return status.take_error();
  PeakComparison out;
  Result<Pace> pace = pace_of(measured, left->ledger(), measured_options.range);
  if (!pace) return pace.take_error();
  out.measured_pace = *pace;
  pace = pace_of(predicted, right->ledger(), predicted_options.range);
  if (!pace) return pace.take_error();
  out.predicted_pace = *pace;
  out.measured = std::move(left->side);
  out.predicted = std::move(right->side);
  out.gap = compare_peaks(out.measured, out.predicted);
  out.verdict = verdict_of(out.measured, out.predicted);
  std::unordered_map<std::int64_t, std::uint64_t> steps;
  for (const StepPeak& step : out.predicted.steps) steps.try_emplace(step.number, step.bytes);
  for (const StepPeak& step : out.measured.steps)
    if (const auto found = steps.find(step.number); found != steps.end()) out.steps.push_back({step.number, step.bytes, found->second});
  return out;
}

Result<PeakComparison> compare_with_model(const trace::TraceFile& measured, const TraceOptions& options, const model::Model& model,
                                          const model::Policy& policy, const std::string& model_file) {
  Result<TraceSide> left = TraceSide::read(measured, options);
  if (!left) return left.take_error();
  ModelOptions wanted;
  wanted.file = model_file;
  wanted.counter = left->side.counter;
  const ledger::Place& place = left->side.peak.place;
  if (place.step) wanted.step = place.step_index;
  Result<ModelSide> right = ModelSide::make(model, policy, wanted);
  if (!right) return right.take_error();
  if (!right->has_bytes()) return Error{ErrorKind::usage, model_file, {}, std::string(no_bytes), "give its tensors bytes or size"};
  right->look_at(place);
  right->prefer_other();
  ledger::Place there = right->side.peak.place;
  there.step = place.step;  // a model's step has no number: it is the one that it is compared with
  there.step_index = place.step_index;
  if (Status status = left->look_at(there); !status) return status.take_error();
  PeakComparison out;
  const std::vector<ledger::Step>& steps = left->ledger().steps;
  std::unordered_map<std::int64_t, std::uint64_t> bytes;
  for (const StepPeak& step : left->side.steps) bytes.try_emplace(step.number, step.bytes);
  for (std::uint64_t index = 0; index < steps.size(); ++index)
    if (const auto found = bytes.find(steps[index].number); found != bytes.end())
      out.steps.push_back({steps[index].number, found->second, right->step_peak(index)});
  Result<Pace> pace = pace_of(measured, left->ledger(), options.range);
  if (!pace) return pace.take_error();
  out.measured_pace = *pace;
  out.measured = std::move(left->side);
  out.predicted = std::move(right->side);
  out.gap = compare_peaks(out.measured, out.predicted);
  out.verdict = verdict_of(out.measured, out.predicted);
  return out;
}

}  // namespace liveset::compare
