// What a slot of an autograd node holds, read past Python. Only under Python's lock.
#pragma once
#include <cstdint>

#include "hooks/autograd/tensor_storage.h"

namespace liveset::python {

struct Object;

// A tensor's storage, and as what the trace has it.
struct Content {
  autograd::TensorStorage storage;
  std::uint32_t heap = 0;
  std::uint8_t memory_class = 0;
};

bool slots_are_known();
// The slot (torch::autograd::SavedVariable) that is behind an object of its; null: it is none, or slots are not known.
void* slot_in(Object* object);
// Only while slots are known. False: it holds no plain tensor as it was saved. That is a parameter if its object is one.
bool read_slot(void* slot, Content& content);
void say_retained(const Content& content, std::uint32_t name);

}  // namespace liveset::python
