// A logical model of a training step as plain data, and what it predicts under a policy.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/ledger/logical.h"
#include "viewer/trace/result.h"

namespace liveset::model {

// proto/model.proto says what each means. Defaults: reading C0 of the six-layer chain.
struct Conventions {
  bool count_inputs = true;
  bool checkpoint_last_segment = true;
  bool short_segment_first = false;
  bool stop_before_boundary = false;
  bool physical_copy = false;
};

struct Input {
  std::string id;
  std::uint64_t bytes = 1;
};

// Makes the value of the same id.
struct Layer {
  std::string id;
  std::vector<std::uint32_t> reads;  // values: inputs first, then layers (input count + index); always smaller than the layer's own
  std::uint64_t bytes = 1;
  std::uint64_t cost = 1;
};

// Always whole: layers in an order in which they can run, every value but the loss's is read by a layer.
struct Model {
  std::string name;
  Conventions conventions;
  std::vector<Input> inputs;
  std::vector<Layer> layers;
  std::uint32_t loss = 0;  // the value that the loss reads

  std::uint32_t value_of(std::size_t layer) const { return static_cast<std::uint32_t>(inputs.size() + layer); }
};

inline constexpr std::uint64_t max_layers = 1'000'000;  // their ledger takes half a GiB
inline constexpr std::uint64_t max_total_bytes = std::uint64_t{1} << 62;

// A chain h0 .. hn. `bytes` has length + 1 entries, `cost` length.
Model make_chain(const std::vector<std::uint64_t>& bytes, const std::vector<std::uint64_t>& cost);

// Reads a model file: protobuf text format, or JSON when it begins with '{'. Errors say line (text format) and field.
Result<Model> read_model(const std::string& path);
Result<Model> parse_model(std::string_view text, const std::string& file);

struct Policy {
  enum class Kind { save_all, equal_segments, segments };
  Kind kind = Kind::save_all;
  std::uint64_t length = 0;            // equal_segments
  std::vector<std::uint64_t> lengths;  // segments
  std::string text;
};

// "save-all", "segment:K", "segments:N,N,...".
Result<Policy> parse_policy(std::string_view text);

// Where segments begin and end: 0 .. layers. Of save-all: every layer. A K above the number of layers gives one segment.
Result<std::vector<std::uint64_t>> boundaries(const Policy& policy, std::uint64_t layers, bool short_segment_first);

struct Prediction {
  ledger::LogicalLedger ledger;
  std::vector<std::uint64_t> boundaries;
  std::uint64_t forward_cost = 0;  // sum of the costs of all layers executed, re-runs included
};

Result<Prediction> predict(const Model& model, const Policy& policy);

}  // namespace liveset::model
