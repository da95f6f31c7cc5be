#include "viewer/model/transformer_step.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "viewer/model/transformer_sizes.h"

namespace liveset::model {
namespace {

using trace::MemoryClass;
using trace::Phase;

constexpr std::uint64_t max_list = 2'000'000;  // ops of all microbatches

// A forward op of a layer. The stored tensors that it reads and makes; those that the shape does not have are left out.
struct LayerOp {
  const char* name;
  const char* backward;  // name of its backward step; empty: it has none of its own
  std::vector<const char*> saves, makes;
};
const std::vector<LayerOp>& layer_ops() {
  static const std::vector<LayerOp> ops = {
      {"norm_1", "", {"norm 1 input", "statistics of both norms"}, {"shared input of Q, K, V", "statistics of both norms"}},
      {"qkv", "Q, K, V linear", {"shared input of Q, K, V"}, {"Q and K", "V"}},
      {"core_attention",
       "attention core",
       {"Q and K", "V", "softmax output", "softmax dropout mask", "softmax dropout output", "row sums of the softmax",
        "attention output of the kernel"},
       {"softmax output", "softmax dropout mask", "softmax dropout output", "row sums of the softmax", "attention output of the kernel",
        "attention projection input"}},
      {"projection", "attention projection", {"attention projection input"}, {}},
      {"attention_add", "attention dropout", {"attention dropout mask"}, {"attention dropout mask", "norm 2 input"}},
      {"norm_2", "norm 2", {"norm 2 input"}, {"MLP input"}},
      {"router", "", {"MLP input", "router probabilities"}, {"router probabilities", "tokens of the experts"}},
      {"mlp_1", "first MLP linear", {"MLP input", "tokens of the experts"}, {"activation input"}},
      {"activation", "activation", {"activation input", "activation output"}, {"activation output", "second MLP linear input"}},
      {"mlp_2", "second MLP linear", {"second MLP linear input"}, {}},
      {"mlp_add", "MLP dropout", {"MLP dropout mask"}, {"MLP dropout mask"}},
  };
  return ops;
}

class StepWriter {
 public:
  StepWriter(ModelBuilder& builder, const TransformerShape& shape, std::uint64_t stage)
      : builder_(builder), shape_(shape), stage_(stage), steps_(backward_steps(shape)) {}

  Status write() {
    if (shape_.layers % (shape_.pipeline * shape_.interleave) != 0)
      return transformer_error("layers are no multiple of pipeline stages times interleaving");
    if (shape_.interleave > 1 && shape_.microbatches % shape_.pipeline != 0)
      return transformer_error("microbatches are no multiple of pipeline stages, which interleaving needs");
    const std::uint64_t layers = shape_.layers / shape_.pipeline, each = 2 * layer_ops().size();
    if (layers > max_list / each || shape_.microbatches > max_list / each / layers)
      return transformer_error(
          std::to_string(shape_.microbatches) + " microbatches of " + std::to_string(layers) + " layers are too many to list",
          "a few microbatches more than stages show the same peak");
    Result<std::vector<TransformerBlock>> blocks = transformer_blocks(shape_, stage_);
    if (!blocks) return blocks.take_error();
    blocks_ = std::move(*blocks);
    if (Status status = statics(); !status) return status;
    if (Status status = gathered(); !status) return status;
    for (const TransformerBlock& block : blocks_) {
      if (block.name == "embedding")
        embedding(block);
      else if (block.name == "output")
        output(block);
      else if (Status status = layer(block); !status)
        return status;
    }
    loss();
    while (!backward_.empty()) {
      builder_.add_op(std::move(backward_.back().op), backward_.back().lists);
      backward_.pop_back();
    }
    Microbatches& microbatches = builder_.model.microbatches;
    microbatches.count = shape_.microbatches;
    microbatches.order = shape_.pipeline > 1 ? Microbatches::Order::one_forward_one_backward : Microbatches::Order::one_by_one;
    microbatches.stages = shape_.pipeline;
    microbatches.stage = stage_;
    if (shape_.interleave > 1) microbatches.chunk_ends = std::move(chunk_ends_);
    builder_.model.conventions.frees_are_listed = true;
    builder_.model.unit_pattern = "layer.*";
    return Done{};
  }

 private:
  struct Backward {
    Op op;
    ModelBuilder::Lists lists;
  };
  bool is_first() const { return stage_ == 0; }
  bool is_last() const { return stage_ + 1 == shape_.pipeline; }

  // What is there at every moment. Adam's moments come with the first update.
  Status statics() {
    Result<TransformerMemory> late = transformer_memory(shape_, {stage_, false}), first = transformer_memory(shape_, {stage_, true});
    if (!late) return late.take_error();
    if (!first) return first.take_error();
    for (const MemoryPart& part : late->parts) {
      if (part.memory_class != MemoryClass::parameter && part.memory_class != MemoryClass::gradient &&
          part.memory_class != MemoryClass::optimizer_state)
        continue;
      if (part.at(Moment::between) == Exact(0)) continue;  // of one backward: an op's
      StaticStorage storage;
      storage.id = part.name;
      storage.bytes = part.at(Moment::between).rounded_up();
      storage.memory_class = part.memory_class;
      const auto early =
          std::find_if(first->parts.begin(), first->parts.end(), [&](const MemoryPart& each) { return each.name == part.name; });
      storage.from_step = early != first->parts.end() && early->at(Moment::forward_end) == Exact(0) ? 1 : 0;
      builder_.model.statics.push_back(std::move(storage));
    }
    return Done{};
  }

  // Parameters that ranks share out: everything outside the layers is gathered throughout, a layer while it runs and the next one in
  // backward.
  Status gathered() {
    if (shape_.sharding < TransformerShape::Sharding::parameters) return Done{};
    Result<TransformerMemory> memory = transformer_memory(shape_, {stage_, false});
    if (!memory) return memory.take_error();
    for (const MemoryPart& part : memory->parts)
      if (part.memory_class == MemoryClass::communication) {
        gathered_forward_ += part.at(Moment::forward_end);
        gathered_backward_ += part.at(Moment::backward);
      }
    return Done{};
  }

  std::uint32_t tensor(const std::string& id, const Exact& bytes, MemoryClass memory_class = MemoryClass::none, std::int64_t layer = -1) {
    Tensor made;
    made.id = id;
    made.bytes = bytes.rounded_up();
    made.memory_class = memory_class;
    made.layer = layer;
    return builder_.add_tensor(std::move(made));
  }
  // Lives while the op runs.
  void passing(ModelBuilder::Lists& lists, const std::string& id, const Exact& bytes, MemoryClass memory_class) {
    if (bytes == Exact(0)) return;
    const std::uint32_t made = tensor(id, bytes, memory_class);
    lists.writes.push_back(made);
    lists.frees.push_back(made);
  }

  Op op(const std::string& block, const char* name, Phase phase, std::uint64_t cost) {
    Op made;
    made.id = block.empty() ? name : block + "." + name;
    made.name = name;
    made.module = builder_.module(made.id);
    made.phase = phase;
    made.cost = cost;
    return made;
  }
  std::uint32_t forward(Op made, ModelBuilder::Lists lists) {
    passing(lists, made.id + "/gathered parameters", gathered_forward_, MemoryClass::communication);
    made.packs_before = std::none_of(lists.saves.begin(), lists.saves.end(), [&](std::uint32_t saved) {
      return std::find(lists.writes.begin(), lists.writes.end(), saved) != lists.writes.end();
    });
    return builder_.add_op(std::move(made), lists);
  }
  // Backward ops run in the reverse order of these calls.
  void backward(const std::string& block, const char* name, std::uint32_t forward, std::uint64_t cost, ModelBuilder::Lists lists,
                const Exact& gathered) {
    Op made = op(block, name, Phase::backward, cost);
    made.id += "'";
    made.forward = forward;
    passing(lists, made.id + "/gathered parameters and gradients", gathered, MemoryClass::communication);
    backward_.push_back({std::move(made), std::move(lists)});
  }

  void embedding(const TransformerBlock& block) {
    ModelBuilder::Lists lists, back;
    for (const StoredTensor& stored : block.stored) lists.saves.push_back(tensor("embedding/" + stored.name, stored.bytes));
    back.reads = back.frees = lists.writes = lists.saves;
    stream_ = tensor("layer.1/norm 1 input", block.output_bytes);
    lists.writes.push_back(stream_);
    backward("", "embedding", forward(op("", "embedding", Phase::forward, 0), std::move(lists)), 0, std::move(back), gathered_forward_);
  }

  // The input of a chunk comes from another stage, or from this stage's last forward of the chunk before.
  void receive(const std::string& block, const Exact& bytes) {
    stream_ = tensor(block + "/norm 1 input", bytes);
    forward(op("receive", block.c_str(), Phase::forward, 0), {{}, {stream_}, {}, {}});
  }

  Status layer(const TransformerBlock& described) {
    const std::uint64_t per_chunk = shape_.layers / shape_.pipeline / shape_.interleave, number = ++layers_;
    const std::string block = layer_name(number);
    const bool begins = (number - 1) % per_chunk == 0, ends = number % per_chunk == 0;
    if (begins && !(is_first() && number == 1)) receive(block, described.input_bytes);
    std::map<std::string_view, std::uint32_t> tensors;
    for (const StoredTensor& stored : described.stored)
      tensors[stored.name] = stored.layer_input
                                 ? stream_
                                 : tensor(block + "/" + stored.name, stored.bytes, MemoryClass::none, static_cast<std::int64_t>(number));
    std::map<std::string_view, std::uint32_t> ops;
    const LayerWeights weights = layer_weights(shape_);
    const TransformerSizes z(shape_);
    const Exact rows = shape_.experts == 0 ? z.rows : z.expert_rows, each = Exact(shape_.experts == 0 ? 1 : shape_.experts) / shape_.expert;
    const auto present = [&](const std::vector<const char*>& names) {
      std::vector<std::uint32_t> found;
      for (const char* name : names)
        if (const auto at = tensors.find(name); at != tensors.end()) found.push_back(at->second);
      return found;
    };
    std::map<std::string_view, std::uint64_t> costs{{"qkv", (Exact(2) * z.rows * weights.query_key_value).rounded_up()},
                                                    {"core_attention", described.core_flops},
                                                    {"projection", (Exact(2) * z.rows * weights.projection).rounded_up()},
                                                    {"router", (Exact(2) * z.residual_rows * weights.router).rounded_up()},
                                                    {"mlp_1", (Exact(2) * rows * weights.first / each).rounded_up()},
                                                    {"mlp_2", (Exact(2) * rows * weights.second / each).rounded_up()}};
    const auto begin = static_cast<std::uint32_t>(builder_.model.ops.size());
    for (const LayerOp& kind : layer_ops()) {
      if (shape_.experts == 0 && std::strcmp(kind.name, "router") == 0) continue;
      ModelBuilder::Lists lists;
      lists.saves = present(kind.saves);
      lists.writes = present(kind.makes);
      for (const std::uint32_t saved : lists.saves)
        if (std::find(lists.writes.begin(), lists.writes.end(), saved) == lists.writes.end()) lists.reads.push_back(saved);
      // The residual stream is read where it is added to.
      if (std::strcmp(kind.name, "attention_add") == 0) lists.reads.push_back(stream_);
      if (std::strcmp(kind.name, "mlp_add") == 0) {
        lists.reads.push_back(tensors.at("norm 2 input"));
        if (!ends) next_ = tensor(layer_name(number + 1) + "/norm 1 input", described.output_bytes);
        if (ends && is_last() && number == shape_.layers / shape_.pipeline)
          next_ = tensor("output/final norm input", described.output_bytes);
        if (next_ != none) lists.writes.push_back(next_);
      }
      ops[kind.name] = forward(op(block, kind.name, Phase::forward, costs[kind.name]), std::move(lists));
    }
    builder_.model.units.push_back({block, begin, static_cast<std::uint32_t>(builder_.model.ops.size())});
    layer_backward(block, tensors, ops, costs);
    stream_ = std::exchange(next_, none);
    if (ends) chunk_ends_.push_back(static_cast<std::uint32_t>(builder_.model.ops.size()));
    return Done{};
  }
  // By its number in the whole model: chunks of a stage lie a round of stages apart.
  std::string layer_name(std::uint64_t number) const {
    const std::uint64_t per_chunk = shape_.layers / shape_.pipeline / shape_.interleave, chunk = (number - 1) / per_chunk;
    return "layer." + std::to_string((chunk * shape_.pipeline + stage_) * per_chunk + (number - 1) % per_chunk + 1);
  }

  // The steps of the formula, the last first: backward_ is taken from behind. What no step releases goes with the last.
  void layer_backward(const std::string& block, const std::map<std::string_view, std::uint32_t>& tensors,
                      const std::map<std::string_view, std::uint32_t>& ops, const std::map<std::string_view, std::uint64_t>& costs) {
    std::vector<bool> released(builder_.model.tensors.size());
    std::vector<std::vector<std::uint32_t>> frees(steps_.size());
    for (std::size_t step = 0; step < steps_.size(); ++step)
      for (const char* name : steps_[step].releases)
        if (const auto found = tensors.find(name); found != tensors.end()) {
          frees[step].push_back(found->second);
          released[found->second] = true;
        }
    for (const auto& [name, tensor] : tensors)
      if (!released[tensor]) frees.back().push_back(tensor);
    for (std::size_t step = steps_.size(); step-- > 0;) {
      const auto kind = std::find_if(layer_ops().begin(), layer_ops().end(),
                                     [&](const LayerOp& each) { return std::strcmp(each.backward, steps_[step].name) == 0; });
      ModelBuilder::Lists lists;
      lists.reads = lists.frees = frees[step];
      const std::string id = block + "." + kind->name + "'";
      passing(lists, id + "/gradients", steps_[step].gradients, MemoryClass::activation_gradient);
      passing(lists, id + "/weight gradient", steps_[step].weight * shape_.weight_gradient_bytes, MemoryClass::gradient);
      const auto cost = costs.find(kind->name);
      backward(block, kind->name, ops.at(kind->name), cost == costs.end() ? 0 : 2 * cost->second, std::move(lists), gathered_backward_);
    }
  }

  void output(const TransformerBlock& block) {
    std::map<std::string_view, std::uint32_t> tensors;
    for (const StoredTensor& stored : block.stored)
      tensors[stored.name] = stored.layer_input ? stream_ : tensor("output/" + stored.name, stored.bytes);
    const std::uint32_t input = stream_, projected = tensors.at("output projection input");
    logits_ = tensors.at("logits that the loss keeps");
    const std::uint32_t norm = forward(op("output", "final_norm", Phase::forward, 0), {{input}, {projected}, {input}, {}});
    const std::uint32_t linear =
        forward(op("output", "logits", Phase::forward, block.forward_flops), {{projected}, {logits_}, {projected, logits_}, {}});
    chunk_ends_.back() = static_cast<std::uint32_t>(builder_.model.ops.size());
    backward("output", "final_norm", norm, 0, {{input}, {}, {}, {input}}, gathered_forward_);
    backward("output", "logits", linear, 2 * block.forward_flops, {{projected, logits_}, {}, {}, {projected, logits_}}, gathered_forward_);
  }

  void loss() {
    if (logits_ == none) return;
    const TransformerSizes z(shape_);
    const Exact logits = z.rows * z.vocabulary;
    ModelBuilder::Lists lists;
    lists.reads = {logits_};
    if (shape_.logits_twice)
      passing(lists, "loss/logits of the output projection", logits * shape_.activation_bytes, MemoryClass::temporary);
    passing(lists, "loss/temporaries", logits * shape_.logit_bytes * shape_.logit_temporaries, MemoryClass::temporary);
    passing(lists, "loss/gathered parameters", gathered_forward_, MemoryClass::communication);
    builder_.add_op(op("", "loss", Phase::loss, 0), lists);
  }

  ModelBuilder& builder_;
  const TransformerShape& shape_;
  const std::uint64_t stage_;
  const std::vector<BackwardStep> steps_;
  std::vector<TransformerBlock> blocks_;
  Exact gathered_forward_, gathered_backward_;
  std::vector<Backward> backward_;
  std::vector<std::uint32_t> chunk_ends_;
  std::uint64_t layers_ = 0;                                   // written so far
  std::uint32_t stream_ = none, next_ = none, logits_ = none;  // the residual stream, of the next layer; what the loss reads
};

}  // namespace

Status add_transformer(ModelBuilder& builder, const TransformerShape& shape, std::uint64_t stage) {
  if (Status status = check(shape); !status) return status;
  return StepWriter(builder, shape, stage).write();
}

std::uint64_t busy_microbatches(std::uint64_t pipeline, std::uint64_t interleave) { return interleave > 1 ? 2 * pipeline : pipeline; }

}  // namespace liveset::model
