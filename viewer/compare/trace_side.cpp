#include "viewer/compare/trace_side.h"

#include <algorithm>
#include <unordered_set>

#include "viewer/ledger/details.h"
#include "viewer/ledger/lineage.h"
#include "viewer/ledger/live_block.h"
#include "viewer/ledger/retention.h"
#include "viewer/ledger/value_names.h"

namespace liveset::compare {
namespace {

using ledger::LiveBlock;
using ledger::no_event;

std::int64_t& extra(Side& side, GapClass gap_class) { return side.extras[static_cast<std::size_t>(gap_class)]; }

// What the program calls the block itself, or what holds it, or else what it is and where it was made.
std::string name_of(const LiveBlock& block, Family family) {
  const bool is_of_the_program = block.is_named_value || (family == Family::fixed && !block.names.empty());
  if (is_of_the_program) return ledger::incarnation_name(block.names.front(), block.incarnation);
  if (family == Family::value || family == Family::recompute) {
    if (!block.name.empty()) return block.name;
    if (!block.names.empty()) return ledger::value_name(block.module, block.names.front());
  }
  return unnamed_text(block.module, block.memory_class, block.op);
}

std::string slot_of(const LiveBlock& block, Family family) {
  if (block.is_named_value || (family == Family::fixed && !block.names.empty())) return block.names.front();
  if (!block.slot.empty()) return block.op + "." + block.slot;
  if (!block.names.empty()) return block.names.front();
  return block.op;
}

}  // namespace

std::string TraceSide::heap_name() const {
  const trace::Dictionary& names = file_->dictionary();
  const std::uint32_t heap = ledger_.shown_heap;
  const std::string_view name = heap < names.heaps.size() ? names.string(names.heaps[heap].name) : std::string_view();
  return name.empty() ? "heap " + std::to_string(heap) : std::string(name);
}

void TraceSide::add_counters() {
  const ledger::HeapLedger& heap = ledger_.shown();
  const bool is_device = is_on_device(side);
  if (heap.allocated.known) side.counters.push_back({ledger_.block_counter, heap.allocated.peak, false});
  if (heap.reserved.known) side.counters.push_back({"reserved", heap.reserved.peak, false});
  for (const ledger::SampledCounter& counter : ledger_.counters) {
    const std::string_view name = file_->dictionary().string(counter.name);
    if (counter.heap != ledger_.shown_heap || counter.peak_event == no_event || (name != "requested" && name != "active")) continue;
    side.counters.push_back({std::string(name), static_cast<std::uint64_t>(std::max<std::int64_t>(counter.peak, 0)), true});
  }
  // Other allocators hand out what is asked for, and take it back at once.
  if (!is_device && heap.allocated.known && !ledger_.imported)
    for (const char* name : {"requested", "active"}) side.counters.push_back({name, heap.allocated.peak, false});
  if (const ledger::DeviceMemory* held = device()) {
    side.outside_allocator = held->outside_allocator.peak;
    side.counters.push_back({"device", held->held.peak, false});
  }
}

const ledger::DeviceMemory* TraceSide::device() const {
  for (const ledger::DeviceMemory& device : ledger_.driver.devices)
    if (ledger_.driver.known && side.heap == "cuda:" + std::to_string(device.device)) return &device;
  return nullptr;
}

void TraceSide::add_known() {
  constexpr std::size_t most = 100'000;
  const trace::Dictionary& names = file_->dictionary();
  ledger::PathNames paths(names);
  for (std::uint32_t scope = 1; scope < names.scopes.size() && side.known.size() < most; ++scope)
    if (names.scopes[scope].kind == trace::ScopeKind::module) side.known.emplace_back(paths.module(scope));
  for (std::size_t value = 1; value < names.values.size() && side.known.size() < 2 * most; ++value)
    side.known.emplace_back(names.string(names.values[value].name));
  // A graph that backward walked, or a program that names its values.
  side.tells_of_values = !ledger_.backwards.empty() || names.values.size() > 1;
}

Status TraceSide::choose_peak() {
  const ledger::HeapLedger& heap = ledger_.shown();
  if (!heap.allocated.known || heap.allocated.peak_event == no_event)
    return Error{ErrorKind::unreadable, file_->path(), {}, std::string(no_allocation), ""};
  if (!ledger_.peak_is_known)
    return Error{ErrorKind::unreadable,
                 file_->path(),
                 {},
                 "the file tells only the state at its end: its peak is not known",
                 "record the history before the memory is taken: torch.cuda.memory._record_memory_history()"};
  const auto found =
      std::find_if(side.counters.begin(), side.counters.end(), [&](const KnownCounter& c) { return c.name == side.counter; });
  if (found == side.counters.end()) {
    std::string known;
    for (const KnownCounter& counter : side.counters) known += (known.empty() ? "" : ", ") + counter.name;
    return Error{
        ErrorKind::usage, file_->path(), {}, "the trace has no counter \"" + side.counter + "\" of heap " + side.heap, "it has " + known};
  }
  side.peak.bytes = found->bytes;
  // Reserved stays as it is for long, and so does what the device gave out.
  const bool is_reserved = side.counter == "reserved" && heap.reserved_and_fullest != no_event;
  side.peak.event = is_reserved ? heap.reserved_and_fullest : heap.allocated.peak_event;
  if (side.counter == "device") {
    const ledger::DeviceMemory& held = *device();
    const auto lasts = [&](std::uint64_t event) {
      return event != no_event && event >= held.held.peak_event && (held.held_until == no_event || event < held.held_until);
    };
    side.peak.event = lasts(side.peak.event)             ? side.peak.event
                      : lasts(heap.reserved_and_fullest) ? heap.reserved_and_fullest
                                                         : held.held.peak_event;
    if (held.is_lower_bound) side.warnings.push_back("what was given back to the device is not all known: the counter is a lower bound");
  }
  side.peak_moment_known = !found->sampled;
  return Done{};
}

Status TraceSide::find_overdue() {
  if (ledger_.nodes == 0) return Done{};
  Result<ledger::Lineage> lineage = ledger::trace_lineage(*file_, ledger_);
  if (!lineage) return lineage.take_error();
  Result<ledger::Retention> found = ledger::trace_retention(*file_, ledger_, *lineage, {});
  if (!found) return found.take_error();
  std::unordered_set<std::uint64_t> births;
  for (const ledger::OverdueBlock& overdue : found->overdue)
    if (overdue.last_use_ns < *side.peak.time_ns) births.insert(overdue.block);
  for (std::size_t i = 0; i < side.items.size(); ++i) side.items[i].is_overdue = births.contains(ordinals_[i]);
  if (found->overdue.size() < found->overdue_blocks)
    side.peak_warnings.push_back("of " + std::to_string(found->overdue_blocks) + " values that live too long the first " +
                                 std::to_string(found->overdue.size()) + " were looked for");
  return Done{};
}

Status TraceSide::read_items(const ledger::Attribution& attribution) {
  const std::vector<std::uint32_t> live = ledger::live_blocks(ledger_, ledger_.shown_heap, side.peak.event);
  Result<ledger::PlacedEvent> placed = ledger::place_of(*file_, ledger_, side.peak.event, live);
  if (!placed) return placed.take_error();
  side.peak.place = std::move(placed->place);
  side.peak.time_ns = placed->time_ns;
  const std::uint64_t step_begin = side.peak.place.step ? ledger_.steps[side.peak.place.step_index].first_event : 0;
  ItemBuilder builder(side);
  std::size_t index = 0;
  Status status = ledger::for_each_live_block(*file_, ledger_, attribution, side.peak.event, [&](LiveBlock&& block) {
    Item item;
    item.memory_class = block.memory_class;
    item.phase = block.detail.phase;
    item.bytes = block.detail.bytes;
    item.incarnation = block.incarnation;
    item.order = placed->orders[index++];
    item.is_older = block.detail.birth < step_begin;
    if (side.items.size() < Side::max_items) {
      const Family family = family_of(item.memory_class, item.phase);
      item.name = builder.text(name_of(block, family));
      item.slot = builder.text(slot_of(block, family));
      item.module = builder.text(block.module);
      item.is_own_name = block.is_named_value || (family == Family::fixed && !block.names.empty());
      ordinals_.push_back(block.detail.ordinal);
    }
    builder.add(item);
  });
  if (!status) return status;
  side.peak.classes = ledger::class_bytes_at(ledger_, ledger_.shown_heap, std::span(&side.peak.event, 1)).front();
  side.peak.block_bytes = 0;
  for (const std::uint64_t bytes : side.peak.classes) side.peak.block_bytes += bytes;
  return Done{};
}

// What the counter has beyond the blocks of that moment, so that it is their sum.
void TraceSide::add_extras() {
  std::int64_t beyond =
      ledger::wrapping_difference(static_cast<std::int64_t>(*side.peak.bytes), static_cast<std::int64_t>(side.peak.block_bytes));
  if (side.counter == "device") {
    const trace::Dictionary& names = file_->dictionary();
    for (const ledger::HeapBytes& heap : device()->at_peak) {
      if (heap.is_allocator) continue;
      side.outside.emplace_back(names.string(names.heaps[heap.heap].name), heap.bytes);
      beyond = ledger::wrapping_difference(beyond, static_cast<std::int64_t>(heap.bytes));
    }
  }
  if (side.counter == "reserved") {
    // The allocator's own account has what was allocated before the recording began.
    const std::int64_t before = ledger_.shown().baseline_bytes;
    extra(side, GapClass::unattributed) = before;
    beyond = ledger::wrapping_difference(beyond, before);
  }
  const GapClass gap_class = side.counter == "reserved" || side.counter == "device" ? GapClass::cached
                             : side.counter == "active"                             ? GapClass::over_retention
                             : side.counter == "requested"                          ? GapClass::rounding
                                                                                    : GapClass::unattributed;
  extra(side, gap_class) = ledger::wrapping_sum(extra(side, gap_class), beyond);
}

void TraceSide::add_steps(const ledger::Range& range) {
  for (const ledger::Step& step : ledger_.steps) {
    if (!range.contains(step.first_event)) continue;
    StepPeak peak;
    peak.number = step.number;
    std::int64_t most = -1;
    for (int phase = 0; phase < trace::phase_count; ++phase) {
      const ledger::PhaseFigures& figures = step.phases[static_cast<std::size_t>(phase)];
      if (figures.peak_bytes <= most) continue;
      most = figures.peak_bytes;
      peak.phase = static_cast<trace::Phase>(phase);
    }
    if (most < 0) continue;
    peak.bytes = static_cast<std::uint64_t>(most);
    side.steps.push_back(peak);
  }
  for (std::size_t phase = 0; phase < trace::phase_count; ++phase)
    if (ledger_.phases[phase].peak_bytes >= 0) side.phase_peaks[phase] = static_cast<std::uint64_t>(ledger_.phases[phase].peak_bytes);
}

// All that is of the moment of the peak.
Status TraceSide::read_peak() {
  side.items.clear();
  side.peak_warnings.clear();
  side.extras = {};
  side.outside.clear();
  side.rest = {};
  side.rest_blocks = 0;
  ordinals_.clear();
  Result<ledger::Attribution> attribution = ledger::attribute_blocks(*file_, ledger_, {side.peak.event, progress_});
  if (!attribution) return attribution.take_error();
  if (Status status = read_items(*attribution); !status) return status;
  if (Status status = find_overdue(); !status) return status;
  add_extras();
  if (attribution->details_left_out || side.rest_blocks != 0)
    side.peak_warnings.push_back("too many blocks live at the peak: of some the names are not known, and " +
                                 std::to_string(side.rest_blocks) + " are aligned with none");
  return Done{};
}

Status TraceSide::prefer_other(std::uint64_t other_block_bytes) {
  if (!side.at_other || !side.peak_moment_known || side.at_other->bytes != side.peak.bytes || side.at_other->event == side.peak.event)
    return Done{};
  const auto apart = [&](std::uint64_t bytes) { return std::max(bytes, other_block_bytes) - std::min(bytes, other_block_bytes); };
  if (apart(side.at_other->block_bytes) > apart(side.peak.block_bytes)) return Done{};
  side.peak.event = side.at_other->event;
  return read_peak();
}

Result<TraceSide> TraceSide::read(const trace::TraceFile& file, const TraceOptions& options) {
  ledger::PhysicalOptions physical;
  physical.range = options.range;
  physical.progress = options.progress;
  if (!options.heap.empty()) {
    Result<std::uint32_t> found = ledger::find_heap(file, options.heap);
    if (!found) return found.take_error();
    physical.heap = *found;
  }
  Result<ledger::PhysicalLedger> ledger = ledger::build_physical(file, physical);
  if (!ledger) return ledger.take_error();
  TraceSide made(file, std::move(*ledger));
  Side& side = made.side;
  side.file = file.path();
  side.heap = made.heap_name();
  side.counter = options.counter.empty() ? made.ledger_.block_counter : options.counter;
  made.add_known();
  made.add_counters();
  if (Status status = made.choose_peak(); !status) return status.take_error();
  made.progress_ = options.progress;
  if (Status status = made.read_peak(); !status) return status.take_error();
  made.add_steps(options.range);
  if (made.ledger_.sums_off_after_holes != 0)
    side.warnings.push_back("events are missing in the file: blocks freed there still count as live");
  if (const std::int64_t before = made.ledger_.shown().baseline_bytes;
      before != 0 && side.counter != "reserved" && side.counter != "device")
    side.warnings.push_back(std::to_string(before) + " bytes that were allocated before the recording began are in no figure");
  return made;
}

Status TraceSide::look_at(const ledger::Place& other) {
  Result<ledger::FoundPlace> found = ledger::find_place(*file_, ledger_, other);
  if (!found) return found.take_error();
  if (found->by == ledger::FoundBy::nothing) return Done{};
  Result<ledger::PlacedEvent> placed = ledger::place_of(*file_, ledger_, found->event, {});
  if (!placed) return placed.take_error();
  Moment moment;
  moment.event = found->event;
  moment.time_ns = placed->time_ns;
  moment.place = std::move(placed->place);
  moment.found_by = found->by;
  moment.classes = ledger::class_bytes_at(ledger_, ledger_.shown_heap, std::span(&moment.event, 1)).front();
  for (const std::uint64_t bytes : moment.classes) moment.block_bytes += bytes;
  if (side.counter == "reserved")
    moment.bytes = found->reserved;
  else if (side.counter != "device" && side.peak_moment_known)  // what is not sampled is the sum of the blocks
    moment.bytes = moment.block_bytes;
  side.at_other = std::move(moment);
  return Done{};
}

}  // namespace liveset::compare
