// torch's own function behind one that we interpose.
#pragma once

namespace liveset::autograd {

constexpr const char* evaluate_function_name =
    "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_4NodeERNS0_11InputBufferERKS2_INS0_10ReadyQueueEE";
constexpr const char* initialize_buckets_name = "_ZN4c10d7Reducer18initialize_bucketsESt6vectorIS1_ImSaImEESaIS3_EE";
constexpr const char* all_reduce_bucket_name = "_ZN4c10d7Reducer17all_reduce_bucketERNS0_6BucketE";

// The function of this name in libtorch_cpu.so, or in the library that `caller` is in; null when neither has it.
void* torch_function(const char* name, const void* caller);

}  // namespace liveset::autograd
