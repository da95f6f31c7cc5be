// Memory of a transformer's training step by formula: what each pipeline stage holds, part by part.
//
// Nothing here is measured or fitted. Every part is a product of the shape's numbers that can be checked by hand; its formula and where
// the formula comes from stand beside it. Symbols: s sequence, b micro-batch, h hidden, a heads, g key-value heads, d width of a head
// (h/a), f width of the MLP (4h), L layers, V vocabulary, t tensor-parallel size, c context-parallel size, p pipeline stages, m chunks of a
// stage (interleaving), E experts, k experts of a token, n data-parallel size. Where c > 1, s of a rank is s/c, only the keys of stored
// attention scores are all s.
//
// Stored tensors of a layer, 16-bit, 4h wide MLP, scores stored (Korthikanti et al. 2022, https://arxiv.org/abs/2205.05198, section 4):
//
//   layer-norm 1 input        2sbh    * | softmax output               2as^2b       | MLP input              2sbh    *
//   shared input of Q, K, V   2sbh    * | softmax dropout mask          as^2b       | GeLU input             8sbh / t
//   Q and K                   4sbh / t  | dropout output               2as^2b       | second linear's input  8sbh / t
//   V                         2sbh / t  | attention projection input   2sbh / t     | MLP dropout mask        sbh    *
//   attention dropout mask     sbh    * | layer-norm 2 input           2sbh    *    |
//
// The as^2b terms are divided by t; those with * only under sequence parallelism. Their sum is sbh(34 + 5as/h) for t = 1,
// sbh(10 + 24/t + 5as/(ht)) for t > 1, sbh/t (34 + 5as/h) with sequence parallelism. Selective recomputation drops the three as^2b terms,
// full recomputation keeps the layer's input, 2sbh. Fused attention stores no as^2b term but 4 bytes a row and head for the backward.
//
// Where matrix products are kept (torchtitan's selective option "op", https://github.com/pytorch/torchtitan, parallelize_llama.py of
// December 2024: every second product of q, k, v, o, w1, w3, w2 is made again, the attention's results are kept), a layer holds its input,
// the products of q, v and the first linear of the MLP, and the attention's output with its row sums. The last product is read by nobody:
// a compiled region drops it, an eager one keeps it.
//
// Ranks that share parameters out (PyTorch's fully_shard, torch/distributed/fsdp) gather a unit before it runs: each layer is one, what is
// outside the layers is one. Its gradients are whole when its backward ends, then copied to the buffer that they are shared out from.
// Under a pipeline, units stay gathered, and microbatches add their whole gradients up, until the last one.
//
// In flight: plain 1F1B holds min(p - stage, microbatches) forward passes of a stage's L/p layers, so the first stage holds L layers'
// worth; interleaved 1F1B holds 2(p - stage - 1) + (m - 1)p + 1 passes of chunks of L/(pm) layers: L (1 + (p-1)/(pm)) on the first stage.
// Embedding dropout adds sbhp/t, the output side of a single stage 4sbh/t (1 + V/h) (the same paper, equations 4 to 6 and section 4.3).
//
// Parameters: 12Lh^2 + 13Lh + (V + s)h (Narayanan et al. 2021, https://arxiv.org/abs/2104.04473, equation 2), without the final norm.
//
// What the formulas leave out is said by `not_counted`, never covered by a factor.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/model/transformer_exact.h"
#include "viewer/trace/records.h"
#include "viewer/trace/result.h"

namespace liveset::model {

struct TransformerShape {
  enum class Norm { layer, rms };
  enum class Positions { absent, learned, rotary };
  enum class Attention { stored_scores, fused };
  enum class Recompute {
    nothing,
    selective,  // the attention core: scores, softmax, dropout, and their product with V
    full,       // every layer from its input
    products,   // all but every second matrix product and the attention's results; for dense MLPs and fused attention
  };
  enum class Optimizer { absent, sgd, adam };
  // What the data-parallel ranks share out among themselves; each includes the one before (ZeRO stages 0 to 3).
  enum class Sharding { nothing, optimizer, gradients, parameters };

  // The model. 0 where a default is said.
  std::uint64_t sequence = 0, micro_batch = 1, hidden = 0, heads = 0, layers = 0, vocabulary = 0;
  std::uint64_t ffn = 0;              // 4 * hidden
  std::uint64_t key_value_heads = 0;  // heads
  std::uint64_t head_width = 0;       // hidden / heads
  bool gated_mlp = false;             // two linears before the product (SwiGLU and the like)
  std::uint64_t experts = 0;          // 0: a dense MLP; otherwise of every layer, each of width ffn
  std::uint64_t experts_per_token = 0;
  bool linear_biases = true;
  bool tied_embeddings = true;
  Norm norm = Norm::layer;
  Positions positions = Positions::learned;
  std::uint64_t max_positions = 0;  // of learned positions: sequence

  // What the step stores.
  std::uint64_t activation_bytes = 2, mask_bytes = 1, logit_bytes = 4;
  bool hidden_dropout = true, attention_dropout = true;
  Attention attention = Attention::stored_scores;
  bool attention_output_copied = false;  // a fused kernel of another layout: its output is kept, and the copy that the projection reads
  bool norm_statistics = false;          // mean and reciprocal deviation of each row, 4 bytes each (the paper leaves them out)
  bool activation_fused = true;          // false: a gated MLP also keeps the activation's result, which the product reads
  bool logits_twice = false;             // while the loss reads them in logit_bytes, the output layer's own logits live, too
  std::uint64_t logit_temporaries = 0;   // further tensors of the logits' size and logit_bytes that the loss's backward has at once
  Recompute recompute = Recompute::nothing;
  bool unread_products_kept = false;  // Recompute::products in an eager region
  std::uint64_t logit_chunks = 1;     // equal parts in which output projection and loss run, one after another
  bool norm_in_steps = false;         // an RMS norm of single operations in 32 bits, as eager code runs it: keeps its input in 32 bits, and
                                      // the normalized input, which the product with the weight reads
  bool key_values_repeated = false;   // key-value heads are copied out to all heads before the attention kernel reads them

  // Parallelism. microbatches 0: as many as keep every stage busy.
  std::uint64_t tensor = 1, pipeline = 1, interleave = 1, context = 1, expert = 1, expert_tensor = 0 /* tensor */, data = 1,
                microbatches = 0;
  bool sequence_parallel = false;
  bool gathered_inputs_kept = false;  // under it, linears keep their input as gathered (PyTorch's DTensor), not their own part (Megatron)

  // Parameters and optimizer.
  std::uint64_t parameter_bytes = 2;
  std::uint64_t gathered_bytes = 0;         // of a parameter that a sharded unit gathers: parameter_bytes
  std::uint64_t whole_gradient_bytes = 0;   // of a sharded unit's gradients before they are shared out: gradient_bytes
  std::uint64_t reduce_bytes = 0;           // of the copy that they are shared out from; 0: none
  bool gathered_held = false;               // units stay gathered until the step's last backward
  std::uint64_t accumulated_bytes = 0;      // of whole gradients that microbatches add up; 0: each microbatch's are shared out
  std::uint64_t gradient_bytes = 4;         // of the gradients that live from step to step
  std::uint64_t weight_gradient_bytes = 0;  // of the weight gradient that one backward makes and adds to them; 0: it adds in place
  std::uint64_t master_bytes = 4;           // of the optimizer's own copy of a parameter; 0: none
  std::uint64_t moment_bytes = 4;           // of each of Adam's two moments, or of SGD's momentum
  Optimizer optimizer = Optimizer::adam;
  Sharding sharding = Sharding::nothing;
  bool gradients_between_steps = true;  // false: they are set to none after the update
  bool stage_inputs_held = false;       // a stage keeps each chunk's last input and its gradient until the chunk runs again

  // What the job holds beside the model, as the caller knows it.
  struct Fixed {
    std::string name;
    std::uint64_t bytes = 0;
    trace::MemoryClass memory_class = trace::MemoryClass::library;
    bool in_step_only = false;  // not between steps (a batch)
    std::string source;
  };
  std::vector<Fixed> fixed;
};

struct TransformerStage {
  std::uint64_t stage = 0;       // 0 .. pipeline - 1
  bool first_iteration = false;  // the optimizer's moments come with its first update
};

// One tensor that a layer's forward leaves for its backward.
struct StoredTensor {
  std::string name;
  Exact bytes;  // of one layer and microbatch on one rank
  std::string formula;
  bool layer_input = false;     // what full recomputation keeps
  bool attention_core = false;  // what selective recomputation drops
  Exact of_products = {};       // what Recompute::products keeps of it
};

// The moments of a step at which its peak may be.
enum class Moment : std::uint8_t {
  forward_end,   // most forward passes in flight; the last stage computes the loss
  backward,      // the last layer's backward, where it holds most
  update,        // the optimizer runs
  between,       // after the update
  backward_end,  // the embedding's backward, the last of a step: every gradient is there
};
inline constexpr std::size_t moment_count = 5;
std::string_view moment_name(Moment moment);

struct MemoryPart {
  std::string name;
  trace::MemoryClass memory_class = trace::MemoryClass::none;
  std::array<Exact, moment_count> bytes;  // by Moment
  std::string formula;
  std::string source;

  const Exact& at(Moment moment) const { return bytes[static_cast<std::size_t>(moment)]; }
};

struct TransformerMemory {
  std::vector<MemoryPart> parts;
  std::vector<std::string> not_counted;

  Exact total(Moment moment) const;  // sum of the parts
  Exact total(Moment moment, trace::MemoryClass memory_class) const;
  Moment peak() const;  // the first one that holds most
};

// Checks the shape: what it says must be possible (clear usage errors; 2^63 and above is refused).
Status check(const TransformerShape& shape);

Result<std::vector<StoredTensor>> stored_tensors(const TransformerShape& shape);  // of one layer without recomputation
Result<TransformerMemory> transformer_memory(const TransformerShape& shape, const TransformerStage& stage = {});

// Forward passes of chunks that a stage has in flight when its first backward begins, and how many layers' worth that is.
struct InFlight {
  std::uint64_t passes = 0;       // of chunks of `layers_per_chunk` layers
  std::uint64_t first_chunk = 0;  // passes of the stage's first chunk among them
  std::uint64_t last_chunk = 0;
  Exact layers_per_chunk;
  Exact layer_passes;
};
Result<InFlight> in_flight(const TransformerShape& shape, std::uint64_t stage);

struct ParameterTensor {
  std::string name;
  Exact elements;         // on one rank, before data-parallel sharding
  Exact count;            // tensors of that name on the stage
  bool expert = false;    // shared out among other ranks than the rest
  bool in_layer = false;  // of a layer, and so of a layer's sharded unit
};
Result<std::vector<ParameterTensor>> parameter_tensors(const TransformerShape& shape, std::uint64_t stage);

// A stage as a chain of blocks, for policies: what each leaves for its backward and what it costs. Their stored tensors, summed, are
// the activations of `transformer_memory` for one microbatch in flight.
struct TransformerBlock {
  std::string name;                  // "embedding", "layer 1" .., "output"
  std::uint64_t input_bytes = 0;     // the value that the block reads from the one before; 0 for the embedding
  std::uint64_t output_bytes = 0;    // the value that it hands on
  std::vector<StoredTensor> stored;  // all bytes are whole
  std::uint64_t forward_flops = 0;   // of one rank and microbatch
  std::uint64_t core_flops = 0;      // of these, the attention core's two matrix products
};
Result<std::vector<TransformerBlock>> transformer_blocks(const TransformerShape& shape, std::uint64_t stage);

// The published closed forms, for shapes as the papers have them (16 bit, 4h wide dense MLP, as many key-value heads as heads). What is
// no integer is a fraction. hardware_selective is equation 8 of Korthikanti et al. as published, which counts the attention's recompute
// three times; hardware_selective_by_count is what the text of its appendix describes.
struct TransformerFormulas {
  Exact attention_ratio;  // 5as/h
  Exact per_layer_none, per_layer_tensor, per_layer_sequence, per_layer_tensor_selective, per_layer_sequence_selective, per_layer_full;
  Exact interleaving_factor, layer_equivalents;
  Exact embedding_dropout, output_side;
  Exact first_stage_sequence, first_stage_sequence_selective;
  Exact parameters;
  Exact model_flops, hardware_selective, hardware_full, hardware_selective_by_count;
};
Result<TransformerFormulas> transformer_formulas(const TransformerShape& shape, std::uint64_t global_batch);

}  // namespace liveset::model
