// One order for the events of all threads.
//
// Every ring is in its thread's order and stamped. Mostly the stamps decide. They do not where two threads meet, because an event
// is stamped a moment after it happened (or long after, when the thread lost its processor in between):
//  - a block's address is given out again by another thread before the first thread's free has its stamp;
//  - an allocator that counts under its own lock (PyTorch's CPU allocator) counts in another order than we stamp.
// So an event may go only when it fits: the allocator's total must be the one before plus its size, an allocation's address must not
// be live, and a free's must be, when its allocation is near. Events that state a total happened after the event before them in
// their thread was stamped and before their own stamp; others within 10 microseconds of it.
//
// The order is a path, searched depth first, earliest stamp first. While one thread is alone its events go at once. Otherwise the
// path's end is kept back (moves_): when no event fits any more, an earlier choice was wrong, as happens when totals come back to the
// same number, and the search goes back to it. States that led nowhere are remembered, so each is left once. What no later event
// can change goes out for good. Everything is bounded; when nothing is found (an allocator that does not add up) the stamps
// decide, and the mismatch stays visible.
#pragma once
#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "profiler/channel/layout.h"

namespace liveset::collect {

class OrderSink {
 public:
  virtual ~OrderSink() = default;
  virtual void emit(std::uint32_t lane, const channel::Unit* units, std::uint32_t count, std::uint64_t ticks) = 0;
  // Is a block live at the address, after all events emitted so far?
  virtual bool is_live(std::uint32_t heap, std::uint64_t address) const = 0;
};

class Orderer {
 public:
  Orderer(OrderSink& sink, double ticks_per_microsecond);

  // A lane is the part of a ring that one thread wrote. Threads that share a ring one after the other have lanes of their own: the
  // second one's first allocation may have been counted long before the first one ended.
  std::uint32_t add_lane();
  // Where units are appended (whole events only); call appended() after, which gives the lane for the units that follow: another
  // one when the ring's owner changed.
  std::vector<channel::Unit>& input(std::uint32_t lane) { return lanes_[lane].units; }
  std::uint32_t appended(std::uint32_t lane);

  // No event with a stamp below `bound` will be appended any more: emits what that allows. `everything`: the process is dead.
  void advance(std::uint64_t bound);
  static constexpr std::uint64_t everything = ~std::uint64_t{0};

  // Events that were not emitted yet.
  bool empty() const;
  std::uint64_t damaged_units() const { return damaged_; }

 private:
  struct Head {
    std::uint64_t ticks = ~std::uint64_t{0};  // none: beyond any bound
    std::uint32_t count = 0;                  // units; 0: none
  };
  struct Lane {
    std::vector<channel::Unit> units;
    std::size_t position = 0;      // of the next event; what lies before it was emitted or is in moves_
    std::size_t emitted = 0;       // up to here
    std::size_t walked = 0;        // up to here no further change of owner
    bool closed = false;           // nothing will be appended
    bool first_event_due = false;  // the next event happened when its thread asked for the ring
    bool counts = false;           // had an event that states a total
    std::uint64_t last = 0;        // stamp of the event before
    Head head;
  };
  struct Move {
    std::uint32_t lane = 0;
    std::uint32_t heap = 0;
    std::size_t position = 0;  // of the event in its lane
    std::uint64_t last = 0;    // the lane's, before
    Head head;
    std::uint64_t total_before = 0;
    bool first_event_due = false;
  };
  using Block = std::pair<std::uint32_t, std::uint64_t>;  // heap, address
  struct Overlay {                                        // what moves_ did to a block
    std::uint32_t changes = 0;
    bool live = false;
  };

  static std::uint32_t units_of(const channel::Unit* unit, std::size_t left);
  Head head_at(const Lane& ring, std::size_t position, std::uint64_t last);
  std::uint64_t& heap_total(std::uint32_t id);
  bool chain_fits(const channel::Unit* units);
  bool address_fits(const Lane& own, const channel::Unit& unit, std::uint64_t limit);
  bool is_live_now(std::uint32_t heap, std::uint64_t address) const;
  bool allocation_is_near(const Lane& own, const channel::Unit& unit, std::uint64_t limit);
  void tidy();
  std::uint64_t certain_until(std::uint32_t lane) const;
  bool fits(const Lane& lane);
  bool may_happen(const Lane& lane, std::uint64_t earliest) const;
  std::uint32_t earliest_lane() const;
  bool next_candidate(std::uint64_t bound, std::uint64_t* tried_ticks, std::uint32_t* tried_lane) const;
  void step(Lane& lane);
  void push(std::uint32_t lane);
  void pop();
  bool go_on(std::uint64_t bound);
  bool bridge(std::uint32_t to, std::uint64_t bound, std::uint32_t length, std::uint32_t* budget);
  bool untangle(std::uint32_t stuck, std::uint64_t bound);
  bool search(std::uint32_t stuck, std::uint64_t bound, std::uint32_t budget);
  void give_up(std::uint32_t stuck);
  void commit(std::size_t count);
  void commit_old(std::uint64_t bound);

  OrderSink& sink_;
  std::uint64_t microsecond_;
  std::vector<Lane> lanes_;
  std::vector<std::uint32_t> unused_lanes_;
  std::vector<std::uint64_t> totals_;  // by heap: the allocator's, after the last event; begins with 0, as an allocator does
  std::vector<Move> moves_;            // in order, not emitted yet
  absl::flat_hash_map<Block, Overlay> overlay_;
  absl::flat_hash_set<std::uint64_t> dead_;  // states of the search under way that lead nowhere
  std::uint64_t state_ = 0;                  // hash of the lanes' positions
  std::uint64_t next_search_ = 0;            // bound from which another search is worth it
  std::uint32_t searches_ = 0;               // for the same event so far, in vain
  std::uint32_t failures_ = 0;               // recent events that fitted nowhere
  std::uint64_t damaged_ = 0;
};

}  // namespace liveset::collect
