// c10d::Reducer, interposed as the engine is (interposed.cpp): its buckets are communication from the moment they are
// made, and each reduction is a COLLECTIVE with the number of its bucket.
#include "hooks/autograd/reducer.h"

#include <cstring>

#include "hooks/autograd/node_events.h"
#include "hooks/autograd/sequence_number.h"
#include "hooks/autograd/torch_function.h"
#include "hooks/core/recorder.h"
#include "profiler/channel/layout.h"

namespace liveset::autograd {
namespace {

constexpr std::uint8_t communication = 11;  // proto MemoryClass

using InitializeBuckets = void (*)(void* reducer, void* indices);
using AllReduceBucket = void (*)(void* reducer, void* bucket);
InitializeBuckets real_initialize = nullptr;
AllReduceBucket real_all_reduce = nullptr;
std::int64_t next_bucket = 0;

template <class Function>
Function real_of(Function& kept, const char* name, const void* caller) {
  Function found = __atomic_load_n(&kept, __ATOMIC_RELAXED);
  if (found == nullptr) {
    found = reinterpret_cast<Function>(torch_function(name, caller));
    if (found == nullptr) __builtin_trap();  // whoever calls it has it
    __atomic_store_n(&kept, found, __ATOMIC_RELAXED);
  }
  return found;
}

std::uint32_t text(const char* name) { return core::intern_string(name, static_cast<std::uint32_t>(std::strlen(name))); }

std::uint32_t (*heap_of)(int device_type, int device_index) = nullptr;

// A bucket begins with its tensor, a pointer to a c10::TensorImpl or what derives from it. torch's C interface reads it.
struct Storage {
  std::uint64_t address = 0, bytes = 0;
  std::uint32_t heap = 0;
};
Storage storage_of(void* bucket) {
  std::uint64_t tensor = 0, table = 0, type = 0, name = 0;
  char mangled[24] = {};
  if (!copy_memory(reinterpret_cast<std::uint64_t>(bucket), &tensor, 8) || !copy_memory(tensor, &table, 8) ||
      !copy_memory(table - 8, &type, 8) || !copy_memory(type + 8, &name, 8) || !copy_memory(name, mangled, sizeof mangled - 1) ||
      std::strcmp(mangled, "N3c1010TensorImplE") != 0) {
    return {};
  }
  using Read = std::int32_t (*)(void* tensor, void* out);
  const auto data = reinterpret_cast<Read>(torch_function("aoti_torch_get_data_ptr", nullptr));
  const auto size = reinterpret_cast<Read>(torch_function("aoti_torch_get_storage_size", nullptr));
  const auto type_of = reinterpret_cast<Read>(torch_function("aoti_torch_get_device_type", nullptr));
  const auto index_of = reinterpret_cast<Read>(torch_function("aoti_torch_get_device_index", nullptr));
  Storage storage;
  std::int32_t device_type = 0, device_index = 0;
  if (data == nullptr || size == nullptr || type_of == nullptr || index_of == nullptr || heap_of == nullptr ||
      data(bucket, &storage.address) != 0 || size(bucket, &storage.bytes) != 0 || type_of(bucket, &device_type) != 0 ||
      index_of(bucket, &device_index) != 0) {
    return {};
  }
  storage.heap = heap_of(device_type, device_index);
  return storage;
}

}  // namespace

void start(std::uint32_t (*heaps)(int device_type, int device_index)) { heap_of = heaps; }

void count_buckets_anew() { __atomic_store_n(&next_bucket, 0, __ATOMIC_RELAXED); }

extern "C" __attribute__((visibility("default"))) void initialize_buckets(void* reducer, void* indices) __asm__(
    "_ZN4c10d7Reducer18initialize_bucketsESt6vectorIS1_ImSaImEESaIS3_EE");
extern "C" __attribute__((visibility("default"))) void all_reduce_bucket(void* reducer, void* bucket) __asm__(
    "_ZN4c10d7Reducer17all_reduce_bucketERNS0_6BucketE");

// The vector comes as the address of the caller's copy.
extern "C" void initialize_buckets(void* reducer, void* indices) {
  const InitializeBuckets real = real_of(real_initialize, initialize_buckets_name, __builtin_return_address(0));
  if (!core::recording()) {
    real(reducer, indices);
    return;
  }
  core::begin_stating(communication, text("c10d::Reducer"));
  real(reducer, indices);
  core::end_stating();
}

extern "C" void all_reduce_bucket(void* reducer, void* bucket) {
  const AllReduceBucket real = real_of(real_all_reduce, all_reduce_bucket_name, __builtin_return_address(0));
  if (core::recording()) {
    const Storage storage = storage_of(bucket);
    const std::int64_t number = __atomic_fetch_add(&next_bucket, 1, __ATOMIC_RELAXED);
    core::record_value(channel::kind_collective, 0, storage.heap, storage.address, storage.bytes, text("all_reduce"), 0, nullptr, 0,
                       number);
  }
  real(reducer, bucket);
}

}  // namespace liveset::autograd
