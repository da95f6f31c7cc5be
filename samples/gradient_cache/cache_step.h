// One step by gradient cache: encode without graph, gradient of the representations, then encode chunk by chunk again and
// pull the gradients through. And the same step with the whole graph kept, to compare with.
#pragma once
#include <string>
#include <vector>

#include "samples/gradient_cache/encoder.h"

namespace gradient_cache {

struct Options {
  std::uint32_t seed = 31;
  std::size_t chunk = 2;
  double dropout = 0.2;
  bool restore = true;  // re-encode each chunk from the random state of its first encoding
};

struct ChunkEvent {
  std::string stage;  // encode, loss, re-encode
  Chunk chunk;        // no rows: the loss
  std::uint32_t random_before = 0, random_after = 0;
  std::size_t hidden_live = 0;  // hidden vectors while it ran
  Gradients gradients;          // of a re-encode: the sum so far
};

struct StepResult {
  Loss loss;
  Representations representations{};
  Gradients gradients;
  std::uint32_t random_after_pass_1 = 0, random_at_end = 0;
  std::size_t hidden_peak = 0;
  std::vector<ChunkEvent> events;
};

struct Reference {
  Gradients gradients;
  std::size_t hidden_peak = 0;
};

StepResult cached_step(const Options& options);
// Keeps every hidden vector of the first pass. Told to nobody: it is not part of the recorded step.
Reference reference_step(const Options& options);

std::string number_text(double number);  // 17 significant digits
std::string json_of(const Matrix1& matrix);
std::string json_of(const Matrix2& matrix);
std::string json_of(const std::vector<std::size_t>& rows);

}  // namespace gradient_cache
