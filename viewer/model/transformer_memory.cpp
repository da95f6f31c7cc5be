// A stage's memory, part by part, at five moments of a step.
//
// forward_end: the passes of `in_flight`, each with its stored tensors. On the last stage the loss is being computed: logits in
// logit_bytes, beside them what logits_twice and logit_temporaries say. The loss's backward holds as much: the softmax in the logits'
// place, its gradient in that of the output layer's own logits.
//
// backward: the output side is gone; the last layer goes backward, step by step. A step holds the layer's tensors that no step before it
// released, the gradient of the residual stream (2sbh), the gradients that it reads and makes, and the weight gradient that it makes. The
// step that holds most is taken, and named.
//
// backward_end: no layer holds anything any more, but every gradient is there. A tied weight's two gradients are made apart and added.
#include "viewer/model/transformer_sizes.h"

namespace liveset::model {

using trace::MemoryClass;
using Recompute = TransformerShape::Recompute;
using Sharding = TransformerShape::Sharding;

std::string_view moment_name(Moment moment) {
  switch (moment) {
    case Moment::forward_end: return "forward end";
    case Moment::backward: return "backward";
    case Moment::update: return "update";
    case Moment::between: return "between steps";
    case Moment::backward_end: return "backward end";
  }
  return "";
}

Exact TransformerMemory::total(Moment moment) const {
  Exact sum;
  for (const MemoryPart& part : parts) sum += part.at(moment);
  return sum;
}

Exact TransformerMemory::total(Moment moment, MemoryClass memory_class) const {
  Exact sum;
  for (const MemoryPart& part : parts)
    if (part.memory_class == memory_class) sum += part.at(moment);
  return sum;
}

Moment TransformerMemory::peak() const {
  Moment most = Moment::forward_end;
  for (const Moment moment : {Moment::backward, Moment::backward_end, Moment::update, Moment::between})
    if (total(most) < total(moment)) most = moment;
  return most;
}

std::vector<BackwardStep> backward_steps(const TransformerShape& shape) {
  const TransformerSizes z(shape);
  const LayerWeights weights = layer_weights(shape);
  const Exact A = shape.activation_bytes, residual = A * z.residual_rows * z.hidden;
  const bool dense = shape.experts == 0;
  const Exact rows = dense ? z.rows : z.expert_rows, width = dense ? z.mlp : z.expert_mlp;
  const Exact inner = A * rows * width, before = inner * z.gates, tokens = dense ? residual : A * rows * z.hidden;
  const Exact query = A * z.rows * z.query, mixed = query + A * z.rows * z.key_value * 2;
  const Exact undropped = shape.hidden_dropout ? residual : Exact(0);
  const bool scores = shape.attention == TransformerShape::Attention::stored_scores;
  // A fused kernel's backward reads its output, which is what the projection reads where no copy is made.
  const bool core_reads_output = !scores && !shape.attention_output_copied;
  std::vector<const char*> by_projection, by_core{"Q and K",
                                                  "V",
                                                  "softmax output",
                                                  "softmax dropout mask",
                                                  "softmax dropout output",
                                                  "row sums of the softmax",
                                                  "attention output of the kernel"};
  (core_reads_output ? by_core : by_projection).push_back("attention projection input");
  std::vector<BackwardStep> steps;
  steps.push_back({"MLP dropout", {"MLP dropout mask"}, residual + undropped, "residual and its undropped gradient", 0});
  steps.push_back({"second MLP linear",
                   {"second MLP linear input"},
                   residual + (dense ? undropped : tokens) + inner,
                   "residual, undropped and the linear's input gradient",
                   weights.second});
  steps.push_back(
      {"activation", {"activation input", "activation output"}, residual + inner + before, "residual and both sides of the activation", 0});
  steps.push_back({"first MLP linear",
                   {"MLP input", "tokens of the experts"},
                   residual + before + tokens,
                   "residual, the linear's output and input gradients",
                   weights.first});
  steps.push_back({"norm 2", {"norm 2 input"}, Exact(3) * residual, "residual, the norm's output and input gradients", 0});
  steps.push_back({"attention dropout", {"attention dropout mask"}, residual + undropped, "residual and its undropped gradient", 0});
  steps.push_back({"attention projection", by_projection, residual + undropped + query,
                   "residual, undropped and the linear's input gradient", weights.projection});
  steps.push_back({"attention core", by_core, residual + query + mixed + (scores ? A * z.scores * 2 : Exact(0)),
                   "residual, gradients of the core's output, of Q, K, V and of the scores", 0, true});
  steps.push_back({"Q, K, V linear",
                   {"shared input of Q, K, V"},
                   residual + mixed + residual,
                   "residual, the linear's output and input gradients",
                   weights.query_key_value});
  return steps;
}

namespace {

constexpr const char* korthikanti = "Korthikanti et al. 2022, section 4";
constexpr const char* adam = "Kingma and Ba 2015";
constexpr const char* zero = "Rajbhandari et al. 2020 (ZeRO)";
constexpr const char* torchtitan = "torchtitan, parallelize_llama.py";
constexpr const char* fully_shard = "PyTorch, torch.distributed.fsdp.fully_shard";
constexpr const char* by_count = "counted from the operations";

class Builder {
 public:
  Builder(const TransformerShape& shape, const TransformerStage& stage) : shape_(shape), stage_(stage), z_(shape) {}

  Result<TransformerMemory> run() {
    Result<InFlight> flight = in_flight(shape_, stage_.stage);
    if (!flight) return flight.take_error();
    Result<std::vector<StoredTensor>> stored = stored_tensors(shape_);
    if (!stored) return stored.take_error();
    Result<std::vector<ParameterTensor>> tensors = parameter_tensors(shape_, stage_.stage);
    if (!tensors) return tensors.take_error();
    flight_ = *flight;
    stored_ = std::move(*stored);
    tensors_ = std::move(*tensors);
    parameters();
    gradients();
    optimizer();
    layers();
    ends();
    gathered_units();
    fixed();
    not_counted();
    for (const Moment moment : {Moment::forward_end, Moment::backward, Moment::update, Moment::between, Moment::backward_end})
      if (Status status = overflow_checked({memory_.total(moment)}); !status) return status.take_error();
    std::erase_if(memory_.parts, [](const MemoryPart& part) {
      return std::all_of(part.bytes.begin(), part.bytes.end(), [](const Exact& bytes) { return bytes == Exact(0); });
    });
    return std::move(memory_);
  }

 private:
  bool first() const { return stage_.stage == 0; }
  bool last() const { return stage_.stage + 1 == shape_.pipeline; }
  bool shards(Sharding least) const { return shape_.sharding >= least; }

  // bytes: at forward_end, backward, update, between, backward_end.
  void add(std::string name, MemoryClass memory_class, std::array<Exact, moment_count> bytes, std::string formula, const char* source) {
    memory_.parts.push_back({std::move(name), memory_class, bytes, std::move(formula), source});
  }
  static std::array<Exact, moment_count> always(const Exact& bytes) { return {bytes, bytes, bytes, bytes, bytes}; }

  static std::string times(const Exact& count) { return count == Exact(1) ? "" : count.text() + " * "; }
  std::string shard_text(bool expert) const {
    const Exact ranks = expert ? z_.expert_shards : z_.shards;
    return ranks == Exact(1) ? "" : " / " + ranks.text();
  }
  Exact elements(bool expert) const {
    Exact sum;
    for (const ParameterTensor& tensor : tensors_)
      if (tensor.expert == expert) sum += tensor.elements * tensor.count;
    return sum;
  }
  Exact ranks(bool expert, bool sharded) const { return !sharded ? Exact(1) : expert ? z_.expert_shards : z_.shards; }

  void parameters() {
    const bool sharded = shards(Sharding::parameters);
    for (const ParameterTensor& tensor : tensors_)
      add(tensor.name, MemoryClass::parameter,
          always(tensor.elements * tensor.count * shape_.parameter_bytes / ranks(tensor.expert, sharded)),
          times(tensor.count) + tensor.elements.text() + " * " + std::to_string(shape_.parameter_bytes) +
              (sharded ? shard_text(tensor.expert) : ""),
          sharded ? zero : "Narayanan et al. 2021, equation 2, tensor by tensor");
  }

  // Parameters whose gradients are there when the last layer's backward begins.
  Exact output_side() const {
    Exact sum;
    for (const ParameterTensor& tensor : tensors_)
      if (last() && !tensor.in_layer && tensor.name != "position embedding" && (shape_.tied_embeddings || tensor.name != "word embedding"))
        sum += tensor.elements * tensor.count;
    return sum;
  }

  void gradients() {
    const bool sharded = shards(Sharding::gradients);
    for (const bool expert : {false, true}) {
      const Exact share = Exact(shape_.gradient_bytes) / ranks(expert, sharded);
      const Exact all = elements(expert) * share, begun = expert || shards(Sharding::parameters) ? Exact(0) : output_side() * share;
      const bool kept = shape_.gradients_between_steps, several = shape_.microbatches > 1 && shape_.accumulated_bytes == 0;
      add(expert ? "gradients of experts" : "gradients", MemoryClass::gradient,
          {kept || several ? all : Exact(0), kept || several ? all : begun, all, kept ? all : Exact(0), all},
          elements(expert).text() + " * " + std::to_string(shape_.gradient_bytes) + (sharded ? shard_text(expert) : ""),
          sharded ? zero : by_count);
    }
    if (shape_.tied_embeddings && first() && last() && !shards(Sharding::parameters)) {
      const Exact embedding = z_.vocabulary * z_.hidden * shape_.parameter_bytes;
      add("the embedding's own gradient, beside the output layer's", MemoryClass::gradient, {0, 0, 0, 0, embedding},
          std::to_string(shape_.parameter_bytes) + "Vh/t", by_count);
    }
  }

  void optimizer() {
    if (shape_.optimizer == TransformerShape::Optimizer::absent) return;
    const bool sharded = shards(Sharding::optimizer), is_adam = shape_.optimizer == TransformerShape::Optimizer::adam;
    for (const bool expert : {false, true}) {
      const std::string of = expert ? " of experts" : "";
      const auto state = [&](std::string name, std::uint64_t bytes, bool from_first_update) {
        const Exact all = elements(expert) * bytes / ranks(expert, sharded);
        const Exact early = from_first_update && stage_.first_iteration ? Exact(0) : all;
        add(name + of, MemoryClass::optimizer_state, {early, early, all, all, early},
            elements(expert).text() + " * " + std::to_string(bytes) + (sharded ? shard_text(expert) : ""),
            sharded   ? zero
            : is_adam ? adam
                      : by_count);
      };
      state("master parameters", shape_.master_bytes, false);
      if (is_adam) {
        state("first moments", shape_.moment_bytes, true);
        state("second moments", shape_.moment_bytes, true);
      } else {
        state("momentum", shape_.moment_bytes, true);
      }
    }
  }

  // What the policy keeps of a stored tensor from the forward to the backward.
  Exact kept(const StoredTensor& tensor) const {
    switch (shape_.recompute) {
      case Recompute::nothing: return tensor.bytes;
      case Recompute::selective: return tensor.attention_core ? Exact(0) : tensor.bytes;
      case Recompute::full: return tensor.layer_input ? tensor.bytes : Exact(0);
      case Recompute::products: return tensor.of_products;
    }
    return tensor.bytes;
  }

  // Which stored tensors of the layer that goes backward still live at a step.
  Exact alive(const StoredTensor& tensor, const std::vector<BackwardStep>& steps, std::size_t step) const {
    if (tensor.attention_core && shape_.recompute == Recompute::selective && !steps[step].core) return 0;
    for (std::size_t before = 0; before < step; ++before)
      for (const char* name : steps[before].releases)
        if (tensor.name == name) return 0;
    return tensor.bytes;
  }

  void layers() {
    const std::vector<BackwardStep> steps = backward_steps(shape_);
    std::size_t chosen = 0;
    Exact most;
    for (std::size_t step = 0; step < steps.size(); ++step) {
      Exact sum = steps[step].gradients + steps[step].weight * shape_.weight_gradient_bytes;
      for (const StoredTensor& tensor : stored_) sum += alive(tensor, steps, step);
      if (most < sum) {
        most = sum;
        chosen = step;
      }
    }
    const Exact passes = flight_.layer_passes, others = less_one(passes);
    const std::string count = passes.text() + " * ";
    for (const StoredTensor& tensor : stored_) {
      const Exact here = alive(tensor, steps, chosen);
      const bool fused = tensor.name == "row sums of the softmax" || tensor.name == "attention output of the kernel";
      const char* source = fused ? "Dao et al. 2022 (FlashAttention)" : shape_.experts == 0 ? korthikanti : by_count;
      const Exact of_policy = kept(tensor);
      const bool is_whole = of_policy == tensor.bytes;
      if (!(of_policy == Exact(0)) || is_whole) {
        const MemoryClass memory_class = shape_.recompute == Recompute::full ? MemoryClass::checkpoint_input : MemoryClass::activation;
        add(tensor.name + (is_whole ? "" : ", the part that is kept"), memory_class,
            {of_policy * passes, of_policy * others + (is_whole ? here : of_policy), 0, 0},
            count + (is_whole ? tensor.formula : of_policy.text()), is_whole ? source : torchtitan);
      }
      if (!is_whole) add(tensor.name + ", made again", MemoryClass::recomputed_activation, {0, here, 0, 0}, tensor.formula, source);
    }
    if (shape_.recompute == Recompute::products && shape_.unread_products_kept) {
      const Exact product = Exact(shape_.activation_bytes) * z_.rows * z_.hidden;
      add("last product of the MLP, which nobody reads", MemoryClass::activation, {product * passes, product * passes, 0, 0},
          count + std::to_string(shape_.activation_bytes) + "sbh", torchtitan);
    }
    const std::string step = std::string("backward of ") + steps[chosen].name;
    add("gradients in the " + step, MemoryClass::activation_gradient, {0, steps[chosen].gradients, 0, 0}, steps[chosen].gradients_formula,
        by_count);
    add("weight gradient of the " + step, MemoryClass::gradient, {0, steps[chosen].weight * shape_.weight_gradient_bytes, 0, 0},
        steps[chosen].weight.text() + " * " + std::to_string(shape_.weight_gradient_bytes), by_count);
    if (shape_.stage_inputs_held && shape_.pipeline > 1) {
      // The first chunk of the first stage has no input.
      const Exact chunks = Exact(shape_.interleave - (first() ? 1 : 0));
      const Exact bytes = chunks * 2 * shape_.activation_bytes * z_.residual_rows * z_.hidden;
      add("each chunk's last input and its gradient", MemoryClass::activation, {0, 0, bytes, bytes},
          chunks.text() + " * 2 * " + std::to_string(shape_.activation_bytes) + "sbh" + z_.residual, by_count);
    }
  }

  void ends() {
    const Exact A = shape_.activation_bytes, residual = A * z_.residual_rows * z_.hidden;
    const std::string a = std::to_string(shape_.activation_bytes), r = z_.residual;
    if (first() && shape_.hidden_dropout) {
      const Exact passes = shape_.microbatches == 0 ? shape_.pipeline : flight_.first_chunk;
      const Exact bytes = passes * shape_.mask_bytes * z_.residual_rows * z_.hidden;
      add("embedding dropout mask", MemoryClass::activation, {bytes, bytes, 0, 0},
          times(passes) + std::to_string(shape_.mask_bytes) + "sbh" + r, korthikanti);
    }
    if (!last()) return;
    const Exact logits = z_.rows * z_.vocabulary / shape_.logit_chunks;
    const std::string V = shape_.logit_chunks == 1 ? "sbV/t" : "sbV/t / " + std::to_string(shape_.logit_chunks);
    const std::string in_32_bits = shape_.norm_in_steps ? "4sbh" + r + " + " : "";
    add("final norm input", MemoryClass::activation,
        {residual + (shape_.norm_in_steps ? Exact(4) * z_.residual_rows * z_.hidden : Exact(0)), 0, 0, 0}, in_32_bits + a + "sbh" + r,
        korthikanti);
    const bool gathered = shape_.gathered_inputs_kept;
    add("output projection input", MemoryClass::activation, {gathered ? A * z_.rows * z_.hidden : residual, 0, 0, 0},
        a + "sbh" + (gathered ? "" : r), korthikanti);
    add("logits that the loss keeps", MemoryClass::activation, {logits * shape_.logit_bytes, 0, 0, 0},
        std::to_string(shape_.logit_bytes) + V, korthikanti);
    if (shape_.logits_twice) add("logits of the output projection", MemoryClass::temporary, {logits * A, 0, 0, 0}, a + V, by_count);
    add("temporaries of the loss", MemoryClass::temporary, {logits * shape_.logit_bytes * shape_.logit_temporaries, 0, 0, 0},
        std::to_string(shape_.logit_temporaries) + " * " + std::to_string(shape_.logit_bytes) + V, by_count);
  }

  // Units that are gathered where ranks share parameters out: everything outside the layers is one unit, every layer one.
  void gathered_units() {
    if (!shards(Sharding::parameters)) return;
    Exact root, layer;
    for (const ParameterTensor& tensor : tensors_)
      (tensor.in_layer ? layer : root) += tensor.in_layer ? tensor.elements : tensor.elements * tensor.count;
    const std::uint64_t bytes = shape_.gathered_bytes != 0 ? shape_.gathered_bytes : shape_.parameter_bytes;
    add("gathered parameters outside the layers", MemoryClass::communication, {root * bytes, root * bytes, 0, 0, root * bytes},
        root.text() + " * " + std::to_string(bytes), zero);
    const Exact count = Exact(shape_.layers) / shape_.pipeline;
    if (shape_.gathered_held)
      add("gathered parameters of all layers", MemoryClass::communication, {layer * bytes * count, layer * bytes * count, 0, 0},
          times(count) + layer.text() + " * " + std::to_string(bytes), fully_shard);
    else
      add("gathered parameters of two layers", MemoryClass::communication, {layer * bytes, layer * bytes * 2, 0, 0},
          "2 * " + layer.text() + " * " + std::to_string(bytes) + " (one at the forward's end)", zero);
    // Outside the layers the gradients are whole until the last of them is made.
    const std::uint64_t whole = shape_.whole_gradient_bytes != 0 ? shape_.whole_gradient_bytes : shape_.gradient_bytes;
    if (shape_.accumulated_bytes != 0) {
      const Exact all = (layer * count + root) * shape_.accumulated_bytes;
      add("whole gradients that microbatches add up", MemoryClass::gradient, {all, all, 0, 0, root * shape_.accumulated_bytes},
          (layer * count + root).text() + " * " + std::to_string(shape_.accumulated_bytes), fully_shard);
    } else {
      add("gradients outside the layers before they are shared out", MemoryClass::communication,
          {0, output_side() * whole, 0, 0, root * whole},
          output_side().text() + " * " + std::to_string(whole) + " (" + root.text() + " at the backward's end)", fully_shard);
    }
    add("a layer's gradients before they are shared out", MemoryClass::communication, {0, layer * whole, 0, 0},
        layer.text() + " * " + std::to_string(whole), zero);
    add("the copy that they are shared out from", MemoryClass::communication,
        {0, layer * shape_.reduce_bytes, 0, 0, root * shape_.reduce_bytes}, layer.text() + " * " + std::to_string(shape_.reduce_bytes),
        fully_shard);
  }

  void fixed() {
    for (const TransformerShape::Fixed& part : shape_.fixed) {
      const Exact bytes = part.bytes, between = part.in_step_only ? Exact(0) : bytes;
      add(part.name, part.memory_class, {bytes, bytes, bytes, between, bytes}, std::to_string(part.bytes),
          part.source.empty() ? "stated" : part.source.c_str());
    }
  }

  void not_counted() {
    auto& list = memory_.not_counted;
    list = {"rounding and fragmentation of the allocator", "the CUDA context and what libraries take outside the allocator",
            "biases' and norms' gradients of a layer's backward", "padding of gradient buckets"};
    if (shape_.pipeline > 1) list.push_back("receive and send buffers between stages");
    if (shape_.sequence_parallel && shape_.tensor > 1) list.push_back("gathered inputs of linears under sequence parallelism");
    if (shape_.context > 1) list.push_back("keys and values that context parallelism passes on");
    if (shape_.experts != 0)
      list.push_back("routing: indices, buffers of the exchange, uneven experts (each is taken to get as many tokens)");
    if (shape_.positions == TransformerShape::Positions::rotary) list.push_back("tables of rotary positions");
    if (!shape_.norm_statistics) list.push_back("statistics of the norms");
    if (shape_.fixed.empty()) list.push_back("workspaces of matrix libraries, the batch");
  }

  const TransformerShape& shape_;
  const TransformerStage& stage_;
  const TransformerSizes z_;
  InFlight flight_;
  std::vector<StoredTensor> stored_;
  std::vector<ParameterTensor> tensors_;
  TransformerMemory memory_;
};

}  // namespace

Result<TransformerMemory> transformer_memory(const TransformerShape& shape, const TransformerStage& stage) {
  if (Status status = check(shape); !status) return status.take_error();
  return Builder(shape, stage).run();
}

namespace {

// A matrix product of m x k and k x n takes 2mkn operations.
Exact core_flops(const TransformerShape& shape) {
  const TransformerSizes z(shape);
  return Exact(4) * z.rows * shape.sequence * z.query;
}

Exact layer_flops(const TransformerShape& shape) {
  const TransformerSizes z(shape);
  const LayerWeights weights = layer_weights(shape);
  const Exact attention = Exact(2) * z.rows * (weights.query_key_value + weights.projection) + core_flops(shape);
  if (shape.experts == 0) return attention + Exact(2) * z.rows * (weights.first + weights.second);
  return attention + Exact(2) * z.residual_rows * weights.router + Exact(2) * z.expert_rows * z.hidden * z.expert_mlp * (z.gates + 1);
}

}  // namespace

Result<std::vector<TransformerBlock>> transformer_blocks(const TransformerShape& shape, std::uint64_t stage) {
  Result<std::vector<StoredTensor>> stored = stored_tensors(shape);
  if (!stored) return stored.take_error();
  if (stage >= shape.pipeline)
    return transformer_error("there is no stage " + std::to_string(stage) + ", the last is " + std::to_string(shape.pipeline - 1));
  if (shape.layers % shape.pipeline != 0) return transformer_error("layers are no multiple of pipeline stages");
  const std::uint64_t count = shape.layers / shape.pipeline;
  if (count > max_ranks) return transformer_error("more than a million layers on a stage");
  const TransformerSizes z(shape);
  const Exact residual = Exact(shape.activation_bytes) * z.residual_rows * z.hidden, core = core_flops(shape), flops = layer_flops(shape);
  const Exact mask = Exact(shape.mask_bytes) * z.residual_rows * z.hidden, logits = z.rows * z.vocabulary / shape.logit_chunks;
  const Exact output_flops = Exact(2) * z.rows * z.vocabulary * z.hidden;
  if (Status status = overflow_checked({flops, output_flops, logits * shape.logit_bytes}); !status) return status.take_error();
  for (const Exact& value : {residual, mask, core, flops, logits})
    if (!value.whole())
      return transformer_error("the ranks cannot share the layer out evenly", "widths must be multiples of the parallel sizes");
  for (const StoredTensor& tensor : *stored)
    if (!tensor.bytes.whole()) return transformer_error("the ranks cannot share '" + tensor.name + "' out evenly");
  const std::string a = std::to_string(shape.activation_bytes), r = z.residual;
  std::vector<TransformerBlock> blocks;
  if (stage == 0) {
    TransformerBlock block{"embedding", 0, residual.numerator(), {}, 0, 0};
    if (shape.hidden_dropout) block.stored.push_back({"embedding dropout mask", mask, std::to_string(shape.mask_bytes) + "sbh" + r});
    blocks.push_back(std::move(block));
  }
  for (std::uint64_t layer = 0; layer < count; ++layer)
    blocks.push_back({"layer " + std::to_string(stage * count + layer + 1), residual.numerator(), residual.numerator(), *stored,
                      flops.numerator(), core.numerator()});
  if (stage + 1 == shape.pipeline) {
    TransformerBlock block{"output", residual.numerator(), 0, {}, output_flops.numerator(), 0};
    const Exact whole = Exact(shape.activation_bytes) * z.rows * z.hidden, in_32_bits = Exact(4) * z.residual_rows * z.hidden;
    block.stored.push_back({"final norm input", shape.norm_in_steps ? residual + in_32_bits : residual, a + "sbh" + r, true});
    block.stored.push_back({"output projection input", shape.gathered_inputs_kept ? whole : residual, a + "sbh" + r});
    block.stored.push_back({"logits that the loss keeps", logits * shape.logit_bytes, std::to_string(shape.logit_bytes) + "sbV/t"});
    blocks.push_back(std::move(block));
  }
  return blocks;
}

}  // namespace liveset::model
