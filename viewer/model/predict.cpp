// Lowers a model and a policy to the logical ledger of one step.
//
// Segments cut the layers, in the order in which they run. A value is kept when something outside its segment reads it: a later
// segment, or the loss; inputs are always kept. Everything else is dropped after its last reader ran, and made again when the
// backward reaches its segment, which is run again as a whole (a kept value that is made again merges with itself). The backward
// of a layer reads the layer's value and what the layer read; the value's consumers ran their backward before, so it is released
// right after. Of a chain this is reading C0.
#include <algorithm>

#include "viewer/model/model.h"

namespace liveset::model {
namespace {

using ledger::LogicalInput;
using ledger::LogicalKind;
using trace::Phase;

constexpr std::uint32_t none = ledger::no_index;

class Lowering {
 public:
  Lowering(const Model& model, bool checkpoints, std::vector<std::uint64_t> cuts)
      : model_(model), checkpoints_(checkpoints), cuts_(std::move(cuts)), builder_(model.conventions.physical_copy) {}

  Prediction run() {
    find_readers();
    decide();
    name_values();
    forward();
    append(Phase::loss, LogicalKind::use, model_.loss, {&model_.loss, 1});
    for (std::size_t segment = cuts_.size() - 1; segment-- > 0;) {
      if (checkpointed(segment)) rerun(segment);
      backward(segment);
    }
    return {builder_.finish(), std::move(cuts_), cost_};
  }

 private:
  std::size_t inputs() const { return model_.inputs.size(); }
  bool is_input(std::uint32_t value) const { return value < inputs(); }
  bool checkpointed(std::size_t segment) const {
    return checkpoints_ && (model_.conventions.checkpoint_last_segment || segment + 2 != cuts_.size());
  }

  void find_readers() {
    const std::size_t values = inputs() + model_.layers.size();
    first_reader_.assign(values, none);
    last_reader_.assign(values, none);
    for (std::uint32_t layer = 0; layer < model_.layers.size(); ++layer)
      for (const std::uint32_t value : model_.layers[layer].reads) {
        if (first_reader_[value] == none) first_reader_[value] = layer;
        last_reader_[value] = layer;
      }
  }

  void decide() {
    kept_.assign(first_reader_.size(), !checkpoints_);
    if (!checkpoints_) return;
    for (std::uint32_t value = 0; value < inputs(); ++value) kept_[value] = true;
    for (std::size_t segment = 0; segment + 1 < cuts_.size(); ++segment)
      for (std::uint64_t layer = cuts_[segment]; layer < cuts_[segment + 1]; ++layer) {
        const std::uint32_t value = model_.value_of(layer);
        kept_[value] =
            value == model_.loss || !checkpointed(segment) || (last_reader_[value] != none && last_reader_[value] >= cuts_[segment + 1]);
      }
  }

  void name_values() {
    for (const Input& input : model_.inputs) {
      ledger::LogicalValue value;
      value.name = input.id;
      value.bytes = input.bytes;
      value.layer = 0;
      value.counted = model_.conventions.count_inputs;
      builder_.add_value(std::move(value));
    }
    for (std::size_t layer = 0; layer < model_.layers.size(); ++layer) {
      ledger::LogicalValue value;
      value.name = model_.layers[layer].id;
      value.bytes = model_.layers[layer].bytes;
      value.layer = static_cast<std::int64_t>(layer) + 1;
      builder_.add_value(std::move(value));
    }
  }

  void append(Phase phase, LogicalKind kind, std::uint32_t value, std::span<const std::uint32_t> reads = {}) {
    LogicalInput input;
    input.phase = phase;
    input.kind = kind;
    input.value = value;
    input.reads = reads;
    builder_.append(input);
  }

  void execute(Phase phase, LogicalKind kind, std::uint64_t layer) {
    append(phase, kind, model_.value_of(layer), model_.layers[layer].reads);
    cost_ += model_.layers[layer].cost;
  }

  void keep_or_drop(std::uint32_t value) { append(Phase::forward, kept_[value] ? LogicalKind::keep : LogicalKind::drop, value); }

  void forward() {
    for (std::uint32_t value = 0; value < inputs(); ++value) append(Phase::forward, LogicalKind::create, value);
    std::vector<std::uint32_t> decided;
    for (std::uint32_t layer = 0; layer < model_.layers.size(); ++layer) {
      execute(Phase::forward, LogicalKind::create, layer);
      decided = model_.layers[layer].reads;
      std::sort(decided.begin(), decided.end());
      decided.erase(std::unique(decided.begin(), decided.end()), decided.end());
      for (const std::uint32_t value : decided)
        if (last_reader_[value] == layer) keep_or_drop(value);
    }
    if (last_reader_[model_.loss] == none) keep_or_drop(model_.loss);
  }

  void rerun(std::size_t segment) {
    std::uint64_t end = cuts_[segment + 1];
    if (model_.conventions.stop_before_boundary)
      while (end > cuts_[segment] && kept_[model_.value_of(end - 1)]) --end;
    for (std::uint64_t layer = cuts_[segment]; layer < end; ++layer)
      execute(Phase::recompute, kept_[model_.value_of(layer)] ? LogicalKind::merge : LogicalKind::rerun, layer);
  }

  void backward(std::size_t segment) {
    std::vector<std::uint32_t> reads;
    for (std::uint64_t layer = cuts_[segment + 1]; layer-- > cuts_[segment];) {
      const std::uint32_t value = model_.value_of(layer);
      reads.assign(1, value);
      for (const std::uint32_t read : model_.layers[layer].reads)
        if (std::find(reads.begin(), reads.end(), read) == reads.end()) reads.push_back(read);
      append(Phase::backward, LogicalKind::use, value, reads);
      append(Phase::backward, LogicalKind::release, value);
      for (std::size_t i = 1; i < reads.size(); ++i)
        if (is_input(reads[i]) && first_reader_[reads[i]] == layer) append(Phase::backward, LogicalKind::release, reads[i]);
    }
  }

  const Model& model_;
  bool checkpoints_;
  std::vector<std::uint64_t> cuts_;
  ledger::LogicalBuilder builder_;
  std::vector<std::uint32_t> first_reader_, last_reader_;  // per value; the loss is no layer
  std::vector<bool> kept_;
  std::uint64_t cost_ = 0;
};

}  // namespace

Result<Prediction> predict(const Model& model, const Policy& policy) {
  Result<std::vector<std::uint64_t>> cuts = boundaries(policy, model.layers.size(), model.conventions.short_segment_first);
  if (!cuts) return cuts.take_error();
  return Lowering(model, policy.kind != Policy::Kind::save_all, std::move(*cuts)).run();
}

Model make_chain(const std::vector<std::uint64_t>& bytes, const std::vector<std::uint64_t>& cost) {
  Model model;
  model.inputs.push_back({"h0", bytes[0]});
  model.layers.reserve(cost.size());
  for (std::size_t i = 0; i < cost.size(); ++i)
    model.layers.push_back({"h" + std::to_string(i + 1), {static_cast<std::uint32_t>(i)}, bytes[i + 1], cost[i]});
  model.loss = static_cast<std::uint32_t>(cost.size());
  return model;
}

}  // namespace liveset::model
