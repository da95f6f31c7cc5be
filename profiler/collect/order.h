// One order for the events of all threads.
//
// Every ring is in its thread's order and stamped. Mostly the stamps decide. They do not where two threads meet, because an event
// is stamped a moment after it happened (or long after, when the thread lost its processor in between):
//  - a block's address is given out again by another thread before the first thread's free has its stamp;
//  - an allocator that counts under its own lock (PyTorch's CPU allocator) counts in another order than we stamp.
// So an event may go only when it fits: the allocator's total must be the one before plus its size, an allocation's address must not
// be live, and a free's must be, when its allocation is near. If the next event by stamp does not fit, or if events of
// another thread lie so near that either could come first, a depth-first search over the next events of all rings looks for an order
// in which everything fits, first allowing stamps to be wrong by 10 microseconds, at last by 40 milliseconds. The search is
// bounded; when it finds nothing (an allocator that does not add up) the stamps decide, and the mismatch stays visible in the trace.
#pragma once
#include <cstdint>
#include <vector>

#include "profiler/channel/layout.h"

namespace liveset::collect {

class OrderSink {
 public:
  virtual ~OrderSink() = default;
  virtual void emit(std::uint32_t ring, const channel::Unit* units, std::uint32_t count, std::uint64_t ticks) = 0;
  // Is a block live at the address, after all events emitted so far?
  virtual bool is_live(std::uint32_t heap, std::uint64_t address) const = 0;
};

class Orderer {
 public:
  Orderer(OrderSink& sink, double ticks_per_microsecond);

  std::uint32_t add_ring();
  // Where the units of a ring are appended (whole events only); call appended() after.
  std::vector<channel::Unit>& input(std::uint32_t ring) { return rings_[ring].units; }
  void appended(std::uint32_t ring);

  // No event with a stamp below `bound` will be appended any more: emits what that allows. `everything`: the process is dead.
  void advance(std::uint64_t bound);
  static constexpr std::uint64_t everything = ~std::uint64_t{0};

  // Events with a stamp up to now that were not emitted yet.
  bool empty() const;
  std::uint64_t last_ticks(std::uint32_t ring) const { return rings_[ring].last; }  // stamp of the last event emitted
  std::uint64_t waiting_units() const;
  std::uint64_t damaged_units() const { return damaged_; }

 private:
  struct Head {
    std::uint64_t ticks = ~std::uint64_t{0};  // none: beyond any bound
    std::uint32_t count = 0;                  // units; 0: none
  };
  struct Ring {
    std::vector<channel::Unit> units;
    std::size_t position = 0;
    std::uint64_t last = 0;
    Head head;
  };
  struct HeapState {
    bool known = false;
    std::uint64_t total = 0;
  };
  struct Move {
    std::uint32_t ring = 0;
    std::size_t position = 0;  // of the event in its ring
    std::uint64_t last = 0;    // the ring's, before
    Head head;
    HeapState total_before;
    std::uint32_t heap = 0;
    bool changes_live = false;
  };
  struct Change {
    std::uint64_t address;
    std::uint32_t heap;
    bool live;
  };

  Head head_at(const Ring& ring, std::size_t position, std::uint64_t last);
  HeapState& heap(std::uint32_t id);
  bool chain_fits(const channel::Unit* units);
  bool address_fits(const Ring& own, const channel::Unit& unit, std::uint64_t limit);
  bool is_live_now(std::uint32_t heap, std::uint64_t address) const;
  bool allocation_is_near(const Ring& own, const channel::Unit& unit, std::uint64_t limit);
  bool can_go(const Ring& ring, bool alone);
  void emit(std::uint32_t ring);
  bool untangle(std::uint32_t ring, std::uint64_t bound);
  bool search(std::uint64_t skew, std::uint64_t limit);
  bool next_candidate(std::uint64_t limit, std::uint64_t skew, std::uint64_t* tried_ticks, std::uint32_t* tried_ring, std::uint32_t* ring) const;
  void push(std::uint32_t ring);
  void pop();
  void commit(std::uint64_t up_to);

  OrderSink& sink_;
  std::uint64_t microsecond_;
  std::vector<Ring> rings_;
  std::vector<HeapState> heaps_;
  std::vector<Move> moves_;      // of the search under way
  std::vector<Change> changes_;  // what they would do to blocks
  std::uint32_t failures_ = 0;   // recent searches in vain
  std::uint64_t damaged_ = 0;
};

}  // namespace liveset::collect
