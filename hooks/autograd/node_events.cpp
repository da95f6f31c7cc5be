// torch::autograd::Engine::evaluate_function and validate_outputs, interposed: they stand before libtorch_cpu's own in the lookup
// order, because this library is preloaded and libtorch_cpu calls them through its PLT.
//
// An exception that the node throws passes through: unwind tables are enough, for what is not undone here the next node or the end of
// backward undoes, and the node's NODE_END is missing, as the format says.
#include "hooks/autograd/node_events.h"

#include "hooks/autograd/coverage.h"
#include "hooks/autograd/graph_walk.h"
#include "hooks/autograd/node_names.h"
#include "hooks/autograd/reducer.h"
#include "hooks/autograd/sequence_number.h"
#include "hooks/autograd/torch_function.h"
#include "hooks/core/careful_memory.h"
#include "hooks/core/recorder.h"
#include "profiler/channel/layout.h"

namespace liveset::autograd {
namespace {

// Its parameters are references and a pointer, its result is void.
using Evaluate = void (*)(void* engine, void* task, void* node, void* inputs, void* queue);
Evaluate real_evaluate = nullptr;
using Validate = void (*)(const void* edges, void* gradients, const void* message);
Validate real_validate = nullptr;

constinit SequencePlace sequence_place;
bool any_node = false, any_return = false;

Seen seen() {
  return {__atomic_load_n(&any_node, __ATOMIC_RELAXED), sequence_place.known(), __atomic_load_n(&any_return, __ATOMIC_RELAXED)};
}

template <class Function>
Function find_real(Function& real, const char* name, const void* caller) {
  const auto found = reinterpret_cast<Function>(torch_function(name, caller));
  __atomic_store_n(&real, found, __ATOMIC_RELAXED);
  if (found == nullptr) __builtin_trap();  // whoever calls it has it
  return found;
}

constexpr std::uintptr_t node_bytes = 512;  // torch::autograd::Node, and more

// Between a node's function and the end of what it holds: the engine brings each gradient to the shape of the node's input, which takes a
// block where that is a sum.
void validate(const char* name, const void* caller, const void* edges, void* gradients, const void* message) {
  Validate real = __atomic_load_n(&real_validate, __ATOMIC_RELAXED);
  if (__builtin_expect(real == nullptr, 0)) real = find_real(real_validate, name, caller);
  // A node's edges are in it. Others are a backward's roots: no function has given their gradients.
  const void* node = core::running_node();
  if (node == nullptr || reinterpret_cast<std::uintptr_t>(edges) - reinterpret_cast<std::uintptr_t>(node) >= node_bytes) {
    real(edges, gradients, message);
    return;
  }
  if (__builtin_expect(!__atomic_load_n(&any_return, __ATOMIC_RELAXED), 0)) __atomic_store_n(&any_return, true, __ATOMIC_RELAXED);
  core::say_node_returned(true);
  real(edges, gradients, message);
  core::say_node_returned(false);
}

struct Running {
  std::uint32_t name;
  std::int64_t number;
};

Running begin(const void* node) {
  const NodeName name = name_of(node);
  Running running{name.id, sequence_place.read(node)};
  if (name.is_python) {
    const std::uint32_t said = python_name(running.number);
    if (said != 0) running.name = said;
  }
  if (__builtin_expect(!__atomic_load_n(&any_node, __ATOMIC_RELAXED), 0)) __atomic_store_n(&any_node, true, __ATOMIC_RELAXED);
  core::say_node_returned(false);  // the one before may have failed on its way
  core::record_node(channel::kind_node_begin, running.name, running.number);
  return running;
}

}  // namespace

void start(std::uint32_t (*heap_of)(int device_type, int device_index)) { start_reducer(heap_of); }

bool walked(std::uint64_t object, std::int64_t number, std::uint32_t name, bool is_python) {
  if (is_python) {
    keep_python_name(number, name);
  } else if (sequence_place.open()) {  // that of a leaf's node is ~0, and tells where it stands as well as any
    std::uint64_t node = 0;
    const auto place = reinterpret_cast<std::uint64_t>(node_in(reinterpret_cast<void*>(object)));
    if (core::copy_memory(place, &node, sizeof node) && node != 0) {
      sequence_place.learn(node, static_cast<std::uint64_t>(number));
    }
  }
  return sequence_place.open();
}

bool numbers_are_known() { return sequence_place.known(); }

std::int64_t number_of(const void* node) { return sequence_place.read(node); }

void backward_begins() { count_buckets_anew(); }

void backward_ends() {
  core::say_node_returned(false);  // it may have failed on its way
  judge_coverage(seen());
}

void say_exiting() { say_coverage(seen()); }

extern "C" __attribute__((visibility("default"))) void
evaluate_function(void* engine, void* task, void* node, void* inputs, void* queue) __asm__(
    "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_4NodeERNS0_11InputBufferERKS2_INS0_10ReadyQueueEE");

extern "C" void evaluate_function(void* engine, void* task, void* node, void* inputs, void* queue) {
  Evaluate real = __atomic_load_n(&real_evaluate, __ATOMIC_RELAXED);
  if (__builtin_expect(real == nullptr, 0)) real = find_real(real_evaluate, evaluate_function_name, __builtin_return_address(0));
  if (node == nullptr || !core::recording()) {
    real(engine, task, node, inputs, queue);
    return;
  }
  const Running running = begin(node);
  const void* outer = core::exchange_node(node);
  real(engine, task, node, inputs, queue);
  core::exchange_node(outer);
  // The node may be gone by now.
  core::record_node(channel::kind_node_end, running.name, running.number);
}

extern "C" __attribute__((visibility("default"))) void validate_outputs(const void* edges, void* gradients, const void* message) __asm__(
    "_ZN5torch8autograd16validate_outputsERKSt6vectorINS0_4EdgeESaIS2_EERS1_IN2at6TensorESaIS8_EE"
    "RKSt8functionIFNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSI_EE");
extern "C" __attribute__((visibility("default"))) void
old_validate_outputs(const void* edges, void* gradients, const void* message) __asm__(
    "_ZN5torch8autograd16validate_outputsERKSt6vectorINS0_4EdgeESaIS2_EERS1_IN2at6TensorESaIS8_EERKSt8functionIFSsRKSsEE");

extern "C" void validate_outputs(const void* edges, void* gradients, const void* message) {
  validate(validate_outputs_name, __builtin_return_address(0), edges, gradients, message);
}
extern "C" void old_validate_outputs(const void* edges, void* gradients, const void* message) {
  validate(old_validate_outputs_name, __builtin_return_address(0), edges, gradients, message);
}

}  // namespace liveset::autograd
