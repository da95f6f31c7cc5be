// What a policy makes of a step: the instructions that an executor follows one by one.
//
// All knowledge of when a value is given up, made again and let go stands in what writes schedules; predict.cpp only follows them,
// does the accounting, and refuses a schedule that uses what does not live. So a new policy is a new writer and nothing else.
#pragma once
#include <cstdint>
#include <vector>

#include "viewer/model/model.h"
#include "viewer/model/policy.h"

namespace liveset::model {

struct Instruction {
  enum class Do : std::uint8_t {
    begin,     // the tensor comes to life without an op: an input, or what a region keeps
    run,       // the op runs: it makes its writes
    keep,      // the tensor stays for backward
    drop,      // the tensor is given up, to be made again
    release,   // the tensor goes for good (a temporary may be made again by an op that runs again)
    forget,    // the second making of a kept tensor goes
    offload,   // the tensor's bytes leave the device; the value lives
    prefetch,  // and come back
  };
  Do what = Do::run;
  trace::Phase phase = trace::Phase::forward;
  bool graph = true;          // of run: what only backward needs is made too
  std::uint32_t subject = 0;  // op or tensor
  std::uint32_t microbatch = 0;
};

struct Schedule {
  std::vector<Instruction> instructions;
  std::vector<Tensor> extra;  // tensors that the policy adds, indexed after the model's: random states that regions keep
  std::vector<std::uint64_t> boundaries;
  std::uint32_t doubt_from = none, doubt_until = 0;  // ops, as RegionDecisions'
  std::uint64_t doubt_bytes = 0;
  std::vector<bool> region_inputs;  // by tensor of the model: regions hold it to run again (RegionDecisions); empty: none is
};

// Refuses what is too long to be listed, before it is. `tensors`: of the model and of the policy.
Status check_microbatches(const Model& model, std::uint64_t tensors);

// Errors: too many microbatches, the policy names no value of this model, its segments do not add up to its layers, its budget cannot be
// met.
Result<Schedule> make_schedule(const Model& model, const Policy& policy);

}  // namespace liveset::model
