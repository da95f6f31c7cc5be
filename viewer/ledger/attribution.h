// Second pass over a trace that states what storages hold: finds the block of every statement, leaves the evidence for
// classes.h on it, and reconciles the two ledgers: values and storages without a block, several values in one block,
// blocks that outlive the release of what they held.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "viewer/ledger/physical.h"
#include "viewer/ledger/slot_names.h"

namespace liveset::ledger {

// A statement about a storage that no live block holds.
struct Orphan {
  std::uint64_t event = 0, address = 0, size = 0;
  trace::Kind kind = trace::Kind::none;
  std::uint32_t heap = 0, value = 0, name = 0;
};

// A block that was freed after the last value in it had been released. Only where a program states both.
struct OverRetained {
  std::uint32_t ordinal = 0, value = 0;
  std::uint64_t released_event = 0, bytes = 0, delay_ns = 0;
  double byte_seconds() const { return static_cast<double>(bytes) * static_cast<double>(delay_ns) * 1e-9; }
};

// What the graph walk of one backward stated. Parameters are part of it.
struct RetainedSet {
  std::uint64_t slots = 0, storages = 0, bytes = 0, parameter_storages = 0, parameter_bytes = 0;
};

struct BlockName {
  std::uint32_t value = 0, name = 0;  // a Value id, or a String id such as "AddmmBackward0.mat1"
  trace::MemoryClass memory_class = trace::MemoryClass::none;
  trace::Kind kind = trace::Kind::none;  // of the statement
};

// What the trace says of one block beyond its class.
struct BlockDetails {
  static constexpr std::size_t max_names = 4;
  std::vector<BlockName> names;                      // the first few statements, each name once
  std::uint32_t class_name = 0;                      // String id: name in the statement that decided the class
  SlotName slot_name;                                // of the first node that retains it, or of the slot that was made again in it
  bool in_graph = false;                             // a node retains it
  std::uint32_t born_node = 0;                       // String id: type of the node of a backward that ran at its birth
  std::uint32_t region = 0;                          // Scope id: of the checkpoint region that made it, took it in or gave it up
  int dtype = trace::TensorFacts::no_dtype;          // of the first tensor in it that a statement tells of
  std::int64_t slot = trace::TensorFacts::no_index;  // of that region
  std::int64_t microbatch = -1;                      // at its birth; -1: none was begun in its step
  std::uint32_t incarnation = 0;                     // 0: made for the first time; 1, 2, ...: by that recompute of its region
  bool gathered = false;                             // a parameter that is whole only for a while (FSDP)
};

struct Attribution {
  static constexpr std::size_t max_examples = 8, max_details = 1'000'000;

  bool python = false;             // the trace has the Python source
  std::uint64_t python_since = 0;  // event before which it was silent
  std::uint64_t statements = 0, orphans = 0, orphan_bytes = 0;
  std::vector<Orphan> first_orphans;
  std::uint64_t named_blocks = 0, shared_blocks = 0;  // shared: held several values at once
  std::uint64_t over_retained_blocks = 0, over_retained_bytes = 0, longest_delay_ns = 0, freed_before_release = 0;
  double over_retained_byte_seconds = 0;
  std::vector<OverRetained> worst;                // by byte-seconds, falling
  std::vector<RetainedSet> retained;              // one for each of PhysicalLedger::backwards
  std::map<std::uint32_t, BlockDetails> details;  // by ordinal, of blocks that live after details_at
  bool details_left_out = false;                  // there are more than max_details of them, or of slots
};

struct AttributionOptions {
  std::uint64_t details_at = no_event;
  Progress progress;
};

Result<Attribution> attribute_blocks(const trace::TraceFile& file, PhysicalLedger& ledger, const AttributionOptions& options = {});

}  // namespace liveset::ledger
