// tanh_chain: one training step of a tanh chain under a checkpointing policy, that tells liveset what it holds.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "samples/tanh_chain/chain.h"

namespace {

constexpr const char* usage =
    "usage: tanh_chain [--policy save-all|segment:K|segments:N,N,...] [--chain FILE]\n"
    "  --policy  what is kept for backward; the rest is made again (default save-all)\n"
    "  --chain   file of numbers: the input, then one weight a layer (default: the six-layer chain of the README)\n";

int fail(const std::string& message) {
  std::fprintf(stderr, "tanh_chain: %s\n%s", message.c_str(), usage);
  return 2;
}

double difference(const tanh_chain::Step& a, const tanh_chain::Step& b) {
  double most = std::max(std::fabs(a.loss - b.loss), std::fabs(a.input_gradient - b.input_gradient));
  for (std::size_t i = 0; i < a.gradients.size(); ++i) most = std::max(most, std::fabs(a.gradients[i] - b.gradients[i]));
  return most;
}

}  // namespace

int main(int argc, char** argv) {
  std::string policy_text = "save-all", error;
  tanh_chain::Chain chain;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--help") == 0) return std::printf("%s", usage), 0;
    if (i + 1 == argc) return fail(std::string("'") + argv[i] + "' needs a value or is unknown");
    if (std::strcmp(argv[i], "--policy") == 0)
      policy_text = argv[++i];
    else if (std::strcmp(argv[i], "--chain") == 0) {
      if (!tanh_chain::read_chain(argv[++i], chain, error)) return fail(error);
    } else
      return fail(std::string("unknown option '") + argv[i] + "'");
  }
  tanh_chain::Policy policy;
  if (!tanh_chain::parse_policy(policy_text, chain.weights.size(), policy, error)) return fail(error);

  const tanh_chain::Step reference = tanh_chain::reference_step(chain);
  const tanh_chain::Step step = tanh_chain::recorded_step(chain, policy);

  std::printf("{\"policy\": \"%s\", \"loss\": %.17g, \"gradients\": [", policy_text.c_str(), step.loss);
  for (std::size_t i = 0; i < step.gradients.size(); ++i) std::printf("%s%.17g", i == 0 ? "" : ", ", step.gradients[i]);
  std::printf("], \"input_gradient\": %.17g, \"max_difference_to_save_all\": %.17g, \"forward_layers\": %zu}\n", step.input_gradient,
              difference(step, reference), step.forward_layers);
  return std::fflush(stdout) == 0 ? 0 : 1;
}
