// The side of a comparison that a model predicts: one step under a policy.
#pragma once
#include <string>
#include <unordered_map>

#include "viewer/compare/side.h"
#include "viewer/model/predict.h"

namespace liveset::compare {

struct ModelOptions {
  std::string file, counter = "allocated";  // or requested, active, reserved, device
  std::uint64_t step = ~std::uint64_t{0};   // index of the step whose peak is predicted; default: a late one
};

class ModelSide {
 public:
  // Errors: the policy does not fit the model; the model does not tell of that counter (usage). `model` must outlive it.
  static Result<ModelSide> make(const model::Model& model, const model::Policy& policy, const ModelOptions& options);

  // Fills Side::at_other.
  void look_at(const ledger::Place& other);
  // As TraceSide's.
  void prefer_other();
  // The highest sum of blocks of the step of this index: what a model has from the next step on comes in it (model::phase_of_coming),
  // what it has from a later one on is not in it yet.
  std::uint64_t step_peak(std::uint64_t index) const;
  // No tensor and no storage has a size of its own: there is nothing to compare in bytes.
  bool has_bytes() const;

  Side side;

 private:
  ModelSide(const model::Model& model, model::Prediction prediction) : model_(&model), prediction_(std::move(prediction)) {}
  std::uint64_t block_bytes(std::uint64_t requested) const;
  ledger::Place place_of(std::uint64_t event) const;
  bool is_estimate(std::uint64_t event) const;
  bool has_new_states(std::uint64_t event) const;
  Moment moment_at(std::uint64_t event) const;
  void follow();
  Status add_counters(const model::Policy& policy);
  void add_items();
  Item item_of(const model::PredictedBlock& block, ItemBuilder& builder, std::uint32_t order) const;

  // By event of the memory curve: which execution of an op runs, and the sum of the blocks.
  struct Step {
    std::uint32_t op = model::none, node_number = 0;
    std::uint64_t bytes = 0;
  };
  const model::Model* model_;
  model::Prediction prediction_;
  std::vector<Step> steps_;
  std::uint64_t static_bytes_ = 0, block_peak_ = 0, peak_event_ = model::never;
  // Without statics: at any time, from backward on, from the optimizer on; where there is no such phase, at the step's end.
  std::uint64_t moving_peak_ = 0, moving_since_backward_ = 0, moving_since_optimizer_ = 0;
  bool rounds_ = false;
  bool makes_states_ = false;  // the optimizer, in this step
};

}  // namespace liveset::compare
