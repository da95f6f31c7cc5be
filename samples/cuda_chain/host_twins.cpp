// What the kernels compute, on the host, for a dry run: its device launches no kernels, but calls `liveset_host_twin_<kernel>` where the
// program exports one, with the kernel's arguments. On a real GPU nothing calls these.
#include "samples/tanh_chain/chain.h"

namespace {

template <class T>
T& argument(void** arguments, int index) {
  return *static_cast<T*>(arguments[index]);
}

}  // namespace

#define CUDA_CHAIN_TWIN extern "C" __attribute__((visibility("default"))) void

CUDA_CHAIN_TWIN liveset_host_twin_cuda_chain_forward(void** arguments, const unsigned*, const unsigned*) {
  *argument<double*>(arguments, 2) = tanh_chain::layer_forward(argument<double>(arguments, 0), *argument<const double*>(arguments, 1));
}

CUDA_CHAIN_TWIN liveset_host_twin_cuda_chain_loss(void** arguments, const unsigned*, const unsigned*) {
  const double last = *argument<const double*>(arguments, 0);
  *argument<double*>(arguments, 1) = 0.5 * (last * last);
  *argument<double*>(arguments, 2) = last;
}

CUDA_CHAIN_TWIN liveset_host_twin_cuda_chain_backward(void** arguments, const unsigned*, const unsigned*) {
  const double weight = argument<double>(arguments, 0), input = *argument<const double*>(arguments, 1);
  const double output = *argument<const double*>(arguments, 2);
  *argument<double*>(arguments, 4) = tanh_chain::layer_backward(weight, input, output, *argument<double*>(arguments, 3));
}
