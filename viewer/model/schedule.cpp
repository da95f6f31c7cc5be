// Regions to instructions: what they decide (region_decisions.h), written down as a step runs, microbatch by microbatch.
#include "viewer/model/schedule.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "viewer/model/multilevel.h"
#include "viewer/model/offload.h"
#include "viewer/model/region_decisions.h"

namespace liveset::model {
namespace {

using Do = Instruction::Do;
using trace::Phase;

class RegionSchedule {
 public:
  RegionSchedule(const Model& model, Regions regions) : model_(model), regions_(std::move(regions)) {}

  Schedule write() {
    out_.boundaries = std::move(regions_.boundaries);
    decisions_ = decide_regions(model_, regions_.recomputed);
    out_.doubt_from = decisions_.doubt_from;
    out_.doubt_until = decisions_.doubt_until;
    out_.doubt_bytes = decisions_.doubt_bytes;
    find_region_inputs();
    keep_said_.resize(model_.tensors.size());
    add_random_states();
    find_offloads();
    out_.instructions.reserve(4 * model_.ops.size());
    if (model_.conventions.frees_are_listed)
      for (const std::uint32_t tensor : model_.inputs) append(Do::begin, Phase::other, tensor);
    if (model_.microbatches.count == 1)
      one_step();
    else
      microbatches();
    return std::move(out_);
  }

 private:
  void one_step() {
    begin_microbatch();
    for (std::uint32_t op = 0; op < model_.ops.size(); ++op) follow(op);
  }

  // A pass is one microbatch through one chunk of the stage's ops; without interleaving there is one chunk.
  struct Pass {
    std::uint32_t microbatch = 0, chunk = 0;
  };
  // Rounds of as many microbatches as there are stages: each chunk in turn runs all of a round, backward the last chunk first.
  std::vector<Pass> passes(bool forward) const {
    const Microbatches& stated = model_.microbatches;
    const std::uint64_t chunks = std::max<std::size_t>(stated.chunk_ends.size(), 1), length = chunks == 1 ? stated.count : stated.stages;
    std::vector<Pass> out;
    for (std::uint64_t first = 0; first < stated.count; first += length)
      for (std::uint64_t chunk = 0; chunk < chunks; ++chunk)
        for (std::uint64_t microbatch = first; microbatch < std::min(stated.count, first + length); ++microbatch)
          out.push_back({static_cast<std::uint32_t>(microbatch), static_cast<std::uint32_t>(forward ? chunk : chunks - chunk - 1)});
    return out;
  }

  void microbatches() {
    using Order = Microbatches::Order;
    const Microbatches& stated = model_.microbatches;
    const std::vector<Pass> forwards = passes(true), backwards = passes(false);
    const std::uint64_t chunks = std::max<std::size_t>(stated.chunk_ends.size(), 1), after = stated.stages - stated.stage - 1;
    // 1F1B: a stage warms up with as many forwards as stages follow it; interleaved, of all chunks but the last, and twice those.
    const std::uint64_t ahead = stated.order == Order::one_by_one    ? 1
                                : stated.order == Order::all_forward ? stated.count
                                : chunks == 1                        ? after + 1
                                                                     : 2 * after + (chunks - 1) * stated.stages + 1;
    find_chunks();
    std::size_t ran = 0;
    for (std::size_t back = 0; back < backwards.size(); ++back) {
      for (; ran < forwards.size() && ran < back + ahead; ++ran) {
        enter(forwards[ran].microbatch);
        if (forwards[ran].chunk == 0) begin_microbatch();
        all_of(Phase::forward, forwards[ran].chunk);
        leave();
      }
      enter(backwards[back].microbatch);
      if (backwards[back].chunk + 1 == chunks) all_of(Phase::loss, backwards[back].chunk);
      all_of(Phase::backward, backwards[back].chunk);
      leave();
    }
    // What runs once goes on where the last microbatch ended, and frees what all of them have left.
    const std::uint32_t last = microbatch_;
    for (std::uint32_t op = 0; op < model_.ops.size(); ++op) {
      const Phase phase = model_.ops[op].phase;
      if (phase == Phase::forward || phase == Phase::loss || phase == Phase::backward) continue;
      enter(last);
      follow(op);
      leave();
      for (std::uint32_t microbatch = 0; microbatch < last && model_.ops[op].frees.count != 0; ++microbatch) {
        enter(microbatch);
        for (const std::uint32_t tensor : model_.list(model_.ops[op].frees))
          if (!is_shared(tensor)) end_of(tensor, phase, op);
        leave();
      }
    }
  }
  bool is_shared(std::uint32_t tensor) const { return model_.is_shared(model_.tensors[tensor]); }
  // A forward op is of the chunk in which it stands, a backward op of its forward op's; any other of the last.
  void find_chunks() {
    const std::vector<std::uint32_t>& ends = model_.microbatches.chunk_ends;
    chunks_.resize(std::max<std::size_t>(ends.size(), 1));
    for (std::uint32_t op = 0; op < model_.ops.size(); ++op) {
      const std::uint32_t forward = model_.ops[op].phase == Phase::forward ? op : model_.ops[op].forward;
      const auto chunk = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), forward) - ends.begin());
      chunks_[std::min(chunk, chunks_.size() - 1)].push_back(op);
    }
  }
  void all_of(Phase phase, std::uint32_t chunk) {
    for (const std::uint32_t op : chunks_[chunk])
      if (model_.ops[op].phase == phase) follow(op);
  }
  // Each microbatch has lives of its own.
  void enter(std::uint32_t microbatch) {
    microbatch_ = microbatch;
    if (const auto found = parked_.find(microbatch); found != parked_.end()) {
      now_ = std::move(found->second);
      parked_.erase(found);
    }
  }
  void leave() { parked_[microbatch_] = std::move(now_); }

  void begin_microbatch() {
    now_ = {};
    now_.lives.assign(decisions_.tensors.size(), false);
    now_.reruns.assign(decisions_.regions.size(), false);
    if (model_.conventions.drop_at_region_end) now_.keep_said.assign(decisions_.tensors.size(), false);
    for (const std::uint32_t tensor : model_.inputs) {
      if (!model_.conventions.frees_are_listed) append(Do::begin, Phase::forward, tensor);
      lives(tensor);
    }
  }

  void lives(std::uint32_t tensor) {
    now_.lives[tensor] = true;
    if (!now_.keep_said.empty() && model_.tensors[tensor].value) now_.unsaid.push_back(tensor);
  }

  void follow(std::uint32_t op) {
    switch (model_.ops[op].phase) {
      case Phase::forward: return forward(op);
      case Phase::backward: return backward(op);
      default: return run(op, model_.ops[op].phase);
    }
  }

  void append(Do what, Phase phase, std::uint32_t subject, bool graph = true) {
    Instruction instruction;
    instruction.what = what;
    instruction.phase = phase;
    instruction.subject = subject;
    instruction.microbatch = microbatch_;
    instruction.graph = graph;
    out_.instructions.push_back(instruction);
  }

  void add_random_states() {
    random_states_.assign(decisions_.regions.size(), none);
    if (model_.physical.rng_state == 0) return;
    for (std::size_t index = 0; index < decisions_.regions.size(); ++index) {
      if (!regions_.recomputed[index].preserve_rng) continue;
      Tensor tensor;
      tensor.id = regions_.recomputed[index].name + " random state";
      tensor.bytes = model_.physical.rng_state;
      tensor.memory_class = trace::MemoryClass::rng_state;
      random_states_[index] = static_cast<std::uint32_t>(model_.tensors.size() + out_.extra.size());
      out_.extra.push_back(tensor);
      tensor.id = regions_.recomputed[index].name + " random state of the step";
      tensor.memory_class = trace::MemoryClass::temporary;
      out_.extra.push_back(std::move(tensor));
    }
  }

  void find_offloads() {
    if (regions_.offloaded.empty()) return;
    std::vector<bool> stays(decisions_.tensors.size());
    // What all microbatches share, the next one's forward needs.
    for (std::uint32_t tensor = 0; tensor < decisions_.tensors.size(); ++tensor)
      stays[tensor] = decisions_.tensors[tensor].kept && (model_.microbatches.count == 1 || !is_shared(tensor));
    offloads_.emplace(model_, regions_.offloaded, stays);
  }

  void forward(std::uint32_t op) {
    const std::uint32_t region = decisions_.region_of[op];
    if (region != none && op == regions_.recomputed[region].begin && random_states_[region] != none)
      append(Do::begin, Phase::forward, random_states_[region]);
    const bool graph = region == none || decisions_.op_keeps_outputs(op);
    append(Do::run, Phase::forward, op, graph);
    now_.keeps_said = false;
    for (const std::uint32_t tensor : model_.list(model_.ops[op].writes)) {
      now_.lives[tensor] = false;
      if (graph || !model_.tensors[tensor].for_backward) lives(tensor);
    }
    if (!model_.conventions.drop_at_region_end) decided(op);
    for (const std::uint32_t tensor : model_.list(model_.ops[op].frees)) end_of(tensor, Phase::forward, op);
    for (const std::uint32_t tensor : after(decisions_.given_up, op)) give_up(tensor, Phase::forward);
    outside_ends(op, Phase::forward);
    // Nothing of the graph leads to a region without backward.
    if (region != none && op + 1 == regions_.recomputed[region].end && decisions_.regions[region].done == none &&
        random_states_[region] != none)
      append(Do::release, Phase::forward, random_states_[region]);
    offload_after(op, Phase::forward);
  }

  // Where nobody knows the last readers: when the forward is over.
  void say_keeps() {
    if (now_.keeps_said || !model_.conventions.drop_at_region_end) return;
    now_.keeps_said = true;
    std::sort(now_.unsaid.begin(), now_.unsaid.end());
    for (const std::uint32_t tensor : now_.unsaid) {
      if (!now_.lives[tensor] || now_.keep_said[tensor] || (is_shared(tensor) && keep_said_[tensor])) continue;
      append(Do::keep, Phase::forward, tensor);
      now_.keep_said[tensor] = true;
      keep_said_[tensor] = true;
    }
    now_.unsaid.clear();
  }

  // After `op`, which is the last forward op that reads them: kept or dropped. What no op reads is decided where it is made.
  void decided(std::uint32_t op) {
    ready_.clear();
    for (const std::uint32_t tensor : model_.list(model_.ops[op].reads))
      if (decisions_.tensors[tensor].last_forward == op) ready_.push_back(tensor);
    std::sort(ready_.begin(), ready_.end());
    ready_.erase(std::unique(ready_.begin(), ready_.end()), ready_.end());
    for (const std::uint32_t tensor : model_.list(model_.ops[op].writes))
      if (decisions_.tensors[tensor].last_forward == none) ready_.push_back(tensor);
    for (const std::uint32_t tensor : ready_) {
      if (!model_.tensors[tensor].value) continue;
      if (decisions_.tensors[tensor].kept)
        append(Do::keep, Phase::forward, tensor);
      else
        give_up(tensor, Phase::forward);
    }
  }

  void give_up(std::uint32_t tensor, Phase phase) {
    if (!now_.lives[tensor]) return;
    append(Do::drop, phase, tensor);
    now_.lives[tensor] = false;
  }

  // A kept value may go before its own region runs again and makes it once more for nobody: then this is a drop.
  void release(std::uint32_t tensor, Phase phase) {
    if (!now_.lives[tensor]) return;
    append(is_made_again(tensor) ? Do::drop : Do::release, phase, tensor);
    now_.lives[tensor] = false;
  }
  bool is_made_again(std::uint32_t tensor) const {
    const std::uint32_t own = decisions_.home(tensor);
    return own != none && model_.tensors[tensor].value && !now_.reruns[own] && decisions_.regions[own].done != none &&
           decisions_.tensors[tensor].producer < decisions_.regions[own].stop &&
           !decisions_.op_keeps_outputs(decisions_.tensors[tensor].producer);
  }

  void find_region_inputs() {
    if (regions_.recomputed.empty()) return;
    out_.region_inputs.resize(model_.tensors.size());
    for (std::size_t tensor = 0; tensor < out_.region_inputs.size(); ++tensor)
      out_.region_inputs[tensor] = decisions_.tensors[tensor].region_input;
  }

  // Where the step without checkpointing frees the tensor.
  void end_of(std::uint32_t tensor, Phase phase, std::uint32_t op) {
    const std::uint32_t pinned = decisions_.tensors[tensor].pinned_until;
    if (pinned != none && pinned > op) return;
    release(tensor, phase);
  }

  // The kept one of a tensor that is made again: its last reader outside is through.
  void outside_ends(std::uint32_t op, Phase phase) {
    for (const std::uint32_t tensor : after(decisions_.outside_over, op)) {
      if (!now_.reruns[decisions_.home(tensor)])
        give_up(tensor, phase);
      else if (now_.lives[tensor])
        append(Do::forget, phase, tensor);  // the region ran again before: of the two, one is left
    }
  }
  // Copies are of all microbatches: a value that leaves may be of an earlier one.
  void offload_after(std::uint32_t op, Phase phase) {
    if (!offloads_) return;
    const std::uint32_t present = microbatch_;
    for (const Offloads::Moved& moved : offloads_->leave_after(op, present)) {
      microbatch_ = moved.microbatch;
      append(Do::offload, phase, moved.tensor);
    }
    microbatch_ = present;
  }
  void prefetch_before(std::uint32_t op, Phase phase) {
    if (!offloads_) return;
    for (const Offloads::Moved& moved : offloads_->return_before(op, microbatch_)) append(Do::prefetch, phase, moved.tensor);
  }

  void run(std::uint32_t op, Phase phase) {
    if (phase == Phase::loss || phase == Phase::backward) say_keeps();
    if (phase != Phase::loss) prefetch_before(op, phase);
    append(Do::run, phase, op);
    for (const std::uint32_t tensor : model_.list(model_.ops[op].writes)) lives(tensor);
    for (const std::uint32_t tensor : model_.list(model_.ops[op].frees)) end_of(tensor, phase, op);
    for (const std::uint32_t tensor : after(decisions_.returned, op))
      if (now_.reruns[decisions_.home(tensor)]) end_of(tensor, phase, op);
    outside_ends(op, phase);
    for (const std::uint32_t tensor : after(decisions_.unpinned, op)) release(tensor, phase);
    if (phase == Phase::loss) offload_after(op, phase);
  }

  void backward(std::uint32_t op) {
    const std::uint32_t forward = model_.ops[op].forward;
    const std::uint32_t region = forward == none ? none : decisions_.region_of[forward];
    if (region != none && !now_.reruns[region] && (model_.ops[forward].is_taken_back() || !decisions_.regions[region].early_stop))
      rerun(region);
    run(op, Phase::backward);
    if (region == none || decisions_.regions[region].done != op) return;
    if (random_states_[region] != none) append(Do::release, Phase::backward, random_states_[region]);
    // What the region made again goes with its backward: the program may hold on to the first making, and what the step frees earlier
    // nobody else lets go of.
    for (std::uint32_t each = regions_.recomputed[region].begin; each < decisions_.regions[region].stop; ++each)
      for (const std::uint32_t tensor : model_.list(model_.ops[each].writes)) {
        if (now_.lives[tensor]) append(Do::forget, Phase::backward, tensor);
        if (decisions_.tensors[tensor].freed_by != none && decisions_.tensors[tensor].freed_by <= op) end_of(tensor, Phase::backward, op);
      }
  }

  void rerun(std::uint32_t index) {
    const Region& region = regions_.recomputed[index];
    const RegionDecisions::OfRegion& work = decisions_.regions[index];
    const std::uint32_t random_state = random_states_[index];
    now_.reruns[index] = true;
    temporaries_.clear();
    copies_.clear();
    say_keeps();
    // The state of the step's own generators waits while the region's is in force.
    if (random_state != none) append(Do::begin, Phase::recompute, random_state + 1);
    for (std::uint32_t op = region.begin; op < work.stop; ++op) {
      if (!decisions_.op_keeps_outputs(op)) {
        prefetch_before(op, Phase::recompute);
        append(Do::run, Phase::recompute, op);
        for (const std::uint32_t tensor : model_.list(model_.ops[op].writes)) {
          if (now_.lives[tensor])
            copies_.push_back(tensor);
          else if (!model_.tensors[tensor].value || !decisions_.tensors[tensor].saved_at_home)
            temporaries_.push_back(tensor);
          lives(tensor);
        }
      }
      for (const std::uint32_t tensor : model_.list(model_.ops[op].frees)) end_inside(tensor, index);
    }
    // The frames that were abandoned let go of what the rest would have freed.
    for (std::uint32_t op = work.stop; op < region.end; ++op)
      for (const std::uint32_t tensor : model_.list(model_.ops[op].frees))
        if (decisions_.tensors[tensor].producer < work.stop || !decisions_.tensors[tensor].kept_output) end_inside(tensor, index);
    // What the step keeps of its first making was made a second time for nothing.
    for (const std::uint32_t tensor : temporaries_) release(tensor, Phase::recompute);
    for (const std::uint32_t tensor : copies_)
      if (now_.lives[tensor] && (!decisions_.tensors[tensor].saved_at_home || model_.tensors[tensor].wrapped_number))
        append(Do::forget, Phase::recompute, tensor);
    if (random_state != none) append(Do::release, Phase::recompute, random_state + 1);
  }
  // What a selective region kept is handed to the re-run, which lets go of it as the forward would have; what the re-run did not come to
  // is kept until the region is done.
  void end_inside(std::uint32_t tensor, std::uint32_t region) {
    if (decisions_.home(tensor) == region) release(tensor, Phase::recompute);
  }

  // Of one microbatch, as the schedule stands.
  struct Lives {
    std::vector<bool> lives, reruns;    // tensors; regions that ran again
    std::vector<bool> keep_said;        // tensors; empty where it is said when an op has run
    std::vector<std::uint32_t> unsaid;  // values that came to life since
    bool keeps_said = false;            // of its forward
  };

  const Model& model_;
  Regions regions_;
  Schedule out_;
  std::uint32_t microbatch_ = 0;
  RegionDecisions decisions_;
  std::vector<std::uint32_t> random_states_;  // of regions, in Schedule::extra; none: it keeps none
  std::vector<bool> keep_said_;               // of what all microbatches share
  Lives now_;
  std::vector<std::vector<std::uint32_t>> chunks_;  // ops, where there are several microbatches
  std::map<std::uint32_t, Lives> parked_;           // of microbatches that wait for their backward
  std::optional<Offloads> offloads_;
  std::vector<std::uint32_t> ready_, temporaries_, copies_;
};

}  // namespace

Status check_microbatches(const Model& model, std::uint64_t tensors) {
  const std::uint64_t count = model.microbatches.count;
  const std::uint64_t each = std::max<std::uint64_t>({tensors, model.ops.size() / 2, 1});  // a layer of a chain has two ops
  if (count <= 1 || count <= max_layers * 8 / each) return Done{};
  return Error{ErrorKind::usage,
               "",
               {},
               std::to_string(count) + " microbatches of " + std::to_string(tensors) + " tensors and " + std::to_string(model.ops.size()) +
                   " ops are too many to list",
               "give fewer microbatches"};
}

Result<Schedule> make_schedule(const Model& model, const Policy& policy) {
  if (Status status = check_microbatches(model, model.tensors.size()); !status) return status.take_error();
  using Kind = Policy::Kind;
  if (policy.kind == Kind::revolve || policy.kind == Kind::rotor || policy.kind == Kind::moves) return multilevel_schedule(model, policy);
  Result<Regions> regions = regions_of(model, policy);
  if (!regions) return regions.take_error();
  return RegionSchedule(model, std::move(*regions)).write();
}

}  // namespace liveset::model
