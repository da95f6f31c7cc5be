#include "hooks/driver/live_memory.h"

#include <sys/mman.h>

namespace liveset::driver {

constinit LiveMemory live_memory;

namespace {

constexpr std::uint64_t first_capacity = 4096;

// Without holding signals back, unlike core::LockGuard: a handler that comes in between and calls CUDA finds this thread inside a call
// (nesting.h), and does not get here.
class Held {
 public:
  explicit Held(core::SpinLock& lock) : lock_(lock) { lock_.lock(); }
  ~Held() { lock_.unlock(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  core::SpinLock& lock_;
};

std::uint64_t hash_of(Space space, Word key) {
  const std::uint64_t hash = (key ^ static_cast<std::uint64_t>(space) << 56) * 0x9e3779b97f4a7c15U;
  return hash ^ hash >> 29;
}

}  // namespace

// The entry, or the unused place where it belongs. Linear probing; the table is never full.
Entry* LiveMemory::slot_of(Space space, Word key) {
  for (std::uint64_t at = hash_of(space, key) & (capacity_ - 1);; at = (at + 1) & (capacity_ - 1)) {
    Entry& entry = entries_[at];
    if (entry.space == Space::unused || (entry.space == space && entry.key == key)) return &entry;
  }
}

Entry* LiveMemory::lookup(Space space, Word key) {
  if (capacity_ == 0) return nullptr;
  Entry* entry = slot_of(space, key);
  return entry->space == Space::unused ? nullptr : entry;
}

bool LiveMemory::grow() {
  const std::uint64_t capacity = capacity_ == 0 ? first_capacity : capacity_ * 2;
  void* memory = mmap(nullptr, capacity * sizeof(Entry), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  Entry* before = entries_;
  const std::uint64_t capacity_before = capacity_;
  entries_ = static_cast<Entry*>(memory);  // zeroed: all unused
  capacity_ = capacity;
  for (std::uint64_t at = 0; at < capacity_before; ++at) {
    if (before[at].space != Space::unused) *slot_of(before[at].space, before[at].key) = before[at];
  }
  if (before != nullptr) munmap(before, capacity_before * sizeof(Entry));
  return true;
}

// Entries that were pushed beyond this place move up, so that no look-up ends at the gap before it reaches them.
void LiveMemory::erase(Entry* entry) {
  auto gap = static_cast<std::uint64_t>(entry - entries_);
  for (std::uint64_t at = gap;;) {
    at = (at + 1) & (capacity_ - 1);
    Entry& next = entries_[at];
    if (next.space == Space::unused) break;
    const std::uint64_t home = hash_of(next.space, next.key) & (capacity_ - 1);
    if (((at - home) & (capacity_ - 1)) < ((at - gap) & (capacity_ - 1))) continue;
    entries_[gap] = next;
    gap = at;
  }
  entries_[gap] = Entry{};
  --used_;
}

bool LiveMemory::put(const Entry& entry, Entry* before) {
  const Held guard(lock_);
  if (before != nullptr) *before = Entry{};
  if (used_ * 3 >= capacity_ * 2 && !grow()) return false;
  Entry* slot = slot_of(entry.space, entry.key);
  used_ += slot->space == Space::unused;
  if (before != nullptr) *before = *slot;
  *slot = entry;
  return true;
}

bool LiveMemory::find(Space space, Word key, Entry* found) {
  const Held guard(lock_);
  const Entry* entry = lookup(space, key);
  if (entry == nullptr) return false;
  *found = *entry;
  return true;
}

bool LiveMemory::begin_leaving(Space space, Word key, Entry* found) {
  const Held guard(lock_);
  Entry* entry = lookup(space, key);
  if (entry == nullptr || entry->is_leaving) return false;
  entry->is_leaving = true;
  *found = *entry;
  return true;
}

void LiveMemory::end_leaving(Space space, Word key, bool is_gone) {
  const Held guard(lock_);
  Entry* entry = lookup(space, key);
  if (entry == nullptr || !entry->is_leaving) return;
  entry->is_leaving = false;
  if (is_gone) erase(entry);
}

bool LiveMemory::take_of_context(Word context, Walk* walk, Entry* taken) {
  const Held guard(lock_);
  if (walk->capacity != capacity_) *walk = {0, capacity_};  // they have moved
  for (; walk->at < capacity_; ++walk->at) {
    Entry& entry = entries_[walk->at];
    if (entry.space == Space::unused || entry.context != context || entry.is_leaving) continue;
    *taken = entry;
    erase(&entry);  // the next one may move to this place
    return true;
  }
  return false;
}

Word LiveMemory::count(Space space, Word key, int change) {
  const Held guard(lock_);
  Entry* entry = lookup(space, key);
  if (entry == nullptr) return 0;
  entry->other += static_cast<Word>(static_cast<std::int64_t>(change));
  return entry->other;
}

}  // namespace liveset::driver
