// Which frame of the dictionary a place in a code object is: so that names and lines are worked out once.
//
// Nothing is kept alive. Threads look places up without the interpreter's lock, while their own frames hold the code objects; a code object
// that dies is forgotten (forget() from the deallocator of its type), so one that comes to lie at the same address is a new one. A code
// object's life has a serial number, and a place is known by it. Every entry is one word: readers need no lock.
#pragma once
#include <atomic>
#include <cstdint>

#include "hooks/core/lock.h"

namespace liveset::python {

class FrameTable {
 public:
  static constexpr std::uint32_t unknown = 0, no_frame = 0x1ffff;  // no_frame: a place that stacks leave out
  static constexpr std::uint32_t most_serial = (1U << 21) - 1;

  // `serial`: numbers given out before.
  constexpr explicit FrameTable(std::uint32_t serial = 0) : last_serial_(serial) {}

  std::uint32_t find(std::uint64_t code, std::int64_t unit) const;
  // False when there is no room (of two million code objects); the place is then worked out each time.
  bool learn(std::uint64_t code, std::int64_t unit, std::uint32_t frame);
  // The code object is about to die.
  void forget(std::uint64_t code);
  // Changes when something is forgotten. Who remembers places by their code object's address looks first.
  std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  static bool can_hold(std::uint64_t code, std::int64_t unit) { return code >> 47 == 0 && unit >= 0 && unit < std::int64_t{1} << 26; }

 private:
  static constexpr std::uint32_t code_slots = 1U << 15, site_slots = 1U << 17;
  static constexpr std::uint64_t grave = 1;

  static std::uint32_t hash(std::uint64_t key, std::uint32_t slots) {
    return static_cast<std::uint32_t>((key * 0x9e3779b97f4a7c15U) >> 32) & (slots - 1);
  }
  std::uint32_t serial_of(std::uint64_t code, std::uint32_t* slot) const;
  void clear();

  std::atomic<std::uint64_t> codes_[code_slots] = {};  // address / 16 << 21 | serial number; 0: empty
  std::atomic<std::uint64_t> sites_[site_slots] = {};  // serial number << 43 | unit << 17 | frame; 0: empty
  std::atomic<std::uint64_t> generation_{1};
  std::uint32_t used_codes_ = 0, used_sites_ = 0, last_serial_;
  core::SpinLock lock_;
};

}  // namespace liveset::python
