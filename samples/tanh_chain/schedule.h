// The step under a policy, for any machine that computes it. Everything that liveset learns of the values is said here, through
// liveset.hpp; the machine's arena says where they live.
#pragma once
#include <cstdio>
#include <cstdlib>

#include "hooks/api/liveset.hpp"
#include "samples/tanh_chain/chain.h"

namespace tanh_chain {

// h_0 .. h_n: where each lives now (null: nowhere), and what happens to it.
//
// A Machine has memory for values and computes with them:
//   liveset_heap heap();  double* allocate();  void free(double*);      a slot for a value, reported to liveset
//   double* scratch();                                                  one more, reported by nobody
//   void write(double* slot, double number);
//   bool equal(const double* slot, const double* other);
//   void forward(std::size_t layer, const double* input, double* output);
//   void loss(const double* last);                                      starts the gradient
//   void backward(std::size_t layer, const double* input, const double* output);  dL/dw of the layer, and the gradient one layer down
//   Step result();                                                      without forward_layers
template <class Machine>
class Activations {
 public:
  Activations(Machine& machine, std::size_t layers) : machine_(machine), slots_(layers + 1, nullptr), values_(layers + 1) {
    if (!liveset::recording()) return;
    for (std::size_t i = 0; i <= layers; ++i) values_[i] = liveset::Value("h" + std::to_string(i), nullptr, static_cast<std::int64_t>(i));
  }

  const double* operator[](std::size_t i) const { return slots_[i]; }
  bool live(std::size_t i) const { return slots_[i] != nullptr; }

  void create_input(double number) {
    slots_[0] = machine_.allocate();
    machine_.write(slots_[0], number);
    values_[0].create(sizeof(double), machine_.heap(), slots_[0]);
  }
  void create(std::size_t i) {
    compute(i);
    values_[i].create(sizeof(double), machine_.heap(), slots_[i], {values_[i - 1]});
  }
  void remake(std::size_t i) {
    compute(i);
    values_[i].remake(sizeof(double), machine_.heap(), slots_[i], {values_[i - 1]});
  }
  // Made again although it is kept: the number must be the same, and one id stays one id.
  void merge(std::size_t i) {
    machine_.forward(i, slots_[i - 1], machine_.scratch());
    if (!machine_.equal(machine_.scratch(), slots_[i])) {
      std::fprintf(stderr, "layer %zu gave another number when it was run again\n", i);
      std::abort();
    }
    values_[i].merge(sizeof(double), machine_.heap(), slots_[i], {values_[i - 1]});
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
  void compute(std::size_t i) {
    slots_[i] = machine_.allocate();
    machine_.forward(i, slots_[i - 1], slots_[i]);
  }
  void forget(std::size_t i) {
    machine_.free(slots_[i]);
    slots_[i] = nullptr;
  }

  Machine& machine_;
  std::vector<double*> slots_;
  std::vector<liveset::Value> values_;
};

template <class Machine>
class RecordedStep {
 public:
  RecordedStep(Machine& machine, const Chain& chain, const Policy& policy)
      : machine_(machine), chain_(chain), policy_(policy), layers_(chain.weights.size()), h_(machine, layers_) {}

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
    Step result = machine_.result();
    result.forward_layers = forward_layers_;
    return result;
  }

 private:
  // h_i is made while h_{i-1} still lives; then it is decided about h_{i-1}. Segment inputs and h_n are kept.
  void forward() {
    const liveset::Phase phase(LIVESET_FORWARD);
    std::size_t segment = 0;
    h_.create_input(chain_.input);
    for (std::size_t i = 1; i <= layers_; ++i) {
      h_.create(i);
      ++forward_layers_;
      while (policy_.cuts[segment] < i - 1) ++segment;
      if (policy_.save_all || policy_.cuts[segment] == i - 1)
        h_.keep(i - 1);
      else
        h_.drop(i - 1);
    }
    h_.keep(layers_);
  }

  void loss() {
    const liveset::Phase phase(LIVESET_LOSS);
    h_.use_by_loss(layers_);
    machine_.loss(h_[layers_]);
  }

  void rerun(std::size_t begin, std::size_t end) {
    const liveset::Phase phase(LIVESET_RECOMPUTE);
    for (std::size_t i = begin + 1; i <= end; ++i) {
      ++forward_layers_;
      if (h_.live(i))
        h_.merge(i);
      else
        h_.remake(i);
    }
  }

  void backward(std::size_t begin, std::size_t end) {
    const liveset::Phase phase(LIVESET_BACKWARD);
    for (std::size_t i = end; i > begin; --i) {
      h_.use_by_backward(i);
      machine_.backward(i, h_[i - 1], h_[i]);
      h_.release(i);
    }
  }

  Machine& machine_;
  const Chain& chain_;
  const Policy& policy_;
  std::size_t layers_;
  std::size_t forward_layers_ = 0;
  Activations<Machine> h_;
};

}  // namespace tanh_chain
