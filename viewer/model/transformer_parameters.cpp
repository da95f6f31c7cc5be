// Parameters of a stage, tensor by tensor, and the published closed forms.
#include "viewer/model/transformer_sizes.h"

namespace liveset::model {

Result<std::vector<ParameterTensor>> parameter_tensors(const TransformerShape& shape, std::uint64_t stage) {
  if (Status status = check(shape); !status) return status.take_error();
  if (stage >= shape.pipeline)
    return transformer_error("there is no stage " + std::to_string(stage) + ", the last is " + std::to_string(shape.pipeline - 1));
  const TransformerSizes z(shape);
  const LayerWeights weights = layer_weights(shape);
  const Exact layers = Exact(shape.layers) / shape.pipeline;
  const bool first = stage == 0, last = stage + 1 == shape.pipeline, biases = shape.linear_biases;
  const bool mean = shape.norm == TransformerShape::Norm::layer;
  const std::string norm = mean ? " (weight, bias)" : " (weight)";
  const Exact norm_size = z.hidden * (mean ? 2 : 1);
  std::vector<ParameterTensor> tensors;
  const auto of_layer = [&](std::string name, const Exact& elements, bool expert = false) {
    tensors.push_back({std::move(name), elements, layers, expert, true});
  };
  of_layer("norm 1" + norm, norm_size);
  of_layer("qkv weight", weights.query_key_value);
  if (biases) of_layer("qkv bias", z.query + Exact(2) * z.key_value);
  of_layer("projection weight", weights.projection);
  if (biases) of_layer("projection bias", z.hidden);
  of_layer("norm 2" + norm, norm_size);
  if (shape.experts == 0) {
    of_layer("fc1 weight", weights.first);
    if (biases) of_layer("fc1 bias", z.mlp * z.gates);
    of_layer("fc2 weight", weights.second);
    if (biases) of_layer("fc2 bias", z.hidden);
  } else {
    const Exact here = Exact(shape.experts) / shape.expert;
    of_layer("router weight", weights.router);
    of_layer("experts' fc1 weight", weights.first, true);
    if (biases) of_layer("experts' fc1 bias", here * z.expert_mlp * z.gates, true);
    of_layer("experts' fc2 weight", weights.second, true);
    if (biases) of_layer("experts' fc2 bias", here * z.hidden, true);
  }
  const auto once = [&](std::string name, const Exact& elements) { tensors.push_back({std::move(name), elements, 1, false, false}); };
  if (first) once("word embedding", z.vocabulary * z.hidden);
  if (first && shape.positions == TransformerShape::Positions::learned)
    once("position embedding", Exact(shape.max_positions != 0 ? shape.max_positions : shape.sequence) * z.hidden);
  if (last) once("final norm" + norm, norm_size);
  // Tied weights of one stage are one tensor; the last of several stages has a copy of its own.
  if (last && !(shape.tied_embeddings && first)) once("output layer weight", z.vocabulary * z.hidden);
  for (const ParameterTensor& tensor : tensors)
    if (Status status = overflow_checked({tensor.elements * tensor.count}); !status) return status.take_error();
  return tensors;
}

Result<TransformerFormulas> transformer_formulas(const TransformerShape& shape, std::uint64_t global_batch) {
  if (Status status = check(shape); !status) return status.take_error();
  if (shape.activation_bytes != 2 || (shape.ffn != 0 && shape.ffn != 4 * shape.hidden) || shape.experts != 0 || shape.gated_mlp ||
      shape.context != 1 || (shape.key_value_heads != 0 && shape.key_value_heads != shape.heads))
    return transformer_error("the published forms know 16-bit activations, a dense MLP of width 4h and no key-value heads of their own",
                             "transformer_memory counts other shapes");
  const Exact s = shape.sequence, b = shape.micro_batch, h = shape.hidden, a = shape.heads, L = shape.layers, t = shape.tensor,
              p = shape.pipeline, m = shape.interleave, V = shape.vocabulary, B = global_batch;
  const Exact sbh = s * b * h, ratio = Exact(5) * a * s / h, ten = Exact(10) + Exact(24) / t;
  TransformerFormulas f;
  f.attention_ratio = ratio;
  f.per_layer_none = sbh * (Exact(34) + ratio);
  f.per_layer_tensor = sbh * (ten + ratio / t);
  f.per_layer_sequence = sbh / t * (Exact(34) + ratio);
  f.per_layer_tensor_selective = sbh * ten;
  f.per_layer_sequence_selective = Exact(34) * sbh / t;
  f.per_layer_full = Exact(2) * sbh;
  f.interleaving_factor = shape.interleave > 1 ? Exact(1) + Exact(shape.pipeline - 1) / (p * m) : Exact(1);
  f.layer_equivalents = L * f.interleaving_factor;
  f.embedding_dropout = sbh * p / t;
  f.output_side = shape.pipeline == 1 ? Exact(4) * sbh / t * (Exact(1) + V / h) : Exact(0);
  f.first_stage_sequence = f.per_layer_sequence * f.layer_equivalents + f.embedding_dropout + f.output_side;
  f.first_stage_sequence_selective = f.per_layer_sequence_selective * f.layer_equivalents + f.embedding_dropout + f.output_side;
  f.parameters = Exact(12) * L * h * h + Exact(13) * L * h + (V + s) * h;
  const Exact flops = Exact(72) * B * L * s * h * h;
  const auto with = [&](const Exact& attention) { return flops * (Exact(1) + attention + V / (Exact(12) * h * L)); };
  f.model_flops = with(s / (Exact(6) * h));
  f.hardware_selective = with(s / (Exact(3) * h));
  f.hardware_full = f.model_flops + B * L * (Exact(24) * s * h * h + Exact(4) * s * s * h);
  f.hardware_selective_by_count = f.model_flops + Exact(4) * B * L * s * s * h;
  if (Status status = overflow_checked({f.per_layer_none, f.first_stage_sequence, f.per_layer_none * f.layer_equivalents, f.parameters,
                                        f.hardware_full, f.hardware_selective});
      !status)
    return status.take_error();
  return f;
}

}  // namespace liveset::model
