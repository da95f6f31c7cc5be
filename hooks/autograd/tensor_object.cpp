#include "hooks/autograd/tensor_object.h"

#include "hooks/core/careful_memory.h"

namespace liveset::autograd {

void ObjectPlace::learn(const void* tensor, const void* object) {
  if (!open() || object == last_object_) return;
  last_object_ = object;
  std::uint64_t words[last_word + 1];
  if (!core::copy_memory(*static_cast<const std::uint64_t*>(tensor), words, sizeof words)) {
    word_ = given_up;
    return;
  }
  for (std::uint32_t word = first_word; word <= last_word; ++word) {
    if ((words[word] & ~tag) != reinterpret_cast<std::uint64_t>(object)) candidates_ &= ~(1U << word);
  }
  if (candidates_ == 0) {
    word_ = given_up;
  } else if (++learned_ >= enough && (candidates_ & (candidates_ - 1)) == 0) {
    word_ = __builtin_ctz(candidates_);
  }
}

}  // namespace liveset::autograd
