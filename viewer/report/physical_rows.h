// The physical ledger as rows: its events one by one, and what lived at an address.
#pragma once
#include <functional>
#include <vector>

#include "viewer/ledger/classes.h"
#include "viewer/ledger/details.h"

namespace liveset::report {

// One physical event of the shown heap, with the state after it.
struct PhysicalRow {
  std::uint64_t event = 0, time_ns = 0, address = 0, size = 0;
  trace::Kind kind = trace::Kind::none;
  trace::Phase phase = trace::Phase::other;
  std::uint32_t scope = 0, name = 0;                           // name: a kernel's
  trace::MemoryClass memory_class = trace::MemoryClass::none;  // of the block that comes or goes
  std::uint64_t live_blocks = 0, live_bytes = 0;
};

// Physical events of the shown heap in `range`, in order, while `visit` returns true. `ledger` must have been
// attributed.
Status for_each_physical(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger, const ledger::Range& range,
                         const std::function<bool(const PhysicalRow&)>& visit);

// Every block of any heap that held `address`, in the order of birth, that lived in `range`.
Result<std::vector<ledger::BlockDetail>> blocks_at_address(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger,
                                                           std::uint64_t address, const ledger::Range& range);

}  // namespace liveset::report
