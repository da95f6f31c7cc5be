#include "profiler/collect/order.h"

#include <algorithm>
#include <cstring>

namespace liveset::collect {
namespace {

using channel::Unit;

constexpr std::uint64_t near_us = 10;
constexpr std::uint64_t patience_us = 2'000;     // before an event that fits nowhere makes the search go back
constexpr std::uint64_t latest_us = 1'000'000;   // so long may a thread be kept off a busy processor between its event and the stamp
constexpr std::uint64_t kept_back_us = 300'000;  // for threads that are new: their first event was counted before they are known
constexpr std::size_t most_kept_back = 262'144;
constexpr std::uint32_t search_budget = 256'000, first_budget = 4'000;
constexpr std::uint32_t longest_bridge = 8, bridge_budget = 2'000;
constexpr std::uint32_t too_many_failures = 16;
constexpr std::uint32_t none = ~0U;

bool is_alloc(const Unit& unit) { return (unit.kind & 0x7f) == channel::kind_alloc; }
bool is_free(const Unit& unit) { return (unit.kind & 0x7f) == channel::kind_free; }
bool is_block(const Unit& unit) { return is_alloc(unit) || is_free(unit); }

// Of a lane's position, so that the sum over the lanes names a state.
std::uint64_t mixed(std::uint64_t lane, std::uint64_t ticks) {
  std::uint64_t hash = (ticks + lane * 0x9e3779b97f4a7c15U) * 0xbf58476d1ce4e5b9U;
  hash ^= hash >> 31;
  return hash * 0x94d049bb133111ebU;
}

// The allocator's total after the event, when it states one.
bool states_total(const Unit* units, std::uint64_t* total) {
  if ((units->kind & channel::kind_extended) == 0 || !is_block(*units)) return false;
  channel::Extension extension;
  std::memcpy(&extension, units + 1, sizeof extension);
  *total = extension.allocated;
  return (extension.flags & channel::extension_has_totals) != 0;
}

}  // namespace

Orderer::Orderer(OrderSink& sink, double ticks_per_microsecond)
    : sink_(sink), microsecond_(ticks_per_microsecond < 1 ? 1 : static_cast<std::uint64_t>(ticks_per_microsecond)) {}

std::uint32_t Orderer::add_lane() {
  if (!unused_lanes_.empty()) {
    const std::uint32_t lane = unused_lanes_.back();
    unused_lanes_.pop_back();
    lanes_[lane] = Lane{};
    return lane;
  }
  lanes_.emplace_back();
  return static_cast<std::uint32_t>(lanes_.size() - 1);
}

// Units of the event at `unit`; `left`: how many there are from it on.
std::uint32_t Orderer::units_of(const Unit* unit, std::size_t left) { return channel::event_units(*unit, left > 1 ? unit[1] : Unit{}); }

// The event at `position`; stamps of one thread never run backwards (a virtual machine that moves may make them).
Orderer::Head Orderer::head_at(const Lane& lane, std::size_t position, std::uint64_t last) {
  Head head;
  const std::size_t left = lane.units.size() - position;
  if (left == 0) return head;
  const Unit& unit = lane.units[position];
  const std::uint32_t count = units_of(&unit, left);
  if (count > left) return head;  // only a job that wrote over its lane gets here; see appended()
  head.ticks = std::max(lane.first_event_due ? last : unit.ticks, last);
  head.count = count;
  return head;
}

std::uint32_t Orderer::appended(std::uint32_t index) {
  std::uint32_t current = index;
  for (bool split = true; split;) {
    split = false;
    Lane& lane = lanes_[current];
    while (lane.walked < lane.units.size()) {
      const Unit& unit = lane.units[lane.walked];
      split = unit.kind == channel::kind_thread && lane.walked != 0;
      if (split) break;
      lane.walked = std::min<std::size_t>(lane.walked + units_of(&unit, lane.units.size() - lane.walked), lane.units.size());
    }
    std::vector<Unit> rest;
    if (split) {
      const auto owner = lane.units.begin() + static_cast<std::ptrdiff_t>(lane.walked);
      rest.assign(owner, lane.units.end());
      lane.units.erase(owner, lane.units.end());
      lane.closed = true;
    }
    if (lane.head.count == 0) lane.head = head_at(lane, lane.position, lane.last);
    if (!split) break;
    current = add_lane();
    lanes_[current].units = std::move(rest);
  }
  return current;
}

bool Orderer::empty() const {
  return moves_.empty() && std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.head.count == 0; });
}

std::uint64_t& Orderer::heap_total(std::uint32_t id) {
  if (id >= totals_.size()) totals_.resize(id + 1);
  return totals_[id];
}

bool Orderer::chain_fits(const Unit* units) {
  std::uint64_t total = 0;
  if (units->b == 0 || !states_total(units, &total)) return true;
  const std::uint64_t before = heap_total(units->heap);
  return total == (is_alloc(*units) ? before + units->b : before - units->b);
}

bool Orderer::is_live_now(std::uint32_t heap_id, std::uint64_t address) const {
  const auto found = overlay_.find(Block{heap_id, address});
  return found != overlay_.end() ? found->second.live : sink_.is_live(heap_id, address);
}

// Does another lane allocate this address soon? Then a free that is earlier by stamp belongs to that allocation.
bool Orderer::allocation_is_near(const Lane& own, const Unit& unit, std::uint64_t limit) {
  for (const Lane& lane : lanes_) {
    if (&lane == &own) continue;
    std::size_t position = lane.position;
    for (Head head = lane.head; head.count != 0 && head.ticks <= limit; head = head_at(lane, position, head.ticks)) {
      const Unit& other = lane.units[position];
      if (is_alloc(other) && other.a == unit.a && other.heap == unit.heap) return true;
      position += head.count;
    }
  }
  return false;
}

bool Orderer::address_fits(const Lane& own, const Unit& unit, std::uint64_t limit) {
  if (is_alloc(unit)) return !is_live_now(unit.heap, unit.a);
  if (is_free(unit)) return is_live_now(unit.heap, unit.a) || !allocation_is_near(own, unit, limit);
  return true;
}

bool Orderer::fits(const Lane& lane) {
  const Unit* units = &lane.units[lane.position];
  return !is_block(*units) || (chain_fits(units) && address_fits(lane, *units, lane.head.ticks + near_us * microsecond_));
}

// Could the lane's event have happened before the one that is stamped `earliest`, the first of all that are left?
bool Orderer::may_happen(const Lane& lane, std::uint64_t earliest) const {
  const Unit* units = &lane.units[lane.position];
  if (units->kind == channel::kind_thread) return true;  // says whose the events are that follow: at no time
  std::uint64_t total = 0;
  const std::uint64_t skew = near_us * microsecond_;
  if (!states_total(units, &total)) return lane.head.ticks <= earliest + skew;
  return lane.first_event_due || lane.last <= earliest + skew;
}

std::uint32_t Orderer::earliest_lane() const {
  std::uint32_t earliest = none;
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].head.count != 0 && (earliest == none || lanes_[i].head.ticks < lanes_[earliest].head.ticks)) earliest = i;
  }
  return earliest;
}

// Up to which stamp the lane's next events are certain to come in this order: up to the next event of another thread. 0: not even
// the first is. An event that states a total is not where another thread counted within a second: that one may have lost
// its processor before the stamp of something that happened earlier.
std::uint64_t Orderer::certain_until(std::uint32_t index) const {
  if (!moves_.empty()) return 0;
  const Lane& own = lanes_[index];
  const Unit* units = &own.units[own.position];
  std::uint64_t total = 0, until = everything;
  const bool counts = own.counts || states_total(units, &total);
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[i];
    if (i == index || (lane.head.count == 0 && lane.closed)) continue;
    if (counts && lane.counts && lane.last + latest_us * microsecond_ >= own.head.ticks) return 0;
    if (lane.head.count != 0) until = std::min(until, lane.head.ticks - std::min(lane.head.ticks, near_us * microsecond_));
  }
  return until;
}

void Orderer::step(Lane& lane) {
  const Unit* units = &lane.units[lane.position];
  std::uint64_t total = 0;
  if (states_total(units, &total)) {
    heap_total(units->heap) = total;
    lane.counts = true;
  }
  lane.last = lane.head.ticks;
  lane.first_event_due = units->kind == channel::kind_thread && units->heap != 0;
  lane.position += lane.head.count;
  lane.head = head_at(lane, lane.position, lane.last);
}

void Orderer::advance(std::uint64_t bound) {
  // What comes next must be known up to a little beyond an event before it can be seen to be alone.
  const std::uint64_t horizon = lanes_.size() > 1 && bound != everything ? bound - std::min(bound, near_us * microsecond_) : bound;
  for (;;) {
    const std::uint32_t first = earliest_lane();
    if (first == none || lanes_[first].head.ticks >= horizon) break;
    Lane& lane = lanes_[first];
    const std::uint64_t limit = std::min(horizon, certain_until(first));
    const std::size_t position = lane.position;
    while (lane.head.count != 0 && lane.head.ticks < limit && fits(lane)) {
      const Unit* units = &lane.units[lane.position];
      const Head head = lane.head;
      step(lane);
      lane.emitted = lane.position;
      sink_.emit(first, units, head.count, head.ticks);
    }
    if (lane.position != position) continue;
    if (!go_on(bound) && !untangle(first, bound)) break;
    if (moves_.size() > most_kept_back) commit(moves_.size() / 2);
  }
  commit_old(bound);
  tidy();
}

// Forgets what was emitted, and lanes of threads that ended.
void Orderer::tidy() {
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    const std::size_t left = lane.units.size() - lane.position;
    if (lane.head.count == 0 && left != 0) {  // the rest is no event
      damaged_ += left;
      lane.units.resize(lane.position);
      lane.walked = std::min(lane.walked, lane.position);
    }
    if (lane.emitted != 0 && lane.emitted * 2 >= lane.units.size()) {
      const std::size_t gone = lane.emitted;
      lane.units.erase(lane.units.begin(), lane.units.begin() + static_cast<std::ptrdiff_t>(gone));
      lane.walked -= std::min(lane.walked, gone);
      lane.position -= gone;
      lane.emitted = 0;
      for (Move& move : moves_) move.position -= move.lane == i ? gone : 0;
    }
    if (lane.closed && lane.units.empty()) {
      lane = Lane{};
      unused_lanes_.push_back(i);
    }
  }
}

// The next lane after (tried_ticks, tried_lane), by stamp, whose event may come now.
bool Orderer::next_candidate(std::uint64_t bound, std::uint64_t* tried_ticks, std::uint32_t* tried_lane) const {
  const std::uint32_t first = earliest_lane();
  if (first == none) return false;
  const std::uint64_t earliest = lanes_[first].head.ticks;
  std::uint32_t best = none;
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[i];
    const std::uint64_t ticks = lane.head.ticks;
    if (lane.head.count == 0 || ticks >= bound) continue;
    const bool untried = *tried_lane == none || ticks > *tried_ticks || (ticks == *tried_ticks && i > *tried_lane);
    if (untried && (best == none || ticks < lanes_[best].head.ticks) && may_happen(lane, earliest)) best = i;
  }
  if (best == none) return false;
  *tried_ticks = lanes_[best].head.ticks;
  *tried_lane = best;
  return true;
}

void Orderer::push(std::uint32_t index) {
  Lane& lane = lanes_[index];
  const Unit& unit = lane.units[lane.position];
  moves_.push_back({index, unit.heap, lane.position, lane.last, lane.head, heap_total(unit.heap), lane.first_event_due});
  if (is_block(unit)) {
    Overlay& block = overlay_[Block{unit.heap, unit.a}];
    ++block.changes;
    block.live = is_alloc(unit);
  }
  state_ += mixed(index, lane.head.ticks + lane.head.count);
  step(lane);
}

void Orderer::pop() {
  const Move& move = moves_.back();
  Lane& lane = lanes_[move.lane];
  const Unit& unit = lane.units[move.position];
  if (is_block(unit)) {
    const auto block = overlay_.find(Block{unit.heap, unit.a});
    // An allocation that fits found the address free, a free (but for one whose allocation was not seen) found it live.
    block->second.live = !is_alloc(unit);
    if (--block->second.changes == 0) overlay_.erase(block);
  }
  lane.position = move.position;
  lane.first_event_due = move.first_event_due;
  lane.last = move.last;
  lane.head = move.head;
  totals_[move.heap] = move.total_before;
  state_ -= mixed(move.lane, move.head.ticks + move.head.count);
  moves_.pop_back();
}

// Appends the earliest event to the path. When it does not fit, what is stamped later happened before it: the fewest such events
// after which it fits, earliest stamp first, are put before it. False: there are none.
bool Orderer::go_on(std::uint64_t bound) {
  // Whose the events are that follow belongs to no time: out of the way, so that what follows can be seen.
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[i];
    if (lane.head.count != 0 && lane.head.ticks < bound && lane.units[lane.position].kind == channel::kind_thread) {
      push(i);
      return true;
    }
  }
  const std::uint32_t first = earliest_lane();
  if (fits(lanes_[first])) {
    push(first);
    return true;
  }
  for (std::uint32_t length = 1; length <= longest_bridge; ++length) {
    std::uint32_t budget = bridge_budget;
    if (bridge(first, bound, length, &budget)) return true;
  }
  return false;
}

// Appends `length` events after which that of lane `to` fits, and that one.
bool Orderer::bridge(std::uint32_t to, std::uint64_t bound, std::uint32_t length, std::uint32_t* budget) {
  std::uint64_t tried_ticks = 0;
  std::uint32_t tried_lane = none;
  while (*budget > 0 && next_candidate(bound, &tried_ticks, &tried_lane)) {
    if (tried_lane == to || !fits(lanes_[tried_lane])) continue;
    --*budget;
    push(tried_lane);
    if (length > 1) {
      if (bridge(to, bound, length - 1, budget)) return true;
    } else if (fits(lanes_[to])) {
      push(to);
      return true;
    }
    pop();
  }
  return false;
}

// No event fits, not even that of lane `stuck`, the earliest. False: events that are needed to decide may still come.
bool Orderer::untangle(std::uint32_t stuck, std::uint64_t bound) {
  const std::uint64_t ticks = lanes_[stuck].head.ticks;
  // What is missing may be stamped yet. Where it never works out, do not wait for it, nor look hard, each time.
  // An event that states no total lacks at most a neighbour.
  std::uint64_t total = 0;
  const bool counts = states_total(&lanes_[stuck].units[lanes_[stuck].position], &total);
  const std::uint64_t latest = ticks + (counts ? latest_us : 4 * near_us) * microsecond_;
  const bool last_try = bound == everything || bound >= latest || failures_ >= too_many_failures;
  if (!last_try && bound < std::max(ticks + patience_us * microsecond_, next_search_)) return false;
  const std::uint32_t budget =
      last_try && failures_ < too_many_failures ? search_budget : std::min(first_budget << 2 * searches_, search_budget);
  if (search(stuck, bound, budget)) {
    failures_ -= failures_ > 0 ? 1 : 0;
    searches_ = 0;
    next_search_ = 0;
    return true;
  }
  if (!last_try) {
    next_search_ = bound + 10 * patience_us * microsecond_;
    searches_ += searches_ < 3 ? 1 : 0;
    return false;
  }
  if (counts && failures_ < 2 * too_many_failures) ++failures_;
  searches_ = 0;
  next_search_ = 0;
  give_up(stuck);
  return true;
}

// The stamps decide: the event goes although it does not fit, before what only fitted because it was left behind.
void Orderer::give_up(std::uint32_t stuck) {
  const std::uint64_t ticks = lanes_[stuck].head.ticks;
  while (!moves_.empty() && moves_.back().lane != stuck && moves_.back().head.ticks > ticks) {
    std::uint64_t total = 0;
    if (states_total(&lanes_[moves_.back().lane].units[moves_.back().position], &total)) break;
    pop();
  }
  push(stuck);
  commit(moves_.size());
}

// Goes back along the path to another choice from which the event of `stuck` fits in its turn. When there is none within the budget,
// the path is as before.
bool Orderer::search(std::uint32_t stuck, std::uint64_t bound, std::uint32_t budget) {
  std::vector<std::uint32_t> before;
  before.reserve(moves_.size());
  for (const Move& move : moves_) before.push_back(move.lane);
  const std::size_t target = lanes_[stuck].position;
  const std::uint64_t target_ticks = lanes_[stuck].head.ticks;
  const auto done = [&] {
    const std::uint32_t first = earliest_lane();
    return lanes_[stuck].position > target && (first == none || lanes_[first].head.ticks >= target_ticks);
  };
  dead_.clear();
  std::uint64_t tried_ticks = everything;  // at the place where it is stuck everything was tried
  std::uint32_t tried_lane = none - 1;
  while (budget-- > 0) {
    if (next_candidate(bound, &tried_ticks, &tried_lane)) {
      if (!fits(lanes_[tried_lane])) continue;
      push(tried_lane);
      if (done()) return true;
      if (dead_.contains(state_)) {
        pop();
        continue;
      }
      tried_ticks = 0;
      tried_lane = none;
      continue;
    }
    dead_.insert(state_);
    if (moves_.empty()) break;
    tried_ticks = moves_.back().head.ticks;
    tried_lane = moves_.back().lane;
    pop();
  }
  while (!moves_.empty()) pop();
  for (const std::uint32_t lane : before) push(lane);
  return false;
}

// Emits the first `count` events of the path.
void Orderer::commit(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const Move& move = moves_[i];
    Lane& lane = lanes_[move.lane];
    const Unit* units = &lane.units[move.position];
    lane.emitted = move.position + move.head.count;
    if (is_block(*units)) {
      const auto block = overlay_.find(Block{units->heap, units->a});
      if (--block->second.changes == 0) overlay_.erase(block);
    }
    state_ -= mixed(move.lane, move.head.ticks + move.head.count);
    sink_.emit(move.lane, units, move.head.count, move.head.ticks);
  }
  moves_.erase(moves_.begin(), moves_.begin() + static_cast<std::ptrdiff_t>(count));
}

// What no event that is still to come can change, as far as can be known: it would have happened after the one before it in its thread was
// stamped. A thread that is silent for a second is not waited for.
void Orderer::commit_old(std::uint64_t bound) {
  std::uint64_t limit = bound - std::min(bound, kept_back_us * microsecond_);
  if (bound != everything) {
    for (const Lane& lane : lanes_) {
      if (lane.last != 0 && !(lane.closed && lane.head.count == 0)) limit = std::min(limit, lane.first_event_due ? 0 : lane.last);
    }
    limit = std::max(limit, bound - std::min(bound, latest_us * microsecond_));
  }
  // What comes later in the path happened later, however late the earlier one was stamped.
  std::size_t count = moves_.size();
  while (count != 0 && bound != everything && moves_[count - 1].head.ticks >= limit) --count;
  if (count != 0) commit(count);
}

}  // namespace liveset::collect
