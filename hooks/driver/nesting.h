// Which calls are inside which, on the calling thread.
#pragma once
#include <cstdint>

namespace liveset::driver {

struct Nesting {
  const void* caller;   // of the runtime's function that is running; null: none
  std::uint32_t depth;  // of driver functions that are running: what one of them calls itself is its own affair
};
extern constinit thread_local Nesting nesting __attribute__((tls_model("initial-exec")));

}  // namespace liveset::driver
