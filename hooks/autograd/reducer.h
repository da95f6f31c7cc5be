// The buckets of DistributedDataParallel.
#pragma once

namespace liveset::autograd {

// A backward begins: its first bucket is number 0.
void count_buckets_anew();

}  // namespace liveset::autograd
