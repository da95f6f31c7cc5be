// Kernel launches, by name.
#include <atomic>
#include <cstring>

#include "hooks/core/recorder.h"
#include "hooks/driver/call.h"
#include "hooks/driver/wrappers.h"

namespace liveset::driver {
namespace {

constexpr std::size_t places = 1U << 14, probes = 32;
constexpr std::size_t stream_offset = 32;  // in a launch's configuration

// Names by function. What finds no place is looked up at every launch.
struct Place {
  std::atomic<Word> function;
  std::atomic<std::uint32_t> name;
};
constinit Place named[places] = {};

Place* place_of(Word function) {
  const Word hash = function * 0x9e3779b97f4a7c15U >> 40;
  for (std::size_t probe = 0; probe < probes; ++probe) {
    Place& place = named[(hash + probe) % places];
    Word seen = place.function.load(std::memory_order_acquire);
    if (seen == 0 && place.function.compare_exchange_strong(seen, function, std::memory_order_acq_rel)) seen = function;
    if (seen == function) return &place;
  }
  return nullptr;
}

// The driver's newer functions tell names; a kernel of the runtime may stand where a function is expected.
std::uint32_t look_up_name(Word function) {
  const char* name = nullptr;
  for (const char* teller : {"cuFuncGetName", "cuKernelGetName"}) {
    const auto ask = reinterpret_cast<int (*)(const char**, Word)>(driver_function(teller));
    if (ask != nullptr && ask(&name, function) == 0 && name != nullptr) break;
    name = nullptr;
  }
  if (name == nullptr) name = "unnamed kernel";
  return core::intern_string(name, static_cast<std::uint32_t>(std::strlen(name)));
}

std::uint32_t name_of(Word function) {
  Place* place = place_of(function);
  std::uint32_t name = place != nullptr ? place->name.load(std::memory_order_relaxed) : 0;
  if (name != 0) return name;
  name = look_up_name(function);
  if (place != nullptr) place->name.store(name, std::memory_order_relaxed);
  return name;
}

}  // namespace

void after_launch(const Call& call) {
  if (!kernels_wanted()) return;
  const Row& what = call.what();
  const bool has_configuration = what.meaning == Meaning::launch_config;
  const Word stream = has_configuration ? read(call.argument(what.a), stream_offset) : call.argument(what.b);
  if (is_capturing(call, stream)) return;
  constexpr char whole_graph[] = "(CUDA graph)";
  const std::uint32_t name = what.meaning == Meaning::graph_launch ? core::intern_string(whole_graph, sizeof whole_graph - 1)
                                                                   : name_of(call.argument(has_configuration ? what.b : what.a));
  record_launch(stream, name);
}

// A module that is loaded later may get the addresses of one that is gone.
void forget_kernel_names() {
  for (Place& place : named) place.name.store(0, std::memory_order_relaxed);
}

}  // namespace liveset::driver
