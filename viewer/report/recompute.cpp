#include "viewer/report/recompute.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <unordered_map>

#include "viewer/ledger/value_names.h"
#include "viewer/report/json_stream.h"
#include "viewer/report/or_null.h"
#include "viewer/report/trace_info.h"
#include "viewer/trace/job_json.h"

namespace liveset::report {
namespace {

using ledger::CheckpointRegion;
using ledger::Lineage;
using ledger::Matched;
using ledger::RecomputeRound;
using ledger::RemadeValue;
using nlohmann::ordered_json;

constexpr std::uint32_t inferred_about = ~std::uint32_t{0};  // no String id

const char* name_of(Matched matched) { return matched == Matched::position ? "position" : matched == Matched::order ? "order" : ""; }

class Builder {
 public:
  Builder(const trace::TraceFile& file, const ledger::PhysicalLedger& physical, const Lineage& lineage, bool all_values)
      : names_(file.dictionary()), physical_(physical), lineage_(lineage), all_values_(all_values) {
    report_.file = file.path();
    report_.names = std::make_shared<ledger::PathNames>(names_);
  }
  RecomputeReport build();

 private:
  void region(const CheckpointRegion& from);
  void rounds();
  void values();
  void steps();
  std::shared_ptr<const AboutRegion> about(const CheckpointRegion& region);
  std::uint64_t bytes(std::uint32_t block) const { return physical_.blocks.bytes(*physical_.blocks.find(block)); }

  const trace::Dictionary& names_;
  const ledger::PhysicalLedger& physical_;
  const Lineage& lineage_;
  const bool all_values_;
  RecomputeReport report_;
  std::unordered_map<std::uint32_t, std::shared_ptr<const AboutRegion>> abouts_;  // by String id
};

std::shared_ptr<const AboutRegion> Builder::about(const CheckpointRegion& region) {
  std::shared_ptr<const AboutRegion>& known = abouts_[region.by_phase ? inferred_about : region.about];
  if (known != nullptr) return known;
  auto found = std::make_shared<AboutRegion>();
  if (region.by_phase) found->kind = "by_phase";
  if (region.about != 0 && !region.by_phase) {
    const ordered_json json = trace::object_in(names_.string(region.about));
    found->kind = trace::text_in(json, "kind");
    found->preserve_rng = trace::flag_in(json, "preserve_rng");
    if (const auto dtypes = json.find("input_dtypes"); dtypes != json.end() && dtypes->is_array()) {
      for (const ordered_json& dtype : *dtypes)
        if (dtype.is_string()) found->input_dtypes.push_back(dtype.get<std::string>());
    }
    if (const auto autocast = json.find("autocast"); autocast != json.end()) {
      found->autocast_known = true;
      if (autocast->is_object()) found->autocast = trace::text_in(*autocast, "device") + " " + trace::text_in(*autocast, "dtype");
    }
  }
  return known = std::move(found);
}

void Builder::region(const CheckpointRegion& from) {
  RegionFigure& figure = report_.regions.emplace_back();
  figure.module = report_.names->module(from.inner != 0 ? from.inner : from.scope);
  figure.scope = from.by_phase ? names_.string(from.node) : report_.names->scope(from.scope);
  figure.about = about(from);
  if (from.has_step) figure.step = from.step;
  if (from.microbatch >= 0) figure.microbatch = from.microbatch;
  figure.inferred = from.by_phase;
  if (from.held_stated) figure.held_bytes = from.held_bytes();
  figure.input_bytes = from.input_bytes;
  figure.random_bytes = from.random_bytes;
  figure.selective_bytes = from.selective_bytes;
  figure.slots = from.slots;
  figure.dropped_blocks = from.dropped_blocks;
  figure.dropped_bytes = from.dropped_bytes;
  figure.not_held_bytes = from.not_held_bytes;
  figure.still_live_bytes = from.still_live_bytes;
}

void Builder::rounds() {
  std::unordered_map<std::uint32_t, std::optional<bool>> outcomes;  // by String id
  for (const RecomputeRound& round : lineage_.rounds) {
    RegionFigure& figure = report_.regions[round.region];
    ++figure.times;
    figure.unfinished += round.unfinished;
    figure.remade_blocks += round.remade_blocks;
    figure.remade_bytes += round.remade_bytes;
    figure.extra_ns += round.end_ns - round.begin_ns;
    if (round.outcome != 0) {
      const auto [outcome, is_new] = outcomes.try_emplace(round.outcome);
      if (is_new) outcome->second = trace::flag_in(trace::object_in(names_.string(round.outcome)), "early_stopped");
      const std::optional<bool> early = outcome->second;
      if (early) figure.early_stopped = figure.early_stopped.value_or(false) || *early;
    } else if (figure.about->kind == "reentrant" && !round.unfinished) {
      figure.early_stopped = figure.early_stopped.value_or(false);  // it has no early stop; of a job's own checkpoint nobody knows
    }
  }
}

void Builder::values() {
  report_.remade_values = lineage_.values.size();
  std::vector<std::uint32_t> shown;
  for (std::uint32_t i = 0; i < lineage_.values.size(); ++i) {
    const RemadeValue& value = lineage_.values[i];
    RegionFigure& region = report_.regions[lineage_.rounds[value.round].region];
    report_.guessed_values += value.guess;
    if (*region.matched == 0) region.matched = name_of(value.matched);
    if (all_values_ || region.step == report_.shown_step) shown.push_back(i);
  }
  ledger::OriginalNames originals(names_, *report_.names, lineage_);
  originals.number(shown);
  report_.values.reserve(shown.size());
  for (const std::uint32_t i : shown) {
    const RemadeValue& value = lineage_.values[i];
    const RecomputeRound& round = lineage_.rounds[value.round];
    const RegionFigure& region = report_.regions[round.region];
    RemadeFigure& figure = report_.values.emplace_back();
    const ledger::OriginalNames::Name name = originals.of(value);
    figure.base = name.base;
    figure.original_number = name.number;
    figure.incarnation = value.incarnation;
    figure.module = report_.names->module(value.scope);
    figure.slot = names_.string(value.slot);
    figure.region = region.scope;
    figure.step = region.step;
    figure.microbatch = region.microbatch;
    figure.matched = name_of(value.matched);
    figure.dtype = trace::dtype_name(value.dtype);
    figure.block = value.block;
    figure.original_block = value.original;
    figure.slots = value.slots;
    figure.bytes = bytes(value.block);
    figure.guess = value.guess;
  }
}

void Builder::steps() {
  std::map<std::pair<bool, std::int64_t>, std::size_t> places;
  const auto of = [&](const std::optional<std::int64_t>& step) -> StepRecompute& {
    const auto [place, is_new] = places.try_emplace({step.has_value(), step.value_or(0)}, report_.steps.size());
    if (is_new) report_.steps.emplace_back().step = step;
    return report_.steps[place->second];
  };
  for (const RegionFigure& region : report_.regions) {
    for (StepRecompute* sum : {&of(region.step), &report_.all}) {
      ++sum->regions;
      sum->times += region.times;
      sum->not_held_bytes += region.not_held_bytes;
      sum->remade_bytes += region.remade_bytes;
    }
  }
  for (const RecomputeRound& round : lineage_.rounds) {
    if (round.inside) continue;
    for (StepRecompute* sum : {&of(report_.regions[round.region].step), &report_.all}) sum->extra_ns += round.end_ns - round.begin_ns;
  }
  std::stable_sort(report_.steps.begin(), report_.steps.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  const StepRecompute* shown = nullptr;
  for (const StepRecompute& step : report_.steps)
    if (shown == nullptr || step.times != 0 || shown->times == 0) shown = &step;
  if (shown != nullptr) report_.shown_step = shown->step;
}

RecomputeReport Builder::build() {
  report_.regions.reserve(lineage_.regions.size());
  for (const CheckpointRegion& each : lineage_.regions) region(each);
  rounds();
  steps();
  values();
  report_.unmatched_values = lineage_.unmatched_blocks;
  report_.unmatched_bytes = lineage_.unmatched_bytes;
  report_.conflicts = lineage_.conflicts;
  report_.stray_statements = lineage_.stray_statements + lineage_.lost_blocks;
  report_.left_out = lineage_.left_out;
  report_.reused_slots = lineage_.reused_slots;
  for (const trace::Heap& heap : names_.heaps) report_.device |= heap.device_type != 0;
  return std::move(report_);
}

void add_warnings(const trace::TraceFile& file, RecomputeReport& report) {
  add_file_warnings(file.health(), report.warnings);
  if (report.unmatched_values != 0)
    report.warnings.push_back(format_count(report.unmatched_values) + " remade values have no original that could be found");
  if (report.conflicts != 0)
    report.warnings.push_back(format_count(report.conflicts) + " slots share a remade storage and did not share an original one");
  if (report.stray_statements != 0)
    report.warnings.push_back(format_count(report.stray_statements) + " statements belong to no region or storage of the trace");
  if (report.left_out != 0)
    report.warnings.push_back(format_count(report.left_out) +
                              " regions, recomputes, values and names of them are left out: a smaller --range may show them");
}

ordered_json region_json(const RegionFigure& region) {
  const AboutRegion& about = *region.about;
  return {{"module", region.module},
          {"region", region.scope},
          {"kind", or_null(about.kind)},
          {"inferred", region.inferred},
          {"step", or_null(region.step)},
          {"microbatch", or_null(region.microbatch)},
          {"times", region.times},
          {"unfinished", region.unfinished},
          {"early_stopped", or_null(region.early_stopped)},
          {"matched", or_null(std::string_view(region.matched))},
          {"held_bytes", or_null(region.held_bytes)},
          {"input_bytes", region.held_bytes ? ordered_json(region.input_bytes) : ordered_json(nullptr)},
          {"rng_bytes", region.held_bytes ? ordered_json(region.random_bytes) : ordered_json(nullptr)},
          {"selective_bytes", region.held_bytes ? ordered_json(region.selective_bytes) : ordered_json(nullptr)},
          {"slots", region.slots},
          {"dropped_blocks", region.dropped_blocks},
          {"dropped_bytes", region.dropped_bytes},
          {"not_held_bytes", region.not_held_bytes},
          {"still_live_bytes", region.still_live_bytes},
          {"remade_blocks", region.remade_blocks},
          {"remade_bytes", region.remade_bytes},
          {"extra_ns", region.extra_ns},
          {"input_dtypes", about.input_dtypes},
          {"autocast", or_null(about.autocast)},
          {"preserve_rng", or_null(about.preserve_rng)}};
}

ordered_json value_json(const RemadeFigure& value) {
  return {{"name", value.name()},
          {"original", or_null(value.original())},
          {"incarnation", value.incarnation},
          {"module", value.module},
          {"op", or_null(value.op())},
          {"slot", or_null(value.slot)},
          {"region", value.region},
          {"step", or_null(value.step)},
          {"microbatch", or_null(value.microbatch)},
          {"bytes", value.bytes},
          {"dtype", or_null(value.dtype)},
          {"slots", value.slots},
          {"matched", or_null(std::string_view(value.matched))},
          {"guess", value.guess},
          {"block", value.block},
          {"original_block", value.original_block == ledger::no_block ? ordered_json(nullptr) : ordered_json(value.original_block)}};
}

ordered_json step_json(const StepRecompute& step) {
  return {{"step", or_null(step.step)},        {"regions", step.regions},  {"times", step.times}, {"not_held_bytes", step.not_held_bytes},
          {"remade_bytes", step.remade_bytes}, {"extra_ns", step.extra_ns}};
}

}  // namespace

Result<RecomputeReport> build_recompute(const trace::TraceFile& file, const RecomputeOptions& options) {
  ledger::PhysicalOptions physical_options;
  physical_options.progress = options.progress;
  Result<ledger::PhysicalLedger> physical = ledger::build_physical(file, physical_options);
  if (!physical) return physical.take_error();
  Result<Lineage> lineage = ledger::trace_lineage(file, *physical, {options.range, options.progress});
  if (!lineage) return lineage.take_error();
  RecomputeReport report = Builder(file, *physical, *lineage, options.all_values).build();
  add_warnings(file, report);
  return report;
}

std::string RemadeFigure::original() const {
  if (original_number == 0) return "";
  return ledger::numbered_name(std::string(base), original_number);
}

std::string RemadeFigure::name() const {
  return ledger::incarnation_name(ledger::numbered_name(std::string(base), original_number), incarnation);
}

void write_recompute_json(std::ostream& out, const RecomputeReport& report) {
  ordered_json all = {{"schema", "liveset.recompute/1"}, {"file", report.file}};
  all["all"] = step_json(report.all);
  all["all"].erase("step");
  all["times_are_of"] = report.device ? "host" : "cpu";
  all["values_unmatched"] = report.unmatched_values;
  all["unmatched_bytes"] = report.unmatched_bytes;
  all["values_guessed"] = report.guessed_values;
  all["slots_reused"] = report.reused_slots;
  all["warnings"] = report.warnings;
  JsonStream stream(out);
  stream.members(all);
  stream.list("steps", report.steps, step_json);
  stream.list("regions", report.regions, region_json);
  stream.list("values", report.values, value_json);
}

}  // namespace liveset::report
