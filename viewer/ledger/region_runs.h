// Follows the threads of a trace into checkpoint regions and out of them: what one execution of a region was, when it ends.
//
// A region is executed in forward, and again by a recompute. Within a recompute a region that is new there (a nested one) says what it
// is, as in forward; the one that is made again does not.
#pragma once
#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "viewer/ledger/block_table.h"
#include "viewer/ledger/open_scopes.h"
#include "viewer/trace/trace_file.h"

namespace liveset::ledger {

// What an execution made in one heap.
struct HeapShare {
  std::uint32_t heap = 0;
  std::uint64_t bytes = 0;         // allocated
  std::uint64_t remade_bytes = 0;  // of blocks that it made and that are stated as saved values made again
};

struct RegionRun {
  static constexpr std::size_t max_heaps = 64, max_modules = 256;
  std::uint32_t scope = 0, thread = 0;
  std::vector<std::uint32_t> modules;         // scopes of the modules that it calls itself, or regions in it, each once, in order
  std::uint32_t about = 0, outcome = 0;       // String ids of what the job says of it at its begin, and of a recompute at its end
  std::uint64_t begin = 0, end = 0;           // events
  std::vector<HeapShare> made;                // with what regions inside it made
  absl::flat_hash_set<std::uint32_t> remade;  // blocks, by ordinal
  bool recompute = false;
};

class RegionRuns {
 public:
  RegionRuns(const trace::Dictionary& names, std::function<void(const RegionRun&)> ended) : names_(names), ended_(std::move(ended)) {}
  void visit(const trace::Event& event);
  // A statement of this thread that the innermost region has made `block` again.
  void remade(const trace::Event& event, std::uint32_t ordinal, const Block& block, std::uint64_t bytes);

 private:
  using Open = OpenRegions<RegionRun>;
  void begin(const trace::Event& event);
  void end(const trace::Event& event);
  void attribute(const trace::Event& event);
  void close(Open& open, Open::Region&& region, std::uint64_t event);
  static void call(RegionRun& run, std::uint32_t module);
  static HeapShare* share(RegionRun& run, std::uint32_t heap);

  const trace::Dictionary& names_;
  std::function<void(const RegionRun&)> ended_;
  RegionRounds rounds_;
  absl::flat_hash_map<std::uint32_t, Open> open_;  // by thread
};

}  // namespace liveset::ledger
