// The chain on a device: its values in an arena of device memory that reports to liveset, its kernels, its results.
#pragma once
#include <vector>

#include "hooks/api/liveset.hpp"
#include "samples/tanh_chain/chain.h"

namespace cuda_chain {

// Blocks of 256 bytes, as cudaMalloc aligns, for values of 8: cut from segments of one cudaMalloc each.
class DeviceArena {
 public:
  DeviceArena() : heap_("cuda:0/arena", LIVESET_CUDA, 0) {}
  ~DeviceArena();
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  double* allocate();
  void free(double* slot);
  liveset_heap heap() const { return heap_.id(); }

 private:
  liveset::Heap heap_;
  std::vector<char*> segments_;
  std::vector<double*> free_;
};

// What RecordedStep asks of a machine (samples/tanh_chain/schedule.h).
class DeviceMachine {
 public:
  explicit DeviceMachine(const tanh_chain::Chain& chain);
  ~DeviceMachine();
  DeviceMachine(const DeviceMachine&) = delete;
  DeviceMachine& operator=(const DeviceMachine&) = delete;

  liveset_heap heap() const { return arena_.heap(); }
  double* allocate() { return arena_.allocate(); }
  void free(double* slot) { arena_.free(slot); }
  double* scratch() { return results_; }
  void write(double* slot, double number);
  bool equal(const double* slot, const double* other) const;
  void forward(std::size_t layer, const double* input, double* output);
  void loss(const double* last);
  void backward(std::size_t layer, const double* input, const double* output);
  tanh_chain::Step result() const;

 private:
  // Doubles on the device: scratch, loss, gradient of the value, gradients of the weights.
  static constexpr std::size_t loss_at = 1, gradient_at = 2, weights_at = 3;

  const tanh_chain::Chain& chain_;
  DeviceArena arena_;
  double* results_;
};

}  // namespace cuda_chain
