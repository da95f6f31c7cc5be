// The chain's arithmetic and its memory on the device. Each call ends the program with CUDA's own message when CUDA refuses.
#pragma once
#include <cstddef>

namespace cuda_chain {

void* device_allocate(std::size_t bytes);
void device_free(void* address);
void to_device(double* to, const double* from, std::size_t count);
void to_host(double* to, const double* from, std::size_t count);

// *output = tanh(weight * *input)
void launch_forward(double weight, const double* input, double* output);
// *loss = last^2 / 2, *gradient = dL/dlast
void launch_loss(const double* last, double* loss, double* gradient);
// *gradient is dL/dh_i before and dL/dh_(i-1) after; *weight_gradient = dL/dw_i
void launch_backward(double weight, const double* input, const double* output, double* gradient, double* weight_gradient);

}  // namespace cuda_chain
