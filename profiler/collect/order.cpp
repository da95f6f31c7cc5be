#include "profiler/collect/order.h"

#include <algorithm>
#include <cstring>

#include "proto/trace.pb.h"

namespace liveset::collect {
namespace {

using channel::Unit;

constexpr std::uint64_t near_us = 10;
constexpr std::uint64_t skews_us[] = {near_us, 200, 5'000, 40'000};
constexpr std::size_t max_moves = 128;
constexpr std::uint32_t search_budget = 20'000;
constexpr std::uint32_t too_many_failures = 16;

bool is_alloc(const Unit& unit) { return (unit.kind & 0x7f) == proto::EVENT_ALLOC; }
bool is_free(const Unit& unit) { return (unit.kind & 0x7f) == proto::EVENT_FREE_REQUESTED; }
bool is_block(const Unit& unit) { return is_alloc(unit) || is_free(unit); }

// The allocator's total after the event, when it states one.
bool states_total(const Unit* units, std::uint64_t* total) {
  if ((units->kind & channel::kind_extended) == 0 || !is_block(*units)) return false;
  channel::Extension extension;
  std::memcpy(&extension, units + 1, sizeof extension);
  *total = extension.allocated;
  return extension.has_totals != 0;
}

}  // namespace

Orderer::Orderer(OrderSink& sink, double ticks_per_microsecond)
    : sink_(sink), microsecond_(ticks_per_microsecond < 1 ? 1 : static_cast<std::uint64_t>(ticks_per_microsecond)) {}

std::uint32_t Orderer::add_ring() {
  rings_.emplace_back();
  return static_cast<std::uint32_t>(rings_.size() - 1);
}

// The event at `position`; stamps of one thread never run backwards (a virtual machine that moves may make them).
Orderer::Head Orderer::head_at(const Ring& ring, std::size_t position, std::uint64_t last) {
  Head head;
  const std::size_t left = ring.units.size() - position;
  if (left == 0) return head;
  const Unit& unit = ring.units[position];
  std::uint32_t count = 1;
  if (unit.kind == channel::kind_thread || (unit.kind & channel::kind_extended) != 0) {
    count = 2;
  } else if (channel::is_value_kind(unit.kind)) {
    channel::ValueUnit value{};
    if (left > 1) std::memcpy(&value, &ring.units[position + 1], sizeof value);
    count = channel::value_units(std::min(value.read_count, channel::max_reads));
  }
  if (count > left) return head;  // only a job that wrote over its ring gets here; see appended()
  head.ticks = std::max(unit.ticks, last);
  head.count = count;
  return head;
}

void Orderer::appended(std::uint32_t index) {
  Ring& ring = rings_[index];
  if (ring.head.count == 0) ring.head = head_at(ring, ring.position, ring.last);
}

bool Orderer::empty() const {
  return std::all_of(rings_.begin(), rings_.end(), [](const Ring& ring) { return ring.head.count == 0; });
}

std::uint64_t Orderer::waiting_units() const {
  std::uint64_t units = 0;
  for (const Ring& ring : rings_) units += ring.units.size() - ring.position;
  return units;
}

Orderer::HeapState& Orderer::heap(std::uint32_t id) {
  if (id >= heaps_.size()) heaps_.resize(id + 1);
  return heaps_[id];
}

bool Orderer::chain_fits(const Unit* units) {
  std::uint64_t total = 0;
  const HeapState& state = heap(units->heap);
  if (!state.known || units->b == 0 || !states_total(units, &total)) return true;
  return total == (is_alloc(*units) ? state.total + units->b : state.total - units->b);
}

bool Orderer::is_live_now(std::uint32_t heap_id, std::uint64_t address) const {
  for (std::size_t i = changes_.size(); i-- > 0;) {
    if (changes_[i].address == address && changes_[i].heap == heap_id) return changes_[i].live;
  }
  return sink_.is_live(heap_id, address);
}

// Does another ring allocate this address soon? Then a free that is earlier by stamp belongs to that allocation.
bool Orderer::allocation_is_near(const Ring& own, const Unit& unit, std::uint64_t limit) {
  for (const Ring& ring : rings_) {
    if (&ring == &own) continue;
    std::size_t position = ring.position;
    for (Head head = ring.head; head.count != 0 && head.ticks <= limit; head = head_at(ring, position, head.ticks)) {
      const Unit& other = ring.units[position];
      if (is_alloc(other) && other.a == unit.a && other.heap == unit.heap) return true;
      position += head.count;
    }
  }
  return false;
}

bool Orderer::address_fits(const Ring& own, const Unit& unit, std::uint64_t limit) {
  if (is_alloc(unit)) return !is_live_now(unit.heap, unit.a);
  if (is_free(unit)) return is_live_now(unit.heap, unit.a) || !allocation_is_near(own, unit, limit);
  return true;
}

// `alone`: no other ring has an event near by.
bool Orderer::can_go(const Ring& ring, bool alone) {
  const Unit* units = &ring.units[ring.position];
  if (!is_block(*units)) return true;
  if (!chain_fits(units)) return false;
  if (alone) return true;
  std::uint64_t total = 0;
  if (states_total(units, &total)) return false;  // fits, but another may fit as well: look ahead
  return address_fits(ring, *units, ring.head.ticks + near_us * microsecond_);
}

void Orderer::emit(std::uint32_t index) {
  Ring& ring = rings_[index];
  const Unit* units = &ring.units[ring.position];
  std::uint64_t total = 0;
  if (states_total(units, &total)) heap(units->heap) = {true, total};
  sink_.emit(index, units, ring.head.count, ring.head.ticks);
  ring.last = ring.head.ticks;
  ring.position += ring.head.count;
  ring.head = head_at(ring, ring.position, ring.last);
}

void Orderer::advance(std::uint64_t bound) {
  // What comes next must be known up to a little beyond an event before it can be seen to be alone.
  const std::uint64_t horizon = rings_.size() > 1 && bound != everything ? bound - std::min(bound, near_us * microsecond_) : bound;
  for (bool tangled = false; !tangled;) {
    std::uint32_t first = 0;
    std::uint64_t first_ticks = everything, second_ticks = everything;
    for (std::uint32_t i = 0; i < rings_.size(); ++i) {
      const std::uint64_t ticks = rings_[i].head.ticks;
      if (ticks < first_ticks) {
        second_ticks = first_ticks;
        first_ticks = ticks;
        first = i;
      } else {
        second_ticks = std::min(second_ticks, ticks);
      }
    }
    if (first_ticks >= horizon || first_ticks == everything) break;
    // The ring's events up to the next one of another ring go without looking again.
    Ring& ring = rings_[first];
    while (ring.head.ticks <= second_ticks && ring.head.ticks < horizon) {
      const bool alone = second_ticks == everything || second_ticks - ring.head.ticks > near_us * microsecond_;
      if (!can_go(ring, alone)) {
        tangled = !untangle(first, bound);
        break;
      }
      emit(first);
    }
  }
  for (Ring& ring : rings_) {
    const std::size_t left = ring.units.size() - ring.position;
    if (ring.head.count == 0 && left != 0) {  // the rest is no event
      damaged_ += left;
      ring.position = ring.units.size();
    }
    if (ring.position * 2 >= ring.units.size()) {
      ring.units.erase(ring.units.begin(), ring.units.begin() + static_cast<std::ptrdiff_t>(ring.position));
      ring.position = 0;
    }
  }
}

// The ring's next event is the earliest by stamp, but does not fit or is not the only one that could be next. False: events that
// are needed to decide may still come.
bool Orderer::untangle(std::uint32_t index, std::uint64_t bound) {
  const Ring& ring = rings_[index];
  const bool fits = chain_fits(&ring.units[ring.position]) && address_fits(ring, ring.units[ring.position], ring.head.ticks + near_us * microsecond_);
  // Where it never works out, do not try hard each time.
  const std::size_t levels = fits || failures_ > too_many_failures ? 1 : std::size(skews_us);
  const std::uint64_t ticks = ring.head.ticks;
  for (std::size_t level = 0; level < levels; ++level) {
    const std::uint64_t skew = skews_us[level] * microsecond_;
    if (bound != everything && ticks + 2 * skew > bound) return false;
    if (search(skew, ticks + 2 * skew)) {
      failures_ -= failures_ > 0 ? 1 : 0;
      commit(ticks + skew);
      return true;
    }
  }
  if (!fits && failures_ < 2 * too_many_failures) ++failures_;
  emit(index);
  return true;
}

// The next ring after (tried_ticks, tried_ring), by stamp, whose event may be tried now.
bool Orderer::next_candidate(std::uint64_t limit, std::uint64_t skew, std::uint64_t* tried_ticks, std::uint32_t* tried_ring,
                             std::uint32_t* ring) const {
  std::uint64_t earliest = everything, best = everything;
  std::uint32_t best_ring = 0;
  for (std::uint32_t i = 0; i < rings_.size(); ++i) {
    const std::uint64_t ticks = rings_[i].head.ticks;
    earliest = std::min(earliest, ticks);
    const bool untried = ticks > *tried_ticks || (ticks == *tried_ticks && i > *tried_ring);
    if (untried && ticks < best) {
      best = ticks;
      best_ring = i;
    }
  }
  // Going on while another ring's event is left further behind than stamps can be wrong leads nowhere.
  if (best == everything || best > limit || best - earliest > skew) return false;
  *tried_ticks = best;
  *tried_ring = *ring = best_ring;
  return true;
}

void Orderer::push(std::uint32_t index) {
  Ring& ring = rings_[index];
  const Unit* units = &ring.units[ring.position];
  Move move{index, ring.position, ring.last, ring.head, heap(units->heap), units->heap, is_block(*units)};
  std::uint64_t total = 0;
  if (states_total(units, &total)) heap(units->heap) = {true, total};
  if (move.changes_live) changes_.push_back({units->a, units->heap, is_alloc(*units)});
  moves_.push_back(move);
  ring.last = ring.head.ticks;
  ring.position += ring.head.count;
  ring.head = head_at(ring, ring.position, ring.last);
}

void Orderer::pop() {
  const Move& move = moves_.back();
  Ring& ring = rings_[move.ring];
  ring.position = move.position;
  ring.last = move.last;
  ring.head = move.head;
  heaps_[move.heap] = move.total_before;
  if (move.changes_live) changes_.pop_back();
  moves_.pop_back();
}

// Depth first, earliest stamp first. On success moves_ holds an order in which everything up to `limit` (or the next max_moves events)
// fits; otherwise it is empty. The state is that after moves_.
bool Orderer::search(std::uint64_t skew, std::uint64_t limit) {
  std::uint32_t budget = search_budget >> std::min(failures_, 8U);
  std::uint64_t tried_ticks = 0;
  std::uint32_t tried_ring = 0, ring = 0;
  bool fresh = true;  // nothing was tried at this place yet
  for (;;) {
    if (fresh) {
      const bool done = std::none_of(rings_.begin(), rings_.end(), [limit](const Ring& other) { return other.head.ticks <= limit; });
      if (done || moves_.size() >= max_moves) return true;
      tried_ticks = 0;
      tried_ring = ~0U;
    }
    fresh = false;
    bool moved = false;
    while (!moved && budget > 0 && next_candidate(limit, skew, &tried_ticks, &tried_ring, &ring)) {
      --budget;
      const Ring& candidate = rings_[ring];
      const Unit* units = &candidate.units[candidate.position];
      if (is_block(*units) && (!chain_fits(units) || !address_fits(candidate, *units, limit))) continue;
      push(ring);
      moved = fresh = true;
    }
    if (moved) continue;
    if (moves_.empty() || budget == 0) {
      while (!moves_.empty()) pop();
      return false;
    }
    tried_ticks = moves_.back().head.ticks;
    tried_ring = moves_.back().ring;
    pop();
  }
}

// Emits the first part of the order found: up to the last event stamped at or before `up_to`. The rest was only looked at.
void Orderer::commit(std::uint64_t up_to) {
  std::vector<std::uint32_t> order;
  std::size_t keep = 0;
  for (std::size_t i = 0; i < moves_.size(); ++i) {
    order.push_back(moves_[i].ring);
    if (moves_[i].head.ticks <= up_to) keep = i + 1;
  }
  if (moves_.size() >= max_moves) keep = std::min(keep, std::max<std::size_t>(max_moves / 2, 1));
  while (!moves_.empty()) pop();
  for (std::size_t i = 0; i < keep; ++i) emit(order[i]);
}

}  // namespace liveset::collect
