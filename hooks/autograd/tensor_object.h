// Where in a tensor's implementation its object of Python stands, if it has one: by that an nn.Parameter is known wherever the graph
// holds it. The place differs between versions of torch, so it is learned: the word that holds the object of a few tensors.
#pragma once
#include <cstdint>

namespace liveset::autograd {

class ObjectPlace {
 public:
  bool known() const { return word_ > 0; }
  bool open() const { return word_ == 0; }  // neither known nor given up
  // `tensor`: an at::Tensor, which is one pointer to its implementation, whose object this is.
  void learn(const void* tensor, const void* object);
  // Null: the tensor has none, or the place is not known. The object lives while the tensor does and Python's lock is held.
  void* object_of(const void* tensor) const {
    if (word_ <= 0) return nullptr;
    const std::uint64_t object = (*static_cast<const std::uint64_t* const*>(tensor))[word_] & ~tag;
    return reinterpret_cast<void*>(object);
  }

 private:
  static constexpr std::uint32_t first_word = 1, last_word = 15, enough = 4;
  static constexpr std::int32_t given_up = -1;
  static constexpr std::uint64_t tag = 1;  // torch keeps there which of the two owns the other

  std::int32_t word_ = 0;  // only under Python's lock
  std::uint32_t candidates_ = ((1U << (last_word + 1)) - 1) & ~((1U << first_word) - 1);
  std::uint32_t learned_ = 0;
  const void* last_object_ = nullptr;
};

}  // namespace liveset::autograd
