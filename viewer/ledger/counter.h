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

}  // namespace liveset::ledger
