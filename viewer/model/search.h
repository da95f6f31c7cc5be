// Finds the policy that fits a budget: candidates from the planners, each followed by the executor, so that what is said of it is what
// predict says.
//
// Candidates. A rotor chain: rotor's table, exact among persistent schedules where sizes need no rounding. A chain of layers: rotor,
// revolve, exact search over every schedule up to 12 layers, segment lists. Any other model, and recorded steps: sets of modules that run
// again, of the whole tree (region_search.h), operators whose outputs are kept (selective_search.h), equal and greedy segments. Rules of
// thumb and the policies that the caller names are candidates too. The frontier is what no other candidate beats in both bytes and time;
// beyond rotor chains and exact search it is the best that was found, and no proof that there is nothing better. Between it and the lower
// bound there may be more.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "viewer/ledger/physical.h"
#include "viewer/model/predict.h"
#include "viewer/model/region_search.h"

namespace liveset::model {

struct Candidate {
  std::string policy;  // as predict --policy takes it
  std::uint64_t peak_bytes = 0;
  bool peak_is_estimate = false, peak_is_rounded = false;  // as MemoryCurve's
  std::uint64_t extra_cost = 0, forward_cost = 0;          // in the model's unit
  std::vector<std::string> operations;                     // of rotor, revolve and exact search: "Fck1", "f3", "d2", "b4"
  bool searched = false;                                   // exact search over every schedule found it, or one that needs the same

  bool is_estimate() const { return peak_is_estimate || peak_is_rounded; }
};

// A policy that was asked for, or that people go by.
struct Listed {
  Candidate candidate;
  std::string refused;                                   // why it is no policy of this model; empty: it is one
  bool names_no_layer = false;                           // whatif.h
  std::uint64_t to_host_bytes = 0, to_device_bytes = 0;  // copied; how long that takes is not known
  // Then its time is not known, so it is no part of the frontier and compared with none.
  bool copies() const { return to_host_bytes + to_device_bytes != 0; }
};

// A planner that had no say, and why.
struct Absent {
  std::string planner, why;
};

struct SearchResult {
  std::vector<Candidate> frontier;             // peaks rising, extra costs falling
  std::optional<Candidate> best;               // the fastest within the budget, with the least peak among those; none: infeasible
  std::uint64_t least_budget = 0;              // the least peak of the frontier
  std::uint64_t lower_bound = 0;               // no schedule whatever needs less
  bool lower_bound_is_rounded = false;         // PeakBound::is_rounded
  bool least_is_exact = false;                 // least_budget is the least of what `least_of` says, and that peak no estimate
  std::string least_of;                        // "all schedules", "persistent schedules", "sets of modules"; empty: of what was tried
  std::optional<std::uint64_t> backward_cost;  // of a rotor chain: makespan = forward_cost + backward_cost
  std::uint64_t tried = 0;
  std::uint64_t modules = 0;  // that may be checkpointed, layers among them
  std::vector<Listed> given;  // SearchOptions::given, in that order
  std::vector<Listed> rules;  // of thumb: full, sqrt, every 5 to 10 layers, over 10 MB, under 5 ms
  std::vector<Absent> absent;
};

struct SearchOptions {
  std::optional<std::uint64_t> budget;
  std::vector<Policy> given;
  PredictOptions predict;
  RegionSearchLimits regions;
  std::uint64_t max_ops = 20'000'000;          // that all candidates together may run, but sets of modules
  std::uint64_t max_rotor_work = 500'000'000;  // entries of rotor's tables, times the ways that each has, where sizes are rounded: seconds
  ledger::Progress progress;
};

// Errors: the model contradicts itself; a given policy is none of this model.
Result<SearchResult> search(const Model& model, const SearchOptions& options = {});

// The fastest of the frontier that needs no more bytes than this, and the smallest that is no slower; null: none.
const Candidate* as_small_as(const SearchResult& result, std::uint64_t peak_bytes);
const Candidate* as_fast_as(const SearchResult& result, std::uint64_t extra_cost);

// Every op must have what it reads and makes at once, and nothing makes an input again that it or a later op reads (but a region by hand
// may move it to the host and back): statics and the largest such sum. Of a chain the least of all schedules (plan::least_peak).
struct PeakBound {
  std::uint64_t bytes = 0;
  bool is_rounded = false;  // every such sum has what is rounded (Tensor::rounded): what was asked for may be less
};
PeakBound peak_bound(const Model& model, const PredictOptions& options = {});

}  // namespace liveset::model
