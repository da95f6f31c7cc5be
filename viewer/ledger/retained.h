// A pass over a PyTorch trace: which blocks the graph retained, and which ones a recompute made that outlived it. What the lineage
// knows has its name from there, so that every report calls it the same; numbers of names that repeat are its own.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "viewer/ledger/lineage.h"
#include "viewer/ledger/open_scopes.h"
#include "viewer/ledger/path_names.h"
#include "viewer/ledger/slot_names.h"
#include "viewer/ledger/value_names.h"
#include "viewer/trace/trace_file.h"

namespace liveset::ledger {

struct RetainedBlock {
  std::string name;  // module path, the node and slot that holds it, #N where that repeats in the step, and @K when it was made again
  std::string module, op, slot;   // parts of the name: of its birth, or where it was saved; the node that holds it, and its slot
  std::int64_t microbatch = -1;   // at its birth; -1: none was begun in its step
  std::uint32_t incarnation = 0;  // 0: made for the first time; 1, 2, ...: by that recompute of its region
  std::uint64_t bytes = 0;
  std::uint64_t original_event = no_event;  // the allocation of the block that it replaces
  trace::MemoryClass memory_class = trace::MemoryClass::activation;
  bool recomputed = false;
};

struct RetainedKeep {
  std::uint64_t event = 0;       // index in the trace
  std::uint64_t allocation = 0;  // ordinal of the block
};

struct RetainedBlocks {
  std::unordered_map<std::uint64_t, RetainedBlock> blocks;  // by ordinal of the allocation
  std::vector<RetainedKeep> keeps;                          // in order of event; one per block and backward
};

class RetainedFinder {
 public:
  RetainedFinder(const trace::Dictionary& dictionary, const PhysicalLedger& physical, const Lineage& lineage);
  void visit(const trace::Event& event);
  RetainedBlocks finish();

 private:
  using Key = std::pair<std::uint32_t, std::uint64_t>;  // heap, address
  struct Live {
    std::uint64_t size = 0, allocation = 0;
    std::uint32_t scope = 0;
    std::int64_t microbatch = -1;
  };
  using Regions = OpenRegions<std::vector<std::uint64_t>>;  // allocations of its recompute, in order

  void allocate(const trace::Event& event);
  void release(std::uint64_t allocation);
  void retain(const trace::Event& event, trace::MemoryClass memory_class);
  void end_region(const Regions::Region& region);
  const Live* block_at(const trace::Event& event) const;
  RetainedBlock& name_block(const Live& live, const SlotName& name, std::string_view otherwise, std::uint32_t incarnation);
  RetainedBlock& name_remade(const Live& live, const RemadeValue& value);
  void name_slot(const SlotName& name, RetainedBlock& block) const;
  void remake(const trace::Event& event);

  const trace::Dictionary& dictionary_;
  const PhysicalLedger& physical_;
  const Lineage& lineage_;
  PathNames paths_;
  OriginalNames originals_;
  std::unordered_map<std::uint64_t, std::uint32_t> values_;  // of the lineage, by allocation
  RetainedBlocks found_;
  std::map<Key, Live> live_;
  std::unordered_map<std::uint64_t, Key> keys_;  // of live blocks, by allocation
  RegionRounds rounds_;
  SlotNames slots_;
  std::unordered_map<std::uint32_t, Regions> regions_;        // open ones, per thread
  std::unordered_map<std::string, std::uint32_t> names_;      // how often in this step
  std::unordered_map<std::uint64_t, std::uint64_t> kept_in_;  // allocation -> backward that it was last kept for
  std::unordered_set<std::uint64_t> of_the_model_;            // allocations that hold parameters and the like: no activations
  std::unordered_map<std::uint64_t, SlotName> remade_;        // by allocation, until its region ends
  std::int64_t microbatch_ = -1;
  std::uint64_t backward_ = 1;
};

}  // namespace liveset::ledger
