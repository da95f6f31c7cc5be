// A number over time, as its highest and its last value.
#pragma once
#include <cstdint>

#include "viewer/ledger/range.h"

namespace liveset::ledger {

struct Counter {
  std::uint64_t peak = 0, peak_event = no_event, final = 0;
  bool known = false;    // the trace says something about it
  bool sampled = false;  // read now and then by the recorder, not at every event
};

// Sums of sizes that a file states. It may lie; then the sum wraps around, as a pair of + and - still takes back what it added.
inline std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
inline std::int64_t wrapping_difference(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}

// Without the sign.
inline std::uint64_t size_of(std::int64_t bytes) {
  return bytes < 0 ? ~static_cast<std::uint64_t>(bytes) + 1 : static_cast<std::uint64_t>(bytes);
}

}  // namespace liveset::ledger
