#include "viewer/model/model.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace liveset::model {
namespace {

Error contradiction(std::string what) { return {ErrorKind::unreadable, "", {}, "bad model: " + std::move(what), ""}; }

Slice append(std::vector<std::uint32_t>& lists, const std::vector<std::uint32_t>& from) {
  const Slice slice{static_cast<std::uint32_t>(lists.size()), static_cast<std::uint32_t>(from.size())};
  lists.insert(lists.end(), from.begin(), from.end());
  return slice;
}

// The order in which phases run in a step.
int rank(trace::Phase phase) {
  switch (phase) {
    case trace::Phase::forward: return 0;
    case trace::Phase::loss: return 1;
    case trace::Phase::backward: return 2;
    default: return 3;
  }
}

class Finisher {
 public:
  explicit Finisher(Model& model) : model_(model) {}

  Status run() {
    for (std::size_t i = 1; i < model_.ops.size() && model_.microbatches.count > 1; ++i)
      if (rank(model_.ops[i].phase) < rank(model_.ops[i - 1].phase))
        return contradiction("op '" + model_.ops[i].id + "' of an earlier phase stands behind '" + model_.ops[i - 1].id + "'");
    if (Status status = check_sums(); !status) return status;
    views();
    saved();
    if (Status status = lifetimes(); !status) return status;
    in_place();
    if (!model_.conventions.frees_are_listed) free_after_last_use();
    classes();
    if (model_.units.empty())
      for (std::uint32_t op = 0; op < model_.ops.size(); ++op)
        if (model_.ops[op].in_layers()) model_.units.push_back({model_.ops[op].id, op, op + 1});
    return Done{};
  }

 private:
  Status check_sums() {
    std::uint64_t bytes = 0, cost = 0;
    const auto add = [](std::uint64_t& sum, std::uint64_t more) {
      if (more > max_total_bytes - sum) return false;
      sum += more;
      return true;
    };
    for (const Tensor& tensor : model_.tensors)
      if (!add(bytes, tensor.bytes)) return contradiction("the sum of all bytes is above 2^62");
    for (const StaticStorage& storage : model_.statics)
      if (!add(bytes, storage.bytes)) return contradiction("the sum of all bytes is above 2^62");
    for (const Op& op : model_.ops) {
      if (!add(bytes, op.workspace)) return contradiction("the sum of all bytes is above 2^62");
      if (!add(cost, op.cost)) return contradiction("the sum of all costs is above 2^62");
    }
    return Done{};
  }

  // Who speaks of a view speaks of its storage: a storage is one id and its bytes count once.
  void views() {
    for (std::uint32_t& tensor : model_.lists) tensor = model_.storage_of(tensor);
    for (std::uint32_t& tensor : model_.inputs) tensor = model_.storage_of(tensor);
  }

  void saved() {
    for (const std::uint32_t tensor : model_.inputs) model_.tensors[tensor].given = true;
    if (!model_.conventions.frees_are_listed)  // what a recorded step found there is no id unless the graph holds it
      for (const std::uint32_t tensor : model_.inputs)
        if (model_.tensors[tensor].memory_class != trace::MemoryClass::activation_gradient) model_.tensors[tensor].value = true;
    for (const Op& op : model_.ops)
      for (const std::uint32_t tensor : model_.list(op.saves)) model_.tensors[tensor].value = true;
  }

  // Made before it is read or freed, freed once, not read afterwards.
  Status lifetimes() {
    enum class Life : std::uint8_t { unborn, live, dead };
    std::vector<Life> life(model_.tensors.size(), Life::unborn);
    for (const std::uint32_t tensor : model_.inputs) life[tensor] = Life::live;
    const auto name = [&](std::uint32_t tensor) { return "'" + model_.tensors[tensor].id + "'"; };
    std::vector<std::uint32_t> maker(model_.tensors.size(), none);
    for (std::uint32_t index = 0; index < model_.ops.size(); ++index) {
      const Op& op = model_.ops[index];
      const std::string by = "op '" + op.id + "' ";
      for (const std::uint32_t tensor : model_.list(op.reads)) {
        if (life[tensor] == Life::unborn) return contradiction(by + "reads " + name(tensor) + ", which nothing has made yet");
        if (life[tensor] == Life::dead) return contradiction(by + "reads " + name(tensor) + " after it was freed");
        if (model_.tensors[tensor].for_backward && (!model_.tensors[tensor].value || op.forward == none || op.forward != maker[tensor]))
          return contradiction(by + "reads " + name(tensor) + ", which only the backward of the op that makes and saves it may read");
      }
      for (const std::uint32_t tensor : model_.list(op.writes)) {
        if (life[tensor] == Life::dead) return contradiction(by + "makes " + name(tensor) + ", which was freed, again");
        if (life[tensor] == Life::unborn) maker[tensor] = index;
        if (model_.tensors[tensor].for_backward && maker[tensor] != index)
          return contradiction(by + "makes " + name(tensor) + ", which another op makes for its backward alone");
        life[tensor] = Life::live;
      }
      if (op.saves.count != 0 && rank(op.phase) > 1 && op.phase != trace::Phase::other)
        return contradiction(by + "saves for a backward of its own, and runs in " + std::string(trace::phase_name(op.phase)));
      for (const std::uint32_t tensor : model_.list(op.saves)) {
        if (life[tensor] != Life::live) return contradiction(by + "saves " + name(tensor) + ", which does not live there");
        if (model_.tensors[tensor].for_backward && maker[tensor] != index)
          return contradiction(by + "saves " + name(tensor) + ", which its maker alone may save");
      }
      for (const std::uint32_t tensor : model_.list(op.frees)) {
        if (life[tensor] != Life::live) return contradiction(by + "frees " + name(tensor) + ", which does not live there");
        if (model_.tensors[tensor].given && model_.microbatches.count > 1 && rank(op.phase) < 3)
          return contradiction(by + "frees " + name(tensor) + ", which all microbatches share");
        life[tensor] = Life::dead;
      }
    }
    return Done{};
  }

  // What lives already is not made: an op that writes it, or a view of it, only needs it.
  void in_place() {
    std::vector<bool> made(model_.tensors.size());
    for (const std::uint32_t tensor : model_.inputs) made[tensor] = true;
    std::vector<std::uint32_t> reads;
    for (Op& op : model_.ops) {
      std::uint32_t kept = 0;
      reads.clear();
      for (std::uint32_t i = 0; i < op.writes.count; ++i) {
        const std::uint32_t tensor = model_.lists[op.writes.begin + i];
        if (!made[tensor] || model_.tensors[tensor].accumulates)
          model_.lists[op.writes.begin + kept++] = tensor;
        else
          reads.push_back(tensor);
        if (!made[tensor]) mine_.push_back(tensor);
        made[tensor] = true;
      }
      op.writes.count = kept;
      if (!reads.empty()) {
        const auto stated = model_.list(op.reads);
        mine_.insert(mine_.end(), stated.begin(), stated.end());
        std::sort(mine_.begin(), mine_.end());
        reads.erase(std::remove_if(reads.begin(), reads.end(),
                                   [&](std::uint32_t tensor) { return std::binary_search(mine_.begin(), mine_.end(), tensor); }),
                    reads.end());
        std::sort(reads.begin(), reads.end());
        reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
      }
      mine_.clear();
      if (reads.empty()) continue;
      reads.insert(reads.begin(), model_.list(op.reads).begin(), model_.list(op.reads).end());
      op.reads = append(model_.lists, reads);
    }
  }

  // Gradients of parameters stay: nothing in the step says when they go.
  void free_after_last_use() {
    std::vector<std::uint32_t> last(model_.tensors.size(), none);
    for (std::uint32_t op = 0; op < model_.ops.size(); ++op) {
      for (const std::uint32_t tensor : model_.list(model_.ops[op].writes)) last[tensor] = op;
      for (const std::uint32_t tensor : model_.list(model_.ops[op].reads)) last[tensor] = op;
    }
    std::vector<std::uint32_t> lists;
    lists.reserve(model_.lists.size() + model_.tensors.size());
    std::vector<std::uint32_t> frees;
    for (std::uint32_t index = 0; index < model_.ops.size(); ++index) {
      Op& op = model_.ops[index];
      frees.clear();
      for (const Slice slice : {op.writes, op.reads})
        for (const std::uint32_t tensor : model_.list(slice))
          if (last[tensor] == index && !model_.tensors[tensor].accumulates) {
            frees.push_back(tensor);
            last[tensor] = none;  // once
          }
      // What the op's own forward wrote first, as its reads have it.
      const Slice reads = append(lists, {model_.list(op.reads).begin(), model_.list(op.reads).end()});
      const Slice writes = append(lists, {model_.list(op.writes).begin(), model_.list(op.writes).end()});
      const Slice saves = append(lists, {model_.list(op.saves).begin(), model_.list(op.saves).end()});
      op.frees = append(lists, frees);
      op.reads = reads;
      op.writes = writes;
      op.saves = saves;
    }
    model_.lists = std::move(lists);
  }

  void classes() {
    for (Tensor& tensor : model_.tensors)
      if (tensor.memory_class == trace::MemoryClass::none)
        tensor.memory_class = tensor.value ? trace::MemoryClass::activation : trace::MemoryClass::temporary;
  }

  Model& model_;
  std::vector<std::uint32_t> mine_;  // what the op at hand makes
};

}  // namespace

std::uint32_t ModelBuilder::add_tensor(Tensor tensor) {
  model.tensors.push_back(std::move(tensor));
  return static_cast<std::uint32_t>(model.tensors.size() - 1);
}

std::uint32_t ModelBuilder::add_op(Op op, const Lists& lists) {
  op.reads = append(model.lists, lists.reads);
  op.writes = append(model.lists, lists.writes);
  op.saves = append(model.lists, lists.saves);
  op.frees = append(model.lists, lists.frees);
  model.ops.push_back(std::move(op));
  return static_cast<std::uint32_t>(model.ops.size() - 1);
}

std::uint32_t ModelBuilder::module(std::string_view path) {
  if (path.empty()) return none;
  const auto [found, inserted] = modules_.emplace(path, static_cast<std::uint32_t>(model.modules.size()));
  if (inserted) model.modules.emplace_back(path);
  return found->second;
}

Result<Model> ModelBuilder::finish() {
  if (Status status = Finisher(model).run(); !status) return status.take_error();
  return std::move(model);
}

void add_chain(ModelBuilder& builder, const std::vector<std::uint64_t>& bytes, const std::vector<std::uint64_t>& cost) {
  const auto layers = static_cast<std::uint32_t>(cost.size());
  builder.model.tensors.reserve(bytes.size());
  builder.model.ops.reserve(2 * cost.size() + 1);
  for (std::uint32_t i = 0; i <= layers; ++i) {
    Tensor tensor;
    tensor.id = "h" + std::to_string(i);
    tensor.bytes = bytes[i];
    tensor.layer = i;
    builder.add_tensor(std::move(tensor));
  }
  builder.model.inputs = {0};
  for (std::uint32_t i = 0; i < layers; ++i) add_layer(builder, "h" + std::to_string(i + 1), {i}, i + 1, cost[i]);
  add_loss_and_backward(builder, layers);
}

Result<Model> make_chain(const std::vector<std::uint64_t>& bytes, const std::vector<std::uint64_t>& cost, const Conventions& conventions) {
  ModelBuilder builder;
  builder.model.conventions = conventions;
  add_chain(builder, bytes, cost);
  return builder.finish();
}

void add_rotor_chain(ModelBuilder& builder, const plan::RotorChain& chain) {
  const auto stages = static_cast<std::uint32_t>(chain.stages());
  const auto tensor = [&](const std::string& id, std::uint64_t bytes, trace::MemoryClass memory_class, std::int64_t layer) {
    Tensor made;
    made.id = id;
    made.bytes = bytes;
    made.memory_class = memory_class;
    made.layer = layer;
    return builder.add_tensor(std::move(made));
  };
  std::vector<std::uint32_t> values, extras{none}, gradients;
  for (std::uint32_t i = 0; i <= stages; ++i) {
    const std::string number = std::to_string(i);
    values.push_back(tensor("a" + number, chain.a[i], trace::MemoryClass::none, i));
    if (i > 0) {
      extras.push_back(tensor("abar" + number, chain.abar[i - 1] - chain.a[i], trace::MemoryClass::none, i));
      builder.model.tensors.back().for_backward = true;
    }
  }
  for (std::uint32_t i = 0; i <= stages; ++i)
    gradients.push_back(tensor("delta" + std::to_string(i), chain.delta[i], trace::MemoryClass::activation_gradient, -1));
  builder.model.inputs = {values[0], gradients[stages]};
  for (std::uint32_t i = 1; i <= stages; ++i) {
    Op op;
    op.id = "F" + std::to_string(i);
    op.cost = chain.uf[i - 1];
    op.workspace = chain.of[i - 1];
    builder.add_op(std::move(op), {{values[i - 1]}, {values[i], extras[i]}, {values[i], values[i - 1], extras[i]}, {}});
  }
  for (std::uint32_t i = stages; i > 0; --i) {
    Op op;
    op.id = "B" + std::to_string(i);
    op.phase = trace::Phase::backward;
    op.forward = i - 1;
    op.cost = chain.ub[i - 1];
    op.workspace = chain.ob[i - 1];
    builder.add_op(std::move(op), {{values[i], values[i - 1], extras[i], gradients[i]}, {gradients[i - 1]}, {}, {}});
  }
  builder.model.rotor = chain;
}

void add_layer(ModelBuilder& builder, const std::string& id, std::vector<std::uint32_t> reads, std::uint32_t value, std::uint64_t cost) {
  Op op;
  op.id = id;
  op.cost = cost;
  ModelBuilder::Lists lists;
  lists.writes = {value};
  lists.saves = {value};
  std::unordered_set<std::uint32_t> saved{value};
  for (const std::uint32_t read : reads)
    if (saved.insert(read).second) lists.saves.push_back(read);
  lists.reads = std::move(reads);
  builder.add_op(std::move(op), lists);
}

void add_loss_and_backward(ModelBuilder& builder, std::uint32_t loss) {
  const auto layers = static_cast<std::uint32_t>(builder.model.ops.size());
  Op op;
  op.id = "loss";
  op.phase = trace::Phase::loss;
  ModelBuilder::Lists lists;
  lists.reads = {loss};
  builder.add_op(std::move(op), lists);
  for (std::uint32_t layer = layers; layer-- > 0;) {
    Op backward;
    backward.id = builder.model.ops[layer].id + "'";
    backward.phase = trace::Phase::backward;
    backward.forward = layer;
    const auto saves = builder.model.list(builder.model.ops[layer].saves);
    lists.reads.assign(saves.begin(), saves.end());
    builder.add_op(std::move(backward), lists);
  }
}

}  // namespace liveset::model
