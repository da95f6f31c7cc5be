// The buckets of DistributedDataParallel.
#pragma once
#include <cstdint>

namespace liveset::autograd {

// Once, when the library is loaded. `heap_of`: the heap of a device's allocator.
void start_reducer(std::uint32_t (*heap_of)(int device_type, int device_index));

// A backward begins: its first bucket is number 0.
void count_buckets_anew();

}  // namespace liveset::autograd
