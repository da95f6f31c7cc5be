// c10d::Reducer, interposed as the engine is (node_events.cpp): its buckets are communication from the moment they are
// made, and each reduction is a COLLECTIVE with the number of its bucket.
#include "hooks/autograd/reducer.h"

#include <cstring>

#include "hooks/autograd/tensor_storage.h"
#include "hooks/autograd/torch_function.h"
#include "hooks/core/recorder.h"
#include "profiler/channel/layout.h"

namespace liveset::autograd {
namespace {

using InitializeBuckets = void (*)(void* reducer, void* indices);
using AllReduceBucket = void (*)(void* reducer, void* bucket);
InitializeBuckets real_initialize = nullptr;
AllReduceBucket real_all_reduce = nullptr;
std::int64_t next_bucket = 0;
const void* only_reducer = nullptr;
bool several_reducers = false;

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

// Whether buckets have numbers: in a job with several models, two buckets would have each.
bool is_only(const void* reducer) {
  const void* known = nullptr;
  if (!__atomic_compare_exchange_n(&only_reducer, &known, reducer, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) && known != reducer) {
    __atomic_store_n(&several_reducers, true, __ATOMIC_RELAXED);
  }
  return !__atomic_load_n(&several_reducers, __ATOMIC_RELAXED);
}

// The unwinder calls this for the frame of make_buckets(), as it calls the C++ runtime's for frames of C++; we have no such runtime.
extern "C" __attribute__((used)) int liveset_leave_buckets(int, int actions, std::uint64_t, void*, void*) {
  constexpr int cleanup_phase = 2, continue_unwind = 8;  // of the Itanium ABI
  if ((actions & cleanup_phase) != 0) core::end_stating();
  return continue_unwind;
}

__attribute__((noinline, noclone)) void make_buckets(InitializeBuckets real, void* reducer, void* indices) {
  asm volatile(".cfi_personality 0x1b, liveset_leave_buckets");
  core::begin_stating(channel::class_communication, text("c10d::Reducer"));
  real(reducer, indices);
  core::end_stating();
}

}  // namespace

void start_reducer(std::uint32_t (*heaps)(int device_type, int device_index)) { heap_of = heaps; }

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
  is_only(reducer);
  make_buckets(real, reducer, indices);
}

extern "C" void all_reduce_bucket(void* reducer, void* bucket) {
  const AllReduceBucket real = real_of(real_all_reduce, all_reduce_bucket_name, __builtin_return_address(0));
  if (core::recording()) {
    TensorStorage storage;  // a bucket begins with its tensor
    const bool known = heap_of != nullptr && read_tensor(bucket, storage);
    if (!known) storage = {};
    const std::int64_t number = is_only(reducer) ? __atomic_fetch_add(&next_bucket, 1, __ATOMIC_RELAXED) : -1;
    core::record_value(channel::kind_collective, 0, known ? heap_of(storage.device_type, storage.device_index) : 0, storage.address,
                       storage.bytes, text("all_reduce"), 0, nullptr, 0, number);
  }
  real(reducer, bucket);
}

}  // namespace liveset::autograd
