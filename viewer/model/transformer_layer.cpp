// What a shape may be, and what one layer stores.
#include <initializer_list>

#include "viewer/model/transformer_sizes.h"

namespace liveset::model {

Error transformer_error(std::string what, std::string hint) {
  return {ErrorKind::usage, "", {}, "transformer: " + std::move(what), std::move(hint)};
}

Status overflow_checked(std::initializer_list<Exact> values) {
  for (const Exact& value : values)
    if (!value.valid()) return transformer_error("a size reaches 2^63", "check sequence, hidden, layers and vocabulary");
  return Done{};
}

Exact less_one(const Exact& value) {
  if (!value.valid() || value.numerator() <= value.denominator()) return value.valid() ? Exact(0) : value;
  return Exact(value.numerator() - value.denominator()) / Exact(value.denominator());
}

TransformerSizes::TransformerSizes(const TransformerShape& shape)
    : head_width(shape.head_width != 0 ? shape.head_width : shape.hidden / shape.heads),
      key_value_heads(shape.key_value_heads != 0 ? shape.key_value_heads : shape.heads),
      ffn(shape.ffn != 0 ? shape.ffn : 4 * shape.hidden),
      expert_tensor(shape.expert_tensor != 0 ? shape.expert_tensor : shape.tensor),
      gates(shape.gated_mlp ? 2 : 1),
      rows(Exact(shape.sequence) * shape.micro_batch / shape.context),
      residual_rows(shape.sequence_parallel ? rows / shape.tensor : rows),
      expert_rows(residual_rows * Exact(shape.experts_per_token) * expert_tensor),
      hidden(shape.hidden),
      // Without a stated width of a head, all heads together are as wide as the model even where that is not a multiple.
      query((shape.head_width != 0 ? Exact(shape.heads) * shape.head_width : Exact(shape.hidden)) / shape.tensor),
      mlp(Exact(ffn) / shape.tensor),
      expert_mlp(Exact(ffn) / expert_tensor),
      scores(Exact(shape.heads) * rows * shape.sequence / shape.tensor),
      heads(Exact(shape.heads) / shape.tensor),
      vocabulary(Exact(shape.vocabulary) / shape.tensor),
      shards(Exact(shape.data) * shape.context),
      expert_shards(shards * shape.tensor / (Exact(shape.expert) * expert_tensor)),
      residual(shape.sequence_parallel ? "/t" : "") {
  // Fewer key-value heads than ranks: each rank has one.
  key_value = query * shape.tensor * key_value_heads / shape.heads / std::min(shape.tensor, key_value_heads);
  if (key_value_heads == shape.heads) key_value = query;
}

LayerWeights layer_weights(const TransformerShape& shape) {
  const TransformerSizes z(shape);
  LayerWeights weights;
  weights.query_key_value = z.hidden * (z.query + Exact(2) * z.key_value);
  weights.projection = z.query * z.hidden;
  if (shape.experts == 0) {
    weights.first = z.hidden * z.gates * z.mlp;
    weights.second = z.mlp * z.hidden;
  } else {
    const Exact here = Exact(shape.experts) / shape.expert;
    weights.first = here * z.hidden * z.gates * z.expert_mlp;
    weights.second = here * z.expert_mlp * z.hidden;
    weights.router = z.hidden * shape.experts;
  }
  return weights;
}

namespace {

Status positive(std::initializer_list<std::pair<const char*, std::uint64_t>> fields) {
  for (const auto& [name, value] : fields) {
    if (value == 0) return transformer_error(std::string(name) + " is 0, must be at least 1");
    if (value >= std::uint64_t{1} << 61)
      return transformer_error(std::string(name) + " is " + std::to_string(value) + ", which is no size");
  }
  return Done{};
}

Status bytes_of(std::initializer_list<std::pair<const char*, std::uint64_t>> fields) {
  for (const auto& [name, value] : fields)
    if (value > 64) return transformer_error(std::string(name) + " is " + std::to_string(value) + " bytes an element, must be at most 64");
  return Done{};
}

}  // namespace

Status check(const TransformerShape& shape) {
  if (Status status = positive({{"sequence", shape.sequence},
                                {"micro_batch", shape.micro_batch},
                                {"hidden", shape.hidden},
                                {"heads", shape.heads},
                                {"layers", shape.layers},
                                {"vocabulary", shape.vocabulary},
                                {"tensor", shape.tensor},
                                {"pipeline", shape.pipeline},
                                {"interleave", shape.interleave},
                                {"context", shape.context},
                                {"logit_chunks", shape.logit_chunks},
                                {"expert", shape.expert},
                                {"data", shape.data}});
      !status)
    return status;
  // Their products stay sizes, too.
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, std::uint64_t>>{{"tensor", shape.tensor},
                                                                                                {"pipeline", shape.pipeline},
                                                                                                {"interleave", shape.interleave},
                                                                                                {"context", shape.context},
                                                                                                {"expert", shape.expert},
                                                                                                {"data", shape.data}})
    if (value > max_ranks) return transformer_error(std::string(name) + " is " + std::to_string(value) + ", must be at most a million");
  for (const std::uint64_t value : {shape.ffn, shape.key_value_heads, shape.head_width, shape.experts, shape.experts_per_token,
                                    shape.expert_tensor, shape.max_positions, shape.microbatches})
    if (value >= std::uint64_t{1} << 61) return transformer_error(std::to_string(value) + " is no size");
  if (Status status = bytes_of({{"activation_bytes", shape.activation_bytes},
                                {"mask_bytes", shape.mask_bytes},
                                {"logit_bytes", shape.logit_bytes},
                                {"parameter_bytes", shape.parameter_bytes},
                                {"gathered_bytes", shape.gathered_bytes},
                                {"whole_gradient_bytes", shape.whole_gradient_bytes},
                                {"reduce_bytes", shape.reduce_bytes},
                                {"accumulated_bytes", shape.accumulated_bytes},
                                {"gradient_bytes", shape.gradient_bytes},
                                {"weight_gradient_bytes", shape.weight_gradient_bytes},
                                {"master_bytes", shape.master_bytes},
                                {"moment_bytes", shape.moment_bytes}});
      !status)
    return status;
  if (shape.recompute == TransformerShape::Recompute::products &&
      (shape.experts != 0 || shape.attention != TransformerShape::Attention::fused))
    return transformer_error("which products are kept is known for dense MLPs and fused attention only");
  if (shape.norm_in_steps && shape.norm != TransformerShape::Norm::rms)
    return transformer_error("only an RMS norm runs as single operations", "leave norm_in_steps out");
  if (shape.key_value_heads > shape.heads) return transformer_error("there are more key-value heads than heads");
  if (shape.key_value_heads != 0 && shape.heads % shape.key_value_heads != 0)
    return transformer_error("heads are no multiple of key-value heads");
  if (shape.interleave > 1 && shape.pipeline == 1) return transformer_error("interleaving needs more than one pipeline stage");
  if (shape.experts == 0 && (shape.experts_per_token != 0 || shape.expert > 1))
    return transformer_error("experts are shared out, but there are none");
  if (shape.experts != 0 && (shape.experts_per_token == 0 || shape.experts_per_token > shape.experts))
    return transformer_error("a token goes to " + std::to_string(shape.experts_per_token) + " of " + std::to_string(shape.experts) +
                             " experts");
  if (shape.experts != 0 && shape.experts % shape.expert != 0)
    return transformer_error("experts are no multiple of the ranks that share them out");
  if (shape.microbatches != 0 && shape.layers % (shape.pipeline * shape.interleave) != 0)
    return transformer_error("layers are no multiple of pipeline stages times interleaving, so no schedule of whole layers exists",
                             "leave microbatches out for the closed form");
  if (shape.interleave > 1 && shape.microbatches != 0 && shape.microbatches < shape.pipeline)
    return transformer_error("interleaving needs at least as many microbatches as pipeline stages");
  return Done{};
}

Result<std::vector<StoredTensor>> stored_tensors(const TransformerShape& shape) {
  if (Status status = check(shape); !status) return status.take_error();
  const TransformerSizes z(shape);
  const Exact A = shape.activation_bytes, mask = shape.mask_bytes;
  const std::string a = std::to_string(shape.activation_bytes), r = z.residual;
  const Exact residual = A * z.residual_rows * z.hidden;
  std::vector<StoredTensor> stored;
  const auto add = [&](std::string name, const Exact& bytes, std::string formula, bool input = false, bool core = false,
                       const Exact& of_products = 0) {
    stored.push_back({std::move(name), bytes, std::move(formula), input, core, of_products});
  };
  const Exact key_value = shape.key_values_repeated ? z.query : z.key_value;
  const std::string g = shape.key_values_repeated ? "a" : "g";
  const auto norm_steps = [&](const std::string& which) {
    if (!shape.norm_in_steps) return;
    add(which + " input in 32 bits", Exact(4) * z.residual_rows * z.hidden, "4sbh" + r);
    add(which + " normalized input", residual, a + "sbh" + r);
  };
  // The norm's own operations keep a copy in 32 bits, and nobody keeps what it was made from; but a region keeps its input.
  if (!shape.norm_in_steps || shape.recompute != TransformerShape::Recompute::nothing)
    add("norm 1 input", residual, a + "sbh" + r, true, false, residual);
  norm_steps("norm 1");
  const Exact linear_input = shape.gathered_inputs_kept ? A * z.rows * z.hidden : residual;
  const std::string input_part = shape.gathered_inputs_kept ? "" : r;
  add("shared input of Q, K, V", linear_input, a + "sbh" + input_part);
  add("Q and K", A * z.rows * (z.query + key_value), a + "sb(a+" + g + ")d/t", false, false, A * z.rows * z.query);
  add("V", A * z.rows * key_value, a + "sb" + g + "d/t", false, false, A * z.rows * z.key_value);
  if (shape.attention == TransformerShape::Attention::stored_scores) {
    add("softmax output", A * z.scores, a + "as^2b/t", false, true);
    if (shape.attention_dropout) {
      add("softmax dropout mask", mask * z.scores, std::to_string(shape.mask_bytes) + "as^2b/t", false, true);
      add("softmax dropout output", A * z.scores, a + "as^2b/t", false, true);
    }
  } else {
    const Exact sums = Exact(4) * z.heads * z.rows;
    add("row sums of the softmax", sums, "4asb/t", false, false, sums);
    if (shape.attention_output_copied) add("attention output of the kernel", A * z.rows * z.query, a + "sbad/t");
  }
  add("attention projection input", A * z.rows * z.query, a + "sbad/t", false, false, A * z.rows * z.query);
  if (shape.hidden_dropout) add("attention dropout mask", mask * z.residual_rows * z.hidden, std::to_string(shape.mask_bytes) + "sbh" + r);
  if (!shape.norm_in_steps) add("norm 2 input", residual, a + "sbh" + r);
  norm_steps("norm 2");
  add("MLP input", linear_input, a + "sbh" + input_part);
  const bool dense = shape.experts == 0;
  const Exact rows = dense ? z.rows : z.expert_rows, width = dense ? z.mlp : z.expert_mlp;
  const std::string tokens = dense ? "sb" : "ksb" + r;
  if (!dense) {
    add("router probabilities", Exact(4) * z.residual_rows * shape.experts, "4sbE" + r);
    add("tokens of the experts", A * rows * z.hidden, a + tokens + "h");
  }
  const std::string gates = shape.gated_mlp ? std::to_string(2 * shape.activation_bytes) : a;
  add("activation input", A * rows * z.gates * width, gates + tokens + "f/t", false, false, A * rows * width);
  if (shape.gated_mlp && !shape.activation_fused) add("activation output", A * rows * width, a + tokens + "f/t");
  add("second MLP linear input", A * rows * width, a + tokens + "f/t");
  if (shape.hidden_dropout) add("MLP dropout mask", mask * z.residual_rows * z.hidden, std::to_string(shape.mask_bytes) + "sbh" + r);
  if (shape.norm_statistics) {
    const bool mean = shape.norm == TransformerShape::Norm::layer;
    add("statistics of both norms", Exact(mean ? 16 : 8) * z.residual_rows, (mean ? "16sb" : "8sb") + r);
  }
  for (const StoredTensor& tensor : stored)
    if (Status status = overflow_checked({tensor.bytes}); !status) return status.take_error();
  return stored;
}

Result<InFlight> in_flight(const TransformerShape& shape, std::uint64_t stage) {
  if (Status status = check(shape); !status) return status.take_error();
  if (stage >= shape.pipeline)
    return transformer_error("there is no stage " + std::to_string(stage) + ", the last is " + std::to_string(shape.pipeline - 1));
  const std::uint64_t p = shape.pipeline, m = shape.interleave, after = p - stage - 1;
  InFlight flight;
  flight.layers_per_chunk = Exact(shape.layers) / p / m;
  if (m == 1) {
    flight.passes = shape.microbatches == 0 ? p - stage : std::min(p - stage, shape.microbatches);
    flight.first_chunk = flight.last_chunk = flight.passes;
  } else {
    // Rounds of p microbatches: each chunk in turn runs all of them.
    flight.passes = 2 * after + (m - 1) * p + 1;
    if (shape.microbatches != 0 && shape.microbatches < (flight.passes + m - 1) / m) flight.passes = shape.microbatches * m;
    const auto of_chunk = [&](std::uint64_t chunk) {
      std::uint64_t count = 0, done = 0;
      for (std::uint64_t first = 0; done < flight.passes; first += p) {
        const std::uint64_t round = shape.microbatches == 0 ? p : std::min(p, shape.microbatches - first);
        const std::uint64_t before = done + chunk * round;
        if (flight.passes > before) count += std::min(round, flight.passes - before);
        done += m * round;
      }
      return count;
    };
    flight.first_chunk = of_chunk(0);
    flight.last_chunk = of_chunk(m - 1);
  }
  flight.layer_passes = flight.layers_per_chunk * flight.passes;
  if (Status status = overflow_checked({flight.layer_passes}); !status) return status.take_error();
  return flight;
}

}  // namespace liveset::model
