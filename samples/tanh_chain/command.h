// The command line that tanh_chain and cuda_chain share.
#pragma once
#include "samples/tanh_chain/chain.h"

namespace tanh_chain {

struct Program {
  const char* name;
  Step (*reference)(const Chain& chain);                       // save-all, recorded by nobody
  Step (*recorded)(const Chain& chain, const Policy& policy);  // told to liveset
};

// Runs one step under the policy that is asked for and prints it, and how far it is from `reference`, as JSON. -> exit status
int run_command(const Program& program, int argc, char** argv);

}  // namespace tanh_chain
