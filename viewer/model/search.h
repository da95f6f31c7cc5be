// Finds the policy that fits a budget: candidates from the planners, each followed by the executor, so that what is said of it is what
// predict says.
//
// Candidates. A rotor chain: rotor's table, exact among persistent schedules. A chain of layers: rotor, revolve, exact search over every
// schedule up to 12 layers, segment lists. Any other model, and recorded steps: sets of layers that run again (plan/regions.h), equal and
// greedy segments. The frontier is what no other candidate beats in both bytes and time; beyond rotor chains and exact search it is the
// best that was found, and no proof that there is nothing better. Between it and the lower bound there may be more.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "viewer/model/predict.h"

namespace liveset::model {

struct Candidate {
  std::string policy;  // as predict --policy takes it; "exact": a schedule of exact search, whose operations say it
  std::uint64_t peak_bytes = 0;
  std::uint64_t extra_cost = 0, forward_cost = 0;  // in the model's unit
  std::vector<std::string> operations;             // of rotor, revolve and exact search: "Fck1", "f3", "d2", "b4"
};

struct SearchResult {
  std::vector<Candidate> frontier;             // peaks rising, extra costs falling
  std::optional<Candidate> best;               // the fastest within the budget, with the least peak among those; none: infeasible
  std::uint64_t least_budget = 0;              // the least peak of the frontier
  std::uint64_t lower_bound = 0;               // no schedule whatever needs less
  bool least_is_exact = false;                 // least_budget is the least of persistent schedules (rotor chains) or of all
  std::optional<std::uint64_t> backward_cost;  // of a rotor chain: makespan = forward_cost + backward_cost
  std::uint64_t tried = 0;
};

struct SearchOptions {
  std::optional<std::uint64_t> budget;
  PredictOptions predict;
};

Result<SearchResult> search(const Model& model, const SearchOptions& options = {});

// Every op must have what it reads and makes at once: statics and the largest such sum.
std::uint64_t peak_bound(const Model& model, const PredictOptions& options = {});

}  // namespace liveset::model
