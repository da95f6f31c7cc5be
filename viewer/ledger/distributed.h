// What the rules of distributed training ask of the trace of one rank, in one pass: which regions each step recomputes, whether
// gradients were reduced before a recompute of their region had ended, and on which devices regions make their blocks.
//
// A reduction is joined to parameters by what the job states: the bucket's parameters (attribute liveset.bucket), or the gradient whose
// block it reduces, which carries its parameter's path. What is joined to none is counted.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "viewer/ledger/physical.h"
#include "viewer/ledger/region_runs.h"

namespace liveset::ledger {

// All executions of one region in one step. Ranks number their regions each for themselves, so it is known by what it holds.
struct RegionPolicy {
  std::uint32_t path = 0;   // index into RankFacts::paths: the first module called in it, or else its own path
  std::uint32_t scope = 0;  // of its first execution
  std::uint32_t about = 0;  // String id: JSON text
  std::uint32_t forwards = 0, recomputes = 0, early_stopped = 0;
  bool operator==(const RegionPolicy&) const = default;
};
struct Policy {
  std::vector<RegionPolicy> regions;   // in order of their first execution
  std::vector<std::uint32_t> modules;  // paths of the modules that were called, rising
  bool operator==(const Policy&) const = default;
};
struct PolicyOfStep {
  std::int64_t step = 0;
  std::uint32_t policy = 0;  // index into RankFacts::policies
};

// A recompute that ended after the reduction of a gradient of its modules.
struct LateRecompute {
  std::string region, module, parameter;
  std::int64_t step = -1;  // the first
  std::uint64_t count = 1;
  bool same_backward = true;  // false: reduced in the step before the recompute, and not again after it
};

// Executions of one region that made blocks in the same heaps; bytes: the most of any of them.
struct RegionDevices {
  std::uint32_t path = 0, scope = 0;
  std::uint32_t about = 0;  // String id: what is said of the region, of a recompute what was said of its forward
  bool recompute = false;
  std::int64_t step = -1;  // the first
  std::uint64_t times = 0;
  std::vector<HeapShare> made;  // by heap, rising
};

struct RankFacts {
  static constexpr std::size_t max_steps = 1'000'000, max_policies = 10'000, max_policy_entries = 4'000'000, max_late = 1'000,
                               max_regions = 100'000, max_of_step = 1'000'000, max_work_of_step = 20'000'000;

  std::vector<std::string> paths;
  std::vector<Policy> policies;     // different ones
  std::vector<PolicyOfStep> steps;  // those that ended
  std::vector<LateRecompute> late;
  std::vector<RegionDevices> devices;
  std::uint64_t all_steps = 0, reductions = 0, reductions_known = 0, recomputes = 0, recomputes_without_parameters = 0;
  // Beyond the limits: steps, policies and their regions; reductions, names of gradients and recomputes; places of blocks; `late`.
  std::uint64_t policies_left_out = 0, reductions_left_out = 0, devices_left_out = 0, late_left_out = 0;
};

Result<RankFacts> read_rank(const trace::TraceFile& file, const PhysicalLedger& ledger);

}  // namespace liveset::ledger
