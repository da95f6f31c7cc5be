// Revolve: the optimal schedule of checkpoints for equal steps and a fixed number of snapshots.
//
// States s_0 .. s_l; reversing step i needs s_{i-1} and contains the step's own recorded evaluation. c snapshots may be held at once, that
// of s_0 included; the state being advanced is not a snapshot. Then
//   beta(c, r) = binomial(c + r, c)      the longest chain when no step is advanced more than r times
//   t(l, c)    = r l - beta(c + 1, r - 1)     least number of advances, r the least with beta(c, r) >= l
// t counts the first sweep's l - 1 advances and not the l recorded evaluations: all evaluations are t + l.
// Source: Griewank and Walther, Algorithm 799, ACM TOMS 26(1) 2000, https://doi.org/10.1145/347837.347846.
#pragma once
#include "viewer/plan/chain.h"

namespace liveset::plan {

inline constexpr std::uint64_t max_revolve_steps = std::uint64_t{1} << 31;  // t is below its square

// Exact; 2^64 - 1 stands for everything that is larger. At most some 70 multiplications.
std::uint64_t revolve_beta(std::uint64_t snapshots, std::uint64_t repeats);

// r of the formula. O(log steps) betas.
std::uint64_t revolve_repeats(std::uint64_t steps, std::uint64_t snapshots);

// t(l, c). Errors: no steps, no snapshots, more than max_revolve_steps.
Result<std::uint64_t> revolve_advances(std::uint64_t steps, std::uint64_t snapshots);

struct RevolveOperation {
  enum class Kind : std::uint8_t {
    advance,   // from state `from` to state `to`, keeping neither
    snapshot,  // keep the present state `from`
    restore,   // the present state becomes snapshot `from`
    reverse,   // step `to`, whose input `from` is the present state: recorded evaluation and backward
    discard,   // snapshot `from` is given up
  };
  Kind kind = Kind::advance;
  std::uint32_t from = 0;
  std::uint32_t to = 0;

  bool operator==(const RevolveOperation&) const = default;
};

inline constexpr std::uint64_t max_revolve_operations = 20'000'000;

// A schedule that reaches t(l, c). Begins with the snapshot of s_0. Errors as above, and schedules above max_revolve_operations. O(its
// length).
Result<std::vector<RevolveOperation>> revolve_schedule(std::uint64_t steps, std::uint64_t snapshots);

// The schedule on the values of a chain (chain.h): an advance is a forward for each step, a reversal its recorded forward and its backward,
// a value that is no snapshot is dropped when the next one is made. Two values of the running step come on top of the snapshots, so at most
// c + 2 live. A recorded evaluation is left out where its result still lives, so there are at most t + l forwards.
std::vector<Move> revolve_moves(std::span<const RevolveOperation> schedule);

}  // namespace liveset::plan
