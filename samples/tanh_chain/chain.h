// The chain h_i = tanh(w_i * h_{i-1}), loss = h_n^2 / 2, and what a training step of it gives.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace tanh_chain {

struct Chain {
  double input = 0.8;
  std::vector<double> weights{0.9, 1.1, 0.8, 1.2, 0.7, 1.05};
};

struct Step {
  double loss = 0;
  std::vector<double> gradients;  // dL/dw_1 ..
  double input_gradient = 0;
  std::size_t forward_layers = 0;  // executed, re-runs included
};

// Segment k is layers cuts[k] + 1 .. cuts[k + 1]. Save-all re-runs nothing.
struct Policy {
  bool save_all = true;
  std::vector<std::size_t> cuts;
};

// "save-all", "segment:K", "segments:N,N,...". On failure returns false and says why.
bool parse_policy(const std::string& text, std::size_t layers, Policy& policy, std::string& error);
// A file of numbers: the input, then the weights.
bool read_chain(const std::string& path, Chain& chain, std::string& error);

// One layer forward and backward; the same code for every policy, so that the bits are the same.
double layer_forward(double weight, double input);
// `gradient` is dL/dh_i on entry and dL/dh_{i-1} on return; returns dL/dw_i.
double layer_backward(double weight, double input, double output, double& gradient);

// Save-all with plain vectors, recorded by nobody: what every policy is compared with.
Step reference_step(const Chain& chain);
// Under a policy, its activations in an instrumented arena, told to liveset event by event.
Step recorded_step(const Chain& chain, const Policy& policy);

}  // namespace tanh_chain
