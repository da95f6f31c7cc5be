#include "viewer/model/multilevel.h"

#include <algorithm>
#include <utility>

#include "viewer/plan/revolve.h"

namespace liveset::model {
namespace {

// Of a chain that is too long for rotor's table: some 50 ms, and no more groups were better (rotor.h).
constexpr std::uint64_t rotor_groups = 40;

using Do = Instruction::Do;
using trace::Phase;

Error no_chain(std::string what) {
  return {ErrorKind::usage,
          "",
          {},
          "the model is no chain of layers: " + std::move(what),
          "revolve, rotor, moves and exact search need layers that read only what the one before them made; regions and segments do not"};
}

// What belongs to which layer.
class Layers {
 public:
  explicit Layers(const Model& model) : model_(model) {}

  Status find() {
    if (model_.conventions.frees_are_listed || model_.conventions.drop_at_region_end)
      return no_chain("its frees are listed, as a recorded step's");
    if (model_.microbatches.count > 1) return no_chain("it has several microbatches");
    layer_of_.assign(model_.ops.size(), none);
    producer_.assign(model_.tensors.size(), none);
    freed_by_.assign(model_.tensors.size(), none);
    outputs_.resize(model_.units.size());
    backwards_.resize(model_.units.size());
    is_output_.assign(model_.tensors.size(), false);
    is_read_by_first_.assign(model_.tensors.size(), false);
    for (std::uint32_t layer = 0; layer < model_.units.size(); ++layer)
      for (std::uint32_t op = model_.units[layer].begin; op < model_.units[layer].end; ++op) layer_of_[op] = layer;
    for (std::uint32_t index = 0; index < model_.ops.size(); ++index) {
      const Op& op = model_.ops[index];
      const std::uint32_t layer = layer_of(index);
      if (op.phase == Phase::backward && layer != none) backwards_[layer].push_back(index);
      if (op.phase == Phase::forward && layer == none) return no_chain("op '" + op.id + "' belongs to no layer");
      for (const std::uint32_t tensor : model_.list(op.writes))
        if (producer_[tensor] == none && op.phase == Phase::forward) producer_[tensor] = layer;
      for (const std::uint32_t tensor : model_.list(op.frees)) freed_by_[tensor] = index;
      for (const Slice slice : {op.reads, op.saves})
        for (const std::uint32_t tensor : model_.list(slice))
          if (Status status = reads(op, layer, tensor); !status) return status;
    }
    return Done{};
  }

  // The layer of a forward op, or of the forward op that a backward op belongs to; none: the loss's, the optimizer's.
  std::uint32_t layer_of(std::uint32_t op) const {
    const Op& found = model_.ops[op];
    if (found.phase == Phase::forward) return layer_of_[op];
    return found.forward == none ? none : layer_of_[found.forward];
  }
  std::uint32_t producer(std::uint32_t tensor) const { return producer_[tensor]; }
  std::uint32_t freed_by(std::uint32_t tensor) const { return freed_by_[tensor]; }  // op of the step without checkpointing
  const std::vector<std::uint32_t>& outputs(std::uint32_t layer) const { return outputs_[layer]; }
  const std::vector<std::uint32_t>& backwards(std::uint32_t layer) const { return backwards_[layer]; }
  bool is_output(std::uint32_t tensor) const { return is_output_[tensor]; }
  bool is_read_by_first(std::uint32_t tensor) const { return is_read_by_first_[tensor]; }  // an input

 private:
  Status reads(const Op& op, std::uint32_t layer, std::uint32_t tensor) {
    const std::uint32_t from = producer_[tensor];
    if (from == none) {
      // An input. A later layer than the first would have to find it.
      is_read_by_first_[tensor] = is_read_by_first_[tensor] || (layer == 0 && op.phase == Phase::forward);
      if (layer != none && layer > 0 && op.phase == Phase::forward)
        return no_chain("op '" + op.id + "' reads the input '" + model_.tensors[tensor].id + "'");
      return Done{};
    }
    const std::uint32_t last = static_cast<std::uint32_t>(model_.units.size()) - 1;
    const std::uint32_t reader = layer == none ? last + 1 : layer;
    if (reader == from) return Done{};
    if (reader != from + 1)
      return no_chain("op '" + op.id + "' reads '" + model_.tensors[tensor].id + "' of layer '" + model_.units[from].name + "'");
    if (!is_output_[tensor]) {
      is_output_[tensor] = true;
      outputs_[from].push_back(tensor);
    }
    return Done{};
  }

  const Model& model_;
  std::vector<std::uint32_t> layer_of_, producer_, freed_by_;
  std::vector<std::vector<std::uint32_t>> outputs_, backwards_;
  std::vector<bool> is_output_, is_read_by_first_;
};

class Writer {
 public:
  Writer(const Model& model, const Layers& layers) : model_(model), layers_(layers), lives_(model.tensors.size()) {
    for (const std::uint32_t tensor : model.inputs) {
      append(Do::begin, Phase::forward, tensor);
      lives_[tensor] = true;
    }
    for (std::uint64_t layer = 0; layer <= model.units.size(); ++layer) out_.boundaries.push_back(layer);
    whole_.assign(model.units.size(), false);
  }

  // Runs a layer; `all`: what its backward needs stays, else its outputs only.
  void forward(std::uint32_t layer, bool all) {
    const Phase phase = ran_ > layer ? Phase::recompute : Phase::forward;
    ran_ = std::max(ran_, layer + 1);
    const Unit& unit = model_.units[layer];
    for (std::uint32_t op = unit.begin; op < unit.end; ++op) {
      append(Do::run, phase, op, all);
      for (const std::uint32_t tensor : model_.list(model_.ops[op].writes))
        if (all || !model_.tensors[tensor].for_backward) lives_[tensor] = true;
      for (const std::uint32_t tensor : model_.list(model_.ops[op].frees))
        if (layers_.producer(tensor) == layer) end(Do::release, phase, tensor);
    }
    if (all) whole_[layer] = true;
    if (!all)
      for (std::uint32_t op = unit.begin; op < unit.end; ++op)
        for (const std::uint32_t tensor : model_.list(model_.ops[op].writes))
          if (!layers_.is_output(tensor)) end(model_.tensors[tensor].value ? Do::drop : Do::release, phase, tensor);
  }

  bool is_whole(std::uint32_t layer) const { return whole_[layer]; }
  // What the layer itself made of what its backward reads lives.
  bool is_ready(std::uint32_t layer) const {
    for (const std::uint32_t op : layers_.backwards(layer))
      for (const std::uint32_t tensor : model_.list(model_.ops[op].reads))
        if (!lives_[tensor] && layers_.producer(tensor) == layer) return false;
    return true;
  }

  // What goes from the layer to the next one.
  void drop_outputs(std::uint32_t layer, Phase phase) {
    for (const std::uint32_t tensor : layers_.outputs(layer)) end(Do::drop, phase, tensor);
  }
  Phase present() const { return lost_ ? Phase::recompute : Phase::forward; }

  void backward(std::uint32_t layer) {
    if (!lost_) {
      lost_ = true;
      for (std::uint32_t op = 0; op < model_.ops.size(); ++op)
        if (model_.ops[op].phase == Phase::loss) run(op, Phase::loss);
      // The loss's own backward stands before that of every layer.
      for (; rest_ < model_.ops.size(); ++rest_) {
        if (model_.ops[rest_].phase != Phase::backward) continue;
        if (layers_.layer_of(rest_) != none) break;
        run(rest_, Phase::backward);
      }
    }
    for (const std::uint32_t op : layers_.backwards(layer)) run(op, Phase::backward);
    whole_[layer] = false;
    // What was kept, or made again, only for running forwards again: now none is.
    for (std::uint32_t op = model_.units[layer].begin; op < model_.units[layer].end; ++op)
      for (const std::uint32_t tensor : model_.list(model_.ops[op].writes)) end_with_layer(tensor);
    if (layer == 0)
      for (const std::uint32_t tensor : model_.inputs) end_with_layer(tensor);
  }

  Schedule finish() {
    for (std::uint32_t op = 0; op < model_.ops.size(); ++op) {
      const Op& each = model_.ops[op];
      const bool left = each.phase == Phase::backward && layers_.layer_of(op) == none && op >= rest_;
      if (each.phase == Phase::optimizer || each.phase == Phase::other || left) run(op, each.phase);
    }
    say_drops();
    return std::move(out_);
  }

 private:
  void append(Do what, Phase phase, std::uint32_t subject, bool graph = true) {
    Instruction instruction;
    instruction.what = what;
    instruction.phase = phase;
    instruction.subject = subject;
    instruction.graph = graph;
    out_.instructions.push_back(instruction);
  }
  void end(Do what, Phase phase, std::uint32_t tensor) {
    if (!lives_[tensor]) return;
    append(what, phase, tensor);
    lives_[tensor] = false;
  }
  // A value that goes and is made again later was given up, not let go.
  void say_drops() {
    std::vector<bool> made_later(model_.tensors.size());
    for (auto instruction = out_.instructions.rbegin(); instruction != out_.instructions.rend(); ++instruction) {
      if (instruction->what == Do::release && model_.tensors[instruction->subject].value && made_later[instruction->subject])
        instruction->what = Do::drop;
      if (instruction->what != Do::run) continue;
      for (const std::uint32_t tensor : model_.list(model_.ops[instruction->subject].writes))
        if (instruction->graph || !model_.tensors[tensor].for_backward) made_later[tensor] = true;
    }
  }
  void end_with_layer(std::uint32_t tensor) {
    const std::uint32_t freed = layers_.freed_by(tensor);
    if (freed == none) return;
    const Phase phase = model_.ops[freed].phase;
    if (phase == Phase::forward || phase == Phase::loss || (phase == Phase::backward && layers_.layer_of(freed) != none))
      end(Do::release, Phase::backward, tensor);
  }
  void run(std::uint32_t op, Phase phase) {
    append(Do::run, phase, op);
    for (const std::uint32_t tensor : model_.list(model_.ops[op].writes)) lives_[tensor] = true;
    // Of an input the first layer may still be run again.
    const std::uint32_t layer = layers_.layer_of(op);
    const bool is_before_first = phase == Phase::loss || (phase == Phase::backward && layer != none && layer > 0);
    for (const std::uint32_t tensor : model_.list(model_.ops[op].frees))
      if (!is_before_first || !layers_.is_read_by_first(tensor)) end(Do::release, phase, tensor);
  }

  const Model& model_;
  const Layers& layers_;
  Schedule out_;
  std::vector<bool> lives_, whole_;
  std::uint32_t ran_ = 0;
  std::uint32_t rest_ = 0;  // backward ops of no layer that stand before it have run
  bool lost_ = false;
};

std::uint64_t bytes_of(const Model& model, std::span<const std::uint32_t> tensors) {
  std::uint64_t bytes = 0;
  for (const std::uint32_t tensor : tensors) bytes += model.tensors[tensor].bytes;
  return bytes;
}

}  // namespace

Result<ChainOfLayers> chain_of_layers(const Model& model) {
  ChainOfLayers out;
  if (model.rotor) {
    out.stages = *model.rotor;
    out.values.bytes = model.rotor->a;
    out.values.cost = model.rotor->uf;
    return out;
  }
  Layers layers(model);
  if (Status status = layers.find(); !status) return status.take_error();
  const std::uint64_t input = bytes_of(model, model.inputs);
  out.values.bytes = {input};
  plan::RotorChain& stages = out.stages;
  stages.a = {input};
  stages.delta = {0};
  for (std::uint32_t layer = 0; layer < model.units.size(); ++layer) {
    const std::uint64_t output = bytes_of(model, layers.outputs(layer));
    std::uint64_t all = 0, cost = 0, most = 0, temporary = 0;
    for (std::uint32_t op = model.units[layer].begin; op < model.units[layer].end; ++op) {
      cost += model.ops[op].cost;
      most = std::max(most, model.ops[op].workspace);
      for (const std::uint32_t tensor : model.list(model.ops[op].writes))
        (model.tensors[tensor].value || layers.is_output(tensor) ? all : temporary) += model.tensors[tensor].bytes;
    }
    out.values.bytes.push_back(output);
    out.values.cost.push_back(cost);
    stages.a.push_back(output);
    stages.abar.push_back(all);
    stages.delta.push_back(0);
    stages.uf.push_back(cost);
    stages.of.push_back(most + temporary);
    stages.ub.push_back(0);
    stages.ob.push_back(0);
  }
  // What a layer's backward holds beside what was saved: at most everything that it makes.
  for (std::uint32_t op = 0; op < model.ops.size(); ++op) {
    const std::uint32_t layer = model.ops[op].phase == Phase::backward ? layers.layer_of(op) : none;
    if (layer == none) continue;
    stages.ub[layer] += model.ops[op].cost;
    stages.ob[layer] += model.ops[op].workspace + bytes_of(model, model.list(model.ops[op].writes));
  }
  return out;
}

Result<Schedule> schedule_of(const Model& model, std::span<const plan::RotorOperation> operations) {
  using Kind = plan::RotorOperation::Kind;
  Layers layers(model);
  if (Status status = layers.find(); !status) return status.take_error();
  Writer writer(model, layers);
  std::vector<bool> stays(model.units.size() + 1);  // an output that is kept until the backward of the next layer
  for (const plan::RotorOperation& operation : operations) {
    const std::uint32_t layer = operation.stage - 1;
    if (operation.kind == Kind::backward) {
      writer.backward(layer);
      if (layer > 0 && !writer.is_whole(layer - 1)) writer.drop_outputs(layer - 1, Phase::backward);
      stays[layer] = false;
      continue;
    }
    writer.forward(layer, operation.kind == Kind::forward_keep_all);
    if (operation.kind != Kind::forward) stays[layer] = true;
    if (layer > 0 && !stays[layer] && !writer.is_whole(layer - 1)) writer.drop_outputs(layer - 1, writer.present());
  }
  return writer.finish();
}

Result<Schedule> schedule_of(const Model& model, std::span<const plan::Move> moves) {
  using Kind = plan::Move::Kind;
  Layers layers(model);
  if (Status status = layers.find(); !status) return status.take_error();
  Writer writer(model, layers);
  for (std::size_t i = 0; i < moves.size(); ++i) {
    const plan::Move& move = moves[i];
    if (move.kind == Kind::drop) {
      if (move.layer > 0) writer.drop_outputs(move.layer - 1, writer.present());
      continue;
    }
    const std::uint32_t layer = move.layer - 1;
    if (move.kind == Kind::forward) {
      writer.forward(layer, i + 1 < moves.size() && moves[i + 1].kind == Kind::reverse && moves[i + 1].layer == move.layer);
      continue;
    }
    if (!writer.is_ready(layer)) writer.forward(layer, true);
    writer.backward(layer);
  }
  return writer.finish();
}

std::vector<plan::RotorOperation> RotorStages::operations(const plan::RotorPlan& plan) const {
  return groups ? plan::ungroup(*groups, plan.operations) : plan.operations;
}

Result<RotorStages> rotor_stages(const plan::RotorChain& stages, std::uint64_t budget, const plan::RotorOptions& options) {
  std::optional<plan::RotorGroups> groups;
  if (stages.stages() > plan::max_rotor_stages) {
    Result<plan::RotorGroups> grouped = plan::group_stages(stages, rotor_groups);
    if (!grouped) return grouped.take_error();
    groups = std::move(*grouped);
  }
  Result<plan::RotorTable> table = plan::RotorTable::make(groups ? groups->chain : stages, budget, options);
  if (!table) return table.take_error();
  return RotorStages{std::move(*table), std::move(groups)};
}

Result<std::vector<plan::RotorOperation>> rotor_operations(const plan::RotorChain& stages, std::uint64_t budget,
                                                           const plan::RotorOptions& options) {
  plan::RotorOptions alone = options;
  alone.bounds = false;
  const Result<RotorStages> found = rotor_stages(stages, budget, alone);
  if (!found) return found.error();
  const std::optional<plan::RotorPlan> plan = found->table.plan(budget);
  if (!plan)
    return Error{ErrorKind::usage,
                 "",
                 {},
                 "policy 'rotor:" + std::to_string(budget) + "' is infeasible, least " + (found->groups ? "found is " : "is ") +
                     std::to_string(found->table.least_budget()) + " bytes" +
                     (found->groups ? " (with the layers in " + std::to_string(rotor_groups) + " groups)" : ""),
                 "give a larger budget"};
  return found->operations(*plan);
}

Result<Schedule> multilevel_schedule(const Model& model, const Policy& policy) {
  const Result<ChainOfLayers> chain = chain_of_layers(model);
  if (!chain) return chain.error();
  if (policy.kind == Policy::Kind::revolve) {
    const Result<std::vector<plan::RevolveOperation>> operations = plan::revolve_schedule(model.units.size(), policy.number);
    if (!operations) return operations.error();
    return schedule_of(model, plan::revolve_moves(*operations));
  }
  if (policy.kind == Policy::Kind::moves) {
    if (const Result<plan::Figures> replayed = plan::replay(chain->values, policy.moves); !replayed)
      return Error{ErrorKind::usage, "", {}, "policy 'moves:...': " + replayed.error().what, replayed.error().hint};
    return schedule_of(model, policy.moves);
  }
  const Result<std::vector<plan::RotorOperation>> operations = rotor_operations(chain->stages, policy.number);
  if (!operations) return operations.error();
  return schedule_of(model, *operations);
}

}  // namespace liveset::model
