// The side of a comparison that a trace recorded: read once, looked at at its own peak and at the other side's.
#pragma once
#include "viewer/compare/side.h"
#include "viewer/ledger/attribution.h"
#include "viewer/ledger/physical.h"
#include "viewer/trace/trace_file.h"

namespace liveset::compare {

struct TraceOptions {
  std::string heap;          // empty: the one that is shown first
  std::string counter = {};  // allocated, requested, active, reserved or device; empty: the one that the trace's blocks are counted in
  ledger::Range range;
  ledger::Progress progress;
};

// What an error says of a trace of values alone.
inline constexpr std::string_view no_allocation = "the trace has no allocation, so it has no peak";

class TraceSide {
 public:
  // Errors: what the ledger refuses; the trace has no block in the range; it does not have that counter (usage). `file` must outlive it.
  static Result<TraceSide> read(const trace::TraceFile& file, const TraceOptions& options);

  // Fills Side::at_other.
  Status look_at(const ledger::Place& other);
  // Where the counter is as high there as at its first highest moment, that one is taken for the peak: of equals the one that shows
  // least difference. Of `reserved` its blocks must be as near to the other side's, which may not know where it was.
  Status prefer_other(std::uint64_t other_block_bytes);

  Side side;
  const ledger::PhysicalLedger& ledger() const { return ledger_; }

 private:
  TraceSide(const trace::TraceFile& file, ledger::PhysicalLedger ledger) : file_(&file), ledger_(std::move(ledger)) {}
  Status choose_peak();
  const ledger::DeviceMemory* device() const;  // of the side's heap; null where the trace has no events of its driver
  Status read_peak();
  Status read_items(const ledger::Attribution& attribution);
  Status find_overdue();
  void add_known();
  void add_counters();

  void add_extras();
  void add_steps(const ledger::Range& range);
  std::string heap_name() const;

  const trace::TraceFile* file_;
  ledger::Progress progress_;
  ledger::PhysicalLedger ledger_;
  std::vector<std::uint32_t> ordinals_;  // of the items
};

}  // namespace liveset::compare
