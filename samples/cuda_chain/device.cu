#include "samples/cuda_chain/device.h"

#include <cstdio>
#include <cstdlib>

// C names, by which a dry run finds the host twins of the kernels (host_twins.cpp).
extern "C" __global__ void cuda_chain_forward(double weight, const double* input, double* output) { *output = tanh(weight * *input); }

extern "C" __global__ void cuda_chain_loss(const double* last, double* loss, double* gradient) {
  *loss = 0.5 * (*last * *last);
  *gradient = *last;
}

extern "C" __global__ void cuda_chain_backward(double weight, const double* input, const double* output, double* gradient,
                                               double* weight_gradient) {
  const double inner = *gradient * (1 - *output * *output);
  *weight_gradient = inner * *input;
  *gradient = inner * weight;
}

namespace cuda_chain {
namespace {

void require(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "cuda_chain: %s: %s\n", what, cudaGetErrorString(result));
  std::exit(1);
}

}  // namespace

void* device_allocate(std::size_t bytes) {
  void* address = nullptr;
  require(cudaMalloc(&address, bytes), "cudaMalloc");
  return address;
}

void device_free(void* address) { require(cudaFree(address), "cudaFree"); }

void to_device(double* to, const double* from, std::size_t count) {
  require(cudaMemcpy(to, from, count * sizeof(double), cudaMemcpyHostToDevice), "copy to the device");
}

void to_host(double* to, const double* from, std::size_t count) {
  require(cudaMemcpy(to, from, count * sizeof(double), cudaMemcpyDeviceToHost), "copy to the host");
}

void launch_forward(double weight, const double* input, double* output) {
  cuda_chain_forward<<<1, 1>>>(weight, input, output);
  require(cudaGetLastError(), "launch of cuda_chain_forward");
}

void launch_loss(const double* last, double* loss, double* gradient) {
  cuda_chain_loss<<<1, 1>>>(last, loss, gradient);
  require(cudaGetLastError(), "launch of cuda_chain_loss");
}

void launch_backward(double weight, const double* input, const double* output, double* gradient, double* weight_gradient) {
  cuda_chain_backward<<<1, 1>>>(weight, input, output, gradient, weight_gradient);
  require(cudaGetLastError(), "launch of cuda_chain_backward");
}

}  // namespace cuda_chain
