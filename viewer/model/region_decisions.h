// What regions decide: the life of a value under checkpointing. schedule.cpp writes it down, op by op.
//
// Forward. A value is kept when something outside its region reads or saves it; inputs always are. Everything else that a region
// saves is dropped: after its last reader in the forward (reading C0 of the chain), or, where nobody knows what reads what (a
// recorded step), when the region ends. What the region reads from outside lives until its backward is done, as
// torch.utils.checkpoint's frame keeps its arguments.
//
// Backward. Before the first backward op of a region that needs what the region saved, the region runs again (a kept value that is
// made again merges with itself). Under EARLY_STOP it stops when the last saved value was packed: an op that saves only what it reads
// packs before its kernel, so that kernel does not run; and what the rest would have freed goes with the abandoned frames.
//
// A kept value that its own region saves too is, in torch, a tensor twice: the kept one, which goes with the last reader outside, and the
// one that is made again. Backward runs in reverse, so the first is gone before the second is made: a drop there.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "viewer/model/model.h"
#include "viewer/model/policy.h"

namespace liveset::model {

struct RegionDecisions {
  struct OfTensor {
    std::uint32_t producer = none;      // op
    std::uint32_t last_forward = none;  // last forward op that reads it
    std::uint32_t last_outside = none;  // last op of any phase that reads or saves it, or a backward of such, outside its own region
    std::uint32_t freed_by = none;      // op of the step without checkpointing
    std::uint32_t pinned_until = none;  // op until which regions that read it from outside need it, where that is after freed_by
    bool kept = true;                   // not dropped in the forward
    bool kept_output = false;           // of an operator whose outputs its region keeps
    bool saved_at_home = false;         // by an op of the region that makes it
    bool region_input = false;          // regions hold it to run again, and nothing else of backward does
    bool copied = false;                // kept, and made again by its own region as a tensor of its own
  };
  struct OfRegion {
    bool early_stop = false;
    std::uint32_t stop = 0;  // first op that a re-run does not execute
    std::uint32_t last_saver = none;
    std::uint32_t rerun_at = none, done = none;  // first and last backward op of ops of the region that save something
    std::vector<std::uint32_t> made;             // values that it drops, in order
  };
  // Tensors to which something happens when an op has run, by op; empty: after none.
  using After = std::vector<std::vector<std::uint32_t>>;

  std::vector<OfTensor> tensors;
  std::vector<OfRegion> regions;
  std::vector<std::uint32_t> region_of;  // by op; none: in no region
  std::vector<bool> keeps_outputs;       // by op: its region keeps what it makes and does not run it again; empty: nowhere
  After given_up;                        // in the forward: dropped
  After outside_over;                    // the kept one of a tensor that is made again: its last reader outside is through
  After returned;                        // a node's function lets go of them, where their region has run again
  After unpinned;                        // OfTensor::pinned_until
  // From the first to the second op, not in re-runs, something may live that is not known to be a region's argument, or be gone that is
  // taken for one. The first is `none` where that cannot be.
  std::uint32_t doubt_from = none, doubt_until = 0;
  std::uint64_t doubt_bytes = 0;  // that may live then beside what is taken to, at most

  // The region in which the tensor is made.
  std::uint32_t home(std::uint32_t tensor) const { return tensors[tensor].producer == none ? none : region_of[tensors[tensor].producer]; }
  bool op_keeps_outputs(std::uint32_t op) const { return !keeps_outputs.empty() && keeps_outputs[op]; }
};

inline std::span<const std::uint32_t> after(const RegionDecisions::After& lists, std::uint32_t op) {
  return lists.empty() ? std::span<const std::uint32_t>() : std::span<const std::uint32_t>(lists[op]);
}

// What tells of the arguments of the region [begin, end): ops that read; else what ops save and the region has not made; else nothing.
enum class Arguments : std::uint8_t { unknown, saved, read };
// `producer`: of tensors, none: given to the step. given(tensor) is called for each that is saved and made before the region.
template <class Producer, class Given>
Arguments arguments_of(const Model& model, std::uint32_t begin, std::uint32_t end, Producer producer, Given given) {
  Arguments found = Arguments::unknown;
  for (std::uint32_t op = begin; op < end; ++op) {
    if (model.ops[op].reads.count != 0) return Arguments::read;
    for (const std::uint32_t tensor : model.list(model.ops[op].saves)) {
      if (producer(tensor) != none && producer(tensor) >= begin) continue;
      given(tensor);
      found = Arguments::saved;
    }
  }
  return found;
}

RegionDecisions decide_regions(const Model& model, const std::vector<Region>& recomputed);

}  // namespace liveset::model
