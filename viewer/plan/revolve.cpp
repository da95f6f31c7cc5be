#include "viewer/plan/revolve.h"

#include <algorithm>
#include <limits>

namespace liveset::plan {
namespace {

constexpr std::uint64_t saturated = std::numeric_limits<std::uint64_t>::max();

Status check_numbers(std::uint64_t steps, std::uint64_t snapshots) {
  if (steps == 0) return detail::refused("revolve needs at least one step");
  if (snapshots == 0) return detail::refused("revolve needs at least one snapshot, that of the initial state");
  if (steps > max_revolve_steps)
    return detail::refused("revolve takes at most " + std::to_string(max_revolve_steps) + " steps, not " + std::to_string(steps));
  return Done{};
}

// Where to place the next snapshot: m steps on. t grows with the chain by the number of repeats, so both parts must need no more repeats
// than the whole: the first one r - 1 at most (its steps are advanced once more), the second one r.
std::uint64_t split(std::uint64_t steps, std::uint64_t snapshots) {
  if (snapshots == 1) return steps - 1;
  const std::uint64_t r = revolve_repeats(steps, snapshots);  // >= 1
  const std::uint64_t second = revolve_beta(snapshots - 1, r);
  const std::uint64_t least = std::max<std::uint64_t>(r >= 2 ? revolve_beta(snapshots, r - 2) : 0, steps > second ? steps - second : 0);
  return std::clamp<std::uint64_t>(least, 1, steps - 1);
}

}  // namespace

std::uint64_t revolve_beta(std::uint64_t snapshots, std::uint64_t repeats) {
  const std::uint64_t small = std::min(snapshots, repeats);
  const unsigned __int128 large = std::max(snapshots, repeats);
  unsigned __int128 value = 1;
  for (std::uint64_t i = 1; i <= small; ++i) {
    value = value * (large + i) / i;  // binomial(large + i, i), and it at least grows by one
    if (value >= saturated) return saturated;
  }
  return static_cast<std::uint64_t>(value);
}

std::uint64_t revolve_repeats(std::uint64_t steps, std::uint64_t snapshots) {
  std::uint64_t low = 0, high = steps == 0 ? 0 : steps - 1;  // beta(c, l - 1) >= l
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (revolve_beta(snapshots, middle) >= steps)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

Result<std::uint64_t> revolve_advances(std::uint64_t steps, std::uint64_t snapshots) {
  if (Status fine = check_numbers(steps, snapshots); !fine) return fine.take_error();
  const std::uint64_t r = revolve_repeats(steps, snapshots);
  return r == 0 ? 0 : r * steps - revolve_beta(std::min(snapshots, max_revolve_steps) + 1, r - 1);
}

Result<std::vector<RevolveOperation>> revolve_schedule(std::uint64_t steps, std::uint64_t snapshots) {
  const Result<std::uint64_t> advances = revolve_advances(steps, snapshots);
  if (!advances) return Error(advances.error());
  if (*advances > max_revolve_operations || steps > max_revolve_operations)
    return detail::refused("the schedule of " + std::to_string(steps) + " steps and " + std::to_string(snapshots) + " snapshots advances " +
                               std::to_string(*advances) + " times, at most " + std::to_string(max_revolve_operations),
                           "take more snapshots");
  using Kind = RevolveOperation::Kind;
  std::vector<RevolveOperation> schedule;
  struct Task {
    bool work =
        false;  // reverse `steps` steps from `operation.from`, which is the present state and a snapshot; otherwise emit `operation`
    RevolveOperation operation;
    std::uint64_t steps = 0, snapshots = 0;
  };
  std::vector<Task> tasks;
  const auto emit_later = [&tasks](Kind kind, std::uint32_t from) { tasks.push_back({false, {kind, from, from}, 0, 0}); };
  emit_later(Kind::discard, 0);
  tasks.push_back({true, {}, steps, snapshots});
  emit_later(Kind::snapshot, 0);
  while (!tasks.empty()) {
    const Task task = tasks.back();
    tasks.pop_back();
    const std::uint32_t from = task.operation.from;
    if (!task.work) {
      schedule.push_back(task.operation);
    } else if (task.steps == 1) {
      schedule.push_back({Kind::reverse, from, from + 1});
    } else {
      const std::uint64_t first = split(task.steps, task.snapshots);
      const auto middle = static_cast<std::uint32_t>(from + first);
      const bool keep = task.steps - first > 1;  // a single step needs no snapshot: it is reversed at once
      schedule.push_back({Kind::advance, from, middle});
      tasks.push_back({true, {Kind::advance, from, from}, first, task.snapshots});
      emit_later(Kind::restore, from);
      if (keep) emit_later(Kind::discard, middle);
      tasks.push_back({true, {Kind::advance, middle, middle}, task.steps - first, task.snapshots - 1});
      if (keep) emit_later(Kind::snapshot, middle);
    }
  }
  return schedule;
}

std::vector<Move> revolve_moves(std::span<const RevolveOperation> schedule) {
  using Kind = RevolveOperation::Kind;
  std::vector<Move> moves;
  std::vector<bool> live{true}, kept{false};
  std::vector<std::uint32_t> loose;  // live, and perhaps no snapshot any more
  const auto make = [&](std::uint32_t value) {
    if (live.size() <= value) {
      live.resize(value + 1, false);
      kept.resize(value + 1, false);
    }
    moves.push_back({Move::Kind::forward, value});
    live[value] = true;
  };
  const auto drop = [&](std::uint32_t value) {
    if (!live[value] || kept[value]) return;
    moves.push_back({Move::Kind::drop, value});
    live[value] = false;
  };
  for (const RevolveOperation& operation : schedule) {
    switch (operation.kind) {
      case Kind::snapshot: kept[operation.from] = true; break;
      case Kind::restore: break;
      case Kind::discard:
        kept[operation.from] = false;
        loose.push_back(operation.from);
        break;
      case Kind::advance:
        for (const std::uint32_t value : loose) drop(value);
        loose.clear();
        for (std::uint32_t value = operation.from + 1; value <= operation.to; ++value) {
          make(value);
          drop(value - 1);
        }
        break;
      case Kind::reverse:
        if (live.size() <= operation.to || !live[operation.to]) make(operation.to);
        moves.push_back({Move::Kind::reverse, operation.to});
        live[operation.to] = false;
        loose.push_back(operation.from);
        break;
    }
  }
  return moves;
}

}  // namespace liveset::plan
