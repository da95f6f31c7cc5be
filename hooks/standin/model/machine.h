// The whole model of one process's devices.
#pragma once
#include "hooks/standin/model/contexts.h"
#include "hooks/standin/model/graphs.h"
#include "hooks/standin/model/memory.h"
#include "hooks/standin/model/modules.h"
#include "hooks/standin/model/pools.h"
#include "hooks/standin/model/sharing.h"
#include "hooks/standin/model/streams.h"
#include "hooks/standin/model/virtual_memory.h"

namespace standin {

struct Machine {
  explicit Machine(Configuration given) : configuration(std::move(given)) {}

  const Configuration configuration;
  Memory memory{configuration};
  VirtualMemory virtual_memory{memory};
  Pools pools{memory, configuration};
  Contexts contexts{memory, configuration};
  Graphs graphs{memory};
  Streams streams{graphs};
  Modules modules{memory, configuration};
  Sharing sharing{memory, streams};
};

}  // namespace standin
