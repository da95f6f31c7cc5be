#include "hooks/autograd/node_names.h"

#include <cstring>

#include "hooks/core/recorder.h"

namespace liveset::autograd {
namespace {

constexpr std::uint64_t python_flag = 1ULL << 32;

// Open addressing by virtual table, filled and read without a lock. There are some 700 classes of nodes in torch, and a job uses few;
// what does not fit is interned each time.
constexpr std::uint32_t slots = 4096;
constexpr std::uint32_t probes = 16;
struct Entry {
  std::uint64_t table;
  std::uint64_t name;  // string id, python_flag; 0 while the entry is being filled
};
Entry entries[slots];

std::uint64_t python_names[slots];  // low half of the sequence number << 32 | string id

const char* class_name(const std::uint64_t* table) {
  // The Itanium ABI: the type's description stands before the table, its mangled name in the second word of it.
  const auto* type = reinterpret_cast<const std::uint64_t*>(table[-1]);
  return type != nullptr ? reinterpret_cast<const char*>(type[1]) : nullptr;
}

std::uint64_t intern(const std::uint64_t* table) {
  const char* mangled = class_name(table);
  std::uint32_t length = 0;
  const char* name = mangled != nullptr ? last_name(mangled, length) : "";
  if (length == 0) return core::intern_string("(node)", 6);
  const std::uint64_t id = core::intern_string(name, length);
  return length == 6 && std::memcmp(name, "PyNode", 6) == 0 ? id | python_flag : id;
}

}  // namespace

const char* last_name(const char* mangled, std::uint32_t& length) {
  length = 0;
  const char* found = "";
  const char* at = mangled;
  while (*at == '*' || *at == 'N') ++at;  // a name that is not unique over libraries; a nested name
  while (*at >= '1' && *at <= '9') {
    std::uint32_t count = 0;
    for (; *at >= '0' && *at <= '9' && count < 4096; ++at) count = count * 10 + static_cast<std::uint32_t>(*at - '0');
    if (strnlen(at, count) < count) return found;
    found = at;
    length = count;
    at += count;
  }
  return found;
}

NodeName name_of(const void* node) {
  const auto* table = *static_cast<const std::uint64_t* const*>(node);
  const auto key = reinterpret_cast<std::uint64_t>(table);
  std::uint64_t name = 0;
  const std::uint64_t hash = key * 0x9e3779b97f4a7c15U >> 52;
  for (std::uint64_t probe = 0; probe < probes; ++probe) {
    Entry& entry = entries[(hash + probe) % slots];
    const std::uint64_t found = __atomic_load_n(&entry.table, __ATOMIC_ACQUIRE);
    if (__builtin_expect(found == key, 1)) {
      name = __atomic_load_n(&entry.name, __ATOMIC_ACQUIRE);
      if (__builtin_expect(name != 0, 1)) return {static_cast<std::uint32_t>(name), (name & python_flag) != 0};
      break;  // another thread is about to fill it
    }
    std::uint64_t empty = 0;
    if (found == 0 && __atomic_compare_exchange_n(&entry.table, &empty, key, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      name = intern(table);
      __atomic_store_n(&entry.name, name, __ATOMIC_RELEASE);
      break;
    }
    if (found == 0 && empty == key) break;
  }
  if (name == 0) name = intern(table);
  return {static_cast<std::uint32_t>(name), (name & python_flag) != 0};
}

void keep_python_name(std::int64_t number, std::uint32_t name) {
  if (number < 0) return;
  __atomic_store_n(&python_names[static_cast<std::uint64_t>(number) % slots], static_cast<std::uint64_t>(number) << 32 | name,
                   __ATOMIC_RELAXED);
}

std::uint32_t python_name(std::int64_t number) {
  if (number < 0) return 0;
  const std::uint64_t found = __atomic_load_n(&python_names[static_cast<std::uint64_t>(number) % slots], __ATOMIC_RELAXED);
  return found >> 32 == (static_cast<std::uint64_t>(number) & 0xffffffffU) ? static_cast<std::uint32_t>(found) : 0;
}

}  // namespace liveset::autograd
