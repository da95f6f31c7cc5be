#include "hooks/core/dictionary.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "hooks/core/shared_memory.h"

namespace liveset::core {
namespace {

using channel::EntryHeader;
using channel::EntryType;

constexpr std::uint32_t slot_count = 1U << 20;  // 8 MiB of address space; pages come as names do
constexpr std::uint32_t max_filled = slot_count / 4 * 3;
constexpr std::uint64_t step_bytes = 1U << 20;

// Stacks must leave room for the names that everything else needs; frames are numbered in 16 bits elsewhere (hooks/python/frames.cpp).
std::uint32_t most_of(EntryType type) {
  if (type == EntryType::stack) return 1U << 19;
  return type == EntryType::frame ? 0xffff : ~0U;
}

std::uint32_t hash_of(EntryType type, const void* key, std::uint32_t bytes) {
  std::uint64_t hash = 0x9e3779b97f4a7c15U * (static_cast<std::uint64_t>(type) + bytes * 8ULL);
  const auto* text = static_cast<const char*>(key);
  for (; bytes >= 8; text += 8, bytes -= 8) {
    std::uint64_t word;
    std::memcpy(&word, text, 8);
    hash = (hash ^ word) * 0xff51afd7ed558ccdU;
    hash ^= hash >> 32;
  }
  std::uint64_t word = 0;
  std::memcpy(&word, text, bytes);
  hash = (hash ^ word) * 0xff51afd7ed558ccdU;
  hash = (hash ^ hash >> 29) * 0xc4ceb9fe1a85ec53U;
  return static_cast<std::uint32_t>(hash >> 32);
}

}  // namespace

bool Dictionary::attach(channel::Control* control, std::uint64_t region_bytes, std::uint64_t ready_bytes) {
  void* table = mmap(nullptr, slot_count * sizeof(*slots_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (table == MAP_FAILED) return false;
  control_ = control;
  entries_ = reinterpret_cast<char*>(control) + channel::dictionary_offset;
  limit_ = region_bytes - channel::dictionary_offset;
  ready_ = ready_bytes - channel::dictionary_offset;
  slots_ = static_cast<std::atomic<std::uint64_t>*>(table);
  return true;
}

// Id of the entry, or 0 and in `slot` the place where it belongs.
std::uint32_t Dictionary::find(EntryType type, std::uint32_t hash, const void* key, std::uint32_t key_bytes, std::uint32_t* slot) {
  for (std::uint32_t i = hash & (slot_count - 1);; i = (i + 1) & (slot_count - 1)) {
    const std::uint64_t word = slots_[i].load(std::memory_order_acquire);
    *slot = i;
    if (word == 0) return 0;
    if (word >> 32 != hash) continue;
    const char* entry = entries_ + ((word & 0xffffffffU) - 1) * 8;
    EntryHeader header;
    std::memcpy(&header, entry, sizeof header);
    // A source is known by its name, the first of its texts; everything else by all of its payload.
    const bool whole = type == EntryType::source || header.length == key_bytes;
    if (header.type == type && header.length >= key_bytes && whole && std::memcmp(entry + sizeof header, key, key_bytes) == 0)
      return header.id;
  }
}

// Pages first, then use: a page that cannot be had must not be touched.
bool Dictionary::make_room(std::uint64_t bytes) {
  while (used_ + bytes > ready_) {
    if (ready_ >= limit_) return false;
    const std::uint64_t step = limit_ - ready_ < step_bytes ? limit_ - ready_ : step_bytes;
    // EINVAL: a kernel that cannot populate; there make_shared() made all pages at once.
    if (!populate(entries_ + ready_, step) && errno != EINVAL) return false;
    ready_ += step;
  }
  return true;
}

std::uint32_t Dictionary::append(EntryType type, const void* key, std::uint32_t key_bytes, const void* rest, std::uint32_t rest_bytes,
                                 std::uint64_t* offset) {
  const std::uint32_t length = key_bytes + rest_bytes;
  const auto bytes = static_cast<std::uint32_t>((sizeof(EntryHeader) + length + 7) / 8 * 8);
  if (filled_ >= max_filled || next_id_[static_cast<int>(type)] >= most_of(type) || !make_room(bytes)) return 0;
  const std::uint32_t id = ++next_id_[static_cast<int>(type)];
  const EntryHeader header{bytes, type, id, length};
  char* entry = entries_ + used_;
  std::memcpy(entry, &header, sizeof header);
  std::memcpy(entry + sizeof header, key, key_bytes);
  if (rest_bytes != 0) std::memcpy(entry + sizeof header + key_bytes, rest, rest_bytes);
  *offset = used_;
  used_ += bytes;
  ++filled_;
  control_->dictionary_used.store(used_, std::memory_order_release);
  return id;
}

std::uint32_t Dictionary::intern(EntryType type, const void* key, std::uint32_t key_bytes, const void* rest, std::uint32_t rest_bytes) {
  const std::uint32_t hash = hash_of(type, key, key_bytes);
  std::uint32_t slot = 0;
  if (const std::uint32_t id = find(type, hash, key, key_bytes, &slot)) return id;
  const int error = errno;
  std::uint32_t id = 0;
  {
    const LockGuard guard(lock_);
    id = find(type, hash, key, key_bytes, &slot);
    std::uint64_t offset = 0;
    if (id == 0 && (id = append(type, key, key_bytes, rest, rest_bytes, &offset)) != 0) {
      slots_[slot].store(static_cast<std::uint64_t>(hash) << 32 | (offset / 8 + 1), std::memory_order_release);
    }
  }
  if (id == 0) count_full();
  errno = error;
  return id;
}

}  // namespace liveset::core
