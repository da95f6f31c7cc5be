// What a trace says of itself when it was made from another tool's file (viewer/import): the attribute "imported".
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "viewer/trace/trace_file.h"

namespace liveset::ledger {

struct ImportedHeap {
  std::string name;
  // "whole": from the first byte on. "window": bytes lived before the first event. "none": only the state at the end is known.
  std::string history;
  std::uint64_t opening_blocks = 0, opening_bytes = 0;  // lived before the first event
  std::vector<std::string> contradictions;              // the first few
  std::uint64_t contradiction_count = 0;
  std::uint64_t unknown_events = 0;  // of a kind that the importer does not know: passed over
  bool has_history() const { return history != "none"; }
};

struct Imported {
  std::string from;  // "torch-snapshot"
  std::string file;
  std::string block_counter;  // which counter the sizes of blocks add up to: "requested"
  std::vector<ImportedHeap> heaps;
  std::vector<std::string> unknown_actions;  // what the first few kinds of unknown_events() are called

  const ImportedHeap* heap(std::string_view name) const;
  std::uint64_t contradictions() const;
  std::uint64_t unknown_events() const;
};

// Nothing where it was recorded. Looks at the first events only.
Result<std::optional<Imported>> find_imported(const trace::TraceFile& file);

}  // namespace liveset::ledger
