// Finds originals by order, for recomputes whose forward stated no slots: one more pass, over the parts of the trace that a forward
// covers. Of the blocks of one size made in one scope, the k-th of the recompute replaces the k-th of the forward.
#pragma once
#include <cstdint>
#include <vector>

#include "viewer/ledger/lineage.h"

namespace liveset::ledger {

// Events [begin, end) in which originals were made.
struct ForwardInterval {
  std::uint64_t begin = 0, end = 0;
  std::uint32_t thread = 0;
  bool any_thread = false;  // then only what was allocated in the phase forward counts
};

struct WantedOriginal {
  std::uint32_t interval = 0, scope = 0;
  std::uint64_t bytes = 0;
  std::uint32_t place = 0;  // k, from 0
  std::uint32_t made = 0;   // how many such blocks the recompute made: another number in the forward makes the match a guess
  std::uint32_t value = 0;  // index into Lineage::values
};

Status match_by_order(const trace::TraceFile& file, const PhysicalLedger& ledger, const std::vector<ForwardInterval>& intervals,
                      std::vector<WantedOriginal> wanted, Lineage& lineage);

}  // namespace liveset::ledger
