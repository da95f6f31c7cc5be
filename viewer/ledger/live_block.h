// The blocks of one moment with all that is known of each: what `peak` lists and groups, what rules are matched against, and what two runs
// are aligned by.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "viewer/ledger/attribution.h"
#include "viewer/ledger/details.h"

namespace liveset::ledger {

struct LiveBlock {
  BlockDetail detail;
  trace::MemoryClass memory_class = trace::MemoryClass::none;
  bool guess = false;    // of the class
  std::string evidence;  // for the class: "graph: AddmmBackward0.mat1"
  std::string name;      // "GPT.block/AddmmBackward0.mat1@1": of what autograd saves, as far as a slot is known; else empty
  std::string module;    // path of the module it was born in; empty: none
  std::string scope_op;  // the op that the program named, it was born in
  std::string op;        // scope_op, or the autograd node that retains it, or the node of a backward it was born in;
                         // "aten.addmm.default (kept)" of what a selective checkpoint keeps
  std::string slot;      // of the node that retains it: "mat1"
  std::string dtype;     // of the first tensor in it that the trace tells of; empty: it tells of none
  std::string stack;     // frames of the allocation, the innermost first; empty: not recorded
  std::string region;    // checkpoint region that made it again, took it in or gave it up
  std::optional<std::int64_t> region_slot, microbatch;
  std::uint32_t incarnation = 0;   // 0: made for the first time
  bool is_gathered = false;        // a parameter that is whole only for a while
  bool is_sharded = false;         // a parameter of which the trace tells that it is gathered for a while
  std::vector<std::string> names;  // what states it: values that live in it, or graph slots that retain it
  bool is_named_value = false;     // the first of them is a value that the program names
};

// Visits the blocks of the shown heap that live after `event`, in the order of birth, and holds few of them at once. `attribution`
// must be of the same moment.
Status for_each_live_block(const trace::TraceFile& file, const PhysicalLedger& ledger, const Attribution& attribution, std::uint64_t event,
                           const std::function<void(LiveBlock&&)>& visit);

}  // namespace liveset::ledger
