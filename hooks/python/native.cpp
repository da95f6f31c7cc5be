#include "hooks/python/native.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "hooks/autograd/node_events.h"
#include "hooks/autograd/tensor_storage.h"
#include "hooks/c10/memory_reports.h"
#include "hooks/core/recorder.h"
#include "hooks/python/around.h"
#include "hooks/python/cpython.h"
#include "hooks/python/hash.h"
#include "hooks/python/install.h"
#include "profiler/channel/layout.h"

// Functions that the shim calls. They take ints and strings only, so a wrong call can do no worse than record nonsense,
// and they raise nothing: arguments that are missing or of another type count as 0 or "".
namespace liveset::python {
namespace {

const CPython* py = nullptr;

// A step begins at the first root forward after any optimizer.step of any thread, so this is the process's.
std::int64_t next_step = 0;
bool step_pending = true;

// Of the step; -1: none is open. The next one begins at the first root forward after a backward.
std::int64_t microbatch = -1;
bool backward_ran = false;

// Numbers of proto EventKind.
constexpr std::uint8_t backward_begin = 40, backward_end = 41;

class Arguments {
 public:
  Arguments(Object* const* arguments, std::intptr_t count) : arguments_(arguments), count_(count) {}

  std::uint64_t number(std::intptr_t index) const {
    if (index >= count_) return 0;
    const std::uint64_t number = py->integer_mask(arguments_[index]);
    if (__builtin_expect(number == ~std::uint64_t{0}, 0) && py->error() != nullptr) {
      py->clear_error();
      return 0;
    }
    return number;
  }
  std::uint32_t id(std::intptr_t index) const { return static_cast<std::uint32_t>(number(index)); }
  // Never null; lives as long as the argument.
  const char* text(std::intptr_t index, std::intptr_t& length) const {
    const char* text = index < count_ ? py->string_text(arguments_[index], &length) : nullptr;
    if (text == nullptr) {
      if (py->error() != nullptr) py->clear_error();
      length = 0;
      return "";
    }
    return text;
  }

 private:
  Object* const* arguments_;
  std::intptr_t count_;
};

Object* none() {
  py->increase(py->none);
  return py->none;
}

Object* integer(std::int64_t number) { return py->new_integer(number); }

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
  if (kind == backward_begin) autograd::backward_begins();
  if (kind == backward_end) {
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

// (memory class, heap, address, bytes, name id, tensor facts, scope or 0); storages without memory are no storages to us
Object* record(std::uint8_t kind, Object* const* values, std::intptr_t count) {
  const Arguments arguments(values, count);
  const std::uint32_t heap = arguments.id(1);
  if (heap != 0 && arguments.number(2) != 0) {
    core::record_value(kind, 0, c10_hook::heap_holding(heap, arguments.number(2)), arguments.number(2), arguments.number(3),
                       arguments.id(4), static_cast<std::uint8_t>(arguments.number(0)), nullptr, 0,
                       static_cast<std::int64_t>(arguments.number(5)), arguments.id(6));
  }
  return none();
}

// (name id, tensor facts, scope or 0): the same of what has no storage
Object* record_slot(std::uint8_t kind, Object* const* values, std::intptr_t count) {
  const Arguments arguments(values, count);
  core::record_value(kind, 0, 0, 0, 0, arguments.id(0), 0, nullptr, 0, static_cast<std::int64_t>(arguments.number(1)), arguments.id(2));
  return none();
}

constinit autograd::TensorPlace tensor_place;
constinit autograd::SlotPlace slot_place;

// (memory class, tensor, name id, scope or 0) -> whether it was said; of a tensor that is exactly a torch.Tensor or Parameter
Object* record_tensor(std::uint8_t kind, void* tensor, Object* const* values, std::intptr_t count) {
  autograd::TensorStorage found;
  if (tensor == nullptr || !autograd::read_tensor(tensor, found)) return integer(0);
  const std::uint32_t heap = c10_hook::heap_of(found.device_type, found.device_index);
  if (heap == 0) return integer(0);
  const Arguments arguments(values, count);
  core::record_value(kind, 0, c10_hook::heap_holding(heap, found.address), found.address, found.bytes, arguments.id(2),
                     static_cast<std::uint8_t>(arguments.number(0)), nullptr, 0, found.dtype + 1, arguments.id(3));
  return integer(1);
}

Object* storage_tensor(Object*, Object* const* values, std::intptr_t count) {
  return record_tensor(channel::kind_storage, count >= 2 ? tensor_place.tensor_in(values[1]) : nullptr, values, count);
}
Object* retain_tensor(Object*, Object* const* values, std::intptr_t count) {
  return record_tensor(channel::kind_retain, count >= 2 ? tensor_place.tensor_in(values[1]) : nullptr, values, count);
}
// The same of the tensor that a SavedTensor holds as it was saved.
Object* retain_slot(Object*, Object* const* values, std::intptr_t count) {
  return record_tensor(channel::kind_retain, count >= 2 ? slot_place.tensor_in(values[1]) : nullptr, values, count);
}

// learn_tensor(tensor, address, bytes, dtype + 1, device type, device index) -> whether more should be said. Such a tensor as above.
template <class Place>
Object* learn(Place& place, Object* const* values, std::intptr_t count) {
  const Arguments arguments(values, count);
  if (count < 6 || arguments.number(1) == 0) return integer(1);
  const autograd::TensorStorage said{arguments.number(1), arguments.number(2), static_cast<std::int32_t>(arguments.number(3)) - 1,
                                     static_cast<std::int32_t>(arguments.number(4)), static_cast<std::int32_t>(arguments.number(5))};
  return integer(place.learn(reinterpret_cast<std::uint64_t>(values[0]), said) ? 1 : 0);
}
Object* learn_tensor(Object*, Object* const* values, std::intptr_t count) { return learn(tensor_place, values, count); }
// The same with a SavedTensor for the tensor.
Object* learn_slot(Object*, Object* const* values, std::intptr_t count) { return learn(slot_place, values, count); }

Object* storage(Object*, Object* const* values, std::intptr_t count) { return record(channel::kind_storage, values, count); }
Object* retain(Object*, Object* const* values, std::intptr_t count) { return record(channel::kind_retain, values, count); }
Object* drop(Object*, Object* const* values, std::intptr_t count) { return record(channel::kind_drop, values, count); }
Object* remake(Object*, Object* const* values, std::intptr_t count) { return record(channel::kind_remake, values, count); }
Object* offload(Object*, Object* const* values, std::intptr_t count) { return record(channel::kind_offload, values, count); }
Object* holder(Object*, Object* const* values, std::intptr_t count) { return record(channel::kind_holder, values, count); }
Object* collective(Object*, Object* const* values, std::intptr_t count) { return record(channel::kind_collective, values, count); }
Object* use_slot(Object*, Object* const* values, std::intptr_t count) { return record_slot(channel::kind_use, values, count); }
Object* offload_slot(Object*, Object* const* values, std::intptr_t count) { return record_slot(channel::kind_offload, values, count); }

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

// A tensor in host memory: (address, item bytes, dimensions, size, stride, size, stride, ...), from argument `first` on.
bool take_strided(const Arguments& arguments, std::intptr_t first, Strided& tensor) {
  const std::uint64_t dimensions = arguments.number(first + 2);
  tensor.data = reinterpret_cast<const unsigned char*>(arguments.number(first));
  tensor.item_bytes = arguments.number(first + 1);
  if (tensor.data == nullptr || tensor.item_bytes == 0 || tensor.item_bytes > most_item_bytes || dimensions > most_dimensions) return false;
  tensor.dimensions = static_cast<int>(dimensions);
  for (int dimension = 0; dimension < tensor.dimensions; ++dimension) {
    tensor.sizes[dimension] = arguments.number(first + 3 + 2 * dimension);
    tensor.strides[dimension] = arguments.number(first + 4 + 2 * dimension);
  }
  return true;
}

// digest(address, item bytes, dimensions, size, stride, ...) -> XXH64 of the elements, as a signed number. The memory must be there.
Object* digest(Object*, Object* const* values, std::intptr_t count) {
  Strided tensor;
  return integer(take_strided(Arguments(values, count), 0, tensor) ? static_cast<std::int64_t>(hash(tensor)) : 0);
}

// write_elements(file descriptor, address, ...) -> whether all of the elements' bytes were written there, in order
Object* write_tensor(Object*, Object* const* values, std::intptr_t count) {
  const Arguments arguments(values, count);
  Strided tensor;
  return integer(take_strided(arguments, 1, tensor) && write_elements(tensor, static_cast<int>(arguments.number(0))) ? 1 : 0);
}

// own(function) -> what function() returns; what torch allocates meanwhile is memory of ours, not the job's
Object* own(Object*, Object* const* values, std::intptr_t count) {
  if (count < 1) return none();
  constexpr std::uint8_t library = 15;  // proto CLASS_LIBRARY
  constexpr char name[] = "liveset";
  core::begin_stating(library, core::intern_string(name, sizeof name - 1));
  Object* result = py->call(values[0], nullptr);
  core::end_stating();
  return result;
}

// figures(dtype, address, ...) -> text: hash, sum of squares, largest absolute (as the bits of doubles) and elements that are not
// finite, as hexadecimal numbers; only the hash where the type is no number
Object* tensor_figures(Object*, Object* const* values, std::intptr_t count) {
  const Arguments arguments(values, count);
  Strided tensor;
  if (!take_strided(arguments, 1, tensor)) return py->new_string("");
  const Figures found = figures(tensor, static_cast<int>(arguments.number(0)));
  const auto bits_of = [](double number) {
    unsigned long long copy = 0;
    std::memcpy(&copy, &number, sizeof copy);
    return copy;
  };
  char text[80];
  const unsigned long long hashed = hash(tensor);
  if (found.known) {
    std::snprintf(text, sizeof text, "%llx %llx %llx %llx", hashed, bits_of(found.sum_of_squares), bits_of(found.max_abs),
                  static_cast<unsigned long long>(found.not_finite));
  } else {
    std::snprintf(text, sizeof text, "%llx", hashed);
  }
  return py->new_string(text);
}

// bits(address, bytes) -> the first 8 bytes there, or fewer, as a signed number
Object* bits(Object*, Object* const* values, std::intptr_t count) {
  const Arguments arguments(values, count);
  const auto* address = reinterpret_cast<const void*>(arguments.number(0));
  const std::uint64_t bytes = arguments.number(1);
  std::int64_t found = 0;
  if (address != nullptr) std::memcpy(&found, address, bytes < sizeof found ? bytes : sizeof found);
  return integer(found);
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
    {"storage", storage, method_fastcall, nullptr},
    {"retain", retain, method_fastcall, nullptr},
    {"storage_tensor", storage_tensor, method_fastcall, nullptr},
    {"retain_tensor", retain_tensor, method_fastcall, nullptr},
    {"learn_tensor", learn_tensor, method_fastcall, nullptr},
    {"retain_slot", retain_slot, method_fastcall, nullptr},
    {"learn_slot", learn_slot, method_fastcall, nullptr},
    {"drop", drop, method_fastcall, nullptr},
    {"remake", remake, method_fastcall, nullptr},
    {"offload", offload, method_fastcall, nullptr},
    {"holder", holder, method_fastcall, nullptr},
    {"collective", collective, method_fastcall, nullptr},
    {"use_slot", use_slot, method_fastcall, nullptr},
    {"offload_slot", offload_slot, method_fastcall, nullptr},
    {"graph_node", graph_node, method_fastcall, nullptr},
    {"walked", walked, method_fastcall, nullptr},
    {"attribute", attribute, method_fastcall, nullptr},
    {"digest", digest, method_fastcall, nullptr},
    {"figures", tensor_figures, method_fastcall, nullptr},
    {"write_elements", write_tensor, method_fastcall, nullptr},
    {"own", own, method_fastcall, nullptr},
    {"bits", bits, method_fastcall, nullptr},
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
  for (MethodDefinition& method : methods) {
    Object* function = interpreter.new_function(&method, nullptr, nullptr);
    if (function == nullptr || interpreter.dict_set(functions, method.name, function) != 0) {
      interpreter.decrease(functions);
      return nullptr;
    }
    interpreter.decrease(function);
  }
  Object* around = make_around(interpreter);
  if (around != nullptr) {
    interpreter.dict_set(functions, "around", around);
    interpreter.decrease(around);
  }
  if (interpreter.error() != nullptr) interpreter.clear_error();  // the shim does without
  return functions;
}

bool readable(const char* path) { return access(path, R_OK) == 0; }

}  // namespace liveset::python
