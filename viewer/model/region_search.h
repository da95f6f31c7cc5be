// Looks for sets of modules to checkpoint that nothing else of their kind beats in both bytes and time.
//
// Up to `max_sets` sets (none inside of another) all of them are followed, so that the best is exact among them. Otherwise plan/regions.h
// proposes: its frontier, and for a budget the plan of that size, asked again for less or more by as much as the executor found it wrong.
// From what came out best, one module is then left out, added, or put in place of those inside of it and the other way, as long as that
// finds something better and `max_ops` allows; an eighth of it where the proposals were exact and came out as planned. What is found then
// need not be the best.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "viewer/model/model.h"

namespace liveset::model {

struct RegionSearchLimits {
  std::uint64_t max_sets = 4096;
  std::uint64_t max_ops = 10'000'000;  // ops that all sets together may run
};

struct RegionSearchOptions {
  std::optional<std::uint64_t> budget;  // statics included, as peaks are
  std::uint64_t statics = 0;
  RegionSearchLimits limits;
};

struct RegionSearchResult {
  bool all_sets = false;      // every set of modules was followed
  std::uint64_t modules = 0;  // that may be checkpointed
};

// What the executor says of a policy: peak and extra cost; nothing where it cannot be.
using Follow = std::function<std::optional<plan::Figures>(const std::string& policy)>;

// Calls `follow` with each "regions:A,B" that it wants to know of.
RegionSearchResult search_regions(const Model& model, const RegionSearchOptions& options, const Follow& follow);

}  // namespace liveset::model
