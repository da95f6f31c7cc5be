// The step under a policy. Everything liveset learns of it is said here, through liveset.hpp: blocks of the arena, and values.
#include <cstdio>
#include <cstdlib>

#include "hooks/api/liveset.hpp"
#include "samples/tanh_chain/chain.h"

namespace tanh_chain {
namespace {

// h_0 .. h_n: where each lives now (null: nowhere), and what happens to it.
class Activations {
 public:
  explicit Activations(std::size_t layers) : arena_("cpu/arena"), slots_(layers + 1, nullptr), values_(layers + 1) {
    if (!liveset::recording()) return;
    for (std::size_t i = 0; i <= layers; ++i) values_[i] = liveset::Value("h" + std::to_string(i), nullptr, static_cast<std::int64_t>(i));
  }

  double operator[](std::size_t i) const { return *slots_[i]; }
  bool live(std::size_t i) const { return slots_[i] != nullptr; }

  void create(std::size_t i, double number) {
    store(i, number);
    values_[i].create(sizeof(double), arena_.heap(), slots_[i], reads_of_layer(i));
  }
  void remake(std::size_t i, double number) {
    store(i, number);
    values_[i].remake(sizeof(double), arena_.heap(), slots_[i], reads_of_layer(i));
  }
  // Made again although it is kept: the number must be the same, and one id stays one id.
  void merge(std::size_t i, double number) {
    if (number != *slots_[i]) {
      std::fprintf(stderr, "tanh_chain: layer %zu gave another number when it was run again\n", i);
      std::abort();
    }
    values_[i].merge(sizeof(double), arena_.heap(), slots_[i], reads_of_layer(i));
  }
  void keep(std::size_t i) { values_[i].retain(); }
  void drop(std::size_t i) {
    values_[i].drop();
    forget(i);
  }
  void release(std::size_t i) {
    values_[i].release();
    forget(i);
  }
  void use_by_loss(std::size_t i) { values_[i].use({values_[i]}); }
  void use_by_backward(std::size_t i) { values_[i].use({values_[i], values_[i - 1]}); }

 private:
  // Layer i reads h_{i-1}; h_0 comes from outside.
  liveset::Value::Reads reads_of_layer(std::size_t i) const {
    return i == 0 ? liveset::Value::Reads() : liveset::Value::Reads{values_[i - 1]};
  }
  void store(std::size_t i, double number) {
    slots_[i] = static_cast<double*>(arena_.allocate(sizeof(double)));
    *slots_[i] = number;
  }
  void forget(std::size_t i) {
    arena_.deallocate(slots_[i]);
    slots_[i] = nullptr;
  }

  liveset::Arena arena_;
  std::vector<double*> slots_;
  std::vector<liveset::Value> values_;
};

class RecordedStep {
 public:
  RecordedStep(const Chain& chain, const Policy& policy) : chain_(chain), policy_(policy), h_(chain.weights.size()) {}

  Step run() {
    const liveset::Step step(0);
    forward();
    loss();
    for (std::size_t segment = policy_.cuts.size() - 1; segment-- > 0;) {
      if (!policy_.save_all) rerun(policy_.cuts[segment], policy_.cuts[segment + 1]);
      backward(policy_.cuts[segment], policy_.cuts[segment + 1]);
    }
    const liveset::Phase phase(LIVESET_BACKWARD);
    h_.release(0);
    return step_;
  }

 private:
  double execute(std::size_t i) {
    ++step_.forward_layers;
    return layer_forward(chain_.weights[i - 1], h_[i - 1]);
  }

  // h_i is made while h_{i-1} still lives; then it is decided about h_{i-1}. Segment inputs and h_n are kept.
  void forward() {
    const liveset::Phase phase(LIVESET_FORWARD);
    std::size_t segment = 0;
    h_.create(0, chain_.input);
    for (std::size_t i = 1; i <= chain_.weights.size(); ++i) {
      h_.create(i, execute(i));
      while (policy_.cuts[segment] < i - 1) ++segment;
      if (policy_.save_all || policy_.cuts[segment] == i - 1)
        h_.keep(i - 1);
      else
        h_.drop(i - 1);
    }
    h_.keep(chain_.weights.size());
  }

  void loss() {
    const liveset::Phase phase(LIVESET_LOSS);
    const std::size_t last = chain_.weights.size();
    h_.use_by_loss(last);
    step_.loss = 0.5 * (h_[last] * h_[last]);
    step_.input_gradient = h_[last];
    step_.gradients.resize(last);
  }

  void rerun(std::size_t begin, std::size_t end) {
    const liveset::Phase phase(LIVESET_RECOMPUTE);
    for (std::size_t i = begin + 1; i <= end; ++i) {
      const double number = execute(i);
      if (h_.live(i))
        h_.merge(i, number);
      else
        h_.remake(i, number);
    }
  }

  void backward(std::size_t begin, std::size_t end) {
    const liveset::Phase phase(LIVESET_BACKWARD);
    for (std::size_t i = end; i > begin; --i) {
      h_.use_by_backward(i);
      step_.gradients[i - 1] = layer_backward(chain_.weights[i - 1], h_[i - 1], h_[i], step_.input_gradient);
      h_.release(i);
    }
  }

  const Chain& chain_;
  const Policy& policy_;
  Activations h_;
  Step step_;
};

}  // namespace

Step recorded_step(const Chain& chain, const Policy& policy) { return RecordedStep(chain, policy).run(); }

}  // namespace tanh_chain
