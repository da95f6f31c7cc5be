// A predicted and a recorded logical ledger side by side: events aligned, peaks, live curves, what the loss holds.
//
// `error` is one number for a gate: the largest of the relative differences below; 0 exactly when nothing differs.
//   events        events that only one side has, of the longer side's number
//   peak_ids      of the larger peak
//   peak_bytes    of the larger peak
//   layers        forward layers executed, of the larger number
//   live_ids, live_bytes   largest difference of the two curves at aligned events, of the larger peak
//   held          values held at the loss that have no partner on the other side, the larger of the two counts, of the longer side
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "viewer/ledger/logical.h"

namespace liveset::compare {

inline constexpr std::uint64_t absent = ~std::uint64_t{0};

// One row of the alignment; `absent` where only the other side has the event.
struct AlignedEvent {
  std::uint64_t predicted = absent, recorded = absent;
  bool same_event() const { return predicted != absent && recorded != absent; }
  bool same_live = true;  // ids and bytes after the event are the same
};

struct HeldValue {
  std::string name;
  std::uint64_t bytes = 0;
};

// What the loss holds. Where the trace names its values, by name and bytes; else (a PyTorch graph) by bytes, in order of
// creation, and what was made in the loss expression itself stands apart, because a model does not speak of it.
struct HeldComparison {
  bool by_name = true;
  std::vector<HeldValue> predicted, recorded, only_predicted, only_recorded, of_the_loss;
};

struct RelativeErrors {
  double events = 0, peak_ids = 0, peak_bytes = 0, layers = 0, live_ids = 0, live_bytes = 0, held = 0;
};

struct LogicalComparison {
  bool held_only = false;  // events, peaks and layers were not compared
  std::vector<AlignedEvent> rows;
  std::uint64_t predicted_only = 0, recorded_only = 0, live_differs = 0;
  HeldComparison held;
  RelativeErrors errors;
  double error = 0;
};

// Region events of the recorded ledger are left out: they are notes, no values. `held_only`: also when the recorded ledger names
// no value of its own accord.
LogicalComparison compare_logical(const ledger::LogicalLedger& predicted, const ledger::LogicalLedger& recorded, bool held_only);

}  // namespace liveset::compare
