// torch's own function behind one that we interpose.
#pragma once

namespace liveset::autograd {

constexpr const char* evaluate_function_name =
    "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_4NodeERNS0_11InputBufferERKS2_INS0_10ReadyQueueEE";
// Of a library whose std::string is the one of C++11, and the one before.
constexpr const char* validate_outputs_name =
    "_ZN5torch8autograd16validate_outputsERKSt6vectorINS0_4EdgeESaIS2_EERS1_IN2at6TensorESaIS8_EE"
    "RKSt8functionIFNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSI_EE";
constexpr const char* old_validate_outputs_name =
    "_ZN5torch8autograd16validate_outputsERKSt6vectorINS0_4EdgeESaIS2_EERS1_IN2at6TensorESaIS8_EERKSt8functionIFSsRKSsEE";
constexpr const char* initialize_buckets_name = "_ZN4c10d7Reducer18initialize_bucketsESt6vectorIS1_ImSaImEESaIS3_EE";
constexpr const char* all_reduce_bucket_name = "_ZN4c10d7Reducer17all_reduce_bucketERNS0_6BucketE";

// The function of this name in libtorch_cpu.so, or in the library that `caller` is in; null when neither has it.
void* torch_function(const char* name, const void* caller);

}  // namespace liveset::autograd
