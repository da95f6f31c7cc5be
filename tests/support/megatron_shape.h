// The shape of a Megatron-LM run from a row of megatron.json, as its arguments say. The attention kernel is the one that its GPU gets.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "viewer/model/transformer.h"

namespace liveset::test {

// `resolved` of the row has a number for each of what is read here.
inline model::TransformerShape megatron_shape(const nlohmann::json& resolved, const std::string& gpu) {
  const nlohmann::json& r = resolved;
  model::TransformerShape shape;
  shape.sequence = r.at("sequence");
  shape.micro_batch = r.at("micro_batch");
  shape.hidden = r.at("hidden");
  shape.heads = r.at("heads");
  shape.layers = r.at("layers");
  shape.vocabulary = r.at("padded_vocab");
  shape.ffn = r.at("ffn");
  shape.key_value_heads = r.at("query_groups");
  shape.max_positions = r.at("max_position_embeddings");
  shape.tied_embeddings = r.at("tied_embeddings");
  shape.tensor = r.at("tp");
  shape.pipeline = r.at("pp");
  shape.interleave = r.at("virtual_pipeline").is_null() ? 1 : r.at("virtual_pipeline").get<std::uint64_t>();
  shape.data = r.at("dp");
  shape.microbatches = r.at("microbatches");
  shape.attention = model::TransformerShape::Attention::fused;
  // cuDNN's kernel writes sequence first, as the projection reads it; FlashAttention writes batch first, and with more than one sample
  // the projection gets a copy. Under deterministic mode Hopper takes cuDNN's.
  shape.attention_output_copied = gpu != "H100 80GB" && shape.micro_batch > 1;
  shape.norm_statistics = true;
  shape.logits_twice = true;        // the output projection's own, while the loss works on their 32-bit copy in place
  shape.weight_gradient_bytes = 2;  // --no-gradient-accumulation-fusion
  shape.sharding = model::TransformerShape::Sharding::optimizer;
  shape.stage_inputs_held = true;  // a chunk keeps the tensor that it was handed; its gradient is retained
  const std::uint64_t mib = 1 << 20, rows = shape.sequence * shape.micro_batch;
  const auto library = trace::MemoryClass::library;
  shape.fixed = {
      {"cuBLAS workspaces of the forward's and the backward's thread", 2 * 32 * mib, library, false, "CUBLAS_WORKSPACE_CONFIG=:4096:8"},
      {"Transformer Engine's cuBLAS workspace", (gpu == "A100 80GB" ? 4 : 32) * mib, library, false, "4 MiB before Hopper, 32 MiB since"},
      {"attention mask of the batch, one byte an entry", rows * shape.sequence, trace::MemoryClass::input, true, "bs^2"},
      {"labels and loss mask of the batch", rows * 12, trace::MemoryClass::input, true, "8bs + 4bs"}};
  return shape;
}

}  // namespace liveset::test
