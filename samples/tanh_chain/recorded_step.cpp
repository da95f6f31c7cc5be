#include "hooks/api/liveset.hpp"
#include "samples/tanh_chain/chain.h"
#include "samples/tanh_chain/schedule.h"

namespace tanh_chain {
namespace {

// Values in an instrumented arena of host memory.
class HostMachine {
 public:
  explicit HostMachine(const Chain& chain) : chain_(chain), arena_("cpu/arena") { step_.gradients.resize(chain.weights.size()); }

  liveset_heap heap() const { return arena_.heap(); }
  double* allocate() { return static_cast<double*>(arena_.allocate(sizeof(double))); }
  void free(double* slot) { arena_.deallocate(slot); }
  double* scratch() { return &scratch_; }
  void write(double* slot, double number) { *slot = number; }
  bool equal(const double* slot, const double* other) const { return *slot == *other; }

  void forward(std::size_t layer, const double* input, double* output) { *output = layer_forward(chain_.weights[layer - 1], *input); }
  void loss(const double* last) {
    step_.loss = 0.5 * (*last * *last);
    step_.input_gradient = *last;
  }
  void backward(std::size_t layer, const double* input, const double* output) {
    step_.gradients[layer - 1] = layer_backward(chain_.weights[layer - 1], *input, *output, step_.input_gradient);
  }
  Step result() const { return step_; }

 private:
  const Chain& chain_;
  liveset::Arena arena_;
  double scratch_ = 0;
  Step step_;
};

}  // namespace

Step recorded_step(const Chain& chain, const Policy& policy) {
  HostMachine machine(chain);
  return RecordedStep<HostMachine>(machine, chain, policy).run();
}

}  // namespace tanh_chain
