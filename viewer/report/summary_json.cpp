#include <algorithm>
#include <nlohmann/json.hpp>

#include "viewer/report/or_null.h"
#include "viewer/report/summary.h"
#include "viewer/report/trace_info.h"

namespace liveset::report {
namespace {

using nlohmann::ordered_json;

ordered_json event_json(std::uint64_t event) { return event == ledger::no_event ? ordered_json(nullptr) : ordered_json(event); }

ordered_json phases_json(const ledger::Phases& phases) {
  ordered_json json = ordered_json::object();
  for (int i = 0; i < trace::phase_count; ++i) {
    const ledger::PhaseFigures& phase = phases[static_cast<std::size_t>(i)];
    if (phase.peak_bytes < 0) continue;
    json[std::string(trace::phase_name(static_cast<trace::Phase>(i)))] = {
        {"peak_bytes", phase.peak_bytes}, {"peak_event", phase.peak_event}, {"allocations", phase.allocations}};
  }
  return json;
}

ordered_json backward_json(const BackwardFigure& backward) {
  const ledger::RetainedSet& retained = backward.retained;
  return {{"event", backward.event},
          {"live_bytes", backward.live_bytes},
          {"classes", classes_json(backward.classes)},
          {"graph_nodes", backward.nodes},
          {"retained",
           {{"slots", retained.slots},
            {"storages", retained.storages},
            {"bytes", retained.bytes},
            {"parameter_storages", retained.parameter_storages},
            {"parameter_bytes", retained.parameter_bytes}}}};
}

ordered_json step_json(const StepFigure& figure) {
  const ledger::Step& step = figure.step;
  std::uint64_t allocations = 0;
  for (const ledger::PhaseFigures& phase : step.phases) allocations += phase.allocations;
  ordered_json json = {{"step", step.number},
                       {"first_event", step.first_event},
                       {"end_event", event_json(step.end_event)},
                       {"peak_bytes", std::max<std::int64_t>(step.peak().peak_bytes, 0)},
                       {"peak_event", event_json(step.peak().peak_event)},
                       {"allocations", allocations},
                       {"recompute_allocations", step.phases[static_cast<std::size_t>(trace::Phase::recompute)].allocations},
                       {"phases", phases_json(step.phases)}};
  json["backward_start"] = figure.backwards.empty() ? ordered_json(nullptr) : backward_json(figure.backwards.front());
  json["backwards"] = ordered_json::array();
  for (const BackwardFigure& backward : figure.backwards) json["backwards"].push_back(backward_json(backward));
  return json;
}

void add_band(const Factor& factor, std::uint64_t bytes, ordered_json& figure) {
  figure["low"] = factor.is_known() ? ordered_json(factor.of_low(bytes)) : ordered_json(nullptr);
  figure["high"] = factor.is_known() ? ordered_json(factor.of_high(bytes)) : ordered_json(nullptr);
}

// Which figures of a dry run are estimates.
void add_label(const DryRun& dry_run, const CounterFigure& counter, ordered_json& figure) {
  const std::string label = label_of(dry_run, counter.heap, counter.name);
  figure["estimate"] = label == "estimate";
  figure["label"] = label;
  if (const std::optional<Factor> factor = factor_of(dry_run, counter.heap, counter.name)) add_band(*factor, counter.peak, figure);
}

ordered_json counters_json(const Summary& summary) {
  ordered_json json = ordered_json::object();
  for (const CounterFigure& counter : summary.counters) {
    ordered_json figure = {{"peak", counter.peak}, {"final", counter.final}, {"peak_event", event_json(counter.peak_event)}};
    if (!counter.peak_is_known) figure["peak"] = figure["peak_event"] = nullptr;
    if (counter.sampled) figure["sampled"] = true;
    if (summary.dry_run && counter.heap.compare(0, 5, "cuda:") == 0) add_label(*summary.dry_run, counter, figure);
    json[counter.heap][counter.name] = figure;
  }
  return json;
}

ordered_json reconciliation_json(const Summary& summary) {
  const ledger::Attribution& found = summary.attribution;
  ordered_json json = {{"statements", found.statements},       {"orphans", found.orphans},
                       {"orphan_bytes", found.orphan_bytes},   {"named_blocks", found.named_blocks},
                       {"shared_blocks", found.shared_blocks}, {"freed_before_release", found.freed_before_release}};
  json["first_orphans"] = ordered_json::array();
  for (const ledger::Orphan& orphan : found.first_orphans)
    json["first_orphans"].push_back(
        {{"event", orphan.event}, {"kind", trace::kind_name(orphan.kind)}, {"address", orphan.address}, {"bytes", orphan.size}});
  json["over_retention"] = {{"blocks", found.over_retained_blocks},
                            {"bytes", found.over_retained_bytes},
                            {"byte_seconds", found.over_retained_byte_seconds},
                            {"longest_ns", found.longest_delay_ns}};
  if (summary.peak) json["unnamed_at_peak"] = {{"blocks", summary.peak->unnamed_blocks}, {"bytes", summary.peak->unnamed_bytes}};
  return json;
}

ordered_json imported_json(const ledger::Imported& imported) {
  ordered_json json = {{"from", imported.from}, {"file", imported.file}, {"block_counter", imported.block_counter}};
  json["heaps"] = ordered_json::array();
  for (const ledger::ImportedHeap& heap : imported.heaps)
    json["heaps"].push_back({{"heap", heap.name},
                             {"history", heap.history},
                             {"opening_blocks", heap.opening_blocks},
                             {"opening_bytes", heap.opening_bytes},
                             {"contradictions", heap.contradictions},
                             {"contradiction_count", heap.contradiction_count},
                             {"unknown_events", heap.unknown_events}});
  json["unknown_actions"] = imported.unknown_actions;
  return json;
}

ordered_json health_json(const Summary& summary) {
  const trace::Health& health = summary.health;
  ordered_json json = {{"lost_events", health.lost_events},
                       {"unmatched_frees", summary.unmatched_frees},
                       {"conservation_mismatches", summary.conservation_mismatches},
                       {"truncated", health.truncated},
                       {"checked_events", summary.checked_events},
                       {"open_blocks", summary.open_blocks},
                       {"reserved_below_allocated", summary.reserved_below_total},
                       {"segments_not_reserved", summary.segments_not_reserved},
                       {"damaged_packets", health.damaged_packets},
                       {"unknown_packets", health.unknown_packets},
                       {"holes", summary.holes},
                       {"sums_off_after_holes", summary.sums_off},
                       {"readable_bytes", health.readable_bytes},
                       {"contradictions", summary.imported ? summary.imported->contradictions() : 0},
                       {"unknown_events", summary.imported ? summary.imported->unknown_events() : 0},
                       {"note", or_null(health.note)},
                       {"end", or_null(health.end)}};
  json["first_mismatches"] = ordered_json::array();
  for (const ledger::Mismatch& mismatch : summary.mismatches) {
    json["first_mismatches"].push_back({{"event", mismatch.event},
                                        {"heap", mismatch.heap < summary.heap_names.size() ? summary.heap_names[mismatch.heap] : ""},
                                        {"difference", mismatch.found - mismatch.expected}});
  }
  return json;
}

}  // namespace

ordered_json classes_json(const ledger::ClassBytes& classes) {
  ordered_json json = ordered_json::object();
  for (std::size_t i = 1; i < classes.size(); ++i) json[std::string(trace::class_name(static_cast<trace::MemoryClass>(i)))] = classes[i];
  return json;
}

ordered_json peak_json(const PeakFigure& peak) {
  ordered_json json = {
      {"heap", peak.heap}, {"counter", peak.counter}, {"bytes", peak.bytes}, {"event", peak.event}, {"time_ns", peak.time_ns}};
  json["step"] = peak.step ? ordered_json(*peak.step) : ordered_json(nullptr);
  json["phase"] = trace::phase_name(peak.phase);
  json["module"] = or_null(peak.module);
  json["scope"] = or_null(peak.scope);
  json["classes"] = classes_json(peak.classes);
  json["guess"] = ordered_json::object();  // how much of a class is one
  for (std::size_t i = 1; i < peak.guessed.size(); ++i)
    if (peak.guessed[i] != 0) json["guess"][std::string(trace::class_name(static_cast<trace::MemoryClass>(i)))] = peak.guessed[i];
  json["allocated_bytes"] = peak.allocated_bytes;  // the sum of the classes
  json["beyond_blocks"] = peak.beyond_blocks();
  json["blocks"] = peak.blocks;
  if (peak.sampled) json["sampled"] = true;
  if (!peak.label.empty()) json["estimate"] = peak.label == "estimate";
  if (peak.band) add_band(*peak.band, peak.bytes, json);
  return json;
}

ordered_json out_of_memory_json(const std::vector<OutOfMemoryFigure>& figures) {
  ordered_json json = ordered_json::array();
  for (const OutOfMemoryFigure& figure : figures) {
    json.push_back({{"event", figure.found.event},
                    {"time_ns", figure.time_ns},
                    {"heap", figure.heap},
                    {"asked_bytes", figure.found.asked_bytes},
                    {"allocated_bytes", figure.found.allocated_bytes}});
    json.back()["step"] = figure.step ? ordered_json(*figure.step) : ordered_json(nullptr);
    json.back()["phase"] = trace::phase_name(figure.phase);
    json.back()["module"] = or_null(figure.module);
    if (figure.live) json.back()["classes"] = classes_json(figure.live->classes);
  }
  return json;
}

ordered_json summary_json(const Summary& summary) {
  ordered_json json = {
      {"schema", "liveset.summary/1"}, {"file", summary.file}, {"file_bytes", summary.file_bytes}, {"events", summary.events}};
  json["allocations"] = summary.allocations;
  json["duration_ns"] = summary.end_time_ns;
  json["process"] = {{"pid", summary.process.pid},
                     {"command", summary.process.command},
                     {"executable", summary.process.executable},
                     {"host", summary.process.host}};
  add_rank(summary.process, json["process"]);
  if (!summary.range.whole())
    json["range"] = {{"first_event", summary.range.first}, {"end_event", std::min(summary.range.end, summary.events)}};
  json["sources"] = ordered_json::array();
  for (const trace::Source& source : summary.sources)
    json["sources"].push_back(
        {{"name", source.name}, {"version", source.version}, {"covers", source.covers}, {"cannot_see", source.cannot_see}});
  json["counters"] = counters_json(summary);
  // Of the shown heap's device, at its fullest; of the fullest device where that heap is none.
  auto shown = std::find_if(summary.devices.begin(), summary.devices.end(),
                            [&](const DeviceFigure& device) { return device.device == summary.heap; });
  if (shown == summary.devices.end()) {
    shown = std::max_element(summary.devices.begin(), summary.devices.end(),
                             [](const DeviceFigure& a, const DeviceFigure& b) { return a.memory.held.peak < b.memory.held.peak; });
  }
  json["owners"] = shown != summary.devices.end() ? owners_json(shown->owners) : ordered_json::object();
  json["devices"] = ordered_json::array();
  for (const DeviceFigure& device : summary.devices) {
    json["devices"].push_back({{"device", device.device},
                               {"peak_bytes", device.memory.held.peak},
                               {"peak_event", event_json(device.memory.held.peak_event)},
                               {"owners", owners_json(device.owners)},
                               {"unmapped_handles", device.memory.unmapped_at_peak},
                               {"estimate", device.memory.is_lower_bound}});
  }
  if (summary.kernels) json["kernels"] = kernels_json(*summary.kernels);
  if (summary.kernels && summary.dry_run) json["kernels"]["not_seen"] = {"cuBLAS", "cuDNN", "NCCL"};
  const bool has_peak = summary.peak && summary.peak->is_known;
  json["peak"] = has_peak ? peak_json(*summary.peak) : ordered_json(nullptr);
  if (summary.imported) {
    json["imported"] = imported_json(*summary.imported);
    json["at_dump"] = summary.peak && !has_peak ? peak_json(*summary.peak) : ordered_json(nullptr);
  }
  json["out_of_memory"] = out_of_memory_json(summary.out_of_memory);
  if (summary.shortage.times != 0) json["went_on_after_out_of_memory"] = summary.shortage.went_on;
  if (summary.job_status) json["job_status"] = *summary.job_status;
  if (summary.dry_run) {
    json["dry_run"] = dry_run_json(*summary.dry_run, device_peaks(summary));
    json["estimates"] = estimates_json(*summary.dry_run);
  }
  json["baseline_bytes"] = summary.baseline_bytes;
  json["recompute_allocations"] = summary.phases[static_cast<std::size_t>(trace::Phase::recompute)].allocations;
  json["phases"] = phases_json(summary.phases);
  json["steps"] = ordered_json::array();
  for (const StepFigure& step : summary.steps) json["steps"].push_back(step_json(step));
  if (summary.dropped_marks != 0) json["steps_and_backwards_left_out"] = summary.dropped_marks;
  json["reconciliation"] = reconciliation_json(summary);
  json["health"] = health_json(summary);
  return json;
}

}  // namespace liveset::report
