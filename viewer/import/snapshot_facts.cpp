#include "viewer/import/snapshot_facts.h"

#include <algorithm>
#include <map>
#include <set>

namespace liveset::imports {
namespace {

// Far above any memory, and low enough that no sum or difference of a few such numbers leaves 64 bits.
constexpr std::int64_t most_bytes = std::int64_t{1} << 60;

// Address ranges, to ask whether something lies inside of them.
class Ranges {
 public:
  void add(std::uint64_t begin, std::uint64_t bytes) { ranges_.push_back({begin, begin + bytes}); }
  // Neighbours become one.
  void settle() {
    std::sort(ranges_.begin(), ranges_.end());
    std::size_t used = 0;
    for (const auto& range : ranges_) {
      if (used != 0 && range.first <= ranges_[used - 1].second)
        ranges_[used - 1].second = std::max(ranges_[used - 1].second, range.second);
      else
        ranges_[used++] = range;
    }
    ranges_.resize(used);
  }
  bool contains(std::uint64_t begin, std::uint64_t bytes) const {
    const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), std::pair(begin, ~std::uint64_t{0}));
    return after != ranges_.begin() && begin + bytes <= (after - 1)->second;
  }

 private:
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges_;
};

std::string hexadecimal(std::uint64_t address) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  do text.insert(text.begin(), digits[address & 15]);
  while ((address >>= 4) != 0);
  return "0x" + text;
}

class DeviceReading {
 public:
  DeviceReading(const Snapshot& snapshot, std::uint32_t device, const std::vector<std::size_t>& segments)
      : snapshot_(snapshot), segments_(segments) {
    out_.device = device;
    if (device < snapshot.traces.size()) events_ = &snapshot.traces[device];
  }

  // Of the file, whatever its devices are: said of the first.
  void behind_end() {
    if (const std::uint64_t behind = snapshot_.pickle.bytes_behind(); behind != 0)
      contradiction("the file goes on for " + std::to_string(behind) + " bytes behind the end of its pickle, which were not read");
  }
  // False: the sizes add up beyond most_bytes, and what was found is of no use.
  bool run() {
    dump();
    if (events_ != nullptr) {
      out_.events = events_->size();
      collect_segments();
      replay();
    }
    if (overflow_) return false;
    settle();
    open_segments();
    if (overflow_) return false;
    if (events_ != nullptr) check_curve();
    check_sums();
    return true;
  }
  DeviceFacts& out() { return out_; }

 private:
  struct Live {
    std::uint64_t bytes = 0;
    bool pending = false;
  };
  struct AtDump {
    const SnapshotBlock* block = nullptr;
    std::uint64_t stream = 0;
  };

  void contradiction(const std::string& text) {
    if (++out_.contradiction_count <= DeviceFacts::max_contradictions) out_.contradictions.push_back(text);
  }
  // A sum that left its bounds stays where it is. One size is within 2^48 bytes (the snapshot's reader).
  template <class Number>
  void add(Number& sum, std::uint64_t bytes) {
    if (sum > static_cast<Number>(most_bytes)) overflow_ = true;
    if (!overflow_) sum += static_cast<Number>(bytes);
  }
  void take(std::int64_t& sum, std::uint64_t bytes) {
    if (sum < -most_bytes) overflow_ = true;
    if (!overflow_) sum -= static_cast<std::int64_t>(bytes);
  }

  void dump() {
    std::uint64_t end = 0;
    for (const std::size_t index : sorted_segments()) {
      const SnapshotSegment& segment = snapshot_.segments[index];
      if (segment.address < end) contradiction("segments overlap at " + hexadecimal(segment.address));
      end = std::max(end, segment.address + segment.total);
      ranges_.add(segment.address, segment.total);
      add(out_.reserved_at_dump, segment.total);
      std::uint64_t sum = 0, active = 0, allocated = 0, requested = 0;
      for (std::size_t i = 0; i < segment.blocks; ++i) {
        const SnapshotBlock& block = snapshot_.blocks[segment.first_block + i];
        add(sum, block.size);
        if (block.state == BlockState::inactive) continue;
        add(active, block.size);
        add(requested, block.requested);
        if (block.state == BlockState::allocated)
          add(allocated, block.size);
        else
          ++out_.pending_at_dump;
        if (block.requested > block.size) contradiction("the block at " + hexadecimal(block.address) + " holds less than was asked for");
        if (block.address < segment.address || block.address + block.size > segment.address + segment.total)
          contradiction("the block at " + hexadecimal(block.address) + " lies outside of its segment");
        if (!at_dump_.try_emplace(block.address, AtDump{&block, segment.stream}).second)
          contradiction("two blocks at " + hexadecimal(block.address));
      }
      const auto check = [&](const char* what, std::uint64_t stated, std::uint64_t found) {
        if (stated == SnapshotSegment::unknown || stated == found) return;
        if (wrong_sums_++ == 0)
          first_wrong_sum_ = ("the segment at " + hexadecimal(segment.address) + " states " + std::to_string(stated) + " bytes " + what +
                              ", its blocks hold " + std::to_string(found));
      };
      check("in all", segment.total, sum);
      check("allocated", segment.allocated, allocated);
      check("active", segment.active, active);
      check("requested", segment.requested, requested);
      add(out_.active_at_dump, active);
      add(out_.allocated_at_dump, allocated);
      add(out_.requested_at_dump, requested);
    }
  }

  // The ones that tell most come first.
  void check_sums() {
    if (wrong_sums_ != 0)
      contradiction("sums of segments that their blocks do not add up to: " + std::to_string(wrong_sums_) +
                    ", the first: " + first_wrong_sum_);
  }

  std::vector<std::size_t> sorted_segments() const {
    std::vector<std::size_t> order = segments_;
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return snapshot_.segments[a].address < snapshot_.segments[b].address; });
    return order;
  }

  void collect_segments() {
    for (const SnapshotEvent& event : *events_) {
      ++out_.actions[static_cast<std::size_t>(event.action)];
      if (event.action >= Action::segment_alloc && event.action <= Action::segment_unmap) ranges_.add(event.address, event.size);
    }
    ranges_.settle();
  }

  std::string at(std::size_t index) const { return " (event " + std::to_string(index) + " of device " + std::to_string(out_.device) + ")"; }

  // Blocks: what lives, and what must have lived before.
  void replay() {
    for (std::size_t i = 0; i < events_->size(); ++i) {
      const SnapshotEvent& event = (*events_)[i];
      switch (event.action) {
        case Action::alloc: {
          add(net_, event.size);
          if (!ranges_.contains(event.address, event.size)) {
            if (outside_++ == 0) first_outside_ = i;
          }
          const auto [entry, added] = live_.try_emplace(event.address, Live{event.size});
          if (!added) contradiction("a block is allocated at " + hexadecimal(event.address) + ", where one lives" + at(i));
          entry->second = {event.size};
          freed_.erase(event.address);
          break;
        }
        case Action::free_requested: {
          const auto found = live_.find(event.address);
          if (found == live_.end()) break;
          if (found->second.pending) contradiction("the block at " + hexadecimal(event.address) + " is freed twice" + at(i));
          found->second.pending = true;
          break;
        }
        case Action::free_completed: free(event, i); break;
        default: break;
      }
      out_.peak_requested = std::max(out_.peak_requested, net_);
    }
    if (outside_ != 0)
      contradiction(std::to_string(outside_) + " allocations lie in no segment, the first at " +
                    hexadecimal((*events_)[first_outside_].address) + at(first_outside_));
  }

  void free(const SnapshotEvent& event, std::size_t index) {
    take(net_, event.size);
    const auto found = live_.find(event.address);
    if (found != live_.end()) {
      if (found->second.bytes != event.size)
        contradiction("the block at " + hexadecimal(event.address) + " was allocated with " + std::to_string(found->second.bytes) +
                      " bytes and freed with " + std::to_string(event.size) + at(index));
      live_.erase(found);
      freed_.insert(event.address);
      return;
    }
    ++out_.unseen_allocations;
    if (freed_.insert(event.address).second)
      out_.opening_blocks.push_back({event.address, event.size, event.stream, Pickle::absent});
    else
      contradiction("the block at " + hexadecimal(event.address) + " is freed, and none lives there" + at(index));
  }

  // The end of the events against the dump.
  void settle() {
    for (const auto& [address, live] : live_) {
      const auto found = at_dump_.find(address);
      if (found == at_dump_.end())
        contradiction("the block at " + hexadecimal(address) + " is allocated and not freed, and the dump does not have it");
      else if (found->second.block->requested != live.bytes)
        contradiction("the block at " + hexadecimal(address) + " was allocated with " + std::to_string(live.bytes) +
                      " bytes; the dump says " + std::to_string(found->second.block->requested));
    }
    for (const auto& [address, held] : at_dump_) {
      if (live_.count(address) != 0) continue;
      if (freed_.count(address) != 0)
        contradiction("the block at " + hexadecimal(address) + " is freed, and the dump has it");
      else
        out_.opening_blocks.push_back({address, held.block->requested, held.stream, held.block->frames});
    }
    std::sort(out_.opening_blocks.begin(), out_.opening_blocks.end(),
              [](const Opening& a, const Opening& b) { return a.address < b.address; });
    out_.baseline_requested = static_cast<std::int64_t>(out_.requested_at_dump) - net_;
    out_.peak_requested += out_.baseline_requested;
    std::uint64_t opening = 0;
    for (const Opening& block : out_.opening_blocks) add(opening, block.bytes);
    if (static_cast<std::int64_t>(opening) != out_.baseline_requested)
      contradiction("the dump less what the events add up to is " + std::to_string(out_.baseline_requested) +
                    " bytes; the blocks that must have lived before hold " + std::to_string(opening));
    const bool allocates = out_.actions[static_cast<std::size_t>(Action::alloc)] != 0;
    out_.history = !allocates ? History::none : opening != 0 ? History::window : History::whole;
  }

  // Segments that no event brought: they were there before. Of an expandable one, whose parts come and go in other sizes, only the bytes.
  void open_segments() {
    std::int64_t net = 0, peak = 0;
    std::map<std::uint64_t, std::uint64_t> brought;  // segments of their own
    if (events_ != nullptr) {
      for (const SnapshotEvent& event : *events_) {
        const bool comes = event.action == Action::segment_alloc || event.action == Action::segment_map;
        const bool goes = event.action == Action::segment_free || event.action == Action::segment_unmap;
        if (comes) add(net, event.size);
        if (goes) take(net, event.size);
        peak = std::max(peak, net);
        if (event.action == Action::segment_alloc) brought[event.address] = event.size;
        if (event.action == Action::segment_free && brought.erase(event.address) == 0)
          out_.opening_segments.push_back({event.address, event.size, event.stream, Pickle::absent});
      }
    }
    out_.baseline_reserved = static_cast<std::int64_t>(out_.reserved_at_dump) - net;
    out_.peak_reserved = out_.baseline_reserved + peak;
    if (out_.baseline_reserved < 0) {
      contradiction("the segments' events bring more than the segments of the dump hold");
      out_.opening_segments.clear();
      return;
    }
    std::uint64_t opening = 0;
    for (const Opening& segment : out_.opening_segments) add(opening, segment.bytes);
    const SnapshotSegment* expandable = nullptr;
    for (const std::size_t index : segments_) {
      const SnapshotSegment& segment = snapshot_.segments[index];
      if (segment.expandable) expandable = &segment;
      if (segment.expandable || brought.count(segment.address) != 0) continue;
      add(opening, segment.total);
      out_.opening_segments.push_back({segment.address, segment.total, segment.stream, Pickle::absent});
    }
    const auto wanted = static_cast<std::uint64_t>(out_.baseline_reserved);
    if (opening < wanted && expandable != nullptr)
      out_.opening_segments.push_back({expandable->address, wanted - opening, expandable->stream, Pickle::absent});
    else if (opening != wanted)
      contradiction("the segments that must have been there before hold " + std::to_string(opening) +
                    " bytes; the dump less the events is " + std::to_string(wanted));
  }

  // No moment may hold more than is reserved.
  void check_curve() {
    std::int64_t requested = out_.baseline_requested, reserved = out_.baseline_reserved;
    std::uint64_t beyond = 0;
    std::int64_t worst = 0, worst_reserved = 0;
    std::size_t worst_event = 0;
    for (std::size_t i = 0; i < events_->size(); ++i) {
      const SnapshotEvent& event = (*events_)[i];
      const auto bytes = static_cast<std::int64_t>(event.size);
      if (event.action == Action::alloc) requested += bytes;
      if (event.action == Action::free_completed) requested -= bytes;
      if (event.action == Action::segment_alloc || event.action == Action::segment_map) reserved += bytes;
      if (event.action == Action::segment_free || event.action == Action::segment_unmap) reserved -= bytes;
      if (requested <= reserved) continue;
      ++beyond;
      if (requested - reserved <= worst - worst_reserved) continue;
      worst = requested;
      worst_reserved = reserved;
      worst_event = i;
    }
    if (beyond != 0)
      contradiction("more is allocated than is reserved after " + std::to_string(beyond) + " events; at most " + std::to_string(worst) +
                    " bytes in " + std::to_string(worst_reserved) + at(worst_event));
  }

  const Snapshot& snapshot_;
  const std::vector<std::size_t>& segments_;
  const std::vector<SnapshotEvent>* events_ = nullptr;
  DeviceFacts out_;
  Ranges ranges_;
  std::map<std::uint64_t, AtDump> at_dump_;
  std::map<std::uint64_t, Live> live_;
  std::set<std::uint64_t> freed_;  // where a block was freed and none was allocated since
  std::int64_t net_ = 0;
  std::uint64_t outside_ = 0;
  std::size_t first_outside_ = 0;
  std::uint64_t wrong_sums_ = 0;
  std::string first_wrong_sum_;
  bool overflow_ = false;
};

}  // namespace

const char* history_name(History history) {
  constexpr const char* names[] = {"none", "window", "whole"};
  return names[static_cast<std::size_t>(history)];
}

Result<std::vector<DeviceFacts>> facts_of(const Snapshot& snapshot) {
  std::vector<std::vector<std::size_t>> segments(snapshot.traces.size());
  for (std::size_t i = 0; i < snapshot.segments.size(); ++i) {
    const std::uint32_t device = snapshot.segments[i].device;
    if (device >= segments.size()) segments.resize(device + 1);
    segments[device].push_back(i);
  }
  std::vector<DeviceFacts> facts;
  for (std::uint32_t device = 0; device < segments.size(); ++device) {
    if (segments[device].empty() && (device >= snapshot.traces.size() || snapshot.traces[device].empty())) continue;
    DeviceReading reading(snapshot, device, segments[device]);
    if (facts.empty()) reading.behind_end();
    if (!reading.run())
      return Error{ErrorKind::unreadable,
                   snapshot.pickle.name(),
                   {},
                   "the sizes of device " + std::to_string(device) + " add up beyond 2^60 bytes",
                   "the snapshot is damaged, or not PyTorch's"};
    facts.push_back(std::move(reading.out()));
  }
  return facts;
}

}  // namespace liveset::imports
