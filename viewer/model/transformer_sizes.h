// What the parts of a transformer's memory are made of, on one rank. Inside viewer/model only.
#pragma once
#include <algorithm>

#include "viewer/model/transformer.h"

namespace liveset::model {

struct TransformerSizes {
  explicit TransformerSizes(const TransformerShape& shape);

  std::uint64_t head_width, key_value_heads, ffn, expert_tensor, gates;
  Exact rows;                      // tokens of a rank's sequence part: s b / c
  Exact residual_rows;             // the same where sequence parallelism splits them
  Exact expert_rows;               // tokens that a rank's experts get, when all get equally many
  Exact hidden, query, key_value;  // widths on a rank
  Exact mlp, expert_mlp;           // width of the MLP on a rank, of one expert on a rank
  Exact scores;                    // attention scores: a s/c s b / t
  Exact heads;                     // on a rank
  Exact vocabulary;                // rows of the embedding on a rank
  Exact shards, expert_shards;     // ranks that share the optimizer's state out
  std::string residual;            // "/t" where sequence parallelism splits
};

// Weights of one layer that are multiplied, on one rank.
struct LayerWeights {
  Exact query_key_value, projection, first, second, router;  // first and second: of all of a rank's experts
  Exact largest() const { return std::max({query_key_value, projection, first, second}); }
};
LayerWeights layer_weights(const TransformerShape& shape);

// One operation of a layer's backward, in the order in which they run.
struct BackwardStep {
  const char* name;
  std::vector<const char*> releases;  // stored tensors that no later step reads
  Exact gradients;                    // bytes of gradients that live while it runs
  const char* gradients_formula;
  Exact weight;       // elements of the weight gradient that it makes
  bool core = false;  // reads what selective recomputation makes again
};
std::vector<BackwardStep> backward_steps(const TransformerShape& shape);

inline constexpr std::uint64_t max_ranks = 1'000'000;  // more stages or chunks than anybody has

Error transformer_error(std::string what, std::string hint = "");
Status overflow_checked(std::initializer_list<Exact> values);
Exact less_one(const Exact& value);  // 0 where it is below one

}  // namespace liveset::model
