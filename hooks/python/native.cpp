#include "hooks/python/native.h"

#include <cstdint>

#include "hooks/autograd/node_events.h"
#include "hooks/c10/memory_reports.h"
#include "hooks/core/recorder.h"
#include "hooks/python/around.h"
#include "hooks/python/cpython.h"
#include "hooks/python/install.h"
#include "hooks/python/native_arguments.h"
#include "profiler/channel/layout.h"

// Functions that the shim calls: steps, scopes, phases, nodes.
namespace liveset::python {

const CPython* py = nullptr;

namespace {

// A step begins at the first root forward after any optimizer.step of any thread, so this is the process's.
std::int64_t next_step = 0;
bool step_pending = true;

// Of the step; -1: none is open. The next one begins at the first root forward after a backward.
std::int64_t microbatch = -1;
bool backward_ran = false;

Object* recording(Object*, Object* const*, std::intptr_t) { return integer(core::recording() ? 1 : 0); }

// string(text) -> id
Object* string(Object*, Object* const* values, std::intptr_t count) {
  std::intptr_t length = 0;
  const char* text = Arguments(values, count).text(0, length);
  constexpr std::intptr_t longest = 4095;
  return integer(core::intern_string(text, static_cast<std::uint32_t>(length < longest ? length : longest)));
}

// heap(device type, device index) -> id; 0 for devices without memory
Object* heap(Object*, Object* const* values, std::intptr_t count) {
  const Arguments arguments(values, count);
  return integer(c10_hook::heap_of(static_cast<int>(arguments.number(0)), static_cast<int>(arguments.number(1))));
}

// scope(parent, kind, name id) -> id
Object* scope(Object*, Object* const* values, std::intptr_t count) {
  const Arguments arguments(values, count);
  return integer(core::intern_scope(arguments.id(0), static_cast<core::ScopeKind>(arguments.number(1)), arguments.id(2)));
}

Object* scope_begin(Object*, Object* const* values, std::intptr_t count) {
  core::scope_begin(Arguments(values, count).id(0));
  return none();
}

Object* scope_end(Object*, Object* const*, std::intptr_t) {
  core::scope_end();
  return none();
}

// phase(number) -> the thread's phase until now
Object* phase(Object*, Object* const* values, std::intptr_t count) {
  const core::Phase before = core::current_phase();
  const auto after = static_cast<core::Phase>(Arguments(values, count).number(0));
  if (after != before) core::set_phase(after);
  return integer(static_cast<int>(before));
}

// mark(event kind, number)
Object* mark(Object*, Object* const* values, std::intptr_t count) {
  const Arguments arguments(values, count);
  const auto kind = static_cast<std::uint8_t>(arguments.number(0));
  core::record_mark(kind, static_cast<std::int64_t>(arguments.number(1)));
  if (kind == channel::kind_backward_begin) autograd::backward_begins();
  if (kind == channel::kind_backward_end) {
    __atomic_store_n(&backward_ran, true, __ATOMIC_RELAXED);
    autograd::backward_ends();
  }
  return none();
}

void end_microbatch() {
  const std::int64_t ended = __atomic_exchange_n(&microbatch, -1, __ATOMIC_RELAXED);
  if (ended >= 0) core::record_mark(channel::kind_microbatch_end, ended);
}

void begin_microbatch(std::int64_t number) {
  __atomic_store_n(&backward_ran, false, __ATOMIC_RELAXED);
  __atomic_store_n(&microbatch, number, __ATOMIC_RELAXED);
  core::record_mark(channel::kind_microbatch_begin, number);
}

Object* step_over(Object*, Object* const*, std::intptr_t) {
  end_microbatch();
  __atomic_store_n(&step_pending, true, __ATOMIC_RELEASE);
  return none();
}

// step_begin(whether a root forward that will be trained begins): begins the next step when the one before is over, and the next
// microbatch when a backward ran in the one before. -> index of the step that runs now
Object* step_begin(Object*, Object* const* values, std::intptr_t count) {
  if (__atomic_load_n(&step_pending, __ATOMIC_RELAXED) && __atomic_exchange_n(&step_pending, false, __ATOMIC_ACQ_REL)) {
    end_microbatch();
    core::record_mark(channel::kind_step_begin, __atomic_fetch_add(&next_step, 1, __ATOMIC_RELAXED));
    begin_microbatch(0);
  } else if (__atomic_load_n(&backward_ran, __ATOMIC_RELAXED) && Arguments(values, count).number(0) != 0 &&
             __atomic_exchange_n(&backward_ran, false, __ATOMIC_RELAXED)) {
    const std::int64_t before = __atomic_load_n(&microbatch, __ATOMIC_RELAXED);
    end_microbatch();
    begin_microbatch(before + 1);
  }
  return integer(__atomic_load_n(&next_step, __ATOMIC_RELAXED) - 1);
}

// Index of the step that runs now; -1 before the first.
Object* current_step(Object*, Object* const*, std::intptr_t) { return integer(__atomic_load_n(&next_step, __ATOMIC_RELAXED) - 1); }

// graph_node(name id, sequence number)
Object* graph_node(Object*, Object* const* values, std::intptr_t count) {
  const Arguments arguments(values, count);
  core::record_node(channel::kind_graph_node, arguments.id(0), static_cast<std::int64_t>(arguments.number(1)));
  return none();
}

// walked(id(node), sequence number, name id, whether it is written in Python): what the engine's hook is to know of nodes. -> whether
// it wants to know of more that are written in C++
Object* walked(Object*, Object* const* values, std::intptr_t count) {
  const Arguments arguments(values, count);
  return integer(
      autograd::walked(arguments.number(0), static_cast<std::int64_t>(arguments.number(1)), arguments.id(2), arguments.number(3) != 0));
}

// attribute(key id, JSON text id): said of the thread's innermost scope
Object* attribute(Object*, Object* const* values, std::intptr_t count) {
  const Arguments arguments(values, count);
  core::record_attribute(arguments.id(0), arguments.id(1));
  return none();
}

// counter(heap, name id, number)
Object* counter(Object*, Object* const* values, std::intptr_t count) {
  const Arguments arguments(values, count);
  core::record_counter(arguments.id(0), arguments.id(1), static_cast<std::int64_t>(arguments.number(2)));
  return none();
}

// source(version, covers, cannot see)
Object* source(Object*, Object* const* values, std::intptr_t count) {
  const Arguments arguments(values, count);
  std::intptr_t length = 0;
  core::declare_source("python", arguments.text(0, length), arguments.text(1, length), arguments.text(2, length));
  return none();
}

Object* create_graph(Object*, Object* const* values, std::intptr_t count) {
  c10_hook::create_graph_backward(Arguments(values, count).number(0) != 0 ? 1 : -1);
  return none();
}

// How many reports of torch's allocators came before now, while the hooks were not there.
Object* reports_before(Object*, Object* const*, std::intptr_t) { return integer(reports_so_far()); }

MethodDefinition methods[] = {
    {"recording", recording, method_fastcall, nullptr},
    {"string", string, method_fastcall, nullptr},
    {"heap", heap, method_fastcall, nullptr},
    {"scope", scope, method_fastcall, nullptr},
    {"scope_begin", scope_begin, method_fastcall, nullptr},
    {"scope_end", scope_end, method_fastcall, nullptr},
    {"phase", phase, method_fastcall, nullptr},
    {"mark", mark, method_fastcall, nullptr},
    {"step_over", step_over, method_fastcall, nullptr},
    {"step_begin", step_begin, method_fastcall, nullptr},
    {"current_step", current_step, method_fastcall, nullptr},
    {"graph_node", graph_node, method_fastcall, nullptr},
    {"walked", walked, method_fastcall, nullptr},
    {"attribute", attribute, method_fastcall, nullptr},
    {"counter", counter, method_fastcall, nullptr},
    {"source", source, method_fastcall, nullptr},
    {"create_graph", create_graph, method_fastcall, nullptr},
    {"reports_before", reports_before, method_fastcall, nullptr},
};

}  // namespace

Object* make_native(const CPython& interpreter) {
  py = &interpreter;
  Object* functions = interpreter.new_dict();
  if (functions == nullptr) return nullptr;
  const NativeFunctions all[] = {{methods, sizeof methods / sizeof *methods}, tensor_functions(), graph_functions(), digest_functions()};
  for (const NativeFunctions& group : all) {
    for (std::uint32_t i = 0; i < group.count; ++i) {
      Object* function = interpreter.new_function(&group.first[i], nullptr, nullptr);
      if (function == nullptr || interpreter.dict_set(functions, group.first[i].name, function) != 0) {
        interpreter.decrease(functions);
        return nullptr;
      }
      interpreter.decrease(function);
    }
  }
  Object* around = make_around(interpreter);
  if (around != nullptr) {
    interpreter.dict_set(functions, "around", around);
    interpreter.decrease(around);
  }
  if (interpreter.error() != nullptr) interpreter.clear_error();  // the shim does without
  return functions;
}

}  // namespace liveset::python
