// Regions to instructions. What is told here is the life of a value under checkpointing.
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
#include "viewer/model/schedule.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "viewer/model/multilevel.h"
#include "viewer/model/offload.h"

namespace liveset::model {
namespace {

using Do = Instruction::Do;
using trace::Phase;
using Rerun = Conventions::Rerun;

class RegionSchedule {
 public:
  RegionSchedule(const Model& model, Regions regions) : model_(model), regions_(std::move(regions)) {}

  Schedule write() {
    out_.boundaries = std::move(regions_.boundaries);
    find_readers();
    find_regions();
    decide();
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
  struct Tensors {
    std::uint32_t producer = none;      // op
    std::uint32_t last_forward = none;  // last forward op that reads it
    std::uint32_t last_outside = none;  // last op of any phase that reads or saves it, or a backward of such, outside its own region
    std::uint32_t freed_by = none;      // op of the step without checkpointing
    bool kept = true;                   // not dropped in the forward
    bool saved_at_home = false;         // by an op of the region that makes it
    bool keep_said = false;             // of what all microbatches share
    bool copied = false;                // kept, and made again by its own region as a tensor of its own
  };
  struct Work {
    std::uint32_t stop = 0;  // first op that a re-run does not execute
    std::uint32_t last_saver = none;
    std::uint32_t rerun_at = none, done = none;  // first and last backward op of ops of the region that save something
    std::uint32_t random_state = none;
    std::vector<std::uint32_t> made;  // values that it drops, in order
  };

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
    now_.lives.assign(tensors_.size(), false);
    now_.reruns.assign(work_.size(), false);
    if (model_.conventions.drop_at_region_end) now_.keep_said.assign(tensors_.size(), false);
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

  void find_readers() {
    tensors_.resize(model_.tensors.size());
    for (std::uint32_t index = 0; index < model_.ops.size(); ++index) {
      const Op& op = model_.ops[index];
      for (const std::uint32_t tensor : model_.list(op.writes))
        if (tensors_[tensor].producer == none && !model_.tensors[tensor].given) tensors_[tensor].producer = index;
      if (op.phase == Phase::forward)
        for (const std::uint32_t tensor : model_.list(op.reads)) tensors_[tensor].last_forward = index;
      for (const std::uint32_t tensor : model_.list(op.frees)) tensors_[tensor].freed_by = index;
    }
  }

  std::uint32_t region_of(std::uint32_t op) const { return region_of_[op]; }
  // The region in which the tensor is made.
  std::uint32_t home(std::uint32_t tensor) const { return tensors_[tensor].producer == none ? none : region_of(tensors_[tensor].producer); }

  void find_regions() {
    region_of_.assign(model_.ops.size(), none);
    last_part_.resize(model_.ops.size());
    for (std::uint32_t op = static_cast<std::uint32_t>(model_.ops.size()); op-- > 0;)
      last_part_[op] = op + 1 < model_.ops.size() && model_.ops[op + 1].continues ? last_part_[op + 1] : op;
    work_.resize(regions_.recomputed.size());
    for (std::uint32_t index = 0; index < work_.size(); ++index) {
      const Region& region = regions_.recomputed[index];
      for (std::uint32_t op = region.begin; op < region.end; ++op) {
        region_of_[op] = index;
        if (model_.ops[op].saves.count != 0) work_[index].last_saver = op;
      }
    }
    for (std::uint32_t index = 0; index < model_.ops.size(); ++index) {
      const std::uint32_t forward = model_.ops[index].forward;
      if (forward == none) continue;
      const std::uint32_t region = region_of(forward);
      if (region == none || (model_.ops[forward].saves.count == 0 && early_stop(region))) continue;
      if (work_[region].rerun_at == none) work_[region].rerun_at = index;
      work_[region].done = index;
    }
  }

  bool early_stop(std::uint32_t region) const {
    return regions_.recomputed[region].early_stop.value_or(model_.conventions.rerun == Rerun::early_stop);
  }
  bool keeps_outputs(std::uint32_t op) const {
    const std::uint32_t region = region_of(op);
    if (region == none || regions_.recomputed[region].keeps_outputs.empty()) return false;
    return regions_.recomputed[region].keeps_outputs[op - regions_.recomputed[region].begin];
  }

  // What an operator frees itself is no output of it.
  bool is_kept_output(std::uint32_t tensor) const {
    const Tensors& state = tensors_[tensor];
    if (state.producer == none || !keeps_outputs(state.producer)) return false;
    return state.freed_by == none || state.freed_by > last_part_[state.producer];
  }

  // An op in the region `where` (none: in no region) reads or saves the tensor, and needs it up to the op `last`.
  void spoken_of(std::uint32_t tensor, std::uint32_t where, std::uint32_t last) {
    const std::uint32_t own = home(tensor);
    if (own == none || where == own) return;
    Tensors& state = tensors_[tensor];
    state.kept = true;
    state.last_outside = state.last_outside == none ? last : std::max(state.last_outside, last);
  }

  void decide() {
    for (std::uint32_t tensor = 0; tensor < tensors_.size(); ++tensor)
      tensors_[tensor].kept =
          !model_.tensors[tensor].value || home(tensor) == none || is_kept_output(tensor) || model_.tensors[tensor].wrapped_number;
    std::vector<std::uint32_t> backward_of(model_.ops.size(), none);  // the last one
    for (std::uint32_t index = 0; index < model_.ops.size(); ++index)
      if (model_.ops[index].forward != none) backward_of[model_.ops[index].forward] = index;
    for (std::uint32_t index = 0; index < model_.ops.size(); ++index) {
      const Op& op = model_.ops[index];
      if (op.phase != Phase::forward && op.phase != Phase::loss) continue;
      const std::uint32_t where = region_of(index);
      for (const std::uint32_t tensor : model_.list(op.reads))
        spoken_of(tensor, where, where == none || work_[where].done == none ? index : std::max(index, work_[where].done));
      for (const std::uint32_t tensor : model_.list(op.saves)) {
        if (where != none && where == home(tensor)) tensors_[tensor].saved_at_home = true;
        const std::uint32_t by = backward_of[index] != none ? backward_of[index] : index;
        spoken_of(tensor, where, where == none || work_[where].done == none ? by : std::max(by, work_[where].done));
      }
    }
    for (std::uint32_t index = 0; index < model_.ops.size(); ++index) read_by_backward(index);
    if (model_.conventions.drop_at_region_end) find_outputs();
    find_stops();
    find_pinned();
    find_returns();
    for (std::uint32_t tensor = 0; tensor < tensors_.size(); ++tensor) {
      const std::uint32_t own = home(tensor);
      if (own == none || !model_.tensors[tensor].value) continue;
      if (!tensors_[tensor].kept) work_[own].made.push_back(tensor);
      tensors_[tensor].copied = tensors_[tensor].kept && early_stop(own) && tensors_[tensor].saved_at_home && !is_kept_output(tensor);
    }
    for (Work& work : work_)
      std::sort(work.made.begin(), work.made.end(),
                [&](std::uint32_t a, std::uint32_t b) { return tensors_[a].producer < tensors_[b].producer; });
    if (model_.conventions.drop_at_region_end) find_drops();
  }

  // Frees are listed for the step without checkpointing, where the graph holds what is saved. A value that a region drops is taken to go
  // when the last op of the region that reads or saves it is through, and the module that was called with it: a call holds its arguments.
  void find_drops() {
    if (work_.empty()) return;
    given_up_.resize(model_.ops.size());
    std::vector<std::uint32_t> last(tensors_.size(), none);
    for (std::uint32_t index = 0; index < work_.size(); ++index) {
      const Region& region = regions_.recomputed[index];
      calls_.clear();
      for (std::uint32_t op = region.begin; op < region.end; ++op)
        for (const Slice slice : {model_.ops[op].reads, model_.ops[op].saves})
          for (const std::uint32_t tensor : model_.list(slice)) last[tensor] = op;
      for (const std::uint32_t tensor : work_[index].made) {
        const std::uint32_t made = tensors_[tensor].producer;
        const std::uint32_t by =
            last[tensor] == none ? region.end - 1 : last_part_[end_of_use(made, std::max(made, last[tensor]), region.end)];
        given_up_[std::min(by, region.end - 1)].push_back(tensor);
      }
    }
  }
  // The last op of the use that `by` makes of what `made` has made.
  std::uint32_t end_of_use(std::uint32_t made, std::uint32_t by, std::uint32_t end) {
    const std::string_view path = module_of(by);
    const std::size_t common = common_module(module_of(made), path);
    if (common == path.size()) return by;
    return end_of_call(path.substr(0, path.find_first_of("./", common + 1)), by, end);
  }
  // The last op of the run of ops in the module that `by` stands in. Each op is looked at once a module: what is known is skipped.
  std::uint32_t end_of_call(std::string_view module, std::uint32_t by, std::uint32_t end) {
    std::map<std::uint32_t, std::uint32_t>& calls = calls_[module];  // first op that was asked for: last op
    const auto after = calls.upper_bound(by);
    if (after != calls.begin() && std::prev(after)->second >= by) return std::prev(after)->second;
    std::uint32_t last = by;
    while (last + 1 < end && is_in(module_of(last + 1), module)) {
      ++last;
      if (after != calls.end() && after->first == last) {
        last = after->second;
        break;
      }
    }
    return calls[by] = last;
  }
  std::string_view module_of(std::uint32_t op) const {
    const std::uint32_t module = model_.ops[op].module;
    return module == none ? std::string_view() : std::string_view(model_.modules[module]);
  }
  static bool ends_at(std::string_view path, std::size_t at) { return at == path.size() || path[at] == '.' || path[at] == '/'; }
  static bool is_in(std::string_view path, std::string_view module) {
    return path.substr(0, module.size()) == module && ends_at(path, module.size());
  }
  // Length of the path of the innermost module that holds both.
  static std::size_t common_module(std::string_view a, std::string_view b) {
    std::size_t common = 0;
    for (std::size_t i = 0;; ++i) {
      if (ends_at(a, i) && ends_at(b, i)) common = i;
      if (i == a.size() || i == b.size() || a[i] != b[i]) return common;
    }
  }

  // Most of what it reads its forward op saves; what it reads of another region must live there too.
  void read_by_backward(std::uint32_t index) {
    const Op& op = model_.ops[index];
    if (op.phase == Phase::forward || op.phase == Phase::loss) return;
    const std::uint32_t region = op.forward == none ? none : region_of(op.forward);
    const bool runs_again = region != none && (model_.ops[op.forward].saves.count != 0 || !early_stop(region));
    for (const std::uint32_t tensor : model_.list(op.reads)) spoken_of(tensor, runs_again ? region : none, index);
  }

  // Nobody told what reads what: what the last op of the region that leaves something has made, is what the region gives back.
  void find_outputs() {
    for (std::uint32_t index = 0; index < work_.size(); ++index) {
      const Region& region = regions_.recomputed[index];
      bool found = false;
      for (std::uint32_t op = region.end; op-- > region.begin && !found;)
        for (const std::uint32_t tensor : model_.list(model_.ops[op].writes)) {
          if (model_.tensors[tensor].for_backward) continue;
          if (tensors_[tensor].freed_by != none && tensors_[tensor].freed_by < region.end) continue;
          found = true;
          tensors_[tensor].kept = true;
          if (tensors_[tensor].last_outside == none) tensors_[tensor].last_outside = region.end;
        }
    }
  }

  void find_stops() {
    for (std::uint32_t index = 0; index < work_.size(); ++index) {
      const Region& region = regions_.recomputed[index];
      Work& work = work_[index];
      work.stop = region.end;
      if (early_stop(index)) {
        work.stop = work.last_saver == none ? region.begin : work.last_saver + (model_.ops[work.last_saver].packs_before ? 0U : 1U);
      } else if (model_.conventions.rerun == Rerun::stop_before_boundary) {
        while (work.stop > region.begin && makes_only_kept(work.stop - 1)) --work.stop;
      }
    }
  }
  bool makes_only_kept(std::uint32_t op) const {
    const auto writes = model_.list(model_.ops[op].writes);
    return std::all_of(writes.begin(), writes.end(), [&](std::uint32_t tensor) { return tensors_[tensor].kept; });
  }

  // What a node has saved goes when the engine lets go of the node; what a hook gives it in that place, with its function.
  void find_returns() {
    std::vector<std::uint32_t> unpacked_by(tensors_.size(), none);  // forward op
    std::uint32_t function = none;                                  // the last op of the function that `forward` is the node of
    std::uint32_t forward = none;
    for (std::uint32_t index = 0; index < model_.ops.size(); ++index) {
      const Op& op = model_.ops[index];
      if (op.forward == none || region_of(op.forward) == none) continue;
      for (const std::uint32_t tensor : model_.list(op.reads)) unpacked_by[tensor] = op.forward;
      if (!op.after_function) {
        function = index;
        forward = op.forward;
      } else if (forward == op.forward) {
        for (const std::uint32_t tensor : model_.list(op.frees)) {
          if (unpacked_by[tensor] != op.forward || home(tensor) != region_of(op.forward)) continue;
          if (returns_.empty()) returns_.resize(model_.ops.size());
          returns_[function].push_back(tensor);
        }
      }
    }
  }

  // What a region reads from outside must live when it runs again. Where reads are not known: what lived when the region began and
  // goes while it runs or right after it (the caller's own reference).
  void find_pinned() {
    if (work_.empty()) return;
    pinned_until_.assign(tensors_.size(), none);
    const auto pin = [&](std::uint32_t tensor, std::uint32_t region) {
      const Work& work = work_[region];
      const std::uint32_t freed = tensors_[tensor].freed_by;
      if (work.done == none || freed == none || freed >= work.done || home(tensor) == region) return;
      if (pinned_until_[tensor] == none || pinned_until_[tensor] < work.done) pinned_until_[tensor] = work.done;
    };
    pin_arguments();
    for (std::uint32_t index = 0; index < work_.size(); ++index) {
      const Region& region = regions_.recomputed[index];
      const auto outside = [&](std::uint32_t tensor) {
        return tensors_[tensor].producer == none || tensors_[tensor].producer < region.begin;
      };
      for (std::uint32_t op = region.begin; op < region.end; ++op) {
        for (const Slice slice : {model_.ops[op].reads, model_.ops[op].saves})
          for (const std::uint32_t tensor : model_.list(slice))
            if (outside(tensor)) pin(tensor, index);
        if (model_.conventions.drop_at_region_end)
          for (const std::uint32_t tensor : model_.list(model_.ops[op].frees))
            if (outside(tensor)) pin(tensor, index);
        if (keeps_outputs(op))
          for (const std::uint32_t tensor : model_.list(model_.ops[op].writes))
            if (is_kept_output(tensor) && tensors_[tensor].freed_by != none && tensors_[tensor].freed_by < work_[index].done &&
                (tensors_[tensor].freed_by < work_[index].rerun_at || op >= work_[index].stop))
              pinned_until_[tensor] = work_[index].done;
      }
    }
    until_.resize(model_.ops.size());
    for (std::uint32_t tensor = 0; tensor < tensors_.size(); ++tensor)
      if (pinned_until_[tensor] != none) until_[pinned_until_[tensor]].push_back(tensor);
  }

  // Where reads are not known, what the last op before a region left is taken for what the region is called with. Many regions may be
  // called with what one op made: each of its tensors waits for the last backward of those that begin before the tensor goes.
  void pin_arguments() {
    if (!model_.conventions.drop_at_region_end) return;
    struct Calls {
      std::vector<std::uint32_t> begin, done;  // of regions; the last backward of this one and those before
    };
    std::map<std::uint32_t, Calls> calls;  // by the op that left something
    const std::vector<std::uint32_t> last_left = find_last_left();
    for (std::uint32_t index = 0; index < work_.size(); ++index) {
      const std::uint32_t begin = regions_.recomputed[index].begin;
      if (last_left[begin] == none || work_[index].done == none) continue;
      Calls& of = calls[last_left[begin]];
      of.done.push_back(std::max(work_[index].done, of.done.empty() ? 0 : of.done.back()));
      of.begin.push_back(begin);
    }
    for (const auto& [made, of] : calls)
      for (const std::uint32_t tensor : model_.list(model_.ops[made].writes)) {
        const std::uint32_t freed = tensors_[tensor].freed_by;
        const auto count = static_cast<std::size_t>(std::upper_bound(of.begin.begin(), of.begin.end(), freed) - of.begin.begin());
        if (freed == none || count == 0 || of.done[count - 1] <= freed) continue;
        if (pinned_until_[tensor] == none || pinned_until_[tensor] < of.done[count - 1]) pinned_until_[tensor] = of.done[count - 1];
      }
  }

  // By op: the last one before it that has made what still lives when it runs.
  std::vector<std::uint32_t> find_last_left() const {
    std::vector<std::uint32_t> last_left(model_.ops.size(), none), waiting;
    std::vector<std::uint32_t> until(model_.ops.size());
    for (std::uint32_t op = 0; op < model_.ops.size(); ++op) {
      while (!waiting.empty() && until[waiting.back()] < op) waiting.pop_back();
      if (!waiting.empty()) last_left[op] = waiting.back();
      const auto writes = model_.list(model_.ops[op].writes);
      if (writes.empty()) continue;
      for (const std::uint32_t tensor : writes) until[op] = std::max(until[op], tensors_[tensor].freed_by);  // none: the greatest
      waiting.push_back(op);
    }
    return last_left;
  }

  void add_random_states() {
    if (model_.physical.rng_state == 0) return;
    for (std::size_t index = 0; index < work_.size(); ++index) {
      if (!regions_.recomputed[index].preserve_rng) continue;
      Tensor tensor;
      tensor.id = regions_.recomputed[index].name + " random state";
      tensor.bytes = model_.physical.rng_state;
      tensor.memory_class = trace::MemoryClass::rng_state;
      work_[index].random_state = static_cast<std::uint32_t>(model_.tensors.size() + out_.extra.size());
      out_.extra.push_back(tensor);
      tensor.id = regions_.recomputed[index].name + " random state of the step";
      tensor.memory_class = trace::MemoryClass::temporary;
      out_.extra.push_back(std::move(tensor));
    }
  }

  void find_offloads() {
    if (regions_.offloaded.empty()) return;
    std::vector<bool> stays(tensors_.size());
    // What all microbatches share, the next one's forward needs.
    for (std::uint32_t tensor = 0; tensor < tensors_.size(); ++tensor)
      stays[tensor] = tensors_[tensor].kept && (model_.microbatches.count == 1 || !is_shared(tensor));
    offloads_.emplace(model_, regions_.offloaded, stays);
  }

  void forward(std::uint32_t op) {
    const std::uint32_t region = region_of(op);
    if (region != none && op == regions_.recomputed[region].begin && work_[region].random_state != none)
      append(Do::begin, Phase::forward, work_[region].random_state);
    const bool graph = region == none || keeps_outputs(op);
    append(Do::run, Phase::forward, op, graph);
    now_.keeps_said = false;
    for (const std::uint32_t tensor : model_.list(model_.ops[op].writes)) {
      now_.lives[tensor] = false;
      if (graph || !model_.tensors[tensor].for_backward) lives(tensor);
    }
    if (!model_.conventions.drop_at_region_end) decided(op);
    for (const std::uint32_t tensor : model_.list(model_.ops[op].frees)) end_of(tensor, Phase::forward, op);
    if (!given_up_.empty())
      for (const std::uint32_t tensor : given_up_[op]) give_up(tensor, Phase::forward);
    outside_ends(op, Phase::forward);
    // Nothing of the graph leads to a region without backward.
    if (region != none && op + 1 == regions_.recomputed[region].end && work_[region].done == none && work_[region].random_state != none)
      append(Do::release, Phase::forward, work_[region].random_state);
    offload_after(op, Phase::forward);
  }

  // Where nobody knows the last readers: when the forward is over.
  void say_keeps() {
    if (now_.keeps_said || !model_.conventions.drop_at_region_end) return;
    now_.keeps_said = true;
    std::sort(now_.unsaid.begin(), now_.unsaid.end());
    for (const std::uint32_t tensor : now_.unsaid) {
      if (!now_.lives[tensor] || now_.keep_said[tensor] || (is_shared(tensor) && tensors_[tensor].keep_said)) continue;
      append(Do::keep, Phase::forward, tensor);
      now_.keep_said[tensor] = true;
      tensors_[tensor].keep_said = true;
    }
    now_.unsaid.clear();
  }

  // After `op`, which is the last forward op that reads them: kept or dropped. What no op reads is decided where it is made.
  void decided(std::uint32_t op) {
    ready_.clear();
    for (const std::uint32_t tensor : model_.list(model_.ops[op].reads))
      if (tensors_[tensor].last_forward == op) ready_.push_back(tensor);
    std::sort(ready_.begin(), ready_.end());
    ready_.erase(std::unique(ready_.begin(), ready_.end()), ready_.end());
    for (const std::uint32_t tensor : model_.list(model_.ops[op].writes))
      if (tensors_[tensor].last_forward == none) ready_.push_back(tensor);
    for (const std::uint32_t tensor : ready_) {
      if (!model_.tensors[tensor].value) continue;
      if (tensors_[tensor].kept)
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
    const std::uint32_t own = home(tensor);
    return own != none && model_.tensors[tensor].value && !now_.reruns[own] && work_[own].done != none &&
           tensors_[tensor].producer < work_[own].stop && !keeps_outputs(tensors_[tensor].producer);
  }

  // Where the step without checkpointing frees the tensor.
  void end_of(std::uint32_t tensor, Phase phase, std::uint32_t op) {
    if (!pinned_until_.empty() && pinned_until_[tensor] != none && pinned_until_[tensor] > op) return;
    release(tensor, phase);
  }

  // The kept one of a tensor that is made again: its last reader outside is through.
  void outside_ends(std::uint32_t op, Phase phase) {
    if (ends_.empty() && !find_ends()) return;
    for (const std::uint32_t tensor : ends_[op]) {
      if (!now_.reruns[home(tensor)])
        give_up(tensor, phase);
      else if (now_.lives[tensor])
        append(Do::forget, phase, tensor);  // the region ran again before: of the two, one is left
    }
  }
  bool find_ends() {
    if (ends_known_) return false;
    ends_known_ = true;
    const std::vector<bool> held = held_by_program();
    for (std::uint32_t tensor = 0; tensor < tensors_.size(); ++tensor) {
      const Tensors& state = tensors_[tensor];
      if (!state.copied || state.last_outside == none || held[tensor]) continue;
      if (work_[home(tensor)].done == none || state.last_outside >= work_[home(tensor)].done) continue;
      if (ends_.empty()) ends_.resize(model_.ops.size());
      ends_[state.last_outside].push_back(tensor);
    }
    return !ends_.empty();
  }
  // Tensors that are freed by no op that needs them: the program itself holds on to them.
  std::vector<bool> held_by_program() const {
    std::vector<bool> held(tensors_.size(), true);
    const auto forward_of_end = [&](std::uint32_t tensor) {
      return tensors_[tensor].freed_by == none ? none : model_.ops[tensors_[tensor].freed_by].forward;
    };
    for (std::uint32_t op = 0; op < model_.ops.size(); ++op) {
      for (const std::uint32_t tensor : model_.list(model_.ops[op].saves))
        if (forward_of_end(tensor) == op) held[tensor] = false;
      for (const std::uint32_t tensor : model_.list(model_.ops[op].reads))
        if (tensors_[tensor].freed_by == op && model_.ops[op].forward != none) held[tensor] = false;
    }
    return held;
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
    if (!returns_.empty())
      for (const std::uint32_t tensor : returns_[op])
        if (now_.reruns[home(tensor)]) end_of(tensor, phase, op);
    outside_ends(op, phase);
    if (!until_.empty())
      for (const std::uint32_t tensor : until_[op]) release(tensor, phase);
    if (phase == Phase::loss) offload_after(op, phase);
  }

  void backward(std::uint32_t op) {
    const std::uint32_t forward = model_.ops[op].forward;
    const std::uint32_t region = forward == none ? none : region_of(forward);
    if (region != none && !now_.reruns[region] && (model_.ops[forward].saves.count != 0 || !early_stop(region))) rerun(region);
    run(op, Phase::backward);
    if (region == none || work_[region].done != op) return;
    if (work_[region].random_state != none) append(Do::release, Phase::backward, work_[region].random_state);
    // What the region made again goes with its backward: the program may hold on to the first making, and what the step frees earlier
    // nobody else lets go of.
    for (std::uint32_t each = regions_.recomputed[region].begin; each < work_[region].stop; ++each)
      for (const std::uint32_t tensor : model_.list(model_.ops[each].writes)) {
        if (now_.lives[tensor]) append(Do::forget, Phase::backward, tensor);
        if (tensors_[tensor].freed_by != none && tensors_[tensor].freed_by <= op) end_of(tensor, Phase::backward, op);
      }
  }

  void rerun(std::uint32_t index) {
    const Region& region = regions_.recomputed[index];
    Work& work = work_[index];
    now_.reruns[index] = true;
    temporaries_.clear();
    copies_.clear();
    say_keeps();
    // The state of the step's own generators waits while the region's is in force.
    if (work.random_state != none) append(Do::begin, Phase::recompute, work.random_state + 1);
    for (std::uint32_t op = region.begin; op < work.stop; ++op) {
      if (!keeps_outputs(op)) {
        prefetch_before(op, Phase::recompute);
        append(Do::run, Phase::recompute, op);
        for (const std::uint32_t tensor : model_.list(model_.ops[op].writes)) {
          if (now_.lives[tensor])
            copies_.push_back(tensor);
          else if (!model_.tensors[tensor].value || !tensors_[tensor].saved_at_home)
            temporaries_.push_back(tensor);
          lives(tensor);
        }
      }
      for (const std::uint32_t tensor : model_.list(model_.ops[op].frees)) end_inside(tensor, index);
    }
    // The frames that were abandoned let go of what the rest would have freed.
    for (std::uint32_t op = work.stop; op < region.end; ++op)
      for (const std::uint32_t tensor : model_.list(model_.ops[op].frees))
        if (tensors_[tensor].producer < work.stop || !is_kept_output(tensor)) end_inside(tensor, index);
    // What the step keeps of its first making was made a second time for nothing.
    for (const std::uint32_t tensor : temporaries_) release(tensor, Phase::recompute);
    for (const std::uint32_t tensor : copies_)
      if (now_.lives[tensor] && (!tensors_[tensor].saved_at_home || model_.tensors[tensor].wrapped_number))
        append(Do::forget, Phase::recompute, tensor);
    if (work.random_state != none) append(Do::release, Phase::recompute, work.random_state + 1);
  }
  // What a selective region kept is handed to the re-run, which lets go of it as the forward would have; what the re-run did not come to
  // is kept until the region is done.
  void end_inside(std::uint32_t tensor, std::uint32_t region) {
    if (home(tensor) == region) release(tensor, Phase::recompute);
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
  std::vector<Tensors> tensors_;
  std::vector<std::uint32_t> region_of_, last_part_;  // by op: its region; the last part of its operator
  std::vector<Work> work_;
  std::vector<std::uint32_t> pinned_until_;
  std::vector<std::vector<std::uint32_t>> until_, ends_, given_up_, returns_;           // by op
  std::unordered_map<std::string_view, std::map<std::uint32_t, std::uint32_t>> calls_;  // of a region, by module: runs of its ops
  bool ends_known_ = false;
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
