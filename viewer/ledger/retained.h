// First pass over a PyTorch trace: which blocks the graph retained, and which ones a recompute made that outlived it.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "viewer/trace/trace_file.h"

namespace liveset::ledger {

struct RetainedBlock {
  std::string name;               // module path of its birth, the node and slot that holds it, and #N where that repeats in the step
  std::string module, op, slot;   // parts of the name: of its birth; the node that holds it ("AddmmBackward0") and its slot ("mat1")
  std::int64_t microbatch = -1;   // at its birth; -1: none was begun in its step
  std::uint32_t incarnation = 0;  // 0: made for the first time; 1, 2, ...: by that recompute of its region in its step
  std::uint64_t bytes = 0;
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
  explicit RetainedFinder(const trace::Dictionary& dictionary) : dictionary_(dictionary) {}
  void visit(const trace::Event& event);
  RetainedBlocks finish();

 private:
  using Key = std::pair<std::uint32_t, std::uint64_t>;  // heap, address
  struct Live {
    std::uint64_t size = 0, allocation = 0;
    std::uint32_t scope = 0;
    std::int64_t microbatch = -1;
  };
  struct Slot {
    std::uint32_t node = 0, name = 0;  // String ids
  };
  struct Region {
    std::uint32_t scope = 0;
    std::vector<std::uint64_t> made;  // allocations of its recompute, in order; none when the region runs for the first time
  };

  void allocate(const trace::Event& event);
  void release(std::uint64_t allocation);
  void retain(const trace::Event& event, trace::MemoryClass memory_class);
  void end_region(const trace::Event& event);
  const Live* block_at(const trace::Event& event) const;
  RetainedBlock& name_block(const Live& live, std::string_view slot);
  void name_slot(const Slot& slot, RetainedBlock& block) const;
  void remake(const trace::Event& event);

  const trace::Dictionary& dictionary_;
  RetainedBlocks found_;
  std::map<Key, Live> live_;
  std::unordered_map<std::uint64_t, Key> keys_;                     // of live blocks, by allocation
  std::unordered_map<std::uint32_t, std::vector<Region>> regions_;  // open ones, per thread
  std::unordered_map<std::string, std::uint32_t> names_;            // how often in this step
  std::unordered_map<std::uint64_t, std::uint64_t> kept_in_;        // allocation -> backward that it was last kept for
  std::unordered_set<std::uint64_t> of_the_model_;                  // allocations that hold parameters and the like: no activations
  std::unordered_map<std::uint32_t, std::uint32_t> graph_nodes_;    // by thread: node that its walk has come to
  std::map<std::pair<std::uint32_t, std::int64_t>, Slot> waiting_;  // by region and index: slots that wait for it, in this step
  std::unordered_map<std::uint64_t, Slot> remade_;                  // by allocation, until its region ends
  std::unordered_map<std::uint32_t, std::uint32_t> rounds_;         // by region: recomputes that ended in this step
  std::int64_t microbatch_ = -1;
  std::uint64_t backward_ = 1;
};

}  // namespace liveset::ledger
