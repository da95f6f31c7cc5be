// Ticks of the job's counter -> CLOCK_MONOTONIC nanoseconds, from pairs of readings taken about once a second.
//
// The map is a chain of straight pieces. A new pair does not make time jump: the next piece begins where the last one ends and
// is tilted so that the error is gone one second later. So the map is continuous and never runs backwards.
#pragma once
#include <cstdint>

#include "profiler/channel/clock.h"

namespace liveset::collect {

struct ClockPair {
  std::uint64_t ticks = 0, monotonic_ns = 0;
};

// Both clocks at one moment, as near as can be (the tightest of a few tries).
ClockPair read_clock_pair(channel::ClockKind kind);

class ClockMap {
 public:
  // `first` and `second`: two pairs some milliseconds apart.
  void start(const ClockPair& first, const ClockPair& second);
  void add(const ClockPair& pair);
  std::uint64_t to_ns(std::uint64_t ticks) const;
  double ns_per_tick() const { return rate_; }

 private:
  struct Piece {
    std::uint64_t ticks = 0;
    double ns = 0, slope = 1;
  };
  static double at(const Piece& piece, std::uint64_t ticks);

  ClockPair first_;
  double rate_ = 1;  // over the whole time so far
  Piece before_, now_;
};

}  // namespace liveset::collect
