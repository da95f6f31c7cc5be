// Where in a node of autograd its sequence number stands.
//
// No version of torch exports it, and the place moves with the version. Each node whose number is known rules out the
// words of its object that hold something else; when one word is left that held the right number of two nodes with
// different numbers, that is the place. Until then, and when no word is left, a node has no number.
#pragma once
#include <cstdint>

namespace liveset::autograd {

class SequencePlace {
 public:
  static constexpr std::uint32_t first_word = 1, last_word = 8;

  // `node` holds `number`. It is read in a way that cannot fault.
  void learn(std::uint64_t node, std::uint64_t number);
  bool known() const { return word() > 0; }
  bool open() const { return word() == 0; }  // neither known nor given up
  // The number of a live node; -1 while the place is not known.
  std::int64_t read(const void* node) const {
    const std::int32_t at = word();
    return at > 0 ? static_cast<const std::int64_t*>(node)[at] : -1;
  }

 private:
  static constexpr std::int32_t given_up = -1;
  std::int32_t word() const { return __atomic_load_n(&word_, __ATOMIC_RELAXED); }

  std::int32_t word_ = 0;
  // Only under Python's lock.
  std::uint32_t candidates_ = ((1U << (last_word + 1)) - 1) & ~((1U << first_word) - 1);
  std::uint64_t first_number_ = 0;
  std::uint32_t learned_ = 0;
  bool differed_ = false;
};

}  // namespace liveset::autograd
