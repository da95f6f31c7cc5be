#include "viewer/ledger/distributed.h"

#include <absl/container/flat_hash_set.h>

#include <algorithm>
#include <map>

#include "viewer/ledger/path_names.h"
#include "viewer/ledger/reductions.h"
#include "viewer/trace/job_json.h"

namespace liveset::ledger {
namespace {

using trace::Kind;

class Pass {
 public:
  Pass(const trace::TraceFile& file, const PhysicalLedger& ledger)
      : names_(file.dictionary()),
        ledger_(ledger),
        finder_(ledger.blocks),
        reductions_(names_, finder_, out_),
        regions_(names_, [this](const RegionRun& run) { ended(run); }),
        path_names_(names_) {}

  void visit(const trace::Event& event) {
    if (event.kind == Kind::step_begin) begin_step(event.number);
    optimized_ |= event.phase == trace::Phase::optimizer;
    if (event.kind == Kind::alloc) finder_.born(event.heap, event.address, static_cast<std::uint32_t>(event.allocation));
    if (event.kind == Kind::value_remake && event.heap != 0) remade(event);
    regions_.visit(event);
    reductions_.visit(event);
    if (event.kind == Kind::scope_begin && event.phase != trace::Phase::recompute && has_step_) called(event.scope);
  }

  RankFacts finish(bool whole) {
    if (has_step_) end_step(whole || optimized_);
    return std::move(out_);
  }

 private:
  void begin_step(std::int64_t number) {
    if (has_step_) end_step(true);
    has_step_ = true;
    optimized_ = false;
    step_ = number;
    reductions_.begin_step(number);
    ++out_.all_steps;
  }

  void end_step(bool whole) {
    reductions_.end_step();
    for (const std::uint32_t scope : called_) now_.modules.push_back(module_of(scope));
    called_.clear();
    std::sort(now_.modules.begin(), now_.modules.end());
    now_.modules.erase(std::unique(now_.modules.begin(), now_.modules.end()), now_.modules.end());
    place_.clear();
    Policy policy = std::move(now_);
    now_ = {};
    if (!whole) return;
    if (out_.steps.size() >= RankFacts::max_steps) {
      ++out_.policies_left_out;
      return;
    }
    // Steps repeat the last policy, mostly, or one of a few.
    std::uint32_t found = static_cast<std::uint32_t>(out_.policies.size());
    const std::size_t known = std::min<std::size_t>(out_.policies.size(), 16);
    for (std::size_t back = 1; back <= known && found == out_.policies.size(); ++back) {
      if (out_.policies[out_.policies.size() - back] == policy) found = static_cast<std::uint32_t>(out_.policies.size() - back);
    }
    if (found == out_.policies.size()) {
      const std::size_t size = policy.regions.size() + policy.modules.size() + 1;
      if (out_.policies.size() >= RankFacts::max_policies || entries_ + size > RankFacts::max_policy_entries) {
        ++out_.policies_left_out;
        return;
      }
      entries_ += size;
      out_.policies.push_back(std::move(policy));
    }
    out_.steps.push_back({step_, found});
  }

  void called(std::uint32_t scope) {
    if (scope < names_.scopes.size() && names_.scopes[scope].kind == trace::ScopeKind::module) called_.insert(scope);
  }

  std::uint32_t intern(std::string_view path) {
    const auto [place, is_new] = path_ids_.try_emplace(path, static_cast<std::uint32_t>(out_.paths.size()));
    if (is_new) out_.paths.emplace_back(path);
    return place->second;
  }
  std::uint32_t module_of(std::uint32_t scope) {
    const auto known = modules_.find(scope);
    if (known != modules_.end()) return known->second;
    return modules_[scope] = intern(path_names_.module(scope));
  }

  void remade(const trace::Event& event) {
    const std::int64_t found = finder_.find(event.heap, event.address, event.index);
    if (found == BlockFinder::none) return;
    const Block& block = *ledger_.blocks.find(static_cast<std::uint64_t>(found));
    regions_.remade(event, static_cast<std::uint32_t>(found), block, ledger_.blocks.bytes(block));
  }

  void ended(const RegionRun& run) {
    const std::uint32_t path = run.modules.empty() ? intern(path_names_.scope(run.scope)) : module_of(run.modules.front());
    policy(run, path);
    devices(run, path);
    if (run.recompute) reductions_.recomputed(run);
  }

  void policy(const RegionRun& run, std::uint32_t path) {
    if (!has_step_) return;
    const auto [place, is_new] = place_.try_emplace(path, now_.regions.size());
    if (is_new) {
      if (now_.regions.size() >= RankFacts::max_regions) {
        place_.erase(place);
        ++out_.policies_left_out;
        return;
      }
      now_.regions.push_back({path, run.scope, run.about, 0, 0, 0});
    }
    RegionPolicy& region = now_.regions[place->second];
    if (region.about == 0) region.about = run.about;
    ++(run.recompute ? region.recomputes : region.forwards);
    if (run.outcome != 0) region.early_stopped += stopped_early(run.outcome);
  }

  bool stopped_early(std::uint32_t outcome) {
    const auto [place, is_new] = outcomes_.try_emplace(outcome);
    if (is_new) place->second = trace::flag_in(trace::object_in(names_.string(outcome)), "early_stopped").value_or(false);
    return place->second;
  }

  void devices(const RegionRun& run, std::uint32_t path) {
    // A region's name is its own within a step, so the last forward of the name is the one that a recompute repeats.
    std::uint32_t about = run.about;
    if (run.recompute) {
      if (const auto forward = about_.find(run.scope); forward != about_.end()) about = forward->second;
    } else {
      about_[run.scope] = about;
    }
    if (run.made.empty()) return;
    std::vector<HeapShare> made = run.made;
    std::sort(made.begin(), made.end(), [](const HeapShare& a, const HeapShare& b) { return a.heap < b.heap; });
    std::vector<std::uint32_t> key{run.scope, path, about, run.recompute};
    for (const HeapShare& share : made) key.push_back(share.heap);
    const auto [place, is_new] = device_places_.try_emplace(std::move(key), out_.devices.size());
    if (is_new) {
      if (out_.devices.size() >= RankFacts::max_regions) {
        device_places_.erase(place);
        ++out_.devices_left_out;
        return;
      }
      out_.devices.push_back({path, run.scope, about, run.recompute, has_step_ ? step_ : -1, 1, std::move(made)});
      return;
    }
    RegionDevices& region = out_.devices[place->second];
    ++region.times;
    for (std::size_t index = 0; index < made.size(); ++index) {
      region.made[index].bytes = std::max(region.made[index].bytes, made[index].bytes);
      region.made[index].remade_bytes = std::max(region.made[index].remade_bytes, made[index].remade_bytes);
    }
  }

  const trace::Dictionary& names_;
  const PhysicalLedger& ledger_;
  BlockFinder finder_;
  RankFacts out_;
  Reductions reductions_;
  RegionRuns regions_;
  Policy now_;
  absl::flat_hash_set<std::uint32_t> called_;                        // module scopes, in this step
  absl::flat_hash_map<std::uint32_t, std::size_t> place_;            // path -> index into now_.regions
  std::map<std::vector<std::uint32_t>, std::size_t> device_places_;  // index into out_.devices
  absl::flat_hash_map<std::uint32_t, std::uint32_t> about_;          // scope of a region -> what its last forward said
  absl::flat_hash_map<std::uint32_t, std::uint32_t> modules_;        // scope -> path
  absl::flat_hash_map<std::uint32_t, bool> outcomes_;                // String id of what is said at a recompute's end -> stopped early
  PathNames path_names_;
  absl::flat_hash_map<std::string_view, std::uint32_t> path_ids_;  // kept by path_names_
  std::int64_t step_ = -1;
  std::size_t entries_ = 0;
  bool has_step_ = false, optimized_ = false;
};

}  // namespace

Result<RankFacts> read_rank(const trace::TraceFile& file, const PhysicalLedger& ledger) {
  Pass pass(file, ledger);
  const Status status = trace::for_each_event(file, [&](const trace::Event& event) {
    pass.visit(event);
    return true;
  });
  if (!status) return status.error();
  // The step that a killed job was in is no step to compare, unless its optimizer had begun: then nothing is recomputed any more.
  return pass.finish(file.health().has_footer && file.health().end == "exit");
}

}  // namespace liveset::ledger
