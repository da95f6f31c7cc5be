#include "samples/tanh_chain/command.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

namespace tanh_chain {
namespace {

constexpr const char* usage =
    "usage: %s [--policy save-all|segment:K|segments:N,N,...] [--chain FILE]\n"
    "  --policy  what is kept for backward; the rest is made again (default save-all)\n"
    "  --chain   file of numbers: the input, then one weight a layer (default: the six-layer chain of the README)\n";

int fail(const Program& program, const std::string& message) {
  std::fprintf(stderr, "%s: %s\n", program.name, message.c_str());
  std::fprintf(stderr, usage, program.name);
  return 2;
}

double difference(const Step& a, const Step& b) {
  double most = std::max(std::fabs(a.loss - b.loss), std::fabs(a.input_gradient - b.input_gradient));
  for (std::size_t i = 0; i < a.gradients.size(); ++i) most = std::max(most, std::fabs(a.gradients[i] - b.gradients[i]));
  return most;
}

}  // namespace

int run_command(const Program& program, int argc, char** argv) {
  std::string policy_text = "save-all", error;
  Chain chain;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--help") == 0) return std::printf(usage, program.name), 0;
    if (i + 1 == argc) return fail(program, std::string("'") + argv[i] + "' needs a value or is unknown");
    if (std::strcmp(argv[i], "--policy") == 0)
      policy_text = argv[++i];
    else if (std::strcmp(argv[i], "--chain") == 0) {
      if (!read_chain(argv[++i], chain, error)) return fail(program, error);
    } else
      return fail(program, std::string("unknown option '") + argv[i] + "'");
  }
  Policy policy;
  if (!parse_policy(policy_text, chain.weights.size(), policy, error)) return fail(program, error);

  const Step reference = program.reference(chain);
  const Step step = program.recorded(chain, policy);

  std::printf("{\"policy\": \"%s\", \"loss\": %.17g, \"gradients\": [", policy_text.c_str(), step.loss);
  for (std::size_t i = 0; i < step.gradients.size(); ++i) std::printf("%s%.17g", i == 0 ? "" : ", ", step.gradients[i]);
  std::printf("], \"input_gradient\": %.17g, \"max_difference_to_save_all\": %.17g, \"forward_layers\": %zu}\n", step.input_gradient,
              difference(step, reference), step.forward_layers);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace tanh_chain
