#include "viewer/model/transformer_reader.h"

#include "viewer/model/transformer_step.h"

namespace liveset::model {
namespace {

class TransformerReader {
 public:
  TransformerReader(const proto::Transformer& stated, const Place& place, FileErrors& errors)
      : stated_(stated), place_(place), errors_(errors) {}

  // Field by field; what they say together is for check().
  bool read() {
    const proto::Transformer& t = stated_;
    return needed("sequence", t.sequence(), shape.sequence) && needed("micro_batch", t.micro_batch(), shape.micro_batch) &&
           needed("hidden", t.hidden(), shape.hidden) && needed("heads", t.heads(), shape.heads) &&
           needed("layers", t.layers(), shape.layers) && needed("vocabulary", t.vocabulary(), shape.vocabulary) &&
           given("tensor_parallel", t.has_tensor_parallel(), t.tensor_parallel(), 1, shape.tensor) &&
           given("pipeline_stages", t.has_pipeline_stages(), t.pipeline_stages(), 1, shape.pipeline) &&
           given("interleave", t.has_interleave(), t.interleave(), 1, shape.interleave) &&
           given("context_parallel", t.has_context_parallel(), t.context_parallel(), 1, shape.context) &&
           given("ffn", t.has_ffn(), t.ffn(), 1, shape.ffn) &&
           given("key_value_heads", t.has_key_value_heads(), t.key_value_heads(), 1, shape.key_value_heads) &&
           given("experts", t.has_experts(), t.experts(), 0, shape.experts) &&
           given("experts_per_token", t.has_experts_per_token(), t.experts_per_token(), 0, shape.experts_per_token) &&
           given("expert_parallel", t.has_expert_parallel(), t.expert_parallel(), 1, shape.expert) &&
           given("data_parallel", t.has_data_parallel(), t.data_parallel(), 1, shape.data) &&
           given("stage", t.has_stage(), t.stage(), 0, stage) && flags() && bytes() && optimizer() && sharding();
  }

  TransformerShape shape;
  std::uint64_t stage = 0;

 private:
  bool needed(const char* field, std::int64_t value, std::uint64_t& out) { return errors_.number(place_, field, -1, value, 1, out); }
  bool given(const char* field, bool has, std::int64_t value, std::int64_t least, std::uint64_t& out) {
    return !has || errors_.number(place_, field, -1, value, least, out);
  }

  bool flags() {
    if (shape.hidden % shape.heads != 0)
      return errors_.fail_at(
          place_, "heads", -1,
          "is " + std::to_string(shape.heads) + ", and hidden " + std::to_string(shape.hidden) + " is no multiple of it");
    shape.sequence_parallel = stated_.sequence_parallel();
    shape.gated_mlp = stated_.gated();
    shape.hidden_dropout = shape.attention_dropout = !stated_.has_dropout() || stated_.dropout();
    if (stated_.flash_attention()) shape.attention = TransformerShape::Attention::fused;
    shape.tied_embeddings = !stated_.has_tied_embeddings() || stated_.tied_embeddings();
    shape.linear_biases = !stated_.has_biases() || stated_.biases();
    if (stated_.rms_norm()) shape.norm = TransformerShape::Norm::rms;
    if (stated_.has_position_embeddings() && !stated_.position_embeddings()) shape.positions = TransformerShape::Positions::absent;
    return stage < shape.pipeline ||
           errors_.fail_at(place_, "stage", -1, "is " + std::to_string(stage) + ", the last is " + std::to_string(shape.pipeline - 1));
  }

  bool bytes() {
    const auto element = [&](const char* field, bool has, std::int64_t value, std::uint64_t& out) {
      if (!has) return true;
      if (value == 1 || value == 2 || value == 4 || value == 8) {
        out = static_cast<std::uint64_t>(value);
        return true;
      }
      return errors_.fail_at(place_, field, -1, "is " + std::to_string(value) + " bytes an element, must be 1, 2, 4 or 8");
    };
    if (!element("element_bytes", stated_.has_element_bytes(), stated_.element_bytes(), shape.activation_bytes) ||
        !element("gradient_bytes", stated_.has_gradient_bytes(), stated_.gradient_bytes(), shape.gradient_bytes) ||
        !element("moment_bytes", stated_.has_moment_bytes(), stated_.moment_bytes(), shape.moment_bytes))
      return false;
    shape.parameter_bytes = shape.activation_bytes;
    const bool has_master = stated_.has_master_weights() ? stated_.master_weights() : shape.parameter_bytes < 4;
    shape.master_bytes = has_master ? 4 : 0;
    return true;
  }

  bool optimizer() {
    using Optimizer = TransformerShape::Optimizer;
    const std::string& name = stated_.optimizer();
    if (name.empty() || name == "none") {
      shape.optimizer = Optimizer::absent;
    } else if (name == "adam") {
      shape.optimizer = Optimizer::adam;
    } else if (name == "sgd" || name == "momentum") {
      shape.optimizer = Optimizer::sgd;
      if (name == "sgd") shape.moment_bytes = 0;
    } else {
      return errors_.fail_at(place_, "optimizer", -1, "'" + name + "' is none of none, sgd, momentum, adam");
    }
    return true;
  }

  bool sharding() {
    std::uint64_t level = 0;
    if (!given("data_shard", stated_.has_data_shard(), stated_.data_shard(), 0, level)) return false;
    if (level > 3) return errors_.fail_at(place_, "data_shard", -1, "is " + std::to_string(level) + ", must be 0 to 3");
    if (stated_.distributed_optimizer() && level == 0) level = 1;
    shape.sharding = static_cast<TransformerShape::Sharding>(level);
    return true;
  }

  const proto::Transformer& stated_;
  const Place& place_;
  FileErrors& errors_;
};

bool read_microbatches(const proto::Schedule& stated, const Place& place, TransformerShape& shape, FileErrors& errors) {
  for (const auto& [field, has] : {std::pair{"stages", stated.has_stages()}, {"stage", stated.has_stage()}})
    if (has) return errors.fail_at(place, field, -1, "is given; a transformer has pipeline_stages and stage of its own");
  const bool plain = shape.pipeline == 1;
  if (const std::string& order = stated.order(); !order.empty() && order != "1f1b" && !(plain && order == "fwd-bwd"))
    return errors.fail_at(place, "order", -1, "is '" + order + "', and the formulas know 1f1b", "write the step in the general form");
  shape.microbatches = stated.has_microbatches() ? static_cast<std::uint64_t>(stated.microbatches())
                       : plain                   ? 1
                                                 : busy_microbatches(shape.pipeline, shape.interleave);
  return true;
}

}  // namespace

void read_transformer(const proto::Transformer& transformer, const Place& place, const proto::Schedule& schedule,
                      const Place& schedule_place, FileErrors& errors, ModelBuilder& builder) {
  TransformerReader reader(transformer, place, errors);
  if (!reader.read() || !read_microbatches(schedule, schedule_place, reader.shape, errors)) return;
  if (const Status status = add_transformer(builder, reader.shape, reader.stage); !status) {
    errors.fail(place.line("sequence", -1) + status.error().what, status.error().hint);
    return;
  }
  Result<TransformerMemory> memory = transformer_memory(reader.shape, {reader.stage, false});
  if (!memory) return;
  for (const MemoryPart& part : memory->parts) builder.model.formulas[part.name] = {part.formula, part.source};
  if (const Result<std::vector<StoredTensor>> stored = stored_tensors(reader.shape))
    for (const StoredTensor& tensor : *stored) builder.model.formulas[tensor.name].formula = tensor.formula;
  if (const Result<std::vector<TransformerBlock>> blocks = transformer_blocks(reader.shape, reader.stage))
    for (const TransformerBlock& block : {blocks->front(), blocks->back()})
      for (const StoredTensor& tensor : block.stored) builder.model.formulas[tensor.name].formula = tensor.formula;
  std::string& estimate = builder.model.estimate;
  for (const std::string& what : memory->not_counted) estimate += (estimate.empty() ? "by formula, without " : "; ") + what;
}

}  // namespace liveset::model
