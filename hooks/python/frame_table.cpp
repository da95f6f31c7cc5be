#include "hooks/python/frame_table.h"

namespace liveset::python {

// The code object's number, or 0 and in `slot` the place where it belongs.
std::uint32_t FrameTable::serial_of(std::uint64_t code, std::uint32_t* slot) const {
  const std::uint64_t key = code >> 4;
  for (std::uint32_t i = hash(key, code_slots);; i = (i + 1) & (code_slots - 1)) {
    const std::uint64_t word = codes_[i].load(std::memory_order_acquire);
    *slot = i;
    if (word == 0) return 0;
    if (word >> 21 == key) return static_cast<std::uint32_t>(word & most_serial);
  }
}

std::uint32_t FrameTable::find(std::uint64_t code, std::int64_t unit) const {
  std::uint32_t slot = 0;
  const std::uint64_t serial = serial_of(code, &slot);
  if (serial == 0) return unknown;
  const std::uint64_t key = serial << 26 | static_cast<std::uint64_t>(unit);
  for (std::uint32_t i = hash(key, site_slots);; i = (i + 1) & (site_slots - 1)) {
    const std::uint64_t word = sites_[i].load(std::memory_order_acquire);
    if (word == 0) return unknown;
    if (word >> 17 == key) return static_cast<std::uint32_t>(word & no_frame);
  }
}

bool FrameTable::learn(std::uint64_t code, std::int64_t unit, std::uint32_t frame) {
  const core::LockGuard guard(lock_);
  // A quarter stays empty: searches end, and are short.
  if (used_codes_ >= code_slots / 4 * 3 || used_sites_ >= site_slots / 4 * 3) clear();
  std::uint32_t slot = 0;
  std::uint64_t serial = serial_of(code, &slot);
  if (serial == 0) {
    if (last_serial_ == most_serial) return false;
    serial = ++last_serial_;
    codes_[slot].store(code >> 4 << 21 | serial, std::memory_order_release);
    ++used_codes_;
  }
  const std::uint64_t key = serial << 26 | static_cast<std::uint64_t>(unit);
  for (std::uint32_t i = hash(key, site_slots);; i = (i + 1) & (site_slots - 1)) {
    const std::uint64_t word = sites_[i].load(std::memory_order_relaxed);
    if (word != 0 && word >> 17 != key) continue;
    used_sites_ += word == 0 ? 1 : 0;
    sites_[i].store(key << 17 | frame, std::memory_order_release);
    return true;
  }
}

void FrameTable::forget(std::uint64_t code) {
  std::uint32_t slot = 0;
  if (code >> 47 != 0 || serial_of(code, &slot) == 0) return;
  const core::LockGuard guard(lock_);
  if (serial_of(code, &slot) == 0) return;
  // Its places stay until the table is cleared: nobody finds them, because no number is given twice.
  codes_[slot].store(grave, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_acq_rel);
}

// Numbers go on: a thread that found one before and looks for a place now finds none, or the right one.
void FrameTable::clear() {
  for (std::atomic<std::uint64_t>& word : codes_) word.store(0, std::memory_order_relaxed);
  for (std::atomic<std::uint64_t>& word : sites_) word.store(0, std::memory_order_relaxed);
  used_codes_ = used_sites_ = 0;
  generation_.fetch_add(1, std::memory_order_acq_rel);
}

}  // namespace liveset::python
