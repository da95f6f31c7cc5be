#include "hooks/autograd/coverage.h"

#include <unistd.h>

#include <cstring>

#include "hooks/autograd/node_events.h"
#include "hooks/autograd/node_names.h"
#include "hooks/autograd/reducer.h"
#include "hooks/autograd/torch_function.h"
#include "hooks/core/careful_memory.h"
#include "hooks/core/recorder.h"

namespace liveset::autograd {

constinit SequencePlace sequence_place;
bool any_node = false;

namespace {

// A backward may fail before its first node, and one graph may be too small to find the sequence number's place: judge after some.
constexpr std::uint32_t backwards_to_judge = 3;
constexpr std::uint64_t node_offset = 16;  // of the node in torch's THPCppFunction, behind the head of a Python object

std::uint32_t backwards = 0;
bool said = false;

void say(const char* line) {
  const ssize_t written = write(STDERR_FILENO, line, std::strlen(line));
  static_cast<void>(written);
}

void declare() {
  if (__atomic_exchange_n(&said, true, __ATOMIC_RELAXED)) return;
  constexpr const char* covers = "every node that a backward runs; buckets of DistributedDataParallel";
  if (!__atomic_load_n(&any_node, __ATOMIC_RELAXED)) {
    const bool missing = torch_function(evaluate_function_name, nullptr) == nullptr;
    core::declare_source("autograd", "", "nothing",
                         missing ? "the nodes that a backward runs (this torch has no Engine::evaluate_function of the known form)"
                                 : "the nodes that a backward runs (this torch calls Engine::evaluate_function past its table of symbols)");
    say("liveset: the nodes that backward runs are not in the trace (this torch's engine cannot be interposed)\n");
  } else if (!sequence_place.known()) {
    core::declare_source("autograd", "", covers,
                         core::can_copy_memory()
                             ? "sequence numbers of the nodes (their place in this torch's nodes was not found)"
                             : "sequence numbers of the nodes (process_vm_readv is forbidden here: nobody can look for them)");
  } else {
    core::declare_source("autograd", "", covers, "");
  }
}

}  // namespace

bool walked(std::uint64_t object, std::int64_t number, std::uint32_t name, bool is_python) {
  if (is_python) {
    keep_python_name(number, name);
  } else if (sequence_place.open() && number >= 0) {
    std::uint64_t node = 0;
    if (core::copy_memory(object + node_offset, &node, sizeof node) && node != 0) {
      sequence_place.learn(node, static_cast<std::uint64_t>(number));
    }
  }
  return sequence_place.open();
}

void backward_begins() { count_buckets_anew(); }

void backward_ends() {
  if (__atomic_load_n(&said, __ATOMIC_RELAXED)) return;
  const bool whole = __atomic_load_n(&any_node, __ATOMIC_RELAXED) && sequence_place.known();
  if (whole || __atomic_add_fetch(&backwards, 1, __ATOMIC_RELAXED) >= backwards_to_judge) declare();
}

void say_exiting() {
  if (__atomic_load_n(&backwards, __ATOMIC_RELAXED) != 0 && core::recording()) declare();
}

}  // namespace liveset::autograd
