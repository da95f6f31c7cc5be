// One order for the events of all threads.
//
// Every ring is in its thread's order and stamped. Mostly the stamps decide. They do not where two threads meet, because an event
// is stamped a moment after it happened (or long after, when the thread lost its processor in between):
//  - a block's address is given out again by another thread before the first thread's free has its stamp;
//  - an allocator that counts under its own lock (PyTorch's CPU allocator) counts in another order than we stamp.
// So an event may go only when it fits: the allocator's total must be the one before plus its size, an allocation's address must not
// be live, and a free's must be, when its allocation is near.
//  - Where events of several threads lie within 10 microseconds, a depth-first search looks for an order in which all of them fit,
//    trying the order of the stamps first.
//  - If an event still does not fit, something that came before it is stamped later. A thread stamps one event before it has the next,
//    so that can only be the next event of other threads: a bridge of those, at most one of each, is looked for, up to a second away
//    (so long a thread may be kept off a busy processor between its allocation and its stamp).
// Both are bounded. When nothing is found (an allocator that does not add up) the stamps decide, and the mismatch stays visible.
#pragma once
#include <cstdint>
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

  // Events with a stamp up to now that were not emitted yet.
  bool empty() const;
  std::uint64_t waiting_units() const;
  std::uint64_t damaged_units() const { return damaged_; }

 private:
  struct Head {
    std::uint64_t ticks = ~std::uint64_t{0};  // none: beyond any bound
    std::uint32_t count = 0;                  // units; 0: none
  };
  struct Lane {
    std::vector<channel::Unit> units;
    std::size_t position = 0;
    std::size_t walked = 0;  // up to here no further change of owner
    bool closed = false;     // nothing will be appended
    bool first_event_due = false;  // the next event happened when its thread asked for the ring
    bool bridged = false;    // gave its event to the bridge that is being built
    std::uint64_t last = 0;
    Head head;
  };
  struct Move {
    std::uint32_t lane = 0;
    std::size_t position = 0;  // of the event in its lane
    std::uint64_t last = 0;    // the lane's, before
    Head head;
    std::uint64_t total_before = 0;
    std::uint32_t heap = 0;
    bool changes_live = false;
    bool first_event_due = false;
  };
  struct Change {
    std::uint64_t address;
    std::uint32_t heap;
    bool live;
  };

  static std::uint32_t units_of(const channel::Unit* unit, std::size_t left);
  Head head_at(const Lane& ring, std::size_t position, std::uint64_t last);
  std::uint64_t& heap_total(std::uint32_t id);
  bool chain_fits(const channel::Unit* units);
  bool address_fits(const Lane& own, const channel::Unit& unit, std::uint64_t limit);
  bool is_live_now(std::uint32_t heap, std::uint64_t address) const;
  bool allocation_is_near(const Lane& own, const channel::Unit& unit, std::uint64_t limit);
  void tidy();
  bool can_go(const Lane& ring, bool alone);
  void emit(std::uint32_t lane);
  bool untangle(std::uint32_t lane, std::uint64_t bound);
  bool search(std::uint32_t wanted, std::uint64_t limit);
  bool bridge(std::uint32_t wanted, std::uint64_t limit, std::uint32_t* budget, std::uint32_t depth);
  bool go_through(std::uint32_t lane);
  bool next_candidate(std::uint64_t limit, std::uint64_t* tried_ticks, std::uint32_t* tried_lane) const;
  void push(std::uint32_t lane);
  void pop();
  void commit(std::uint64_t up_to);
  void commit_all() { commit(everything); }

  OrderSink& sink_;
  std::uint64_t microsecond_;
  std::vector<Lane> lanes_;
  std::vector<std::uint32_t> unused_lanes_;
  std::vector<std::uint64_t> totals_;  // by heap: the allocator's, after the last event; begins with 0, as an allocator does
  std::vector<std::uint32_t> near_;  // lanes that take part in the search under way
  std::vector<Move> moves_;      // of the search under way
  std::vector<Change> changes_;  // what they would do to blocks
  std::uint32_t failures_ = 0;   // recent searches in vain
  std::uint64_t damaged_ = 0;
};

}  // namespace liveset::collect
