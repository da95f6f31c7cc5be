// Statements about tensors and the slots of autograd's nodes.
#include "hooks/python/native_tensors.h"

#include <cstdint>
#include <initializer_list>

#include "hooks/autograd/tensor_object.h"
#include "hooks/autograd/tensor_storage.h"
#include "hooks/c10/memory_reports.h"
#include "hooks/core/recorder.h"
#include "hooks/python/native_arguments.h"
#include "profiler/channel/layout.h"

namespace liveset::python {
namespace {

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

// Python's objects are read as memory only when their type is the very one whose memory is known.
Object *tensor_type = nullptr, *parameter_type = nullptr, *slot_type = nullptr;
int (*is_subtype)(Object* type, Object* of) = nullptr;

constinit autograd::TensorPlace tensor_place;
constinit autograd::SlotPlace slot_place;
constinit autograd::ObjectPlace object_place;

Object* type_of(void* object) { return static_cast<Object**>(object)[1]; }  // behind the count of references

// types(torch.Tensor, torch.nn.Parameter, type of a node's slots or None)
Object* types(Object*, Object* const* values, std::intptr_t count) {
  if (count == 3 && find(is_subtype, "PyType_IsSubtype")) {
    tensor_type = values[0];
    parameter_type = values[1];
    slot_type = values[2];
    for (Object* type : {tensor_type, parameter_type, slot_type}) py->increase(type);
  }
  return none();
}

// Where the at::Tensor of an argument is that is exactly a torch.Tensor or Parameter; null: of no other, and while that is not known.
void* tensor_in(Object* const* values, std::intptr_t count, std::intptr_t place) {
  if (place >= count) return nullptr;
  Object* type = type_of(values[place]);
  return type == tensor_type || type == parameter_type ? tensor_place.tensor_in(values[place]) : nullptr;
}

bool is_parameter(const void* tensor) {
  void* object = object_place.object_of(tensor);
  if (object == nullptr) return false;
  Object* type = type_of(object);
  return type != tensor_type && (type == parameter_type || is_subtype(type, parameter_type) != 0);
}

// False where it has no memory that the trace knows.
bool read(void* tensor, std::uint8_t memory_class, Content& content) {
  if (!autograd::read_tensor(tensor, content.storage)) return false;
  content.heap = c10_hook::heap_of(content.storage.device_type, content.storage.device_index);
  content.memory_class = memory_class;
  return content.heap != 0;
}

// `facts`: of what is said of tensors, the index of a checkpoint region's slot.
void record(std::uint8_t kind, const Content& content, std::uint32_t name, std::uint32_t scope, std::uint64_t facts = 0) {
  const autograd::TensorStorage& storage = content.storage;
  core::record_value(kind, 0, c10_hook::heap_holding(content.heap, storage.address), storage.address, storage.bytes, name,
                     content.memory_class, nullptr, 0, static_cast<std::int64_t>(facts) | (storage.dtype + 1), scope);
}

// (memory class, tensor, name id, scope or 0, facts) -> whether it was said
Object* record_tensor(std::uint8_t kind, Object* const* values, std::intptr_t count) {
  void* tensor = tensor_in(values, count, 1);
  if (tensor == nullptr) return integer(0);
  if (object_place.open()) object_place.learn(tensor, values[1]);
  const Arguments arguments(values, count);
  Content content;
  if (!read(tensor, static_cast<std::uint8_t>(arguments.number(0)), content)) return integer(0);
  record(kind, content, arguments.id(2), arguments.id(3), arguments.number(4));
  return integer(1);
}

Object* storage_tensor(Object*, Object* const* values, std::intptr_t count) { return record_tensor(channel::kind_storage, values, count); }
Object* retain_tensor(Object*, Object* const* values, std::intptr_t count) { return record_tensor(channel::kind_retain, values, count); }
Object* drop_tensor(Object*, Object* const* values, std::intptr_t count) { return record_tensor(channel::kind_drop, values, count); }
Object* remake_tensor(Object*, Object* const* values, std::intptr_t count) { return record_tensor(channel::kind_remake, values, count); }

// retain_slot(slot, name id) -> whether it was said; only of one that holds a tensor as it was saved
Object* retain_slot(Object*, Object* const* values, std::intptr_t count) {
  const Arguments arguments(values, count);
  void* slot = count > 0 ? slot_in(values[0]) : nullptr;
  Content content;
  if (slot == nullptr || !read_slot(slot, content)) return integer(0);
  say_retained(content, arguments.id(1));
  return integer(1);
}

// learn_tensor(tensor, address, bytes, dtype + 1, device type, device index) -> whether more should be said
template <class Place>
Object* learn(Place& place, bool is_such, Object* const* values, std::intptr_t count) {
  const Arguments arguments(values, count);
  if (!is_such || arguments.number(1) == 0) return integer(1);
  const autograd::TensorStorage said{arguments.number(1), arguments.number(2), static_cast<std::int32_t>(arguments.number(3)) - 1,
                                     static_cast<std::int32_t>(arguments.number(4)), static_cast<std::int32_t>(arguments.number(5))};
  return integer(place.learn(reinterpret_cast<std::uint64_t>(values[0]), said) ? 1 : 0);
}
Object* learn_tensor(Object*, Object* const* values, std::intptr_t count) {
  Object* type = count == 6 ? type_of(values[0]) : nullptr;
  return learn(tensor_place, type != nullptr && (type == tensor_type || type == parameter_type), values, count);
}
// The same with a node's slot for the tensor.
Object* learn_slot(Object*, Object* const* values, std::intptr_t count) {
  return learn(slot_place, count == 6 && type_of(values[0]) == slot_type, values, count);
}

Object* storage(Object*, Object* const* values, std::intptr_t count) { return record(channel::kind_storage, values, count); }
Object* retain(Object*, Object* const* values, std::intptr_t count) { return record(channel::kind_retain, values, count); }
Object* drop(Object*, Object* const* values, std::intptr_t count) { return record(channel::kind_drop, values, count); }
Object* remake(Object*, Object* const* values, std::intptr_t count) { return record(channel::kind_remake, values, count); }
Object* offload(Object*, Object* const* values, std::intptr_t count) { return record(channel::kind_offload, values, count); }
Object* holder(Object*, Object* const* values, std::intptr_t count) { return record(channel::kind_holder, values, count); }
Object* collective(Object*, Object* const* values, std::intptr_t count) { return record(channel::kind_collective, values, count); }
Object* use_slot(Object*, Object* const* values, std::intptr_t count) { return record_slot(channel::kind_use, values, count); }
Object* offload_slot(Object*, Object* const* values, std::intptr_t count) { return record_slot(channel::kind_offload, values, count); }

MethodDefinition methods[] = {
    {"types", types, method_fastcall, nullptr},
    {"storage", storage, method_fastcall, nullptr},
    {"retain", retain, method_fastcall, nullptr},
    {"storage_tensor", storage_tensor, method_fastcall, nullptr},
    {"retain_tensor", retain_tensor, method_fastcall, nullptr},
    {"drop_tensor", drop_tensor, method_fastcall, nullptr},
    {"remake_tensor", remake_tensor, method_fastcall, nullptr},
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
};

}  // namespace

// Without the objects of tensors a parameter would pass for an activation.
bool slots_are_known() { return slot_place.known() && object_place.known(); }

void* slot_in(Object* object) { return type_of(object) == slot_type && slots_are_known() ? slot_place.slot_in(object) : nullptr; }

bool read_slot(void* slot, Content& content) {
  void* tensor = slot_place.tensor_of(slot);
  // A slot may be empty.
  if (*static_cast<void**>(tensor) == nullptr) return false;
  return read(tensor, is_parameter(tensor) ? channel::class_parameter : channel::class_activation, content);
}

void say_retained(const Content& content, std::uint32_t name) { record(channel::kind_retain, content, name, 0); }

NativeFunctions tensor_functions() { return {methods, sizeof methods / sizeof *methods}; }

}  // namespace liveset::python
