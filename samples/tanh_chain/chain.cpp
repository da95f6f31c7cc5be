#include "samples/tanh_chain/chain.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>

namespace tanh_chain {
namespace {

bool read_count(const std::string& text, std::size_t& count) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  return error == std::errc() && end == text.data() + text.size() && count >= 1;
}

}  // namespace

bool parse_policy(const std::string& text, std::size_t layers, Policy& policy, std::string& error) {
  policy = {};
  policy.cuts = {0};
  error = "policy '" + text + "' is none of save-all, segment:K and segments:N,N,...";
  if (text == "save-all") {
    policy.cuts.push_back(layers);
    return true;
  }
  policy.save_all = false;
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return false;
  std::string rest = text.substr(colon + 1);
  std::size_t count = 0;
  if (text.compare(0, colon, "segment") == 0) {
    if (!read_count(rest, count)) return false;
    while (policy.cuts.back() < layers) policy.cuts.push_back(layers - policy.cuts.back() > count ? policy.cuts.back() + count : layers);
    return true;
  }
  if (text.compare(0, colon, "segments") != 0) return false;
  while (true) {
    const std::size_t comma = rest.find(',');
    if (!read_count(rest.substr(0, comma), count)) return false;
    error = "policy '" + text + "': the segments must add up to " + std::to_string(layers) + " layers";
    if (count > layers - policy.cuts.back()) return false;
    policy.cuts.push_back(policy.cuts.back() + count);
    if (comma == std::string::npos) return policy.cuts.back() == layers;
    rest.erase(0, comma + 1);
  }
}

bool read_chain(const std::string& path, Chain& chain, std::string& error) {
  std::ifstream file(path);
  std::vector<double> numbers;
  std::string word;
  error = path + ": cannot be read";
  if (!file) return false;
  while (file >> word) {
    char* end = nullptr;
    numbers.push_back(std::strtod(word.c_str(), &end));
    error = path + ": '" + word + "' is not a number";
    if (end == word.c_str() || *end != '\0' || !std::isfinite(numbers.back())) return false;
  }
  error = path + ": needs the input and at least one weight";
  if (numbers.size() < 2) return false;
  chain.input = numbers[0];
  chain.weights.assign(numbers.begin() + 1, numbers.end());
  return true;
}

double layer_forward(double weight, double input) { return std::tanh(weight * input); }

double layer_backward(double weight, double input, double output, double& gradient) {
  const double inner = gradient * (1 - output * output);
  gradient = inner * weight;
  return inner * input;
}

Step reference_step(const Chain& chain) {
  const std::size_t layers = chain.weights.size();
  std::vector<double> h{chain.input};
  for (const double weight : chain.weights) h.push_back(layer_forward(weight, h.back()));
  Step step;
  step.loss = 0.5 * (h[layers] * h[layers]);
  step.gradients.resize(layers);
  step.input_gradient = h[layers];
  for (std::size_t i = layers; i >= 1; --i)
    step.gradients[i - 1] = layer_backward(chain.weights[i - 1], h[i - 1], h[i], step.input_gradient);
  step.forward_layers = layers;
  return step;
}

}  // namespace tanh_chain
