// Rotor: optimal persistent checkpointing of a heterogeneous chain within a budget of bytes.
//
// Stage l = 1..L maps a_{l-1} to a_l. Its forward runs in one of three ways, its backward once, in the order L .. 1:
//   Fn    a_l alone is left; a stand-alone input is gone      Fck   as Fn, and the input stays until B
//   Fall  leaves abar_l, all that B needs besides a_{l-1}     B     takes delta_l, abar_l and a_{l-1}, leaves delta_{l-1}
// "Persistent": what is kept stays until its backward. Dropping a kept value and making it again can be better on small chains
// (frontier.h), so this is the optimum among persistent schedules, and is to be called so.
//
// C(s, t, m), the least time for stages s..t when m bytes are free beside what is held outside (a_{s-1} among that, delta_t not), is the
// smaller of
//   keep all   uf[s] + C(s+1, t, m - abar[s]) + ub[s]
//   restart    sum uf[s..r-1] + C(r, t, m - a[r-1]) + C(s, r-1, m)     for r = s+1..t
// each where its operations fit into m. The answer is C(1, L, budget - a[0]).
// Source: Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, https://hal.science/hal-02352969 (arXiv 1911.13214).
//
// Budgets are counted in slots. With the greatest common divisor of all sizes as the slot everything is exact, in an array when that makes
// at most `slots` of them, and else by listing only where times change, which are few places where layers are alike. When these are too
// many, sizes are rounded up to `slots` slots and budgets down, so a plan never exceeds its budget and its time is an upper bound of the
// optimum; rounding down instead gives a lower bound. One table answers all budgets up to the one it was made for. C falls with m, is
// infinite below least(s, t) and constant from the peak of keeping all of s..t on; only what lies between is computed and stored: O(L^3
// slots) time at worst, O(L^2 slots) memory, inner loops without branches.
//
// least_budget is exact in bytes always: it is its own O(L^3) recursion, without time.
// Certified bound: no schedule, persistent or not, fits below max over t of  a_0 + (t > 1 ? a_{t-1} : 0) + abar_t + delta_t + delta_{t-1} +
// ob_t, since that much lives while B_t runs: its operands and result, and a_0, which nothing can make again and B_1 needs. (abar_{t-1} may
// stand for a_{t-1}; it contains it.)
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "viewer/plan/chain.h"

namespace liveset::plan {

// Arrays of stages begin with stage 1 at index 0, arrays of values with a_0.
struct RotorChain {
  std::vector<std::uint64_t> a;      // L + 1: output bytes
  std::vector<std::uint64_t> abar;   // L: what backward needs besides the input; contains the output, so at least a[l]
  std::vector<std::uint64_t> delta;  // L + 1: gradient bytes
  std::vector<std::uint64_t> uf;     // L: time of a forward
  std::vector<std::uint64_t> ub;     // L: time of a backward
  std::vector<std::uint64_t> of;     // L: bytes held only while a forward runs
  std::vector<std::uint64_t> ob;     // L: bytes held only while a backward runs

  std::uint64_t stages() const { return abar.size(); }
};

// Whole, sizes within max_total, times too even when each stage runs as often as there are stages; abar no less than the output.
Status check(const RotorChain& chain);

struct RotorOperation {
  enum class Kind : std::uint8_t { forward, forward_keep_input, forward_keep_all, backward };
  Kind kind = Kind::forward;
  std::uint32_t stage = 1;

  bool operator==(const RotorOperation&) const = default;
};

std::string text_of(std::span<const RotorOperation> operations);  // "Fck1 Fn2 Fall3 B3 Fall1 B1"

// Runs the operations: peak and time, or what is not possible and why.
Result<Figures> replay(const RotorChain& chain, std::span<const RotorOperation> operations);

// Keep everything: Fall1 .. FallL BL .. B1. The least time there is.
std::vector<RotorOperation> rotor_keep_all(std::uint64_t stages);

// The exact least budget of persistent schedules, and the certified bound of all schedules. O(L^3) and O(L).
Result<std::uint64_t> rotor_least_budget(const RotorChain& chain);
Result<std::uint64_t> rotor_budget_bound(const RotorChain& chain);

inline constexpr std::uint64_t max_rotor_stages = 512;  // some ten seconds with 500 slots; 100 take a twentieth of one

// Longer chains: consecutive stages become one, so that there are `stages` of them. A group's temporaries are what its inside needs on top
// of its ends, so a plan for the groups, written out for the stages of which they are made, needs no more than it says; it need not be the
// best of the chain. O(L). A thousand different layers in 40 groups are planned in some 50 ms, exactly for the groups; more groups that
// must be rounded were no better.
struct RotorGroups {
  RotorChain chain;
  std::vector<std::uint32_t> first;  // of each group its first stage, from 1; at the end one more than there are stages
};
Result<RotorGroups> group_stages(const RotorChain& chain, std::uint64_t stages);
std::vector<RotorOperation> ungroup(const RotorGroups& groups, std::span<const RotorOperation> operations);

struct RotorOptions {
  std::uint64_t slots = 500;
  std::uint64_t max_table_bytes = std::uint64_t{1} << 29;
  std::uint64_t max_looks = 100'000'000;  // for the exact table without slots: half a second or so; 0: do not try
  bool rounds = true;                     // false: an error where sizes would have to be rounded
  bool bounds = true;                     // false: where sizes are rounded nothing is said of RotorPlan::least_cost, in half of the time
  std::function<void(std::uint64_t done, std::uint64_t all)> progress;
};

struct RotorPlan {
  Figures figures;  // of the operations: true bytes, time
  std::vector<RotorOperation> operations;
  bool exact = false;            // the time is the least of persistent schedules
  std::uint64_t least_cost = 0;  // no persistent schedule within the budget is faster; equal to the time when exact; 0: not asked for
};

class RotorTable {
 public:
  // For budgets up to `budget`; beyond what keeping everything needs nothing changes. Errors: a chain that is not whole, too many stages, a
  // table above max_table_bytes even with few slots.
  static Result<RotorTable> make(RotorChain chain, std::uint64_t budget, const RotorOptions& options = {});

  RotorTable(RotorTable&&) noexcept;
  RotorTable& operator=(RotorTable&&) noexcept;
  ~RotorTable();

  bool exact() const;                  // nothing was rounded
  std::uint64_t slot() const;          // bytes
  std::uint64_t least_budget() const;  // exact; below it nothing is feasible

  // Nothing below least_budget. A budget above the one of make() is answered as that one.
  std::optional<RotorPlan> plan(std::uint64_t budget) const;
  std::optional<std::uint64_t> cost(std::uint64_t budget) const;

  // Where the time changes, budgets rising up to that of make(): from each budget on that time can be had, and, when exact, no better one.
  // Begins with least_budget.
  struct Step {
    std::uint64_t budget = 0;
    std::uint64_t cost = 0;
  };
  std::vector<Step> steps() const;

 private:
  struct Body;
  explicit RotorTable(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

}  // namespace liveset::plan
