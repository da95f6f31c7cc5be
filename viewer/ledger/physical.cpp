#include "viewer/ledger/physical.h"

#include <algorithm>

#include "viewer/ledger/memory.h"
#include "viewer/trace/columns.h"

namespace liveset::ledger {
namespace {

using trace::Kind;
using trace::totals_bit;

constexpr std::size_t no_step = std::numeric_limits<std::size_t>::max();
constexpr std::int64_t closed_gate = std::numeric_limits<std::int64_t>::max();

// A running number and its peak. Outside the range the gate is closed: no value is higher, so the hot path has one
// comparison.
struct Meter {
  std::int64_t now = 0, gate = closed_gate;
  std::uint64_t event = no_event;

  void raise(std::uint64_t at) {
    if (now > gate) {
      gate = now;
      event = at;
    }
  }
};

// Of the events at which a meter is at its highest, the one with most in blocks. `look` comes before the meter's raise.
struct Fullest {
  std::int64_t blocks = -1;
  std::uint64_t event = no_event;

  void look(const Meter& meter, std::int64_t in_blocks, std::uint64_t at) {
    if (meter.now >= meter.gate && (meter.now > meter.gate || in_blocks > blocks)) {
      blocks = in_blocks;
      event = at;
    }
  }
};

struct HeapState {
  Meter allocated, reserved, segments;
  Fullest reserved_fullest, segments_fullest;
  std::int64_t blocks = 0;
  bool has_reserved = false, has_segments = false, has_baseline = false, has_segment_baseline = false;
  std::int64_t segment_baseline = 0;
  HeapLedger out;
};

class Sweep {
 public:
  Sweep(const trace::TraceFile& file, const PhysicalOptions& options) : file_(file), options_(options), driver_(file.dictionary()) {
    shown_ = options.heap != 0 ? options.heap : choose_heap(file);
    heaps_.resize(std::max<std::size_t>(shown_ + 1, std::min<std::size_t>(file.dictionary().heaps.size(), Block::max_heap + 1)));
  }

  Result<PhysicalLedger> run();

 private:
  Error refuse(std::string what, std::string hint) const {
    return {ErrorKind::unreadable, file_.path(), std::nullopt, std::move(what), std::move(hint)};
  }
  Status take_imported();
  bool sweep_chunk(const trace::Columns& columns);
  void sweep(const trace::Columns& columns, std::uint32_t begin, std::uint32_t end);
  void totals(HeapState& heap, const trace::Columns& columns, std::uint64_t event);
  void other(const trace::Columns& columns, std::uint32_t index, std::uint64_t event);
  void mark(Kind kind, std::int64_t number, std::uint64_t event);
  void sample(std::int64_t number, std::uint32_t heap, std::uint32_t name, std::uint64_t event);
  void open_range(std::uint64_t event);
  void close_range();
  void close_step(std::uint64_t event);
  void flush_phases();
  void check_stated_sums(const trace::ChunkInfo& chunk);
  HeapState& heap(std::uint32_t id) {
    if (id >= heaps_.size()) {
      if (id > Block::max_heap) {
        too_many_heaps_ = true;
        id = 0;
      } else {
        const std::size_t known = heaps_.size();
        heaps_.resize(id + 1);
        for (std::size_t i = known; in_range_ && i < heaps_.size(); ++i) open_gates(heaps_[i], range_opened_);
      }
    }
    return heaps_[id];
  }
  static void open_gates(HeapState& heap, std::uint64_t event) {
    for (Meter* meter : {&heap.allocated, &heap.reserved, &heap.segments}) {
      meter->gate = meter->now;
      meter->event = event;
    }
    heap.reserved_fullest = heap.segments_fullest = {heap.allocated.now, event};
  }

  const trace::TraceFile& file_;
  const PhysicalOptions& options_;
  PhysicalLedger out_;
  std::vector<HeapState> heaps_;
  DriverSums driver_;
  std::uint32_t shown_ = 0;
  Phases phases_;        // since the last boundary of a step or the range
  trace::Positions at_;  // in the chunk that is being read
  std::size_t open_step_ = no_step;
  std::uint64_t range_opened_ = no_event;
  bool in_step_ = false, in_range_ = false, after_range_ = false, hole_ = false, too_many_heaps_ = false;
};

void merge(Phases& into, const Phases& from) {
  for (std::size_t i = 0; i < into.size(); ++i) {
    into[i].allocations += from[i].allocations;
    if (from[i].peak_bytes > into[i].peak_bytes) {
      into[i].peak_bytes = from[i].peak_bytes;
      into[i].peak_event = from[i].peak_event;
    }
  }
}

void finish(Counter& counter, const Meter& meter, bool known) {
  counter.known = known;
  counter.final = static_cast<std::uint64_t>(std::max<std::int64_t>(meter.now, 0));
}

Result<PhysicalLedger> Sweep::run() {
  const auto& chunks = file_.chunks();
  if (!chunks.empty() && chunks.back().first_event + chunks.back().events > Block::none - 1)
    return refuse("the trace has more than 4,294,967,294 events", "cut it into parts; this version analyses that many at once");
  if (Status status = expect_room(file_, options_.memory_bytes); !status) return status.take_error();
  constexpr trace::ColumnMask wanted = trace::column::kind | trace::column::phase | trace::column::heap | trace::column::size |
                                       trace::column::age | trace::column::total | trace::column::reserved | trace::column::name |
                                       trace::column::number;
  trace::Columns columns;
  std::uint64_t next_event = 0;
  for (std::size_t index = 0; index < chunks.size(); ++index) {
    if (Status status = file_.read_chunk(index, wanted, columns); !status) return status.take_error();
    if (columns.first_event < next_event || columns.first_allocation != out_.blocks.end())
      return refuse("chunk " + std::to_string(index) + " does not follow the chunk before it", "record it again");
    if (columns.first_event != next_event) {
      ++out_.holes;
      hole_ = true;
    }
    if (!sweep_chunk(columns)) return refuse("the trace has more than 4,294,967,294 allocations", "cut it into parts");
    if (too_many_heaps_) return refuse("the trace has more than 4,095 heaps", "this version tells no more apart");
    if (hole_) check_stated_sums(chunks[index]);
    next_event = columns.first_event + columns.events;
    if (options_.progress) options_.progress(index + 1, chunks.size());
  }
  out_.events = next_event;
  if (in_range_) close_range();
  close_step(next_event);
  out_.shown_heap = shown_;
  out_.driver = driver_.finish();
  if (Status status = take_imported(); !status) return status.take_error();
  for (std::uint32_t id = 0; id < heaps_.size(); ++id) {
    HeapState& heap = heaps_[id];
    heap.out.heap = id;
    heap.out.live_blocks = static_cast<std::uint64_t>(heap.blocks);
    finish(heap.out.allocated, heap.allocated, heap.out.allocations + heap.out.unmatched_frees != 0);
    finish(heap.out.reserved, heap.reserved, heap.has_reserved);
    finish(heap.out.segments, heap.segments, heap.has_segments);
    heap.out.reserved_and_fullest = heap.has_reserved   ? heap.reserved_fullest.event
                                    : heap.has_segments ? heap.segments_fullest.event
                                                        : no_event;
    // A file that states no counters, but every segment: they are what PyTorch calls reserved.
    if (out_.imported && !heap.has_reserved) heap.out.reserved = heap.out.segments;
    out_.heaps.push_back(heap.out);
  }
  return std::move(out_);
}

Status Sweep::take_imported() {
  Result<std::optional<Imported>> imported = find_imported(file_);
  if (!imported) return imported.take_error();
  out_.imported = std::move(*imported);
  if (!out_.imported) return Done{};
  if (!out_.imported->block_counter.empty()) out_.block_counter = out_.imported->block_counter;
  const trace::Dictionary& names = file_.dictionary();
  if (shown_ >= names.heaps.size()) return Done{};
  const ImportedHeap* heap = out_.imported->heap(names.string(names.heaps[shown_].name));
  out_.peak_is_known = heap == nullptr || heap->has_history();
  return Done{};
}

// One chunk, cut where the range begins and ends. False when ordinals run out.
bool Sweep::sweep_chunk(const trace::Columns& columns) {
  if (out_.blocks.end() >= Block::none - columns.events) return false;
  at_ = {};
  const std::uint64_t first = columns.first_event, end = first + columns.events;
  std::uint32_t done = 0;
  const auto sweep_to = [&](std::uint64_t event) {
    const auto stop = static_cast<std::uint32_t>(std::clamp(event, first, end) - first);
    if (stop > done) sweep(columns, done, stop);
    done = std::max(done, stop);
  };
  if (!in_range_ && !after_range_ && options_.range.first < end && done < columns.events) {
    const std::uint64_t opens = std::max(options_.range.first, first);
    sweep_to(opens);
    flush_phases();
    in_range_ = true;  // phases count from here on
    sweep_to(opens + 1);
    open_range(opens);
  }
  if (in_range_ && options_.range.end <= end) {
    sweep_to(options_.range.end);
    close_range();
  }
  sweep_to(end);
  return true;
}

// The hot loop: about half the events are allocations, half frees; everything else is rare.
void Sweep::sweep(const trace::Columns& columns, std::uint32_t begin, std::uint32_t end) {
  const std::uint8_t* kinds = columns.kind.data();
  const std::uint8_t* phases = columns.phase.data();
  const HeapState* shown = &heaps_[shown_];
  for (std::uint32_t i = begin; i < end; ++i) {
    const std::uint8_t kind_byte = kinds[i];
    const auto kind = static_cast<Kind>(kind_byte & 0x7f);
    const std::uint64_t event = columns.first_event + i;
    const std::uint32_t phase = phases[i] & 7U;
    if (kind == Kind::alloc) {
      const std::uint32_t id = columns.heap[at_.heap++];
      const std::uint64_t bytes = columns.size[at_.size++];
      HeapState& state = heap(id);
      shown = &heaps_[shown_];  // heap() may have grown the vector
      Block& block = out_.blocks.add(bytes);
      block.birth = static_cast<std::uint32_t>(event);
      block.facts = Block::pack(static_cast<std::uint32_t>(&state - heaps_.data()), phase, in_step_);  // not id: that may be too large
      state.allocated.now = wrapping_sum(state.allocated.now, static_cast<std::int64_t>(bytes));
      ++state.blocks;
      ++state.out.allocations;
      phases_[phase].allocations += &state == shown;
      state.segments_fullest.look(state.segments, state.allocated.now, event);
      state.allocated.raise(event);
      if ((kind_byte & totals_bit) != 0) totals(state, columns, event);
    } else if (kind == Kind::free_requested) {
      const std::uint64_t age = columns.age[at_.age++];
      Block* block = out_.blocks.find(out_.blocks.end() - age);
      if (block == nullptr || block->freed()) {
        ++out_.unmatched_frees;  // age 0: its block lies in a hole of the file
        at_.total += (kind_byte & totals_bit) != 0;
      } else {
        HeapState& state = heaps_[block->heap()];
        block->death = static_cast<std::uint32_t>(event);
        state.allocated.now = wrapping_difference(state.allocated.now, static_cast<std::int64_t>(out_.blocks.bytes(*block)));
        --state.blocks;
        ++state.out.frees;
        if ((kind_byte & totals_bit) != 0) totals(state, columns, event);
      }
    } else {
      other(columns, i, event);
      shown = &heaps_[shown_];
    }
    PhaseFigures& figures = phases_[phase];
    if (shown->allocated.now > figures.peak_bytes) {
      figures.peak_bytes = shown->allocated.now;
      figures.peak_event = event;
    }
  }
}

// The allocator's own counters beside the event: conservation.
void Sweep::totals(HeapState& heap, const trace::Columns& columns, std::uint64_t event) {
  const std::int64_t error = columns.total_error[at_.total];
  heap.reserved.now = wrapping_sum(heap.reserved.now, columns.reserved_delta[at_.total]);
  ++at_.total;
  ++heap.out.checked_events;
  if (!heap.has_baseline) {
    heap.has_baseline = true;
    heap.out.baseline_bytes = error;
  } else if (error != heap.out.baseline_bytes) {
    ++heap.out.mismatched_events;
    const auto id = static_cast<std::uint32_t>(&heap - heaps_.data());
    if (out_.mismatches.size() < PhysicalLedger::max_mismatches) out_.mismatches.push_back({event, id, error, heap.out.baseline_bytes});
  }
  if (heap.reserved.now == 0) return;  // PyTorch's CPU allocator states 0: it does not know
  heap.has_reserved = true;
  heap.reserved_fullest.look(heap.reserved, heap.allocated.now, event);
  heap.reserved.raise(event);
  heap.out.reserved_below_total += heap.reserved.now < wrapping_sum(heap.allocated.now, error);
  if (heap.has_segments) {
    const std::int64_t difference = wrapping_difference(heap.reserved.now, heap.segments.now);
    if (!heap.has_segment_baseline) heap.segment_baseline = difference;
    heap.has_segment_baseline = true;
    heap.out.segments_not_reserved += difference != heap.segment_baseline;
  }
}

// Every kind that is neither an allocation nor a matched free.
void Sweep::other(const trace::Columns& columns, std::uint32_t index, std::uint64_t event) {
  const std::uint8_t kind_byte = columns.kind[index];
  const auto kind = static_cast<Kind>(kind_byte & 0x7f);
  const trace::ColumnMask mask = trace::column_table()[kind_byte];
  const trace::Positions here = at_;
  at_.pass(mask);
  switch (kind) {
    case Kind::free_unmatched:
      ++out_.unmatched_frees;
      ++heap(columns.heap[here.heap]).out.unmatched_frees;
      break;
    case Kind::segment_alloc:
    case Kind::segment_free:
    case Kind::segment_map:
    case Kind::segment_unmap: {
      HeapState& state = heap(columns.heap[here.heap]);
      const auto bytes = static_cast<std::int64_t>(columns.size[here.size]);
      state.has_segments = true;
      const bool comes = kind == Kind::segment_alloc || kind == Kind::segment_map;
      state.segments.now = comes ? wrapping_sum(state.segments.now, bytes) : wrapping_difference(state.segments.now, bytes);
      state.segments_fullest.look(state.segments, state.allocated.now, event);
      state.segments.raise(event);
      if (comes) state.out.last_segment = event;
      driver_.add(kind, columns.heap[here.heap], columns.size[here.size], event);
      break;
    }
    case Kind::host_alloc:
    case Kind::host_free:
    case Kind::host_register:
    case Kind::host_unregister:
    case Kind::handle_create:
    case Kind::handle_release: driver_.add(kind, columns.heap[here.heap], columns.size[here.size], event); break;
    case Kind::kernel: ++out_.kernels; break;
    case Kind::out_of_memory: {
      const std::uint32_t id = columns.heap[here.heap];
      const HeapState& state = heap(id);
      const std::int64_t held = state.out.allocations != 0 ? state.allocated.now : state.segments.now;
      const auto allocated = static_cast<std::uint64_t>(std::max<std::int64_t>(held, 0));
      if (out_.out_of_memory.size() < PhysicalLedger::max_out_of_memory)
        out_.out_of_memory.push_back({event, columns.size[here.size], allocated, id});
      break;
    }
    case Kind::counter: sample(columns.number[here.number], columns.heap[here.heap], columns.name[here.name], event); break;
    case Kind::step_begin:
    case Kind::step_end:
    case Kind::backward_begin: mark(kind, columns.number[here.number], event); break;
    case Kind::scope_begin:
    case Kind::scope_end: out_.recompute_regions |= static_cast<trace::Phase>(columns.phase[index]) == trace::Phase::recompute; break;
    case Kind::node_begin: ++out_.nodes; break;
    default:
      out_.statements += kind >= Kind::value_create;
      out_.releases += kind == Kind::value_release || kind == Kind::value_drop;
      break;
  }
  // An event that shows the allocator's counters without moving a block (out of memory, a segment) is checked like the
  // others.
  if ((mask & trace::column::total) == 0) return;
  at_.total = here.total;
  if ((mask & trace::column::heap) != 0)
    totals(heap(columns.heap[here.heap]), columns, event);
  else
    ++at_.total;
}

void Sweep::mark(Kind kind, std::int64_t number, std::uint64_t event) {
  if (kind != Kind::backward_begin) close_step(kind == Kind::step_end ? event + 1 : event);
  in_step_ = kind != Kind::step_end && (kind == Kind::step_begin || in_step_);
  if (kind == Kind::step_end) return;
  const bool is_step = kind == Kind::step_begin;
  if ((is_step ? out_.steps.size() : out_.backwards.size()) >= PhysicalLedger::max_marks) {
    ++out_.dropped_marks;
    return;
  }
  if (is_step) {
    open_step_ = out_.steps.size();
    out_.steps.emplace_back();
    out_.steps.back().number = number;
    out_.steps.back().first_event = event;
  } else {
    out_.backwards.push_back({event, number, static_cast<std::uint64_t>(heaps_[shown_].allocated.now), open_step_});
  }
}

// What was seen since the last boundary belongs to the open step and, inside it, to the range.
void Sweep::flush_phases() {
  if (open_step_ != no_step) merge(out_.steps[open_step_].phases, phases_);
  if (in_range_) merge(out_.phases, phases_);
  phases_ = {};
}

void Sweep::close_step(std::uint64_t event) {
  flush_phases();
  if (open_step_ != no_step) out_.steps[open_step_].end_event = event;
  open_step_ = no_step;
}

void Sweep::open_range(std::uint64_t event) {
  range_opened_ = event;
  for (HeapState& heap : heaps_) open_gates(heap, event);
  driver_.open_range(event);
}

void Sweep::close_range() {
  flush_phases();
  in_range_ = false;
  after_range_ = true;
  driver_.close_range();
  for (HeapState& heap : heaps_) {
    const std::pair<Meter*, Counter*> pairs[] = {
        {&heap.allocated, &heap.out.allocated}, {&heap.reserved, &heap.out.reserved}, {&heap.segments, &heap.out.segments}};
    for (const auto& [meter, counter] : pairs) {
      if (meter->event == no_event) continue;
      counter->peak = static_cast<std::uint64_t>(std::max<std::int64_t>(meter->gate, 0));
      counter->peak_event = meter->event;
      meter->gate = closed_gate;
      meter->event = no_event;
    }
  }
}

// After a hole blocks may live on in our sums that were freed in it: say so where the writer's own sums tell.
void Sweep::check_stated_sums(const trace::ChunkInfo& chunk) {
  for (const trace::HeapTotal& total : chunk.totals) {
    if (total.heap < heaps_.size() && static_cast<std::int64_t>(total.live_bytes) != heaps_[total.heap].allocated.now) {
      ++out_.sums_off_after_holes;
      return;
    }
  }
}

void Sweep::sample(std::int64_t number, std::uint32_t heap, std::uint32_t name, std::uint64_t event) {
  auto found =
      std::find_if(out_.counters.begin(), out_.counters.end(), [&](const SampledCounter& c) { return c.heap == heap && c.name == name; });
  if (found == out_.counters.end()) {
    if (out_.counters.size() >= 256) return;  // named counters are few; a trace that has more is not a recorder's
    found = out_.counters.insert(found, SampledCounter{heap, name});
  }
  found->final = number;
  if (!in_range_) return;
  if (found->samples++ == 0 || number > found->peak) {
    found->peak = number;
    found->peak_event = event;
  }
}

}  // namespace

Result<PhysicalLedger> build_physical(const trace::TraceFile& file, const PhysicalOptions& options) { return Sweep(file, options).run(); }

}  // namespace liveset::ledger
