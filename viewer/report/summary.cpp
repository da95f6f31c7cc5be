#include "viewer/report/summary.h"

#include <algorithm>
#include <numeric>

#include "viewer/ledger/details.h"

namespace liveset::report {
namespace {

using ledger::ClassBytes;
using ledger::PhysicalLedger;

std::string heap_name(const trace::TraceFile& file, std::uint32_t heap) {
  const trace::Dictionary& names = file.dictionary();
  const std::string_view name = heap < names.heaps.size() ? names.string(names.heaps[heap].name) : std::string_view();
  return name.empty() ? "heap " + std::to_string(heap) : std::string(name);
}

std::vector<CounterFigure> counters_of(const trace::TraceFile& file, const PhysicalLedger& ledger) {
  std::vector<CounterFigure> figures;
  const auto has_past = [&](const std::string& heap) {
    const ledger::ImportedHeap* found = ledger.imported ? ledger.imported->heap(heap) : nullptr;
    return found == nullptr || found->has_history();
  };
  const auto add = [&](std::uint32_t heap, const char* name, const ledger::Counter& counter) {
    const std::string heap_text = heap_name(file, heap);
    if (counter.known)
      figures.push_back({heap_text, name, counter.peak, counter.final, counter.peak_event, counter.sampled, has_past(heap_text)});
  };
  for (const ledger::HeapLedger& heap : ledger.heaps) {
    add(heap.heap, ledger.block_counter.c_str(), heap.allocated);
    add(heap.heap, "reserved", heap.reserved);
    add(heap.heap, "segments", heap.segments);
  }
  const auto add_of_driver = [&](const std::string& place, const char* name, const ledger::Counter& counter) {
    if (counter.known) figures.push_back({place, name, counter.peak, counter.final, counter.peak_event, false});
  };
  for (const ledger::DeviceMemory& device : ledger.driver.devices) {
    const std::string place = "cuda:" + std::to_string(device.device);
    add_of_driver(place, "outside_allocator", device.outside_allocator);
    if (device.managed.peak != 0) add_of_driver(place, "managed", device.managed);
  }
  if (ledger.driver.pinned_host.peak != 0) add_of_driver("host", "pinned", ledger.driver.pinned_host);
  if (ledger.driver.registered_host.peak != 0) add_of_driver("host", "registered", ledger.driver.registered_host);
  const auto unsigned_of = [](std::int64_t number) { return static_cast<std::uint64_t>(std::max<std::int64_t>(number, 0)); };
  for (const ledger::SampledCounter& counter : ledger.counters) {
    figures.push_back({counter.heap == 0 ? "process" : heap_name(file, counter.heap), std::string(file.dictionary().string(counter.name)),
                       unsigned_of(counter.peak), unsigned_of(counter.final), counter.peak_event, true});
  }
  return figures;
}

// The context of a dry run's device lies outside the allocator too, and no event tells of it.
void add_context(std::uint64_t context_bytes, std::vector<CounterFigure>& figures) {
  for (CounterFigure& figure : figures) {
    if (figure.name != "outside_allocator") continue;
    for (std::uint64_t* bytes : {&figure.peak, &figure.final}) *bytes += std::min(context_bytes, ~*bytes);
  }
}

// Everything about one moment but its bytes.
Result<PeakFigure> look_at(const trace::TraceFile& file, const PhysicalLedger& ledger, std::uint64_t event) {
  Result<ledger::EventStamp> stamp = ledger::describe_event(file, event);
  if (!stamp) return stamp.take_error();
  PeakFigure figure;
  figure.counter = ledger.block_counter;
  figure.heap = heap_name(file, ledger.shown_heap);
  figure.event = event;
  figure.time_ns = stamp->time_ns;
  figure.phase = stamp->phase;
  figure.module = file.dictionary().module_path(stamp->scope);
  figure.scope = file.dictionary().scope_path(stamp->scope);
  figure.step = ledger::step_at(ledger, event);
  ledger.blocks.for_each([&](std::uint32_t, const ledger::Block& block) {
    if (!block.live_after(event) || block.heap() != ledger.shown_heap) return;
    const std::uint64_t bytes = ledger.blocks.bytes(block);
    ++figure.blocks;
    figure.allocated_bytes += bytes;
    figure.classes[static_cast<std::size_t>(ledger::class_of(block))] += bytes;
    if (block.stated() != trace::MemoryClass::none && ledger::is_guess(block.evidence()))
      figure.guessed[static_cast<std::size_t>(block.stated())] += bytes;
    figure.unnamed_blocks += !block.named();
    figure.unnamed_bytes += block.named() ? 0 : bytes;
  });
  return figure;
}

Error no_counter(const trace::TraceFile& file, const PhysicalLedger& ledger, const std::string& counter) {
  std::string known;
  for (const CounterFigure& figure : counters_of(file, ledger)) {
    if (figure.heap == heap_name(file, ledger.shown_heap)) known += (known.empty() ? "" : ", ") + figure.name;
  }
  return {ErrorKind::usage, file.path(), std::nullopt,
          "the trace has no counter \"" + counter + "\" of heap " + heap_name(file, ledger.shown_heap),
          known.empty() ? "it has none" : "it has " + known};
}

std::vector<StepFigure> steps_of(const PhysicalLedger& ledger, const ledger::Attribution& attribution, const ledger::Range& range) {
  std::vector<std::uint64_t> moments;
  for (const ledger::Backward& backward : ledger.backwards) moments.push_back(backward.event);
  const std::vector<ClassBytes> classes = ledger::class_bytes_at(ledger, ledger.shown_heap, moments);
  std::vector<StepFigure> figures(ledger.steps.size());
  for (std::size_t i = 0; i < figures.size(); ++i) figures[i].step = ledger.steps[i];
  for (std::size_t i = 0; i < ledger.backwards.size(); ++i) {
    const ledger::Backward& backward = ledger.backwards[i];
    if (backward.step < figures.size())
      figures[backward.step].backwards.push_back(
          {backward.event, backward.live_bytes, backward.nodes, classes[i], attribution.retained[i]});
  }
  std::erase_if(figures, [&](const StepFigure& figure) { return !range.contains(figure.step.first_event); });
  return figures;
}

// Whether the heap had another block after the last time; a segment, where it has no blocks.
Shortage shortage_of(const PhysicalLedger& ledger, const std::vector<OutOfMemoryFigure>& out_of_memory) {
  Shortage shortage{out_of_memory.size(), false};
  if (out_of_memory.empty()) return shortage;
  const ledger::OutOfMemory& last = out_of_memory.back().found;
  ledger.blocks.for_each(
      [&](std::uint32_t, const ledger::Block& block) { shortage.went_on |= block.birth > last.event && block.heap() == last.heap; });
  for (const ledger::HeapLedger& heap : ledger.heaps)
    shortage.went_on |= heap.heap == last.heap && heap.allocations == 0 && heap.last_segment > last.event;
  return shortage;
}

}  // namespace

DevicePeaks device_peaks(const Summary& summary) {
  DevicePeaks peaks;
  std::string device = summary.heap;  // a program without PyTorch has none, or shows its memory of the host
  if (device.compare(0, 5, "cuda:") != 0) device = summary.devices.empty() ? "" : summary.devices.front().device;
  bool has_blocks = false, has_segments = false;
  for (const CounterFigure& figure : summary.counters) {
    if (figure.heap != device) continue;
    has_blocks |= figure.name == "allocated";
    has_segments |= figure.name == "segments";
    if (figure.name == "allocated") peaks.allocated = figure.peak;
    if (figure.name == "reserved") peaks.reserved = figure.peak;
  }
  peaks.lacks_allocator_figures = has_segments && !has_blocks;
  for (const DeviceFigure& figure : summary.devices) {
    if (figure.device == device) peaks.held = figure.memory.held.peak;
  }
  return peaks;
}

Ending ending_of(const Summary& summary) { return {summary.job_status, summary.health.end}; }

Result<PeakFigure> peak_of(const trace::TraceFile& file, const PhysicalLedger& ledger, const std::string& wanted) {
  const std::string& counter = wanted.empty() ? ledger.block_counter : wanted;
  const std::string shown = heap_name(file, ledger.shown_heap);
  const std::vector<CounterFigure> counters = counters_of(file, ledger);
  const auto found =
      std::find_if(counters.begin(), counters.end(), [&](const CounterFigure& c) { return c.heap == shown && c.name == counter; });
  if (found == counters.end() || found->peak_event == ledger::no_event) return no_counter(file, ledger, counter);
  Result<PeakFigure> figure = look_at(file, ledger, ledger.peak_is_known ? found->peak_event : ledger.events - 1);
  if (!figure) return figure;
  figure->counter = counter;
  figure->bytes = ledger.peak_is_known ? found->peak : found->final;
  figure->sampled = found->sampled;
  figure->is_known = ledger.peak_is_known;
  return figure;
}

Result<PeakFigure> moment_at(const trace::TraceFile& file, const PhysicalLedger& ledger, std::uint64_t event) {
  Result<PeakFigure> figure = look_at(file, ledger, event);
  if (figure) figure->bytes = figure->allocated_bytes;
  return figure;
}

void label_peak(const DryRun& dry_run, PeakFigure& peak) {
  if (peak.heap.compare(0, 5, "cuda:") != 0) return;
  peak.label = label_of(dry_run, peak.heap, peak.counter);
  if (peak.label == "estimate") peak.band = factor_of(dry_run, peak.heap, peak.counter);
}

Result<std::vector<OutOfMemoryFigure>> out_of_memory_in(const trace::TraceFile& file, const PhysicalLedger& ledger,
                                                        const ledger::Range& range) {
  std::vector<OutOfMemoryFigure> figures;
  for (const ledger::OutOfMemory& found : ledger.out_of_memory) {
    if (!range.contains(found.event)) continue;
    Result<ledger::EventStamp> stamp = ledger::describe_event(file, found.event);
    if (!stamp) return stamp.take_error();
    figures.push_back({found, heap_name(file, found.heap), file.dictionary().module_path(stamp->scope),
                       file.dictionary().scope_path(stamp->scope), stamp->time_ns, ledger::step_at(ledger, found.event), stamp->phase,
                       std::nullopt});
  }
  return figures;
}

Result<PhysicalLedger> read_physical(const trace::TraceFile& file, const std::string& heap, const ledger::Range& range,
                                     const ledger::Progress& progress) {
  ledger::PhysicalOptions physical;
  physical.range = range;
  physical.progress = progress;
  if (!heap.empty()) {
    Result<std::uint32_t> found = ledger::find_heap(file, heap);
    if (!found) return found.take_error();
    physical.heap = *found;
  }
  return ledger::build_physical(file, physical);
}

Result<Summary> summarize(const trace::TraceFile& file, const SummaryOptions& options) {
  Result<PhysicalLedger> ledger = read_physical(file, options.heap, options.range, options.progress);
  if (!ledger) return ledger.take_error();
  Result<ledger::Attribution> attribution = ledger::attribute_blocks(file, *ledger, {ledger::no_event, options.progress});
  if (!attribution) return attribution.take_error();

  Summary summary;
  summary.file = file.path();
  summary.file_bytes = file.file_bytes();
  summary.events = file.events();
  summary.allocations = std::accumulate(ledger->heaps.begin(), ledger->heaps.end(), std::uint64_t{0},
                                        [](std::uint64_t sum, const ledger::HeapLedger& heap) { return sum + heap.allocations; });
  summary.end_time_ns = file.end_time_ns();
  summary.process = file.header().process;
  summary.sources.assign(file.dictionary().sources.begin() + (file.dictionary().sources.empty() ? 0 : 1), file.dictionary().sources.end());
  summary.range = options.range;
  summary.job_status = options.job_status;
  summary.imported = ledger->imported;
  summary.counters = counters_of(file, *ledger);
  summary.phases = ledger->phases;
  summary.steps = steps_of(*ledger, *attribution, options.range);
  if (ledger->shown().allocated.known || !(options.counter.empty() || options.counter == ledger->block_counter)) {
    summary.heap = heap_name(file, ledger->shown_heap);
    summary.baseline_bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(ledger->shown().baseline_bytes, 0));
    Result<PeakFigure> peak = peak_of(file, *ledger, options.counter);
    if (!peak) return peak.take_error();
    summary.peak = std::move(*peak);
  }
  Result<std::vector<OutOfMemoryFigure>> out_of_memory = out_of_memory_in(file, *ledger, options.range);
  if (!out_of_memory) return out_of_memory.take_error();
  summary.out_of_memory = std::move(*out_of_memory);
  summary.shortage = shortage_of(*ledger, summary.out_of_memory);
  if (!summary.out_of_memory.empty() && summary.out_of_memory.back().found.heap == ledger->shown_heap) {
    Result<PeakFigure> live = moment_at(file, *ledger, summary.out_of_memory.back().found.event);
    if (!live) return live.take_error();
    summary.out_of_memory.back().live = std::move(*live);
  }
  Result<std::optional<DryRun>> dry_run = find_dry_run(file);
  if (!dry_run) return dry_run.take_error();
  summary.dry_run = std::move(*dry_run);
  if (summary.dry_run) add_context(summary.dry_run->context_bytes, summary.counters);
  if (summary.dry_run && summary.peak) label_peak(*summary.dry_run, *summary.peak);
  summary.devices = devices_of(file, *ledger);
  Result<std::optional<KernelFigures>> kernels = kernels_of(file, *ledger, options.range);
  if (!kernels) return kernels.take_error();
  summary.kernels = std::move(*kernels);
  summary.health = file.health();
  summary.unmatched_frees = ledger->unmatched_frees;
  summary.conservation_mismatches = ledger->mismatched_events();
  summary.open_blocks = ledger->open_blocks();
  summary.holes = ledger->holes;
  summary.sums_off = ledger->sums_off_after_holes;
  summary.dropped_marks = ledger->dropped_marks;
  summary.mismatches = ledger->mismatches;
  for (const ledger::HeapLedger& heap : ledger->heaps) {
    summary.checked_events += heap.checked_events;
    summary.reserved_below_total += heap.reserved_below_total;
    summary.segments_not_reserved += heap.segments_not_reserved;
    summary.heap_names.push_back(heap_name(file, heap.heap));
  }
  summary.attribution = std::move(*attribution);
  return summary;
}

}  // namespace liveset::report
