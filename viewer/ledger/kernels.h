// Kernel launches, counted: by name, by phase, by checkpoint region. Which kernels a recompute ran again is their names in that phase.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "viewer/ledger/range.h"
#include "viewer/trace/trace_file.h"

namespace liveset::ledger {

using LaunchesByPhase = std::array<std::uint64_t, 8>;  // by trace::Phase; the last two stay empty

struct KernelRegion {
  std::uint32_t scope = 0;  // the region's; 0: recomputed outside any region
  std::uint64_t launches = 0, recomputed = 0;
  std::map<std::uint32_t, std::uint64_t> recomputed_names;  // String id to launches
};

struct Kernels {
  std::uint64_t launches = 0;
  LaunchesByPhase phases{};
  std::map<std::uint32_t, LaunchesByPhase> names;  // by String id
  std::vector<KernelRegion> regions;               // in the order of their first launch, no more than 1,000
  std::uint64_t launches_left_out = 0;             // in further regions
};

// Of the events in `range`. Reads only chunks that hold launches.
Result<Kernels> count_kernels(const trace::TraceFile& file, const Range& range);

}  // namespace liveset::ledger
