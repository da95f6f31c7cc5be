#include "hooks/autograd/sequence_number.h"

#include "hooks/core/careful_memory.h"

namespace liveset::autograd {

void SequencePlace::learn(std::uint64_t node, std::uint64_t number) {
  if (!open()) return;
  std::uint64_t words[last_word + 1];
  // A container may forbid the call: then there is nothing to be learned here.
  if (!core::copy_memory(node, words, sizeof words)) {
    if (++learned_ >= 16 && candidates_ != 0 && !differed_) __atomic_store_n(&word_, given_up, __ATOMIC_RELAXED);
    return;
  }
  for (std::uint32_t word = first_word; word <= last_word; ++word) {
    if (words[word] != number) candidates_ &= ~(1U << word);
  }
  if (learned_++ == 0) first_number_ = number;
  differed_ = differed_ || number != first_number_;
  if (candidates_ == 0) {
    __atomic_store_n(&word_, given_up, __ATOMIC_RELAXED);
  } else if (differed_ && (candidates_ & (candidates_ - 1)) == 0) {
    __atomic_store_n(&word_, __builtin_ctz(candidates_), __ATOMIC_RELAXED);
  }
}

}  // namespace liveset::autograd
