// tanh_chain: one training step of a tanh chain under a checkpointing policy, that tells liveset what it holds.
#include "samples/tanh_chain/chain.h"
#include "samples/tanh_chain/command.h"

int main(int argc, char** argv) {
  return tanh_chain::run_command({"tanh_chain", tanh_chain::reference_step, tanh_chain::recorded_step}, argc, argv);
}
