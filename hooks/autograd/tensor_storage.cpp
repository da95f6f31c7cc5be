#include "hooks/autograd/tensor_storage.h"

#include <cstring>

#include "hooks/autograd/torch_function.h"
#include "hooks/core/careful_memory.h"
#include "hooks/core/dtypes.h"

namespace liveset::autograd {
namespace {

using core::copy_memory;

// Of AOTInductor's C shim: 0 is success. They catch what torch throws, but say so on stderr: they are only asked of plain tensors.
using Read = std::int32_t (*)(void* tensor, void* out);
struct Functions {
  Read data, offset, bytes, dtype, device_type, device_index;
};
Functions functions;
int state = 0;  // 0: not looked for, 1: complete, 2: this torch has not all of them

bool look_for_functions() {
  const auto find = [](Read& function, const char* name) {
    function = reinterpret_cast<Read>(torch_function(name, nullptr));
    return function != nullptr;
  };
  Functions found{};
  // The latter, of torch before 2.10, first copies a storage that is shared until it is written.
  const bool all = (find(found.data, "torch_get_const_data_ptr") || find(found.data, "aoti_torch_get_data_ptr")) &&
                   find(found.offset, "aoti_torch_get_storage_offset") && find(found.bytes, "aoti_torch_get_storage_size") &&
                   find(found.dtype, "aoti_torch_get_dtype") && find(found.device_type, "aoti_torch_get_device_type") &&
                   find(found.device_index, "aoti_torch_get_device_index");
  if (all) functions = found;
  __atomic_store_n(&state, all ? 1 : 2, __ATOMIC_RELEASE);
  return all;
}

std::uint64_t plain_table = 0;
constexpr std::uint32_t most_others = 4;
std::uint64_t other_tables[most_others] = {};  // of the last classes that are not plain
std::uint32_t next_other = 0;

// Of a class that was not met just before. `implementation` may be anything.
bool is_plain_slowly(std::uint64_t implementation) {
  std::uint64_t table = 0, type = 0, name = 0;
  char mangled[24] = {};
  if (!copy_memory(implementation, &table, 8)) return false;
  const bool plain = copy_memory(table - 8, &type, 8) && copy_memory(type + 8, &name, 8) &&
                     copy_memory(name, mangled, sizeof mangled - 1) && std::strcmp(mangled, "N3c1010TensorImplE") == 0;
  std::uint64_t& kept = plain ? plain_table : other_tables[__atomic_fetch_add(&next_other, 1, __ATOMIC_RELAXED) % most_others];
  __atomic_store_n(&kept, table, __ATOMIC_RELAXED);
  return plain;
}

bool is_plain(const void* tensor) {
  const auto implementation = *static_cast<const std::uint64_t*>(tensor);
  if (implementation == 0) return false;
  const std::uint64_t table = *reinterpret_cast<const std::uint64_t*>(implementation);
  if (__builtin_expect(table == __atomic_load_n(&plain_table, __ATOMIC_RELAXED), 1)) return true;
  for (const std::uint64_t& other : other_tables) {
    if (table == __atomic_load_n(&other, __ATOMIC_RELAXED)) return false;
  }
  return is_plain_slowly(implementation);
}

}  // namespace

bool read_tensor(void* tensor, TensorStorage& storage) {
  const int now = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
  if (now == 2 || (now == 0 && !look_for_functions()) || !is_plain(tensor)) return false;
  std::int64_t offset = 0;
  if (functions.dtype(tensor, &storage.dtype) != 0 || functions.data(tensor, &storage.address) != 0 || storage.address == 0 ||
      functions.offset(tensor, &offset) != 0 || functions.bytes(tensor, &storage.bytes) != 0 ||
      functions.device_type(tensor, &storage.device_type) != 0 || functions.device_index(tensor, &storage.device_index) != 0) {
    return false;
  }
  const std::uint32_t element = core::dtype(storage.dtype).bytes;
  if (element == 0) return false;
  storage.address -= static_cast<std::uint64_t>(offset) * element;
  return true;
}

namespace {

// Whether `word`, which may be anything, is a tensor with this storage.
bool leads_to(std::uint64_t word, const TensorStorage& said) {
  TensorStorage found;
  return is_plain_slowly(word) && read_tensor(&word, found) && found.address == said.address && found.bytes == said.bytes &&
         found.dtype == said.dtype && found.device_type == said.device_type &&
         (found.device_index < 0 ? 0 : found.device_index) == said.device_index;
}

// How many words a Python object has; what stands behind it is another's. Types have had these places since Python 2.
std::uint64_t words_of(std::uint64_t object) {
  constexpr std::uint64_t object_type = 8, type_basic_size = 32;
  std::uint64_t type = 0, bytes = 0;
  return copy_memory(object + object_type, &type, 8) && copy_memory(type + type_basic_size, &bytes, 8) ? bytes / 8 : 0;
}

bool is_one(std::uint32_t candidates) { return (candidates & (candidates - 1)) == 0; }

}  // namespace

bool TensorPlace::learn(std::uint64_t object, const TensorStorage& said) {
  if (word_ != 0) return false;
  std::uint64_t words[last_word + 1];
  if (!copy_memory(object, words, sizeof words)) {
    word_ = given_up;
    return false;
  }
  const std::uint64_t own_words = words_of(object);
  for (std::uint32_t word = first_word; word <= last_word; ++word) {
    if ((candidates_ >> word & 1) != 0 && (word >= own_words || !leads_to(words[word], said))) candidates_ &= ~(1U << word);
  }
  if (candidates_ == 0) {
    word_ = given_up;
  } else if (++learned_ >= enough && is_one(candidates_)) {
    word_ = __builtin_ctz(candidates_);
  }
  return word_ == 0;
}

bool SlotPlace::learn(std::uint64_t object, const TensorStorage& said) {
  if (known_ || given_up_) return false;
  std::uint64_t outer[words];
  if (!copy_memory(object + first_word * 8, outer, sizeof outer)) {
    given_up_ = true;
    return false;
  }
  const std::uint64_t own_words = words_of(object);
  for (std::uint32_t word = 0; word < words; ++word) {
    std::uint64_t inner[inner_words];
    const bool readable = first_word + word < own_words && copy_memory(outer[word], inner, sizeof inner);
    for (std::uint32_t place = 0; place < inner_words; ++place) {
      const std::uint32_t bit = 1U << (word * inner_words + place);
      if ((candidates_ & bit) != 0 && !(readable && leads_to(inner[place], said))) candidates_ &= ~bit;
    }
  }
  learned_ += said.address != last_address_ ? 1 : 0;
  last_address_ = said.address;
  given_up_ = candidates_ == 0;
  if (!given_up_ && learned_ >= enough && is_one(candidates_)) {
    candidate_ = static_cast<std::uint32_t>(__builtin_ctz(candidates_));
    known_ = true;
  }
  return !known_ && !given_up_;
}

}  // namespace liveset::autograd
