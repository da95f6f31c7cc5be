// The pass behind trace_lineage, for lineage*.cpp: lineage.cpp follows regions and statements, lineage_rounds.cpp makes values of what
// a recompute left.
#pragma once
#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "viewer/ledger/block_finder.h"
#include "viewer/ledger/lineage.h"
#include "viewer/ledger/lineage_order.h"
#include "viewer/ledger/open_scopes.h"
#include "viewer/ledger/slot_names.h"
#include "viewer/trace/columns.h"

namespace liveset::ledger::lineage {

inline constexpr std::uint32_t none = 0xffffffffU;

struct Slot {
  std::uint32_t original = no_block, scope = 0, index = 0, next = none;  // next: another of the same index
  std::int16_t dtype = -1;
  std::uint32_t name = 0;  // of a slot that is made again
};

// The slots of one index: one, or the parts of a sparse tensor.
struct SameIndex {
  std::uint32_t first = none, last = none;
};

// What is known of a region until the next step has one in its place.
struct Work {
  std::uint32_t region = none;  // index into Lineage::regions; none: outside of the range
  std::vector<Slot> slots;      // as they were dropped
  absl::flat_hash_map<std::uint32_t, SameIndex> by_index;
  std::vector<std::uint32_t> inputs, random, selective;  // blocks
  std::uint64_t first_round = no_event;
  absl::flat_hash_map<std::uint32_t, std::uint64_t> read_again;  // block that a slot of it has again: end of the last recompute

  void drop(const Slot& slot) {
    const auto place = static_cast<std::uint32_t>(slots.size());
    SameIndex& same = by_index[slot.index];
    (same.last == none ? same.first : slots[same.last].next) = place;
    same.last = place;
    slots.push_back(slot);
  }
};

// The innermost scope that contains both. A parent's id is smaller than its child's.
inline std::uint32_t common_scope(const trace::Dictionary& names, std::uint32_t a, std::uint32_t b) {
  while (a != b) {
    std::uint32_t& inner = a > b ? a : b;
    const std::uint32_t parent = inner < names.scopes.size() ? names.scopes[inner].parent : 0;
    inner = parent < inner ? parent : 0;
  }
  return a;
}

// A block that a graph holds which a recompute built, and the slot there.
struct StatedAgain {
  std::uint32_t block = 0, name = 0;
  std::int16_t dtype = -1;
};

// A recompute that is open, or has ended and may still be spoken of.
struct Round {
  RecomputeRound about;
  Work* work = nullptr;         // null: by phase, or of a region that is not known
  std::uint32_t region = none;  // as work->region was when it began
  std::uint32_t scope = 0;      // of the region
  bool indexed = false;
  std::vector<std::pair<std::uint32_t, Slot>> by_slot;        // block, the slot that it was put into
  std::vector<StatedAgain> stated;                            // without an index
  std::vector<std::pair<std::uint32_t, std::uint32_t>> made;  // block, scope: all of it, where originals are found by order
  std::int64_t last_index = -1;
  std::uint32_t last_slot = none;
  // Of a recompute without a region.
  std::uint32_t node = 0;
  std::int64_t sequence = -1;
  std::size_t depth = 0;
};

struct KeptOfRegion {
  Work* work = nullptr;          // of its forward; null: outside of the range, or made again by the recompute around it
  std::unique_ptr<Round> round;  // it is a recompute
};
using Regions = OpenRegions<KeptOfRegion>;

struct OpenNode {
  std::uint32_t name = 0;
  std::int64_t number = -1;
  bool recomputed = false;
};

struct ThreadState {
  Regions open;
  OpenStack<OpenNode> nodes;
  std::unique_ptr<Round> ended, by_phase;
  // Blocks made by a recompute inside of another one, and its number; of the outermost one that is open or has just ended.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> made_inside;
};

using Counts = absl::flat_hash_map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t>;  // (scope, bytes)

// Recomputes without a region in one microbatch: whose originals lie in the forward before the first of them.
struct PhaseRound {
  std::uint32_t interval = 0;
  std::int64_t sequence = -1;
  std::vector<WantedOriginal> wanted;                                                   // `place` within the round
  std::vector<std::pair<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t>> made;  // (scope, bytes), number
};

class LineagePass {
 public:
  LineagePass(const trace::TraceFile& file, const PhysicalLedger& ledger, const LineageOptions& options)
      : file_(file),
        names_(file.dictionary()),
        ledger_(ledger),
        options_(options),
        finder_(ledger.blocks),
        slot_names_(names_, options.max_names) {
    threads_.resize(std::max<std::size_t>(names_.threads.size(), 1));
  }
  Result<Lineage> run();

 private:
  static constexpr std::size_t max_walked = 1'000'000, max_made_inside = 4'000'000;

  void chunk(const trace::Columns& columns);
  void other(const trace::Columns& columns, std::uint32_t index, trace::Kind kind, std::uint64_t event);
  void begin(const trace::Columns& columns, std::uint32_t index, std::uint64_t event);
  void end(const trace::Columns& columns, std::uint32_t index, std::uint64_t event);
  void attribute(ThreadState& thread, std::uint32_t scope, std::uint32_t name, std::uint32_t text);
  void statement(const trace::Columns& columns, std::uint32_t index, trace::Kind kind, std::uint64_t event);
  void drop(ThreadState& thread, std::uint32_t block, std::uint32_t scope, const trace::TensorFacts& facts);
  void remake(ThreadState& thread, std::uint32_t block, std::uint32_t scope, std::uint32_t name, const trace::TensorFacts& facts);
  void held(std::uint32_t block, std::uint32_t scope, std::uint32_t name, trace::Kind kind, trace::MemoryClass memory_class);
  void recompute_allocation(const trace::Columns& columns, std::uint32_t index, std::uint32_t ordinal);
  void node(const trace::Columns& columns, std::uint32_t index, trace::Kind kind, std::uint64_t event);

  Work* new_work(std::uint32_t thread, std::uint32_t scope, std::uint64_t event);
  Work* work_of(std::uint32_t scope);
  void settle(ThreadState& thread);
  void end_by_phase(ThreadState& thread, std::uint64_t event, std::uint64_t time_ns);
  void finish(Round& round);
  std::uint32_t add_round(Round& round, std::uint32_t region);
  void by_position(const Round& round, std::uint32_t index);
  void by_order(Round& round, std::uint32_t index);
  std::vector<WantedOriginal> remade_in_order(const Round& round, std::uint32_t index, std::uint32_t interval, Counts& counts);
  void phase_round(Round& round);
  void finalize(Work& work);
  void settle_phase_rounds();
  void settle_order();
  RemadeValue* add_value(std::uint32_t round, std::uint32_t block);
  bool is_region(std::uint32_t scope) const {
    return scope < names_.scopes.size() && names_.scopes[scope].kind == trace::ScopeKind::region;
  }
  ThreadState& thread_at(const trace::Columns& columns, std::uint32_t index) {
    const std::uint32_t id = columns.thread[index];
    return threads_[id < threads_.size() ? id : 0];
  }
  std::uint64_t bytes(std::uint32_t ordinal) const { return ledger_.blocks.bytes(*ledger_.blocks.find(ordinal)); }

  const trace::TraceFile& file_;
  const trace::Dictionary& names_;
  const PhysicalLedger& ledger_;
  const LineageOptions& options_;
  Lineage out_;
  BlockFinder finder_;
  RegionRounds counter_;
  SlotNames slot_names_;
  trace::Positions at_;
  std::uint64_t next_ordinal_ = 0;
  std::vector<ThreadState> threads_;
  absl::flat_hash_map<std::uint64_t, std::unique_ptr<Work>> works_;  // by thread and scope
  absl::flat_hash_map<std::uint32_t, Work*> latest_;                 // by scope
  absl::flat_hash_map<std::int64_t, std::uint32_t> walked_;          // names of the last graph's nodes, by sequence number
  bool walking_ = false;
  bool has_step_ = false;
  std::int64_t step_ = 0, microbatch_ = -1;
  std::uint64_t part_begin_ = 0;  // of the step or microbatch
  std::uint64_t last_event_ = 0, last_time_ns_ = 0;
  // What is matched by order, in the end.
  std::vector<ForwardInterval> intervals_;
  std::vector<WantedOriginal> wanted_;
  std::vector<PhaseRound> phase_rounds_;
  std::uint64_t phase_part_ = no_event;  // part_begin_ of the last interval of recomputes without a region
  std::uint32_t phase_interval_ = 0;
  std::vector<CheckpointRegion> inferred_;
  std::vector<std::uint32_t> inferred_rounds_;  // rounds of regions that are not in out_.regions yet
};

}  // namespace liveset::ledger::lineage
