#include "viewer/report/ranks.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "viewer/ledger/distributed.h"
#include "viewer/trace/job_json.h"

namespace liveset::report {
namespace {

using ledger::RankFacts;
using nlohmann::ordered_json;

constexpr std::size_t most_findings = 10000;

// What a job says of a region, as text and as the devices of its inputs.
class About {
 public:
  explicit About(std::string_view text) : json_(trace::object_in(text)) {}

  std::string kind() const { return trace::text_in(json_, "kind"); }
  std::string rules() const {
    std::string rules = kind().empty() ? "checkpointed" : kind();
    if (const auto early_stop = trace::flag_in(json_, "early_stop")) rules += *early_stop ? ", with early stop" : ", without early stop";
    return rules;
  }
  std::set<std::string> input_devices() const {
    std::set<std::string> devices;
    const auto found = json_.find("input_devices");
    if (found == json_.end() || !found->is_array()) return devices;
    for (const ordered_json& each : *found) {
      if (each.is_string()) devices.insert(each.get<std::string>());
    }
    return devices;
  }

 private:
  ordered_json json_;
};

struct Rank {
  const trace::TraceFile* file = nullptr;
  RankFacts facts;
  std::string name;  // "rank 1"; where the job does not say: the trace's path

  // A text is parsed once: jobs say few different things, of many regions.
  const About& about(std::uint32_t text) const {
    const auto found = abouts_.find(text);
    return found != abouts_.end() ? found->second : abouts_.emplace(text, About(file->dictionary().string(text))).first->second;
  }

 private:
  mutable std::map<std::uint32_t, About> abouts_;
};

void add(Check& check, Finding finding) {
  if (check.findings.size() < most_findings)
    check.findings.push_back(std::move(finding));
  else
    ++check.left_out;
}

// "non_reentrant, with early stop; forward once, recomputed 2 times (1 stopped early)"
std::string described(const Rank& rank, const ledger::RegionPolicy& region) {
  std::string text = rank.about(region.about).rules() + "; run " + counted(region.forwards, "time") + " and recomputed " +
                     counted(region.recomputes, "time");
  if (region.early_stopped != 0) text += " (" + format_count(region.early_stopped) + " stopped early)";
  return text;
}

// What a region holds, by name: the first module that is called in it, else the one that calls it.
std::string module_of(const Rank& rank, std::uint32_t path, std::uint32_t scope) {
  const trace::Dictionary& names = rank.file->dictionary();
  const std::string& text = rank.facts.paths[path];
  return text == names.scope_path(scope) ? names.module_path(scope) : text;
}

struct Difference {
  std::string region, module, here, there;  // what it is in the rank that is compared, and in the first
  std::uint64_t more = 0;                   // further regions that differ
};

// Compares the policies of two ranks; each pair of policies once.
class Comparing {
 public:
  Comparing(const Rank& first, const Rank& other) : first_(first), other_(other) {}

  const std::optional<Difference>& difference(std::uint32_t first, std::uint32_t other) {
    const auto [place, is_new] = known_.try_emplace({first, other});
    if (is_new) {
      std::optional<Difference>& found = place->second;
      compare(first_, first_.facts.policies[first], other_, other_.facts.policies[other], false, found);
      compare(other_, other_.facts.policies[other], first_, first_.facts.policies[first], true, found);
    }
    return place->second;
  }
  const std::set<std::string>& not_run() const { return not_run_; }  // modules of regions of one rank that the other did not call

 private:
  // Regions of `a` beside those of `b`. Backwards (`a` is the other rank), only those that `b` has not.
  void compare(const Rank& a, const ledger::Policy& mine, const Rank& b, const ledger::Policy& theirs, bool backwards,
               std::optional<Difference>& found) {
    std::map<std::string_view, const ledger::RegionPolicy*> by_path;
    std::set<std::string_view> called;
    for (const std::uint32_t module : theirs.modules) called.insert(b.facts.paths[module]);
    for (const ledger::RegionPolicy& region : theirs.regions) by_path.emplace(b.facts.paths[region.path], &region);
    for (const ledger::RegionPolicy& region : mine.regions) {
      const std::string& path = a.facts.paths[region.path];
      const auto twin = by_path.find(path);
      std::string here, there;
      if (twin == by_path.end()) {
        const std::string module = module_of(a, region.path, region.scope);
        if (!module.empty() && called.count(module) == 0) {
          if (not_run_.size() < 1000) not_run_.insert(module);
          continue;
        }
        there = described(a, region);
        here = "not checkpointed";
        if (backwards) std::swap(here, there);
      } else if (!backwards && !same(a, region, b, *twin->second)) {
        there = described(a, region);
        here = described(b, *twin->second);
      } else {
        continue;
      }
      if (found) {
        ++found->more;
      } else {
        found = Difference{a.file->dictionary().scope_path(region.scope), module_of(a, region.path, region.scope), here, there, 0};
      }
    }
  }

  static bool same(const Rank& a, const ledger::RegionPolicy& mine, const Rank& b, const ledger::RegionPolicy& theirs) {
    return mine.forwards == theirs.forwards && mine.recomputes == theirs.recomputes && mine.early_stopped == theirs.early_stopped &&
           a.about(mine.about).rules() == b.about(theirs.about).rules();
  }

  const Rank& first_;
  const Rank& other_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::optional<Difference>> known_;
  std::set<std::string> not_run_;
};

// All steps that both have; one finding a rank, which names the first difference.
void compare_ranks(const Rank& first, const Rank& other, Check& check, std::uint64_t& steps) {
  Comparing comparing(first, other);
  std::map<std::int64_t, std::uint32_t> policies;
  for (const ledger::PolicyOfStep& step : first.facts.steps) policies.emplace(step.step, step.policy);
  std::optional<Finding> finding;
  for (const ledger::PolicyOfStep& step : other.facts.steps) {
    const auto twin = policies.find(step.step);
    if (twin == policies.end()) continue;
    ++steps;
    const std::optional<Difference>& difference = comparing.difference(twin->second, step.policy);
    if (!difference) continue;
    if (finding) {
      ++finding->count;
      continue;
    }
    finding.emplace();
    finding->kind = "policy";
    finding->region = difference->region;
    finding->module = difference->module;
    finding->detail = other.name + ": " + difference->here + "; " + first.name + ": " + difference->there;
    if (difference->more != 0) finding->detail += "; " + counted(difference->more, "further region") + " of the step differ";
    finding->file = other.file->path();
    finding->step = step.step;
  }
  if (finding) add(check, std::move(*finding));
  if (!comparing.not_run().empty())
    check.notes.push_back(other.name + " or " + first.name + " does not run " + counted(comparing.not_run().size(), "module") +
                          " that the other checkpoints (" + *comparing.not_run().begin() + " first): these are not compared");
  if (first.facts.all_steps != other.facts.all_steps)
    check.notes.push_back(other.name + " has " + counted(other.facts.all_steps, "step") + ", " + first.name + " " +
                          format_count(first.facts.all_steps) + ": compared are those that both have");
}

// What lay beyond the limits of the pass over a trace, and that this check did not see.
void not_kept(Check& check, const std::vector<Rank>& ranks, std::uint64_t RankFacts::*count, const std::string& what) {
  std::uint64_t sum = 0;
  for (const Rank& rank : ranks) sum += rank.facts.*count;
  if (sum != 0) check.not_observed.push_back(format_count(sum) + " " + what + " beyond what is kept");
}

// "0, 1 and 6 more"
std::string numbers_of(const std::vector<Rank>& ranks) {
  constexpr std::size_t most = 8;
  std::string text;
  for (std::size_t each = 0; each < std::min(ranks.size(), most); ++each)
    text += (each == 0 ? "" : ", ") + std::to_string(ranks[each].file->header().process.rank);
  return ranks.size() > most ? text + " and " + format_count(ranks.size() - most) + " more" : text;
}

Check check_policies(const std::vector<Rank>& ranks, bool some_ranks) {
  Check check;
  check.name = "ranks";
  std::uint64_t steps = 0, regions = 0;
  for (std::size_t index = 1; index < ranks.size(); ++index) compare_ranks(ranks.front(), ranks[index], check, steps);
  for (const Rank& rank : ranks) {
    for (const ledger::Policy& policy : rank.facts.policies) regions = std::max<std::uint64_t>(regions, policy.regions.size());
  }
  not_kept(check, ranks, &RankFacts::policies_left_out, "steps and regions");
  check.coverage = {{"ranks", ranks.size()}, {"steps", steps}, {"regions_of_a_step", regions}};
  check.notes.insert(check.notes.begin(), ranks.size() < 2 ? "one rank only: there is nothing to compare"
                                                           : "compared: " + counted(ranks.size(), "rank") + ", " + counted(steps, "step") +
                                                                 " of up to " + counted(regions, "region"));
  const std::int64_t world = ranks.front().file->header().process.world_size;
  if (world > static_cast<std::int64_t>(ranks.size())) {
    const std::string others = format_count(static_cast<std::uint64_t>(world) - ranks.size());
    if (some_ranks) {
      check.not_observed.push_back(others + " of the job's " + format_count(static_cast<std::uint64_t>(world)) + " ranks");
    } else {
      Finding finding;
      finding.kind = "missing_ranks";
      finding.detail = "of the job's " + format_count(static_cast<std::uint64_t>(world)) + " ranks, traces with steps are here of " +
                       format_count(ranks.size()) + " (rank " + numbers_of(ranks) + "): put those of the other " + others +
                       " beside them, in RUN.liveset.d, or compare what is here with --some-ranks";
      add(check, std::move(finding));
    }
  }
  return check;
}

Check check_overlap(const std::vector<Rank>& ranks) {
  Check check;
  check.name = "overlap";
  std::uint64_t reductions = 0, known = 0, recomputes = 0, without = 0;
  for (const Rank& rank : ranks) {
    const RankFacts& facts = rank.facts;
    reductions += facts.reductions;
    known += facts.reductions_known;
    recomputes += facts.recomputes;
    without += facts.recomputes_without_parameters;
    check.left_out += facts.late_left_out;
    for (const ledger::LateRecompute& late : facts.late) {
      Finding finding;
      finding.kind = late.same_backward ? "reduced_before_recompute" : "not_reduced_after_recompute";
      finding.region = late.region;
      finding.module = late.module;
      finding.detail = rank.name + ": the gradient of " + late.parameter +
                       (late.same_backward ? " was reduced before this recompute of its region had ended, in the same backward"
                                           : " was reduced before this recompute of its region, and not again after it in the step");
      finding.file = ranks.size() > 1 ? rank.file->path() : "";
      finding.step = late.step;
      finding.count = late.count;
      add(check, std::move(finding));
    }
  }
  not_kept(check, ranks, &RankFacts::reductions_left_out, "reductions, names of gradients and recomputes");
  check.coverage = {{"recomputes", recomputes},
                    {"reductions", reductions},
                    {"reductions_of_known_gradients", known},
                    {"recomputes_without_parameters", without}};
  check.notes.push_back(counted(recomputes, "recompute") + " beside " + counted(known, "reduction") + " of known gradients");
  if (reductions > known)
    check.not_observed.push_back(
        "what " + counted(reductions - known, "reduction") +
        " reduced: no gradient of a named parameter, or a bucket before DistributedDataParallel had settled its buckets");
  if (without != 0 && reductions != 0)
    check.not_observed.push_back("the parameters of " + counted(without, "recompute") + ": no gradient of their modules is named");
  return check;
}

// Bytes that an execution made on each device, or saved values that it made again there. On the CPU only these count: random states and
// what else comes and goes there is no boundary.
std::map<std::string, std::uint64_t> by_device(const Rank& rank, const std::vector<ledger::HeapShare>& shares, bool saved) {
  std::map<std::string, std::uint64_t> devices;
  const trace::Dictionary& names = rank.file->dictionary();
  for (const ledger::HeapShare& share : shares) {
    if (share.heap >= names.heaps.size()) continue;
    const std::uint64_t bytes = saved || names.heaps[share.heap].device_type == 0 ? share.remade_bytes : share.bytes;
    const std::string_view heap = names.string(names.heaps[share.heap].name);
    if (bytes != 0) devices[std::string(heap.substr(0, heap.find('/')))] += bytes;
  }
  return devices;
}

template <class Each>
std::string listed(const Each& devices) {
  std::string text;
  for (const std::string& device : devices) text += (text.empty() ? "" : " and ") + device;
  return text;
}

// One finding for each rule, region and set of devices, whether it was found in forward or in recomputes.
class Devices {
 public:
  Devices(const Rank& rank, bool several, Check& check) : rank_(rank), several_(several), check_(check) {}

  void region(const ledger::RegionDevices& region) {
    std::vector<std::string> made;
    for (const auto& [device, bytes] : by_device(rank_, region.made, false)) made.push_back(device);
    if (made.size() > 1) found("device_boundary", region, "its blocks lie on " + listed(made));
    if (!region.recompute) return;
    const std::set<std::string> inputs = rank_.about(region.about).input_devices();
    if (inputs.empty()) return;
    for (const auto& [device, bytes] : by_device(rank_, region.made, true)) {
      if (inputs.count(device) != 0) continue;
      found("device_movement", region,
            "each recompute makes saved values of up to " + format_bytes(bytes, false) + " (" + format_bytes(bytes, true) + " bytes) on " +
                device + ", from inputs on " + listed(inputs));
    }
  }

 private:
  void found(const char* kind, const ledger::RegionDevices& region, const std::string& detail) {
    const auto [place, is_new] = known_.try_emplace({kind, region.scope, region.path, detail}, check_.findings.size());
    if (!is_new) {
      if (place->second < check_.findings.size()) check_.findings[place->second].count += region.times;
      return;
    }
    Finding finding;
    finding.kind = kind;
    finding.region = rank_.file->dictionary().scope_path(region.scope);
    finding.module = module_of(rank_, region.path, region.scope);
    finding.detail = several_ ? rank_.name + ": " + detail : detail;
    finding.file = several_ ? rank_.file->path() : "";
    finding.step = region.step;
    finding.count = region.times;
    add(check_, std::move(finding));
  }

  const Rank& rank_;
  bool several_;
  Check& check_;
  std::map<std::tuple<std::string, std::uint32_t, std::uint32_t, std::string>, std::size_t> known_;
};

Check check_devices(const std::vector<Rank>& ranks) {
  Check check;
  check.name = "devices";
  std::set<std::string> devices;
  std::uint64_t regions = 0;
  for (const Rank& rank : ranks) {
    for (const trace::Heap& heap : rank.file->dictionary().heaps) {
      if (heap.device_type != 0) devices.insert(std::to_string(heap.device_type) + ":" + std::to_string(heap.device_index));
    }
    std::set<std::uint32_t> scopes;
    Devices judge(rank, ranks.size() > 1, check);
    for (const ledger::RegionDevices& region : rank.facts.devices) {
      scopes.insert(region.scope);
      judge.region(region);
    }
    regions += scopes.size();
  }
  not_kept(check, ranks, &RankFacts::devices_left_out, "executions of regions");
  check.coverage = {{"regions", regions}, {"devices", devices.size()}};
  check.notes.push_back(counted(regions, "region") + ", on " +
                        (devices.empty() ? "the CPU alone" : "the CPU and " + counted(devices.size(), "other device")));
  return check;
}

bool better(const Rank& a, const Rank& b) { return a.facts.all_steps > b.facts.all_steps; }

}  // namespace

Result<std::vector<Check>> check_distributed(const std::vector<trace::TraceFile>& files, bool some_ranks) {
  std::map<std::pair<std::int64_t, std::string>, Rank> chosen;  // by rank; traces that name none stand each for itself
  std::uint64_t further = 0;
  for (const trace::TraceFile& file : files) {
    Result<ledger::PhysicalLedger> ledger = ledger::build_physical(file);
    if (!ledger) return ledger.take_error();
    Result<RankFacts> facts = ledger::read_rank(file, *ledger);
    if (!facts) return facts.take_error();
    if (facts->all_steps == 0) continue;
    const std::int64_t number = file.header().process.rank;
    Rank rank;
    rank.file = &file;
    rank.facts = std::move(*facts);
    rank.name = number < 0 ? file.path() : "rank " + std::to_string(number);
    // A rank's worker processes have its number, and one that was started again too: the one with the most steps stands for it.
    const auto [place, is_new] = chosen.try_emplace({number, number < 0 ? file.path() : ""}, Rank{});
    further += !is_new;
    if (is_new || better(rank, place->second)) place->second = std::move(rank);
  }
  if (chosen.empty())
    return Error{ErrorKind::usage,
                 files.empty() ? std::string() : files.front().path(),
                 {},
                 "has no steps: there is nothing to check",
                 "record a training job: liveset run -- torchrun train.py"};
  std::vector<Rank> ranks;
  for (auto& [number, rank] : chosen) ranks.push_back(std::move(rank));
  std::vector<Check> checks;
  checks.push_back(check_policies(ranks, some_ranks));
  checks.push_back(check_overlap(ranks));
  checks.push_back(check_devices(ranks));
  if (further != 0)
    checks.front().notes.push_back(counted(further, "further trace") +
                                   " of the same ranks: of each rank the one with the most steps counts");
  return checks;
}

}  // namespace liveset::report
