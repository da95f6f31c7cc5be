// predict_chain LAYERS [ROUNDS]: predicts a chain of layers of different sizes and costs under a policy of every form. Prints one JSON
// object: the CPU seconds of each, the least of ROUNDS (3) rounds; null where the policy is refused, with its reason.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <nlohmann/json.hpp>
#include <random>

#include "viewer/model/predict.h"

namespace {

using namespace liveset;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

model::Model chain_of(std::uint32_t layers) {
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> bytes(layers + 1), cost(layers);
  for (std::uint64_t& each : bytes) each = 1'000'000 + random() % 8'000'000;
  for (std::uint64_t& each : cost) each = 1 + random() % 1000;
  model::ModelBuilder builder;
  model::add_chain(builder, bytes, cost);
  for (std::uint32_t layer = 0; layer < layers; ++layer) builder.model.ops[layer].name = layer % 2 == 0 ? "mm" : "gelu";
  Result<model::Model> made = builder.finish();
  if (!made) throw std::runtime_error(made.error().message());
  for (std::uint32_t layer = 0; layer < layers; layer += 2) {
    model::HandRegion region;
    region.id = made->ops[layer].id;
    region.begin = layer;
    region.end = layer + 1;
    made->regions.push_back(std::move(region));
  }
  return std::move(*made);
}

// One of every form that policy_forms() has.
std::vector<std::string> policies(const model::Model& model) {
  const std::size_t layers = model.units.size();
  std::uint64_t bytes = 0;
  for (const model::Tensor& tensor : model.tensors) bytes += tensor.bytes;
  std::string lengths, names, moves;
  for (std::size_t left = layers, length = 40; left > 0; length -= length > 1) {
    const std::size_t here = std::min(left, length);
    lengths += (lengths.empty() ? "" : ",") + std::to_string(here);
    left -= here;
  }
  for (std::size_t layer = 1; layer <= layers; ++layer) moves += (moves.empty() ? "f" : ",f") + std::to_string(layer);
  for (std::size_t layer = layers; layer > 0; --layer) moves += ",b" + std::to_string(layer);
  for (std::size_t layer = 0; layer < layers; layer += 10) names += (names.empty() ? "" : ",") + model.units[layer].name;
  return {"save-all",
          "segment:32",
          "segments:" + lengths,
          "sqrt",
          "greedy:100MB",
          "full",
          "over:5MB",
          "under:500",
          "regions:" + names,
          "selective:mm",
          "offload:5MB,4",
          "revolve:10",
          "rotor:" + std::to_string(bytes / 4),
          "moves:" + moves,
          "by-hand"};
}

}  // namespace

int main(int argc, char** argv) try {
  const unsigned long layers = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 0,
                      rounds = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 3;
  if (layers == 0 || layers > model::max_layers || rounds == 0) {
    std::fputs("usage: predict_chain LAYERS [ROUNDS]\n", stderr);
    return 2;
  }
  const model::Model model = chain_of(static_cast<std::uint32_t>(layers));
  nlohmann::ordered_json seconds, refused;
  for (const std::string& text : policies(model)) {
    const Result<model::Policy> policy = model::parse_policy(text);
    if (!policy) throw std::runtime_error(policy.error().message());
    const std::string form = text.substr(0, text.find(':'));
    double least = 1e9;
    for (unsigned long round = 0; round < rounds; ++round) {
      const double start = cpu_seconds();
      const Result<model::Prediction> prediction = model::predict(model, *policy);
      least = std::min(least, cpu_seconds() - start);
      if (!prediction) refused[form] = prediction.error().message();
    }
    seconds[form] = least;
  }
  std::printf("%s\n", nlohmann::ordered_json{{"layers", layers}, {"seconds", seconds}, {"refused", refused}}.dump().c_str());
  return 0;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "%s\n", problem.what());
  return 1;
}
