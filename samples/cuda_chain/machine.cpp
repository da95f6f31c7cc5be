#include "samples/cuda_chain/machine.h"

#include "samples/cuda_chain/device.h"

namespace cuda_chain {
namespace {

constexpr std::size_t block_bytes = 256, segment_bytes = std::size_t{1} << 20;

}  // namespace

DeviceArena::~DeviceArena() {
  for (char* segment : segments_) {
    heap_.segment_freeing(segment, segment_bytes);
    device_free(segment);
  }
}

double* DeviceArena::allocate() {
  if (free_.empty()) {
    segments_.push_back(static_cast<char*>(device_allocate(segment_bytes)));
    heap_.segment_allocated(segments_.back(), segment_bytes);
    for (std::size_t end = segment_bytes; end > 0; end -= block_bytes)
      free_.push_back(reinterpret_cast<double*>(segments_.back() + end - block_bytes));
  }
  double* slot = free_.back();
  free_.pop_back();
  heap_.allocated(slot, sizeof(double));
  return slot;
}

void DeviceArena::free(double* slot) {
  heap_.freeing(slot);
  free_.push_back(slot);
}

DeviceMachine::DeviceMachine(const tanh_chain::Chain& chain)
    : chain_(chain), results_(static_cast<double*>(device_allocate((weights_at + chain.weights.size()) * sizeof(double)))) {}

DeviceMachine::~DeviceMachine() { device_free(results_); }

void DeviceMachine::write(double* slot, double number) { to_device(slot, &number, 1); }

bool DeviceMachine::equal(const double* slot, const double* other) const {
  double numbers[2];
  to_host(&numbers[0], slot, 1);
  to_host(&numbers[1], other, 1);
  return numbers[0] == numbers[1];
}

void DeviceMachine::forward(std::size_t layer, const double* input, double* output) {
  launch_forward(chain_.weights[layer - 1], input, output);
}

void DeviceMachine::loss(const double* last) { launch_loss(last, results_ + loss_at, results_ + gradient_at); }

void DeviceMachine::backward(std::size_t layer, const double* input, const double* output) {
  launch_backward(chain_.weights[layer - 1], input, output, results_ + gradient_at, results_ + weights_at + layer - 1);
}

tanh_chain::Step DeviceMachine::result() const {
  std::vector<double> numbers(weights_at + chain_.weights.size());
  to_host(numbers.data(), results_, numbers.size());
  tanh_chain::Step step;
  step.loss = numbers[loss_at];
  step.input_gradient = numbers[gradient_at];
  step.gradients.assign(numbers.begin() + weights_at, numbers.end());
  return step;
}

}  // namespace cuda_chain
