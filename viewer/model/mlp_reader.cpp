#include "viewer/model/mlp_reader.h"

#include <algorithm>
#include <unordered_map>

#include "viewer/model/transformer_exact.h"

namespace liveset::model {
namespace {

using trace::MemoryClass;
using trace::Phase;

constexpr std::uint64_t max_mlp_layers = 100'000;
constexpr std::uint64_t number_bytes = 8;  // of a number of the program (lr, beta): a double

class MlpReader {
 public:
  MlpReader(const proto::Mlp& stated, const Place& place, FileErrors& errors, ModelBuilder& builder)
      : stated_(stated), place_(place), errors_(errors), builder_(builder) {}

  void read() {
    if (!fields() || !sizes()) return;
    statics();
    forward();
    backward();
    optimizer();
    finish();
  }

 private:
  enum class Activation : std::uint8_t { relu, tanh, gelu };
  enum class Optimizer : std::uint8_t { none, sgd, momentum, adam };
  struct Layer {
    std::uint64_t in = 0, out = 0;
    std::uint64_t weight_bytes = 0, bias_bytes = 0, output_bytes = 0, flops = 0;
    std::uint32_t linear = none, activation = none;  // ops
    std::uint32_t input = none, saved = none;        // tensors: what the linear reads; what the activation's backward reads
  };

  template <class Value, std::size_t count>
  bool choice(const char* field, const std::string& text, const std::pair<const char*, Value> (&values)[count], Value& out) {
    std::string all;
    for (const auto& [name, value] : values) {
      if (text == name || (text.empty() && all.empty())) {
        out = value;
        return true;
      }
      all += (all.empty() ? "" : ", ") + std::string(name);
    }
    return errors_.fail_at(place_, field, -1, "'" + text + "' is none of " + all);
  }

  bool fields() {
    if (!errors_.number(place_, "batch", -1, stated_.batch(), 1, batch_)) return false;
    if (stated_.widths_size() < 2)
      return errors_.fail_at(place_, "widths", -1, "has " + std::to_string(stated_.widths_size()) + " entries, must have at least 2",
                             "the width of the input, of every layer's output, as in mlp { batch: 64 widths: [784, 256, 10] }");
    if (static_cast<std::uint64_t>(stated_.widths_size()) > max_mlp_layers + 1)
      return errors_.fail_at(place_, "widths", 0, "has more than " + std::to_string(max_mlp_layers + 1) + " entries");
    layers_.resize(static_cast<std::size_t>(stated_.widths_size()) - 1);
    for (int i = 0; i < stated_.widths_size(); ++i) {
      std::uint64_t width = 0;
      if (!errors_.number(place_, "widths", i, stated_.widths(i), 1, width)) return false;
      const auto layer = static_cast<std::size_t>(i);
      if (layer < layers_.size()) layers_[layer].in = width;
      if (i > 0) layers_[layer - 1].out = width;
    }
    if (stated_.has_element_bytes()) {
      if (stated_.element_bytes() != 2 && stated_.element_bytes() != 4 && stated_.element_bytes() != 8)
        return errors_.fail_at(place_, "element_bytes", -1, "is " + std::to_string(stated_.element_bytes()) + ", must be 2, 4 or 8");
      element_ = static_cast<std::uint64_t>(stated_.element_bytes());
    }
    bias_ = !stated_.has_bias() || stated_.bias();
    return choice("activation", stated_.activation(),
                  {std::pair{"relu", Activation::relu}, {"tanh", Activation::tanh}, {"gelu", Activation::gelu}}, activation_) &&
           choice(
               "optimizer", stated_.optimizer(),
               {std::pair{"none", Optimizer::none}, {"sgd", Optimizer::sgd}, {"momentum", Optimizer::momentum}, {"adam", Optimizer::adam}},
               optimizer_) &&
           choice("loss", stated_.loss(), {std::pair{"mse", false}, {"sum", true}}, sums_);
  }

  bool sizes() {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      Layer& layer = layers_[i];
      const Exact in = layer.in, out = layer.out, batch = batch_, element = element_;
      const Exact weight = in * out * element, output = batch * out * element, flops = Exact(2) * batch * in * out,
                  input = batch * in * element;
      if (!weight.valid() || !output.valid() || !flops.valid() || !input.valid())
        return errors_.fail_at(place_, "widths", static_cast<int>(i), "and the next one make a layer whose size reaches 2^63");
      layer.weight_bytes = weight.numerator();
      layer.bias_bytes = bias_ ? (out * element).numerator() : 0;
      layer.output_bytes = output.numerator();
      layer.flops = flops.numerator();
    }
    return true;
  }

  std::uint64_t output_bytes() const { return layers_.back().output_bytes; }
  // A number of the program that meets tensors of this type: torch makes it a tensor, and another where the type differs.
  std::uint64_t number_of(std::uint64_t element) const { return number_bytes + (element == number_bytes ? 0 : element); }
  const char* linear_node() const { return bias_ ? "AddmmBackward0" : "MmBackward0"; }
  const char* linear_slot() const { return bias_ ? "AddmmBackward0.mat1" : "MmBackward0.self"; }
  const char* activation_node() const {
    return activation_ == Activation::relu ? "ReluBackward0" : activation_ == Activation::tanh ? "TanhBackward0" : "GeluBackward0";
  }
  static std::string numbered(const std::string& name, std::size_t number) {
    return number == 1 ? name : name + "#" + std::to_string(number);
  }
  std::string unique(const std::string& name) { return numbered(name, ++names_[name]); }

  void add_static(const std::string& id, std::uint64_t bytes, MemoryClass memory_class, std::uint64_t from_step) {
    StaticStorage storage;
    storage.id = id;
    storage.bytes = bytes;
    storage.memory_class = memory_class;
    storage.from_step = from_step;
    builder_.model.statics.push_back(std::move(storage));
  }

  template <class Each>
  void for_each_parameter(Each each) const {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      each(i, "weight", layers_[i].weight_bytes);
      if (bias_) each(i, "bias", layers_[i].bias_bytes);
    }
  }

  // The optimizer's states come with its first step.
  void statics() {
    for_each_parameter([&](std::size_t layer, const char* name, std::uint64_t bytes) {
      add_static(std::to_string(2 * layer) + "." + name, bytes, MemoryClass::parameter, 0);
    });
    const auto state = [&](std::uint64_t bytes) { add_static(unique("optimizer_state"), bytes, MemoryClass::optimizer_state, 1); };
    for_each_parameter([&](std::size_t, const char*, std::uint64_t bytes) {
      if (optimizer_ == Optimizer::adam) state(step_bytes);
      if (optimizer_ == Optimizer::adam) state(bytes);
      if (optimizer_ == Optimizer::adam || optimizer_ == Optimizer::momentum) state(bytes);
    });
  }

  std::uint32_t tensor(const std::string& name, std::uint64_t bytes, MemoryClass memory_class, std::int64_t layer = -1) {
    Tensor made;
    made.id = unique(name);
    made.bytes = bytes;
    made.memory_class = memory_class;
    made.layer = layer;
    made.accumulates = memory_class == MemoryClass::gradient;
    return builder_.add_tensor(std::move(made));
  }
  std::uint32_t given(const std::string& name, std::uint64_t bytes) {
    const std::uint32_t made = tensor(name, bytes, MemoryClass::activation, 0);
    builder_.model.inputs.push_back(made);
    return made;
  }

  std::uint32_t add(const std::string& id, const char* node, Phase phase, const ModelBuilder::Lists& lists, std::uint64_t cost,
                    std::uint64_t workspace = 0, std::uint32_t forward = none, const std::string& module = "") {
    Op op;
    op.id = unique(id);
    op.name = node;
    op.phase = phase;
    op.module = builder_.module(module);
    op.cost = cost;
    op.workspace = workspace;
    op.forward = forward;
    op.packs_before = std::none_of(lists.saves.begin(), lists.saves.end(), [&](std::uint32_t saved) {
      return std::find(lists.writes.begin(), lists.writes.end(), saved) != lists.writes.end();
    });
    return builder_.add_op(std::move(op), lists);
  }

  // Names are those that a recorded nn.Sequential has, so that compare pairs them.
  void forward() {
    std::uint32_t value = given(linear_slot(), batch_ * layers_.front().in * element_);
    input_ = value;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      Layer& layer = layers_[i];
      const bool last = i + 1 == layers_.size();
      const auto number = static_cast<std::int64_t>(i) + 1;
      const std::string module = "Sequential." + std::to_string(2 * i), next = "Sequential." + std::to_string(2 * i + 1);
      const auto begin = static_cast<std::uint32_t>(builder_.model.ops.size());
      const std::string output = last        ? (sums_ ? std::string(linear_node()) + ".temporary" : "MseLossBackward0.self")
                                 : is_gelu() ? "GeluBackward0.self"
                                             : std::string(linear_node()) + ".temporary";
      const bool saved = last ? !sums_ : is_gelu();
      const std::uint32_t made =
          tensor(module + "/" + output, layer.output_bytes, saved ? MemoryClass::activation : MemoryClass::temporary, number);
      layer.input = value;
      layer.linear = add(module, linear_node(), Phase::forward, {{value}, {made}, {value}, {}}, layer.flops, 0, none, module);
      value = made;
      if (!last) {
        const std::uint32_t result = tensor(next + "/" + linear_slot(), layer.output_bytes, MemoryClass::activation, number);
        layer.saved = is_gelu() ? made : result;
        layer.activation =
            add(next, activation_node(), Phase::forward, {{made}, {result}, {layer.saved}, {}}, batch_ * layer.out, 0, none, next);
        value = result;
      }
      builder_.model.units.push_back({"layer." + std::to_string(number), begin, static_cast<std::uint32_t>(builder_.model.ops.size())});
    }
    output_ = value;
  }
  bool is_gelu() const { return activation_ == Activation::gelu; }

  void backward() {
    std::uint32_t loss = none;
    if (sums_) {
      loss = tensor("loss", element_, MemoryClass::loss);
      loss_ = add("loss", "SumBackward0", Phase::loss, {{output_}, {loss}, {}, {}}, 0);
    } else {
      target_ = given("MseLossBackward0.target", output_bytes());
      loss = tensor("loss", output_bytes(), MemoryClass::loss);
      loss_ = add("loss", "MseLossBackward0", Phase::loss, {{output_, target_}, {loss}, {output_, target_}, {}}, 0,
                  output_bytes() + number_bytes + element_);
    }
    const std::uint32_t one = tensor("backward.temporary", element_, MemoryClass::activation_gradient);
    add("backward", "", Phase::backward, {{loss}, {one}, {}, {}}, 0);
    std::uint32_t gradient = one;
    if (!sums_) {
      gradient = tensor("MseLossBackward0.temporary", output_bytes(), MemoryClass::activation_gradient);
      add("loss'", "MseLossBackward0", Phase::backward, {{one, output_, target_}, {gradient}, {}, {}}, 0, 0, loss_);
    }
    for (std::size_t i = layers_.size(); i-- > 0;) {
      const Layer& layer = layers_[i];
      if (layer.activation != none) {
        const std::uint32_t before =
            tensor(std::string(activation_node()) + ".temporary", layer.output_bytes, MemoryClass::activation_gradient);
        add(builder_.model.ops[layer.activation].id + "'", activation_node(), Phase::backward, {{gradient, layer.saved}, {before}, {}, {}},
            batch_ * layer.out, 0, layer.activation);
        gradient = before;
      }
      gradient = linear_backward(i, gradient);
    }
    // What the program's own frame holds until backward returns.
    add("backward's end", "", Phase::backward, {{loss, one}, {}, {}, {}}, 0);
  }

  // With a bias the input's gradient comes first, without one the weight's. A gradient that is one number (sum) is copied for each product.
  std::uint32_t linear_backward(std::size_t index, std::uint32_t gradient) {
    const Layer& layer = layers_[index];
    const std::uint64_t copy = sums_ && index + 1 == layers_.size() ? layer.output_bytes : 0;
    const std::string id = builder_.model.ops[layer.linear].id + "'", temporary = std::string(linear_node()) + ".temporary";
    const auto make = [&](std::uint64_t bytes, MemoryClass memory_class, std::uint64_t cost, std::uint64_t workspace) {
      const std::uint32_t made = tensor(temporary, bytes, memory_class);
      add(id, linear_node(), Phase::backward, {{gradient, layer.input}, {made}, {}, {}}, cost, workspace, layer.linear);
      return made;
    };
    std::uint32_t before = none;
    const auto input_gradient = [&] {
      if (index > 0) before = make(batch_ * layer.in * element_, MemoryClass::activation_gradient, layer.flops, copy);
    };
    if (bias_) input_gradient();
    make(layer.weight_bytes, MemoryClass::gradient, layer.flops, copy);
    if (!bias_) input_gradient();
    if (bias_) make(layer.bias_bytes, MemoryClass::gradient, 0, 0);
    return before;
  }

  void optimizer() {
    if (optimizer_ != Optimizer::adam && optimizer_ != Optimizer::momentum) return;
    const auto number = [&](std::uint64_t element, const ModelBuilder::Lists& lists = {}) {
      add("optimizer", "", Phase::optimizer, lists, 0, number_of(element));
    };
    std::uint32_t denominator = none;
    for_each_parameter([&](std::size_t, const char*, std::uint64_t bytes) {
      if (optimizer_ == Optimizer::momentum) return number(element_);
      number(step_bytes);  // step += 1
      number(element_);    // second *= beta
      const std::uint32_t before = denominator;
      const std::uint32_t root = tensor("optimizer.temporary", bytes, MemoryClass::temporary);
      denominator = tensor("optimizer.temporary", bytes, MemoryClass::temporary);
      number(element_, {{}, {root, denominator}, {}, {}});
      // + eps; only then is the one of the parameter before rebound.
      number(element_, before == none ? ModelBuilder::Lists{} : ModelBuilder::Lists{{before, denominator}, {}, {}, {}});
    });
    if (denominator != none) add("optimizer", "", Phase::optimizer, {{denominator}, {}, {}, {}}, 0);
  }

  // The batch is the caller's, beyond the step.
  void finish() {
    ModelBuilder::Lists lists{{input_}, {}, {}, {}};
    if (target_ != none) lists.reads.push_back(target_);
    add("end", "", Phase::other, lists, 0);
  }

  static constexpr std::uint64_t step_bytes = 4;  // Adam's count of steps is a float32 tensor of its own

  const proto::Mlp& stated_;
  const Place& place_;
  FileErrors& errors_;
  ModelBuilder& builder_;
  std::uint64_t batch_ = 1, element_ = 4;
  bool bias_ = true, sums_ = false;
  Activation activation_ = Activation::relu;
  Optimizer optimizer_ = Optimizer::none;
  std::vector<Layer> layers_;
  std::unordered_map<std::string, std::size_t> names_;
  std::uint32_t input_ = none, output_ = none, target_ = none, loss_ = none;
};

}  // namespace

void read_mlp(const proto::Mlp& mlp, const Place& place, FileErrors& errors, ModelBuilder& builder) {
  MlpReader(mlp, place, errors, builder).read();
}

}  // namespace liveset::model
