#include "profiler/collect/order.h"

#include <algorithm>
#include <cstring>

namespace liveset::collect {
namespace {

using channel::Unit;

constexpr std::uint64_t near_us = 10;
constexpr std::uint32_t none = ~0U;
constexpr std::uint64_t latest_us = 1'000'000;
constexpr std::size_t max_moves = 128;
constexpr std::uint32_t search_budget = 2'000, bridge_budget = 500;
constexpr std::uint32_t longest_bridge = 64;
constexpr std::uint32_t too_many_failures = 64;
constexpr std::size_t longest_lead = 4096;  // events without a total before the one that a bridge needs

bool is_alloc(const Unit& unit) { return (unit.kind & 0x7f) == channel::kind_alloc; }
bool is_free(const Unit& unit) { return (unit.kind & 0x7f) == channel::kind_free; }
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

std::uint32_t Orderer::units_of(const Unit* unit, std::size_t left) {
  if (unit->kind == channel::kind_thread || (unit->kind & channel::kind_extended) != 0) return 2;
  if (!channel::is_value_kind(unit->kind)) return 1;
  channel::ValueUnit value{};
  if (left > 1) std::memcpy(&value, unit + 1, sizeof value);
  return channel::value_units(std::min(value.read_count, channel::max_reads));
}

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
  return std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.head.count == 0; });
}

std::uint64_t Orderer::waiting_units() const {
  std::uint64_t units = 0;
  for (const Lane& lane : lanes_) units += lane.units.size() - lane.position;
  return units;
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
  for (std::size_t i = changes_.size(); i-- > 0;) {
    if (changes_[i].address == address && changes_[i].heap == heap_id) return changes_[i].live;
  }
  return sink_.is_live(heap_id, address);
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

// `alone`: no other lane has an event near by.
bool Orderer::can_go(const Lane& lane, bool alone) {
  const Unit* units = &lane.units[lane.position];
  if (!is_block(*units)) return true;
  if (!chain_fits(units)) return false;
  if (alone) return true;
  std::uint64_t total = 0;
  if (states_total(units, &total)) return false;  // fits, but another may fit as well: look ahead
  return address_fits(lane, *units, lane.head.ticks + near_us * microsecond_);
}

void Orderer::emit(std::uint32_t index) {
  Lane& lane = lanes_[index];
  const Unit* units = &lane.units[lane.position];
  std::uint64_t total = 0;
  if (states_total(units, &total)) heap_total(units->heap) = total;
  sink_.emit(index, units, lane.head.count, lane.head.ticks);
  lane.last = lane.head.ticks;
  lane.first_event_due = units->kind == channel::kind_thread && units->heap != 0;
  lane.position += lane.head.count;
  lane.head = head_at(lane, lane.position, lane.last);
}

void Orderer::advance(std::uint64_t bound) {
  // What comes next must be known up to a little beyond an event before it can be seen to be alone.
  const std::uint64_t horizon = lanes_.size() > 1 && bound != everything ? bound - std::min(bound, near_us * microsecond_) : bound;
  for (bool tangled = false; !tangled;) {
    std::uint32_t first = 0;
    std::uint64_t first_ticks = everything, second_ticks = everything;
    for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
      const std::uint64_t ticks = lanes_[i].head.ticks;
      if (ticks < first_ticks) {
        second_ticks = first_ticks;
        first_ticks = ticks;
        first = i;
      } else {
        second_ticks = std::min(second_ticks, ticks);
      }
    }
    if (first_ticks >= horizon || first_ticks == everything) break;
    // The lane's events up to the next one of another lane go without looking again.
    Lane& lane = lanes_[first];
    while (lane.head.ticks <= second_ticks && lane.head.ticks < horizon) {
      const bool alone = second_ticks == everything || second_ticks - lane.head.ticks > near_us * microsecond_;
      if (!can_go(lane, alone)) {
        tangled = !untangle(first, bound);
        break;
      }
      emit(first);
    }
  }
  tidy();
}

// Forgets what was emitted, and lanes of threads that ended.
void Orderer::tidy() {
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    const std::size_t left = lane.units.size() - lane.position;
    if (lane.head.count == 0 && left != 0) {  // the rest is no event
      damaged_ += left;
      lane.position = lane.units.size();
    }
    if (lane.position * 2 >= lane.units.size()) {
      lane.units.erase(lane.units.begin(), lane.units.begin() + static_cast<std::ptrdiff_t>(lane.position));
      lane.walked -= std::min(lane.walked, lane.position);
      lane.position = 0;
    }
    if (lane.closed && lane.units.empty()) {
      lane = Lane{};
      unused_lanes_.push_back(i);
    }
  }
}

// The lane's next event is the earliest by stamp, but does not fit or is not the only one that could be next. False: events that
// are needed to decide may still come.
bool Orderer::untangle(std::uint32_t index, std::uint64_t bound) {
  const std::uint64_t ticks = lanes_[index].head.ticks;
  const std::uint64_t skew = near_us * microsecond_;
  const std::uint64_t seen = ticks + 4 * skew;  // an order that holds a while longer is more likely the right one
  if (seen > bound) return false;
  if (search(index, seen)) {
    commit(ticks + skew);
    return true;
  }
  const Unit* units = &lanes_[index].units[lanes_[index].position];
  if (!chain_fits(units)) {
    // Where it never works out, do not try hard each time.
    std::uint32_t budget = failures_ > too_many_failures ? 0 : bridge_budget;
    const std::uint64_t limit = ticks + latest_us * microsecond_;
    if (bridge(index, std::min(limit, bound), &budget, 0)) {
      failures_ -= failures_ > 0 ? 1 : 0;
      commit_all();
      return true;
    }
    if (limit > bound && bound != everything && failures_ <= too_many_failures) return false;
    if (failures_ < 2 * too_many_failures) ++failures_;
  }
  emit(index);
  return true;
}

// The next of the near lanes after (tried_ticks, tried_lane), by stamp, whose event may be tried now.
bool Orderer::next_candidate(std::uint64_t limit, std::uint64_t* tried_ticks, std::uint32_t* tried_lane) const {
  std::uint64_t earliest = everything, best = everything;
  std::uint32_t best_lane = 0;
  for (const std::uint32_t i : near_) {
    const std::uint64_t ticks = lanes_[i].head.ticks;
    earliest = std::min(earliest, ticks);
    const bool untried = ticks > *tried_ticks || (ticks == *tried_ticks && (*tried_lane == none || i > *tried_lane));
    if (untried && (ticks < best || (ticks == best && i < best_lane))) {
      best = ticks;
      best_lane = i;
    }
  }
  // Going on while another lane's event is left further behind than stamps can be wrong leads nowhere.
  if (best == everything || best > limit || best - earliest > near_us * microsecond_) return false;
  *tried_ticks = best;
  *tried_lane = best_lane;
  return true;
}

void Orderer::push(std::uint32_t index) {
  Lane& lane = lanes_[index];
  const Unit* units = &lane.units[lane.position];
  Move move{index, lane.position, lane.last, lane.head, heap_total(units->heap), units->heap, is_block(*units), lane.first_event_due};
  std::uint64_t total = 0;
  if (states_total(units, &total)) heap_total(units->heap) = total;
  if (move.changes_live) changes_.push_back({units->a, units->heap, is_alloc(*units)});
  moves_.push_back(move);
  lane.last = lane.head.ticks;
  lane.first_event_due = units->kind == channel::kind_thread && units->heap != 0;
  lane.position += lane.head.count;
  lane.head = head_at(lane, lane.position, lane.last);
}

void Orderer::pop() {
  const Move& move = moves_.back();
  Lane& lane = lanes_[move.lane];
  lane.position = move.position;
  lane.first_event_due = move.first_event_due;
  lane.last = move.last;
  lane.head = move.head;
  totals_[move.heap] = move.total_before;
  if (move.changes_live) changes_.pop_back();
  moves_.pop_back();
}

// Depth first, earliest stamp first. On success moves_ holds an order in which everything up to `limit` (or the next max_moves events,
// that of the lane `wanted` among them) fits, and the state is that after moves_; otherwise moves_ is empty.
bool Orderer::search(std::uint32_t wanted, std::uint64_t limit) {
  near_.clear();
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].head.ticks <= limit) near_.push_back(i);
  }
  const std::size_t wanted_position = lanes_[wanted].position;
  std::uint64_t tried_ticks = 0;
  std::uint32_t tried_lane = none;
  bool fresh = true;  // nothing was tried at this place yet
  for (std::uint32_t budget = search_budget; budget > 0; --budget) {
    if (fresh) {
      const bool full = moves_.size() >= max_moves;
      const bool done = full ? lanes_[wanted].position != wanted_position
                             : std::none_of(near_.begin(), near_.end(), [&](std::uint32_t i) { return lanes_[i].head.ticks <= limit; });
      if (done) return true;
      tried_ticks = full ? everything : 0;
      tried_lane = none;
      fresh = false;
    }
    if (tried_ticks != everything && next_candidate(limit, &tried_ticks, &tried_lane)) {
      const Lane& lane = lanes_[tried_lane];
      const Unit* units = &lane.units[lane.position];
      if (is_block(*units) && (!chain_fits(units) || !address_fits(lane, *units, limit))) continue;
      push(tried_lane);
      fresh = true;
      continue;
    }
    if (moves_.empty()) return false;
    tried_ticks = moves_.back().head.ticks;
    tried_lane = moves_.back().lane;
    pop();
  }
  while (!moves_.empty()) pop();
  return false;
}

// Moves a lane's events up to and including the next one that states a total, when all of them fit. False: nothing was moved.
bool Orderer::go_through(std::uint32_t index) {
  const std::size_t before = moves_.size();
  Lane& lane = lanes_[index];
  for (std::size_t lead = 0; lane.head.count != 0 && lead < longest_lead; ++lead) {
    const Unit* units = &lane.units[lane.position];
    std::uint64_t total = 0;
    const bool link = states_total(units, &total);
    if (link && !chain_fits(units)) break;
    if (link && is_alloc(*units) && is_live_now(units->heap, units->a)) break;
    push(index);
    if (link) return true;
  }
  while (moves_.size() > before) pop();
  return false;
}

// Next events of other lanes, each lane at most once, earliest stamp first, after which the event of `wanted` fits; that one included.
bool Orderer::bridge(std::uint32_t wanted, std::uint64_t limit, std::uint32_t* budget, std::uint32_t depth) {
  if (depth > 0 && go_through(wanted)) return true;
  if (depth == longest_bridge) return false;
  std::vector<std::uint32_t> candidates;
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    if (i != wanted && !lanes_[i].bridged && lanes_[i].head.ticks <= limit) candidates.push_back(i);
  }
  std::sort(candidates.begin(), candidates.end(),
            [this](std::uint32_t a, std::uint32_t b) { return lanes_[a].head.ticks < lanes_[b].head.ticks; });
  for (const std::uint32_t lane : candidates) {
    if (*budget == 0) return false;
    --*budget;
    const std::size_t before = moves_.size();
    if (!go_through(lane)) continue;
    lanes_[lane].bridged = true;
    const bool found = bridge(wanted, limit, budget, depth + 1);
    lanes_[lane].bridged = false;
    if (found) return true;
    while (moves_.size() > before) pop();
  }
  return false;
}

// Emits the first part of the order found: up to the last event stamped at or before `up_to`. The rest was only looked at.
void Orderer::commit(std::uint64_t up_to) {
  std::vector<std::uint32_t> order;
  std::size_t keep = 0;
  for (std::size_t i = 0; i < moves_.size(); ++i) {
    order.push_back(moves_[i].lane);
    if (moves_[i].head.ticks <= up_to) keep = i + 1;
  }
  while (!moves_.empty()) pop();
  for (std::size_t i = 0; i < keep; ++i) emit(order[i]);
}

}  // namespace liveset::collect
