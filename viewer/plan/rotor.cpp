#include "viewer/plan/rotor.h"

#include <algorithm>

namespace liveset::plan {

using Kind = RotorOperation::Kind;

Status check(const RotorChain& chain) {
  const std::uint64_t stages = chain.stages();
  if (stages == 0) return detail::refused("a rotor chain needs at least one stage");
  if (stages > max_chain_layers)
    return detail::refused("the rotor chain has " + std::to_string(stages) + " stages, at most " + std::to_string(max_chain_layers));
  if (chain.a.size() != stages + 1 || chain.delta.size() != stages + 1)
    return detail::refused("a rotor chain of " + std::to_string(stages) + " stages has " + std::to_string(stages + 1) +
                           " entries in a and delta");
  for (const auto* list : {&chain.uf, &chain.ub, &chain.of, &chain.ob}) {
    if (list->size() != stages)
      return detail::refused("a rotor chain of " + std::to_string(stages) + " stages has as many entries in abar, uf, ub, of and ob");
  }
  std::uint64_t bytes = 0;
  for (const auto* list : {&chain.a, &chain.abar, &chain.delta, &chain.of, &chain.ob}) {
    if (!detail::within_total(*list) || (bytes += detail::total(*list)) > max_total)
      return detail::refused("the sizes of the rotor chain sum to more than 2^60");
  }
  // A stage runs forward at most `stages` times.
  if (!detail::within_total(chain.uf) || !detail::within_total(chain.ub) ||
      detail::total(chain.uf) > (max_total - detail::total(chain.ub)) / stages)
    return detail::refused("the times of the rotor chain can sum to more than 2^60");
  for (std::size_t i = 0; i < stages; ++i) {
    if (chain.abar[i] < chain.a[i + 1])
      return detail::refused("abar of stage " + std::to_string(i + 1) + " is less than its output, which it contains");
  }
  return Done{};
}

std::string text_of(std::span<const RotorOperation> operations) {
  static constexpr const char* names[] = {"Fn", "Fck", "Fall", "B"};
  std::string text;
  for (const RotorOperation& operation : operations) {
    if (!text.empty()) text += ' ';
    text += names[static_cast<int>(operation.kind)] + std::to_string(operation.stage);
  }
  return text;
}

Result<Figures> replay(const RotorChain& chain, std::span<const RotorOperation> operations) {
  if (Status whole = check(chain); !whole) return whole.take_error();
  const std::uint64_t stages = chain.stages();
  std::vector<bool> alone(stages + 1, false), kept(stages + 1, false), all(stages + 1, false);  // a_l stand-alone, and kept; abar_l
  alone[0] = true;
  std::uint64_t next = stages, held = chain.a[0] + chain.delta[stages];
  Figures figures{held, 0};
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const auto [kind, stage] = operations[i];
    const auto impossible = [&, at = i](const char* why) {
      return detail::refused("operation " + std::to_string(at + 1) + ", " + text_of({&operations[at], 1}) + ", is not possible: " + why);
    };
    if (stage == 0 || stage > stages) return impossible("there is no such stage");
    if (stage > next) return impossible("its backward has run");
    const std::size_t l = stage;
    if (!alone[l - 1] && !all[l - 1]) return impossible("its input is not there");
    if (kind == Kind::backward) {
      if (l != next || !all[l]) return impossible("its turn has not come, or not all that it needs is there");
      figures.peak = std::max(figures.peak, held + chain.delta[l - 1] + chain.ob[l - 1]);
      held += chain.delta[l - 1];
      held -= chain.delta[l] + chain.abar[l - 1];
      all[l] = false;
      if (alone[l - 1]) held -= chain.a[l - 1];
      alone[l - 1] = kept[l - 1] = false;
      --next;
      figures.cost += chain.ub[l - 1];
      continue;
    }
    if (kind == Kind::forward && kept[l - 1]) return impossible("its input is kept until its backward");
    if (kind == Kind::forward_keep_all ? all[l] : alone[l] || all[l]) return impossible("its result is there");
    const std::uint64_t made = kind == Kind::forward_keep_all ? chain.abar[l - 1] : chain.a[l];
    figures.peak = std::max(figures.peak, held + made + chain.of[l - 1]);
    held += made;
    (kind == Kind::forward_keep_all ? all : alone)[l] = true;
    if (kind == Kind::forward && alone[l - 1]) {
      held -= chain.a[l - 1];
      alone[l - 1] = false;
    }
    if (kind != Kind::forward && alone[l - 1]) kept[l - 1] = true;
    if (__builtin_add_overflow(figures.cost, chain.uf[l - 1], &figures.cost)) return impossible("the times exceed 2^64");
  }
  if (next != 0) return detail::refused("the operations end before the backward of stage " + std::to_string(next));
  return figures;
}

std::vector<RotorOperation> rotor_keep_all(std::uint64_t stages) {
  std::vector<RotorOperation> operations;
  for (std::uint32_t l = 1; l <= stages; ++l) operations.push_back({Kind::forward_keep_all, l});
  for (auto l = static_cast<std::uint32_t>(stages); l > 0; --l) operations.push_back({Kind::backward, l});
  return operations;
}

Result<std::uint64_t> rotor_budget_bound(const RotorChain& chain) {
  if (Status whole = check(chain); !whole) return whole.take_error();
  std::uint64_t bound = 0;
  for (std::size_t l = 1; l <= chain.stages(); ++l) {
    bound = std::max(bound,
                     chain.a[0] + (l > 1 ? chain.a[l - 1] : 0) + chain.abar[l - 1] + chain.delta[l] + chain.delta[l - 1] + chain.ob[l - 1]);
  }
  return bound;
}

Result<std::uint64_t> rotor_least_budget(const RotorChain& chain) {
  Result<RotorTable> table = RotorTable::make(chain, 0);
  if (!table) return table.take_error();
  return table->least_budget();
}

Result<RotorGroups> group_stages(const RotorChain& chain, std::uint64_t stages) {
  if (Status whole = check(chain); !whole) return whole.take_error();
  const std::uint64_t all = chain.stages(), count = std::clamp<std::uint64_t>(stages, 1, all);
  RotorGroups groups;
  RotorChain& made = groups.chain;
  made.a.push_back(chain.a[0]);
  made.delta.push_back(chain.delta[0]);
  for (std::uint64_t g = 0; g < count; ++g) {
    const std::uint64_t first = g * all / count + 1, last = (g + 1) * all / count;
    std::uint64_t abar = 0, uf = 0, ub = 0, passing = 0, returning = 0;  // the latter: most bytes inside, besides the input
    for (std::uint64_t j = first; j <= last; ++j) {
      abar += chain.abar[j - 1];
      uf += chain.uf[j - 1];
      ub += chain.ub[j - 1];
      passing = std::max(passing, (j > first ? chain.a[j - 1] : 0) + chain.a[j] + chain.of[j - 1]);
      returning = std::max(returning, abar + chain.delta[j] + chain.delta[j - 1] + chain.ob[j - 1]);
    }
    const auto beyond = [](std::uint64_t most, std::uint64_t ends) { return most > ends ? most - ends : 0; };
    groups.first.push_back(static_cast<std::uint32_t>(first));
    made.a.push_back(chain.a[last]);
    made.abar.push_back(abar);
    made.delta.push_back(chain.delta[last]);
    made.uf.push_back(uf);
    made.ub.push_back(ub);
    // Keeping all needs no more beyond its end than passing through: abar grows by at least the outputs that passing drops.
    made.of.push_back(beyond(passing, chain.a[last]));
    made.ob.push_back(beyond(returning, abar + chain.delta[last] + chain.delta[first - 1]));
  }
  groups.first.push_back(static_cast<std::uint32_t>(all + 1));
  return groups;
}

std::vector<RotorOperation> ungroup(const RotorGroups& groups, std::span<const RotorOperation> operations) {
  std::vector<RotorOperation> all;
  for (const auto& [kind, group] : operations) {
    const std::uint32_t first = groups.first[group - 1], last = groups.first[group] - 1;
    if (kind == Kind::backward) {
      for (std::uint32_t j = last; j >= first; --j) all.push_back({kind, j});
    } else {
      for (std::uint32_t j = first; j <= last; ++j)
        all.push_back({kind == Kind::forward_keep_input && j > first ? Kind::forward : kind, j});
    }
  }
  return all;
}

}  // namespace liveset::plan
