// Chooses slots for the recursion of rotor_grid.h and answers in bytes.
#include "viewer/plan/rotor_grid.h"

namespace liveset::plan {
namespace {

using Grid = detail::RotorGrid;
using detail::infinite_time;

enum class Rounding { up, down };

RotorChain in_slots(RotorChain chain, std::uint64_t slot, Rounding rounding) {
  for (auto* list : {&chain.a, &chain.abar, &chain.delta, &chain.of, &chain.ob}) {
    for (std::uint64_t& size : *list) size = size / slot + (rounding == Rounding::up && size % slot != 0 ? 1 : 0);
  }
  return chain;
}

std::uint64_t common_divisor(const RotorChain& chain) {
  std::uint64_t divisor = 0;
  for (const auto* list : {&chain.a, &chain.abar, &chain.delta, &chain.of, &chain.ob}) {
    for (const std::uint64_t size : *list) divisor = std::gcd(divisor, size);
  }
  return std::max<std::uint64_t>(divisor, 1);
}

}  // namespace

struct RotorTable::Body {
  RotorChain chain;
  std::uint64_t slot = 1, top = 0;  // top: the largest budget that the grids know, in bytes
  bool exact = true;
  std::uint64_t least = 0;  // budget
  RotorPlan least_plan;     // within it; used where the grid rounds too much
  RotorPlan keep_all;
  std::optional<Grid> upper, lower;  // lower only where not exact

  // Free slots of a budget.
  static std::optional<std::uint64_t> free_slots(const Grid& grid, std::uint64_t budget, std::uint64_t slot) {
    const std::uint64_t slots = budget / slot;
    return slots < grid.input() ? std::nullopt : std::optional(slots - grid.input());
  }
  static std::int64_t time(const Grid& grid, std::uint64_t budget, std::uint64_t slot) {
    const std::optional<std::uint64_t> free = free_slots(grid, budget, slot);
    return free ? grid.time(*free) : infinite_time;
  }

  RotorPlan planned(std::vector<RotorOperation> operations) const {
    RotorPlan plan;
    plan.figures = *replay(chain, operations);
    plan.operations = std::move(operations);
    return plan;
  }
};

RotorTable::RotorTable(std::unique_ptr<Body> body) : body_(std::move(body)) {}
RotorTable::RotorTable(RotorTable&&) noexcept = default;
RotorTable& RotorTable::operator=(RotorTable&&) noexcept = default;
RotorTable::~RotorTable() = default;

Result<RotorTable> RotorTable::make(RotorChain chain, std::uint64_t budget, const RotorOptions& options) {
  if (Status whole = check(chain); !whole) return whole.take_error();
  if (chain.stages() > max_rotor_stages)
    return detail::refused(
        "rotor takes at most " + std::to_string(max_rotor_stages) + " stages, the chain has " + std::to_string(chain.stages()),
        "take several layers together as one stage");
  auto body = std::make_unique<Body>();
  body->chain = std::move(chain);
  body->slot = common_divisor(body->chain);
  Grid exact(in_slots(body->chain, body->slot, Rounding::up));
  body->least = (exact.input() + exact.least()) * body->slot;
  body->least_plan = body->planned(exact.least_operations());
  body->keep_all = body->planned(rotor_keep_all(body->chain.stages()));
  body->keep_all.exact = true;
  body->keep_all.least_cost = body->keep_all.figures.cost;
  body->top = std::min(budget, body->keep_all.figures.peak);

  const auto too_large = [&options](const Grid& grid, std::uint64_t slots) {
    return slots >= grid.input() && grid.entries(slots - grid.input()) > options.max_table_bytes / sizeof(std::int64_t);
  };
  const std::uint64_t stages = body->chain.stages(), cube = stages * stages * stages;
  const auto fill = [&](Grid& grid, std::uint64_t slots, std::uint64_t filled, std::uint64_t grids) {
    if (slots < grid.input()) return;
    grid.fill(slots - grid.input(), [&](std::uint64_t done) {
      if (options.progress) options.progress(filled * cube + done * done * done, grids * cube);
    });
  };
  std::uint64_t slots = body->top / body->slot;
  if (slots <= options.slots && !too_large(exact, slots)) {
    fill(exact, slots, 0, 1);
    body->upper = std::move(exact);
    return RotorTable(std::move(body));
  }
  if (slots >= exact.input() && exact.fill_steps(slots - exact.input(), options.max_table_bytes / sizeof(Grid::Step), options.max_looks)) {
    body->upper = std::move(exact);
    return RotorTable(std::move(body));
  }
  if (!options.rounds)
    return detail::refused("the sizes of the chain's " + std::to_string(stages) + " stages are too many for an exact table");
  body->exact = false;
  for (slots = std::min(slots, options.slots); slots > 0; slots /= 2) {
    body->slot = body->top / slots + (body->top % slots != 0 ? 1 : 0);
    Grid upper(in_slots(body->chain, body->slot, Rounding::up));
    std::optional<Grid> lower;
    if (options.bounds) lower.emplace(in_slots(body->chain, body->slot, Rounding::down));
    slots = body->top / body->slot;
    if (too_large(upper, slots) || (lower && too_large(*lower, slots))) continue;
    fill(upper, slots, 0, lower ? 2 : 1);
    if (lower) fill(*lower, slots, 1, 2);
    body->upper = std::move(upper);
    body->lower = std::move(lower);
    return RotorTable(std::move(body));
  }
  return detail::refused("the table of rotor does not fit into " + std::to_string(options.max_table_bytes) + " bytes",
                         "take several layers together as one stage");
}

bool RotorTable::exact() const { return body_->exact; }
std::uint64_t RotorTable::slot() const { return body_->slot; }
std::uint64_t RotorTable::least_budget() const { return body_->least; }

std::optional<RotorPlan> RotorTable::plan(std::uint64_t budget) const {
  const Body& body = *body_;
  budget = std::min(budget, body.top);
  if (budget < body.least) return std::nullopt;
  if (budget >= body.keep_all.figures.peak) return body.keep_all;
  const std::int64_t time = Body::time(*body.upper, budget, body.slot);
  RotorPlan plan = body.least_plan;
  if (time < infinite_time && static_cast<std::uint64_t>(time) <= plan.figures.cost)
    plan = body.planned(body.upper->operations(*Body::free_slots(*body.upper, budget, body.slot)));
  plan.least_cost = plan.figures.cost;
  if (!body.exact) plan.least_cost = body.lower ? static_cast<std::uint64_t>(Body::time(*body.lower, budget, body.slot)) : 0;
  plan.exact = body.exact || (body.lower && plan.least_cost == plan.figures.cost);
  return plan;
}

std::optional<std::uint64_t> RotorTable::cost(std::uint64_t budget) const {
  const Body& body = *body_;
  budget = std::min(budget, body.top);
  if (budget < body.least) return std::nullopt;
  if (budget >= body.keep_all.figures.peak) return body.keep_all.figures.cost;
  const std::int64_t time = Body::time(*body.upper, budget, body.slot);
  return std::min(body.least_plan.figures.cost, static_cast<std::uint64_t>(time));
}

std::vector<RotorTable::Step> RotorTable::steps() const {
  const Body& body = *body_;
  std::vector<Step> steps;
  const auto add = [&steps](std::uint64_t budget, std::uint64_t cost) {
    if (steps.empty() || cost < steps.back().cost) steps.push_back({budget, cost});
  };
  if (body.top < body.least) return steps;
  add(body.least, *cost(body.least));
  if (body.upper->has_steps()) {
    for (const Grid::Step& step : body.upper->steps())
      add((body.upper->input() + step.m) * body.slot, static_cast<std::uint64_t>(step.time));
    return steps;
  }
  for (std::uint64_t slots = body.least / body.slot; slots <= body.top / body.slot; ++slots) {
    const std::uint64_t budget = slots * body.slot;
    if (budget > body.least) add(budget, *cost(budget));
  }
  if (body.top >= body.keep_all.figures.peak) add(body.keep_all.figures.peak, body.keep_all.figures.cost);
  return steps;
}

}  // namespace liveset::plan
