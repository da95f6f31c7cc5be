#include "hooks/autograd/coverage.h"

#include <unistd.h>

#include <cstring>

#include "hooks/autograd/torch_function.h"
#include "hooks/core/careful_memory.h"
#include "hooks/core/recorder.h"

namespace liveset::autograd {
namespace {

// A backward may fail before its first node, and one graph may be too small to find the sequence number's place: judge after some.
constexpr std::uint32_t backwards_to_judge = 3;

std::uint32_t backwards = 0;
bool said = false;

void say(const char* line) {
  const ssize_t written = write(STDERR_FILENO, line, std::strlen(line));
  static_cast<void>(written);
}

void declare(const Seen& seen) {
  if (__atomic_exchange_n(&said, true, __ATOMIC_RELAXED)) return;
  constexpr const char* covers = "every node that a backward runs; buckets of DistributedDataParallel";
  if (!seen.nodes) {
    const bool missing = torch_function(evaluate_function_name, nullptr) == nullptr;
    core::declare_source("autograd", "", "nothing",
                         missing ? "the nodes that a backward runs (this torch has no Engine::evaluate_function of the known form)"
                                 : "the nodes that a backward runs (this torch calls Engine::evaluate_function past its table of symbols)");
    say("liveset: the nodes that backward runs are not in the trace (this torch's engine cannot be interposed)\n");
  } else if (!seen.numbers) {
    core::declare_source("autograd", "", covers,
                         core::can_copy_memory()
                             ? "sequence numbers of the nodes (their place in this torch's nodes was not found)"
                             : "sequence numbers of the nodes (process_vm_readv is forbidden here: nobody can look for them)");
  } else {
    core::declare_source(
        "autograd", "", covers,
        seen.returns ? "" : "where the function of a node returned (this torch's validate_outputs is not of the known form)");
  }
}

}  // namespace

void judge_coverage(const Seen& seen) {
  if (__atomic_load_n(&said, __ATOMIC_RELAXED)) return;
  if ((seen.nodes && seen.numbers) || __atomic_add_fetch(&backwards, 1, __ATOMIC_RELAXED) >= backwards_to_judge) declare(seen);
}

void say_coverage(const Seen& seen) {
  if (__atomic_load_n(&backwards, __ATOMIC_RELAXED) != 0 && core::recording()) declare(seen);
}

}  // namespace liveset::autograd
