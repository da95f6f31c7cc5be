// Measured memory beside what the transformer's formulas predict, row by row: a report and no gate. Each row is predicted or says why not.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "viewer/model/transformer.h"

namespace liveset::test {

// The peak of the fullest of the stages asked for, and which moment of which stage it is.
struct PredictedPeak {
  model::TransformerMemory memory;
  model::Moment moment = model::Moment::forward_end;
  std::uint64_t stage = 0;
  double bytes = 0;
  double without_reuse = 0;  // each part at its own highest: what a cache that nothing is reused from would hold
};

inline Result<PredictedPeak> fullest(const model::TransformerShape& shape, std::uint64_t first, std::uint64_t last) {
  PredictedPeak peak;
  for (std::uint64_t stage = first; stage <= last; ++stage) {
    Result<model::TransformerMemory> memory = model::transformer_memory(shape, {stage, false});
    if (!memory) return memory.take_error();
    const model::Moment moment = memory->peak();
    const double bytes = memory->total(moment).approximate();
    if (bytes <= peak.bytes) continue;
    double without_reuse = 0;
    for (const model::MemoryPart& part : memory->parts) {
      double most = 0;
      for (const model::Exact& at : part.bytes) most = std::max(most, at.approximate());
      without_reuse += most;
    }
    peak = {std::move(*memory), moment, stage, bytes, without_reuse};
  }
  return peak;
}

// What was taken for granted, or why there is no prediction.
struct Case {
  model::TransformerShape shape;
  std::string refused;
  std::vector<std::string> assumed;
};

inline std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : "; ") + text;
  return all;
}

inline constexpr double gib = 1 << 30;

inline double percent(double predicted, double measured) { return 100 * (predicted / measured - 1); }

// The parts at the moment of the peak, by class: "activation 27.06 + parameter 3.74 + ..", in GiB.
inline std::string classes_at(const PredictedPeak& peak) {
  std::vector<std::pair<double, std::string>> sums;
  for (std::size_t i = 0; i < trace::class_count; ++i) {
    const auto memory_class = static_cast<trace::MemoryClass>(i);
    const double bytes = peak.memory.total(peak.moment, memory_class).approximate();
    if (bytes >= 0.005 * gib) sums.emplace_back(bytes, trace::class_name(memory_class));
  }
  std::stable_sort(sums.begin(), sums.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (const auto& [bytes, name] : sums) {
    char number[32];
    std::snprintf(number, sizeof number, " %.2f", bytes / gib);
    text += (text.empty() ? "" : " + ") + name + number;
  }
  return text;
}

inline void print_parts(const PredictedPeak& peak) {
  for (const model::MemoryPart& part : peak.memory.parts) {
    const double bytes = part.at(peak.moment).approximate();
    if (bytes != 0) std::printf("      %10.3f GiB  %-56s %s\n", bytes / gib, part.name.c_str(), part.formula.c_str());
  }
}

// Median and largest of what is printed.
class Errors {
 public:
  void add(double error) { errors_.push_back(std::abs(error)); }
  void print(const char* of) {
    if (errors_.empty()) return;
    std::sort(errors_.begin(), errors_.end());
    std::printf("%s: %zu predicted, median error %.1f %%, largest %.1f %%\n", of, errors_.size(), errors_[errors_.size() / 2],
                errors_.back());
  }

 private:
  std::vector<double> errors_;
};

}  // namespace liveset::test
