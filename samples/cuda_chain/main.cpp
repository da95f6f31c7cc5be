// cuda_chain: one training step of a tanh chain on a GPU under a checkpointing policy, that tells liveset what it holds.
#include "samples/cuda_chain/device.h"
#include "samples/cuda_chain/machine.h"
#include "samples/tanh_chain/command.h"
#include "samples/tanh_chain/schedule.h"

namespace {

using tanh_chain::Chain;
using tanh_chain::Policy;
using tanh_chain::Step;

// The same kernels on one plain array, told to nobody: what every policy is compared with.
Step reference_step(const Chain& chain) {
  const std::size_t layers = chain.weights.size();
  double* values = static_cast<double*>(cuda_chain::device_allocate((layers + 1) * sizeof(double)));
  double* results = static_cast<double*>(cuda_chain::device_allocate((layers + 2) * sizeof(double)));
  double *loss = results, *gradient = results + 1, *weight_gradients = results + 2;
  cuda_chain::to_device(values, &chain.input, 1);
  for (std::size_t i = 1; i <= layers; ++i) cuda_chain::launch_forward(chain.weights[i - 1], values + i - 1, values + i);
  cuda_chain::launch_loss(values + layers, loss, gradient);
  for (std::size_t i = layers; i >= 1; --i)
    cuda_chain::launch_backward(chain.weights[i - 1], values + i - 1, values + i, gradient, weight_gradients + i - 1);
  Step step;
  step.gradients.resize(layers);
  cuda_chain::to_host(&step.loss, loss, 1);
  cuda_chain::to_host(&step.input_gradient, gradient, 1);
  cuda_chain::to_host(step.gradients.data(), weight_gradients, layers);
  step.forward_layers = layers;
  cuda_chain::device_free(results);
  cuda_chain::device_free(values);
  return step;
}

Step recorded_step(const Chain& chain, const Policy& policy) {
  cuda_chain::DeviceMachine machine(chain);
  return tanh_chain::RecordedStep<cuda_chain::DeviceMachine>(machine, chain, policy).run();
}

}  // namespace

int main(int argc, char** argv) { return tanh_chain::run_command({"cuda_chain", reference_step, recorded_step}, argc, argv); }
