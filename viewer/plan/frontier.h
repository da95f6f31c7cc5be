// The exact frontier of peak against recompute for small chains, over every schedule that there is: keeping, dropping and making again any
// value at any time (chain.h, Move). Nothing beats it, so it says how far any policy is from the optimum.
//
// States are (values that live, next layer to reverse); a value above the next layer is never of use, so there are 2^(n+2) of them. For one
// budget the shortest path is found (Dijkstra; cost first, then the path's peak, which only grows along a path, so the least peak among the
// cheapest is found too). The frontier starts without a budget and then asks for less than the peak just found, until nothing is left.
//
// O(2^n n^2) for one budget, times the points of the frontier; 24 bytes a state. Costs that sum to more than 2^64 - 1 are an error.
#pragma once
#include <optional>

#include "viewer/plan/chain.h"

namespace liveset::plan {

inline constexpr std::uint64_t max_frontier_layers = 20;  // 100 MB, some seconds a budget; 12 take milliseconds

struct FrontierPoint {
  std::uint64_t peak = 0;  // the least with this cost
  std::uint64_t cost = 0;  // the least with this peak
  std::vector<Move> moves;
};

// The cheapest schedule within a budget, with the least peak among those; nothing when there is none (least_peak says what is needed).
Result<std::optional<FrontierPoint>> cheapest_within(const Chain& chain, std::uint64_t budget);

// All points, peaks rising and costs falling. At most `max_points` from the top (least cost); `complete` says whether that was all.
struct Frontier {
  std::vector<FrontierPoint> points;
  bool complete = true;
};
Result<Frontier> exact_frontier(const Chain& chain, std::size_t max_points = 256);

}  // namespace liveset::plan
