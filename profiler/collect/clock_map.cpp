#include "profiler/collect/clock_map.h"

#include <cmath>

namespace liveset::collect {

ClockPair read_clock_pair(channel::ClockKind kind) {
  ClockPair best;
  std::uint64_t best_gap = ~std::uint64_t{0};
  for (int i = 0; i < 8; ++i) {
    const std::uint64_t before = channel::read_ticks(kind);
    const std::uint64_t ns = channel::clock_ns(CLOCK_MONOTONIC);
    const std::uint64_t after = channel::read_ticks(kind);
    if (after - before >= best_gap) continue;
    best_gap = after - before;
    best = {before + best_gap / 2, ns};
  }
  return best;
}

// Nanoseconds are kept relative to the first pair: a double then holds them exactly for 104 days.
double ClockMap::at(const Piece& piece, std::uint64_t ticks) {
  const auto distance = static_cast<double>(static_cast<std::int64_t>(ticks - piece.ticks));
  return piece.ns + distance * piece.slope;
}

void ClockMap::start(const ClockPair& first, const ClockPair& second) {
  first_ = first;
  const auto ticks = static_cast<double>(second.ticks - first.ticks);
  if (second.ticks > first.ticks && second.monotonic_ns > first.monotonic_ns) {
    rate_ = static_cast<double>(second.monotonic_ns - first.monotonic_ns) / ticks;
  }
  now_ = {first.ticks, 0, rate_};
  before_ = now_;
}

void ClockMap::add(const ClockPair& pair) {
  if (pair.ticks <= now_.ticks || pair.monotonic_ns <= first_.monotonic_ns) return;
  const auto ns = static_cast<double>(pair.monotonic_ns - first_.monotonic_ns);
  rate_ = ns / static_cast<double>(pair.ticks - first_.ticks);
  Piece next{pair.ticks, at(now_, pair.ticks), rate_};
  const double second_in_ticks = 1e9 / rate_;
  const double slope = rate_ + (ns - next.ns) / second_in_ticks;
  // A suspended machine can make the error huge; time still goes forward, at half to double speed.
  next.slope = std::fmin(std::fmax(slope, rate_ / 2), rate_ * 2);
  before_ = now_;
  now_ = next;
}

std::uint64_t ClockMap::to_ns(std::uint64_t ticks) const {
  const double ns = at(ticks >= now_.ticks ? now_ : before_, ticks);
  const auto whole = static_cast<std::int64_t>(std::llround(ns));
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(first_.monotonic_ns) + whole);
}

}  // namespace liveset::collect
