#include "viewer/allocator/trace_layout.h"

#include <algorithm>
#include <map>
#include <set>

#include "viewer/ledger/details.h"
#include "viewer/trace/columns.h"

namespace liveset::allocator {
namespace {

using trace::Kind;
constexpr std::uint64_t no_ordinal = unlimited;

// Visits the events of a heap that move its blocks and segments, in order, up to and with `last`: visit(event, kind, ordinal, columns, at),
// `ordinal` that of the block. Stops where visit says false.
template <class Visit>
Status for_each_move(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger, std::uint32_t heap, std::uint64_t last,
                     const ledger::Progress& progress, Visit visit) {
  constexpr trace::ColumnMask wanted =
      trace::column::kind | trace::column::heap | trace::column::stream | trace::column::address | trace::column::size | trace::column::age;
  const trace::ColumnTable& table = trace::column_table();
  trace::Columns columns;
  for (std::size_t chunk = 0; chunk < file.chunks().size() && file.chunks()[chunk].first_event <= last; ++chunk) {
    if (Status status = file.read_chunk(chunk, wanted, columns); !status) return status;
    trace::Positions at;
    std::uint64_t ordinal = columns.first_allocation;
    for (std::uint32_t i = 0; i < columns.events && columns.first_event + i <= last; ++i) {
      const auto kind = static_cast<Kind>(columns.kind[i] & ~trace::totals_bit);
      std::uint64_t block = no_ordinal;
      bool ours = false;
      switch (kind) {
        case Kind::alloc:
          block = ordinal++;
          ours = columns.heap[at.heap] == heap;
          break;
        case Kind::free_requested:
        case Kind::free_completed: {
          const std::uint64_t age = columns.age[at.age];
          const ledger::Block* const freed = age == 0 ? nullptr : ledger.blocks.find(ordinal - age);
          block = ordinal - age;
          ours = freed != nullptr && freed->heap() == heap;
          break;
        }
        case Kind::segment_alloc:
        case Kind::segment_free:
        case Kind::segment_map:
        case Kind::segment_unmap: ours = columns.heap[at.heap] == heap; break;
        default: break;
      }
      if (ours) {
        if (Status status = visit(columns.first_event + i, kind, block, columns, at); !status) return status;
      }
      at.pass(table[columns.kind[i]]);
    }
    if (progress) progress(chunk + 1, file.chunks().size());
  }
  return Done{};
}

// The blocks whose end is told in two events, by ordinal; empty: there are none.
Result<std::vector<bool>> completed_later(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger, std::uint32_t heap,
                                          std::uint64_t last) {
  std::vector<bool> completed;
  Status status =
      for_each_move(file, ledger, heap, last, nullptr,
                    [&](std::uint64_t, Kind kind, std::uint64_t ordinal, const trace::Columns&, const trace::Positions&) -> Status {
                      if (kind != Kind::free_completed) return Done{};
                      if (completed.empty()) completed.resize(ledger.blocks.end());
                      completed[ordinal] = true;
                      return Done{};
                    });
  if (!status) return status.take_error();
  return completed;
}

// Address ranges that a heap has taken. None overlap: a file may say otherwise, then the later one counts.
class Ranges {
 public:
  struct Range {
    std::uint64_t end = 0, stream = 0, number = 0;
    bool expandable = false;
  };

  void add(std::uint64_t begin, std::uint64_t size, std::uint64_t stream, bool expandable) {
    const std::uint64_t end = end_of(begin, size);
    if (end == begin) return;
    remove(begin, size);
    ranges_[begin] = {end, stream, next_number_++, expandable};
  }
  void remove(std::uint64_t begin, std::uint64_t size) {
    const std::uint64_t end = end_of(begin, size);
    auto at = ranges_.upper_bound(begin);
    if (at != ranges_.begin() && std::prev(at)->second.end > begin) --at;
    while (at != ranges_.end() && at->first < end) {
      const auto [old_begin, old] = *at;
      at = ranges_.erase(at);
      if (old_begin < begin) ranges_[old_begin] = {begin, old.stream, old.number, old.expandable};
      if (old.end > end) at = ranges_.insert({end, old}).first;
      if (old.end > end) break;
    }
  }
  const std::map<std::uint64_t, Range>& all() const { return ranges_; }

 private:
  static std::uint64_t end_of(std::uint64_t begin, std::uint64_t size) { return size > unlimited - begin ? unlimited : begin + size; }

  std::map<std::uint64_t, Range> ranges_;  // by begin
  std::uint64_t next_number_ = 0;
};

// Parts of an expandable segment that follow each other are one: blocks lie across.
std::vector<FragmentedSegment> segments_of(const Ranges& ranges) {
  std::vector<FragmentedSegment> segments;
  for (const auto& [begin, range] : ranges.all()) {
    if (!segments.empty()) {
      FragmentedSegment& before = segments.back();
      if (before.expandable && range.expandable && before.address + before.size == begin && before.stream == range.stream) {
        before.size += range.end - begin;
        continue;
      }
    }
    FragmentedSegment segment;
    segment.number = range.number;
    segment.address = begin;
    segment.size = range.end - begin;
    segment.stream = range.stream;
    segment.expandable = range.expandable;
    segment.small = !range.expandable && segment.size <= 2 * mebibyte;
    segments.push_back(std::move(segment));
  }
  return segments;
}

// What lies between pins, which come by address.
void find_free(FragmentedSegment& segment) {
  std::uint64_t at = segment.address;
  const std::uint64_t end = segment.address + segment.size;
  const auto gap = [&](std::uint64_t until) {
    if (until <= at) return;
    segment.free_bytes += until - at;
    segment.largest_free = std::max(segment.largest_free, until - at);
  };
  for (const Pin& pin : segment.pins) {
    gap(std::min(pin.address, end));
    at = std::max(at, pin.size > end - std::min(pin.address, end) ? end : pin.address + pin.size);
  }
  gap(end);
  segment.used = segment.size - segment.free_bytes;
}

}  // namespace

Result<RecordedLayout> recorded_layout(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger, std::uint32_t heap,
                                       std::uint64_t event) {
  Result<std::vector<bool>> completed = completed_later(file, ledger, heap, unlimited);
  if (!completed) return completed.take_error();
  Ranges ranges;
  std::set<std::uint64_t> pending;
  Status status = for_each_move(
      file, ledger, heap, event, nullptr,
      [&](std::uint64_t, Kind kind, std::uint64_t ordinal, const trace::Columns& columns, const trace::Positions& at) -> Status {
        switch (kind) {
          case Kind::segment_alloc:
          case Kind::segment_map:
            ranges.add(columns.address[at.address], columns.size[at.size], columns.stream[at.stream], kind == Kind::segment_map);
            break;
          case Kind::segment_free:
          case Kind::segment_unmap: ranges.remove(columns.address[at.address], columns.size[at.size]); break;
          case Kind::free_requested:
            if (ordinal < completed->size() && (*completed)[ordinal]) pending.insert(ordinal);
            break;
          case Kind::free_completed: pending.erase(ordinal); break;
          default: break;
        }
        return Done{};
      });
  if (!status) return status.take_error();

  std::vector<std::uint32_t> ordinals;
  ledger.blocks.for_each([&](std::uint32_t ordinal, const ledger::Block& block) {
    if (block.heap() == heap && (block.live_after(event) || (!pending.empty() && pending.count(ordinal) != 0))) ordinals.push_back(ordinal);
  });
  Result<std::vector<ledger::BlockDetail>> details = ledger::describe_blocks(file, ledger, ordinals);
  if (!details) return details.take_error();
  std::sort(details->begin(), details->end(),
            [](const ledger::BlockDetail& a, const ledger::BlockDetail& b) { return a.address < b.address; });

  RecordedLayout layout;
  Fragmentation& result = layout.fragmentation;
  result.event = event;
  result.segments = segments_of(ranges);
  auto segment = result.segments.begin();
  for (const ledger::BlockDetail& block : *details) {
    while (segment != result.segments.end() && block.address - segment->address >= segment->size && block.address > segment->address)
      ++segment;
    const bool waits = pending.count(block.ordinal) != 0;
    result.counters.active += block.bytes;
    result.counters.allocated += waits ? 0 : block.bytes;
    if (segment == result.segments.end() || block.address < segment->address) {
      ++layout.outside_blocks;
      layout.outside_bytes += block.bytes;
    } else {
      segment->pins.push_back({block.ordinal, block.address, block.bytes, 0, waits});
    }
  }
  for (FragmentedSegment& each : result.segments) {
    find_free(each);
    result.counters.reserved += each.size;
  }
  std::sort(result.segments.begin(), result.segments.end(),
            [](const FragmentedSegment& a, const FragmentedSegment& b) { return a.number < b.number; });
  return layout;
}

Result<SimulatedLayout> simulated_layout(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger,
                                         const SimulatedOptions& options) {
  Result<std::vector<bool>> completed = completed_later(file, ledger, options.heap, unlimited);
  if (!completed) return completed.take_error();
  SimulatedLayout layout;
  Peak fullest;  // `allocated`, while reserved was at its highest
  const auto run = [&](Replay& replay, std::uint64_t last) {
    const auto raise = [](Peak& peak, const Peak& found, std::uint64_t event) {
      if (found.bytes > peak.bytes || peak.event == Peak::no_event) peak = {found.bytes, event};
    };
    const auto move = [&](std::uint64_t event, Kind kind, std::uint64_t ordinal, const trace::Columns& columns,
                          const trace::Positions& at) -> Status {
      Event next{ordinal, 0, 0, Action::malloc};
      if (kind == Kind::alloc) {
        next.size = columns.size[at.size];
        next.stream = columns.stream[at.stream];
        ++layout.blocks;
      } else if (kind == Kind::free_requested) {
        next.action = ordinal < completed->size() && (*completed)[ordinal] ? Action::free_requested : Action::free;
      } else if (kind == Kind::free_completed) {
        next.action = Action::free_completed;
      } else {
        return Done{};  // a segment
      }
      if (Status status = replay.add(next); !status) return status;
      if (!options.range.contains(event)) return Done{};
      const Counters& now = replay.counters();
      const bool is_new_peak = layout.peaks.reserved.event == Peak::no_event || now.reserved > layout.peaks.reserved.bytes;
      if (is_new_peak || (now.reserved == layout.peaks.reserved.bytes && now.allocated > fullest.bytes)) fullest = {now.allocated, event};
      raise(layout.peaks.requested, {now.requested}, event);
      raise(layout.peaks.allocated, {now.allocated}, event);
      raise(layout.peaks.active, {now.active}, event);
      raise(layout.peaks.reserved, {now.reserved}, event);
      return Done{};
    };
    return for_each_move(file, ledger, options.heap, last, options.progress, move);
  };
  Replay whole(ledger.blocks.end(), options.settings, options.device);
  if (Status status = run(whole, unlimited); !status) return status.take_error();
  layout.statistics = whole.allocator().statistics();
  const Peaks peaks = layout.peaks;
  const std::uint64_t blocks = layout.blocks;
  const std::uint64_t event = options.at.value_or(fullest.event);
  if (event == Peak::no_event) {  // nothing to look at
    layout.fragmentation = whole.fragmentation();
  } else {
    Replay again(ledger.blocks.end(), options.settings, options.device);
    if (Status status = run(again, event); !status) return status.take_error();
    layout.fragmentation = again.fragmentation();
  }
  layout.peaks = peaks;
  layout.blocks = blocks;
  layout.fragmentation.event = event;
  return layout;
}

}  // namespace liveset::allocator
