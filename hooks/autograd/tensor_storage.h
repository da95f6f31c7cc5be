// The storage of a tensor, read through torch's C interface (its stable ABI): a tenth of what the same costs in Python.
//
// Only of plain tensors, whose class is c10::TensorImpl itself: everything else (sparse tensors, wrappers of torch.func,
// tensors of backends with classes of their own) may have no storage, and is left to the caller.
#pragma once
#include <cstdint>

namespace liveset::autograd {

struct TensorStorage {
  std::uint64_t address = 0, bytes = 0;  // of the whole storage
  std::int32_t dtype = -1;               // c10::ScalarType
  std::int32_t device_type = 0, device_index = 0;
};

// `tensor`: where an at::Tensor stands, which is one pointer to its implementation. False: no plain tensor, no memory, or a torch
// without these functions.
bool read_tensor(void* tensor, TensorStorage& storage);

// Where in the PyObject of a tensor the at::Tensor stands. Its place differs between versions of torch, so it is learned: the word that
// leads to the right storage for a few tensors whose storage Python has said.
class TensorPlace {
 public:
  // Returns whether more tensors should be said. Only plain tensors (torch.Tensor, torch.nn.Parameter) with memory.
  bool learn(std::uint64_t object, const TensorStorage& said);
  void* tensor_in(void* object) const { return word_ > 0 ? static_cast<void**>(object) + word_ : nullptr; }

 private:
  static constexpr std::uint32_t first_word = 2, last_word = 8, enough = 4;
  static constexpr std::int32_t given_up = -1;

  std::int32_t word_ = 0;  // only under Python's lock
  std::uint32_t candidates_ = ((1U << (last_word + 1)) - 1) & ~((1U << first_word) - 1);
  std::uint32_t learned_ = 0;
};

// The same for torch's SavedTensor, the object of a slot in a node of autograd: which word of it leads to the slot, and which word of
// the slot is its tensor. To ask the object for its tensor would make an object of that, which lives as long as the tensor.
class SlotPlace {
 public:
  // Returns whether more slots should be said. Only slots that hold a plain tensor with memory as it was saved.
  bool learn(std::uint64_t object, const TensorStorage& said);
  bool known() const { return known_; }
  // Only while known.
  void* slot_in(void* object) const { return static_cast<void**>(object)[first_word + candidate_ / inner_words]; }
  void* tensor_of(void* slot) const { return static_cast<void**>(slot) + candidate_ % inner_words; }
  void* tensor_in(void* object) const { return known_ ? tensor_of(slot_in(object)) : nullptr; }

 private:
  static constexpr std::uint32_t first_word = 2, words = 5, inner_words = 4, enough = 8;

  bool known_ = false, given_up_ = false;  // only under Python's lock
  std::uint32_t candidates_ = (1U << (words * inner_words)) - 1;
  std::uint32_t candidate_ = 0, learned_ = 0;
  std::uint64_t last_address_ = 0;
};

}  // namespace liveset::autograd
