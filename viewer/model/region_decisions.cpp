#include "viewer/model/region_decisions.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "viewer/model/name_pattern.h"

namespace liveset::model {
namespace {

using trace::Phase;
using Rerun = Conventions::Rerun;
using OfTensor = RegionDecisions::OfTensor;
using OfRegion = RegionDecisions::OfRegion;

constexpr std::string_view cast = "ToCopyBackward0";

class Decider {
 public:
  Decider(const Model& model, const std::vector<Region>& recomputed) : model_(model), recomputed_(recomputed) {}

  RegionDecisions decide() {
    find_readers();
    find_regions();
    find_kept();
    find_ends();
    return std::move(out_);
  }

 private:
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

  void find_regions() {
    region_of_.assign(model_.ops.size(), none);
    is_cast_.resize(model_.ops.size());
    last_part_.resize(model_.ops.size());
    for (std::uint32_t op = static_cast<std::uint32_t>(model_.ops.size()); op-- > 0;)
      last_part_[op] = op + 1 < model_.ops.size() && model_.ops[op + 1].continues ? last_part_[op + 1] : op;
    regions_.resize(recomputed_.size());
    for (std::uint32_t index = 0; index < regions_.size(); ++index) {
      const Region& region = recomputed_[index];
      regions_[index].early_stop = region.early_stop.value_or(model_.conventions.rerun == Rerun::early_stop);
      if (!region.keeps_outputs.empty()) out_.keeps_outputs.resize(model_.ops.size());
      for (std::uint32_t op = region.begin; op < region.end; ++op) {
        region_of_[op] = index;
        if (!region.keeps_outputs.empty()) out_.keeps_outputs[op] = region.keeps_outputs[op - region.begin];
        if (model_.ops[op].is_taken_back()) regions_[index].last_saver = op;
      }
    }
    for (std::uint32_t index = 0; index < model_.ops.size(); ++index) {
      const std::uint32_t forward = model_.ops[index].forward;
      if (forward == none) continue;
      // A node that holds nothing is not named in forward.
      if (model_.ops[index].name == cast) is_cast_[forward] = true;
      const std::uint32_t region = region_of_[forward];
      if (region == none || (!model_.ops[forward].is_taken_back() && regions_[region].early_stop)) continue;
      if (regions_[region].rerun_at == none) regions_[region].rerun_at = index;
      regions_[region].done = index;
    }
  }

  // An op in the region `where` (none: in no region) reads or saves the tensor, and needs it up to the op `last`.
  void spoken_of(std::uint32_t tensor, std::uint32_t where, std::uint32_t last) {
    const std::uint32_t own = out_.home(tensor);
    if (own == none || where == own) return;
    OfTensor& state = tensors_[tensor];
    state.kept = true;
    state.last_outside = state.last_outside == none ? last : std::max(state.last_outside, last);
  }

  void find_kept() {
    for (std::uint32_t tensor = 0; tensor < tensors_.size(); ++tensor) {
      OfTensor& state = tensors_[tensor];
      // What an operator frees itself is no output of it.
      state.kept_output = state.producer != none && out_.op_keeps_outputs(state.producer) &&
                          (state.freed_by == none || state.freed_by > last_part_[state.producer]);
      state.kept = !model_.tensors[tensor].value || out_.home(tensor) == none || state.kept_output || model_.tensors[tensor].wrapped_number;
    }
    std::vector<std::uint32_t> backward_of(model_.ops.size(), none);  // the last one
    for (std::uint32_t index = 0; index < model_.ops.size(); ++index)
      if (model_.ops[index].forward != none) backward_of[model_.ops[index].forward] = index;
    for (std::uint32_t index = 0; index < model_.ops.size(); ++index) {
      const Op& op = model_.ops[index];
      if (!is_forward(op.phase)) continue;
      const std::uint32_t where = region_of_[index];
      for (const std::uint32_t tensor : model_.list(op.reads))
        spoken_of(tensor, where, where == none || regions_[where].done == none ? index : std::max(index, regions_[where].done));
      for (const std::uint32_t tensor : model_.list(op.saves)) {
        if (where != none && where == out_.home(tensor)) tensors_[tensor].saved_at_home = true;
        const std::uint32_t by = backward_of[index] != none ? backward_of[index] : index;
        spoken_of(tensor, where, where == none || regions_[where].done == none ? by : std::max(by, regions_[where].done));
      }
    }
    for (std::uint32_t index = 0; index < model_.ops.size(); ++index) read_by_backward(index);
    if (model_.conventions.drop_at_region_end) find_outputs();
    find_stops();
    find_pinned();
    find_region_inputs();
    find_returns();
    for (std::uint32_t tensor = 0; tensor < tensors_.size(); ++tensor) {
      const std::uint32_t own = out_.home(tensor);
      if (own == none || !model_.tensors[tensor].value) continue;
      if (!tensors_[tensor].kept) regions_[own].made.push_back(tensor);
      tensors_[tensor].copied =
          tensors_[tensor].kept && regions_[own].early_stop && tensors_[tensor].saved_at_home && !tensors_[tensor].kept_output;
    }
    for (OfRegion& work : regions_)
      std::sort(work.made.begin(), work.made.end(),
                [&](std::uint32_t a, std::uint32_t b) { return tensors_[a].producer < tensors_[b].producer; });
    if (model_.conventions.drop_at_region_end) find_drops();
  }

  // Frees are listed for the step without checkpointing, where the graph holds what is saved. A value that a region drops is taken to go
  // when the last op of the region that reads or saves it is through, and the module that was called with it: a call holds its arguments.
  void find_drops() {
    if (regions_.empty()) return;
    out_.given_up.resize(model_.ops.size());
    std::vector<std::uint32_t> last(tensors_.size(), none);
    for (std::uint32_t index = 0; index < regions_.size(); ++index) {
      const Region& region = recomputed_[index];
      if (!calls_.empty()) calls_ = {};  // clear() would go through the buckets of the largest region so far
      for (std::uint32_t op = region.begin; op < region.end; ++op)
        for (const Slice slice : {model_.ops[op].reads, model_.ops[op].saves})
          for (const std::uint32_t tensor : model_.list(slice)) last[tensor] = op;
      for (const std::uint32_t tensor : regions_[index].made) {
        const std::uint32_t made = tensors_[tensor].producer;
        const std::uint32_t by =
            last[tensor] == none ? region.end - 1 : last_part_[end_of_use(made, std::max(made, last[tensor]), region.end)];
        out_.given_up[std::min(by, region.end - 1)].push_back(tensor);
        // Autocast holds casts of parameters until its context ends.
        if ((is_cast_[made] || model_.ops[made].name == cast) && regions_[index].rerun_at != none)
          doubt(made, regions_[index].rerun_at, model_.tensors[tensor].bytes);
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
    while (last + 1 < end && lies_in(module_of(last + 1), module) && !calls_anew(last + 1, module)) {
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
  bool calls_anew(std::uint32_t op, std::string_view module) const {
    const std::uint32_t enters = model_.ops[op].enters;
    return enters != none && lies_in(module, model_.modules[enters]);
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
    if (is_forward(op.phase)) return;
    const std::uint32_t region = op.forward == none ? none : region_of_[op.forward];
    const bool runs_again = region != none && (model_.ops[op.forward].is_taken_back() || !regions_[region].early_stop);
    for (const std::uint32_t tensor : model_.list(op.reads)) spoken_of(tensor, runs_again ? region : none, index);
  }

  // Nobody told what reads what: what the last op of the region that leaves something has made, is what the region gives back.
  void find_outputs() {
    for (std::uint32_t index = 0; index < regions_.size(); ++index) {
      const Region& region = recomputed_[index];
      bool found = false;
      for (std::uint32_t op = region.end; op-- > region.begin && !found;)
        for (const std::uint32_t tensor : model_.list(model_.ops[op].writes)) {
          if (model_.tensors[tensor].for_backward || model_.tensors[tensor].no_output) continue;
          if (tensors_[tensor].freed_by != none && tensors_[tensor].freed_by < region.end) continue;
          found = true;
          tensors_[tensor].kept = true;
          if (tensors_[tensor].last_outside == none) tensors_[tensor].last_outside = region.end;
        }
    }
  }

  void find_stops() {
    for (std::uint32_t index = 0; index < regions_.size(); ++index) {
      const Region& region = recomputed_[index];
      OfRegion& work = regions_[index];
      work.stop = region.end;
      if (regions_[index].early_stop) {
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
      if (op.forward == none || region_of_[op.forward] == none) continue;
      for (const std::uint32_t tensor : model_.list(op.reads)) unpacked_by[tensor] = op.forward;
      if (!op.after_function) {
        function = index;
        forward = op.forward;
      } else if (forward == op.forward) {
        for (const std::uint32_t tensor : model_.list(op.frees)) {
          if (unpacked_by[tensor] != op.forward || out_.home(tensor) != region_of_[op.forward]) continue;
          if (out_.returned.empty()) out_.returned.resize(model_.ops.size());
          out_.returned[function].push_back(tensor);
        }
      }
    }
  }

  void pin(std::uint32_t tensor, std::uint32_t region) {
    const OfRegion& work = regions_[region];
    const std::uint32_t freed = tensors_[tensor].freed_by;
    if (work.done == none || freed == none || freed >= work.done || out_.home(tensor) == region) return;
    if (tensors_[tensor].pinned_until == none || tensors_[tensor].pinned_until < work.done) tensors_[tensor].pinned_until = work.done;
  }
  // What goes while a region runs may be its argument, or what the caller alone held (x of `x = block(cat(x, y))`).
  void pin_freed(std::uint32_t tensor, std::uint32_t region, Arguments known) {
    if (argument_of_[tensor] == region || known == Arguments::read || regions_[region].done == none) return;
    doubt(tensors_[tensor].freed_by, regions_[region].done, known == Arguments::unknown ? 0 : model_.tensors[tensor].bytes);
    if (known == Arguments::unknown) pin(tensor, region);
  }

  bool is_made_before(std::uint32_t tensor, const Region& region) const {
    return tensors_[tensor].producer == none || tensors_[tensor].producer < region.begin;
  }

  // What a region reads from outside must live when it runs again. Where reads are not known: what lived when the region began and
  // goes while it runs or right after it (the caller's own reference).
  void find_pinned() {
    if (regions_.empty()) return;
    argument_of_.assign(tensors_.size(), none);
    pin_arguments();
    for (std::uint32_t index = 0; index < regions_.size(); ++index) {
      const Region& region = recomputed_[index];
      const Arguments known = find_arguments(index);
      for (std::uint32_t op = region.begin; op < region.end; ++op) {
        for (const Slice slice : {model_.ops[op].reads, model_.ops[op].saves})
          for (const std::uint32_t tensor : model_.list(slice))
            if (is_made_before(tensor, region)) pin(tensor, index);
        if (model_.conventions.drop_at_region_end)
          for (const std::uint32_t tensor : model_.list(model_.ops[op].frees))
            if (is_made_before(tensor, region)) pin_freed(tensor, index, known);
        if (out_.op_keeps_outputs(op))
          for (const std::uint32_t tensor : model_.list(model_.ops[op].writes))
            if (tensors_[tensor].kept_output && tensors_[tensor].freed_by != none && tensors_[tensor].freed_by < regions_[index].done &&
                (tensors_[tensor].freed_by < regions_[index].rerun_at || op >= regions_[index].stop))
              tensors_[tensor].pinned_until = regions_[index].done;
      }
    }
    out_.unpinned.resize(model_.ops.size());
    for (std::uint32_t tensor = 0; tensor < tensors_.size(); ++tensor)
      if (tensors_[tensor].pinned_until != none) out_.unpinned[tensors_[tensor].pinned_until].push_back(tensor);
  }

  // As torch.utils.checkpoint holds its arguments. What the graph holds too is an activation, as it is without the region.
  void find_region_inputs() {
    std::vector<bool> held(tensors_.size());  // by the graph, outside of regions that run again
    const auto runs_again = [&](std::uint32_t op) { return region_of_[op] != none && regions_[region_of_[op]].done != none; };
    for (std::uint32_t index = 0; index < model_.ops.size(); ++index) {
      const Op& op = model_.ops[index];
      if (runs_again(is_forward(op.phase) || op.forward == none ? index : op.forward)) continue;
      for (const std::uint32_t tensor : model_.list(is_forward(op.phase) ? op.saves : op.reads)) held[tensor] = true;
    }
    for (std::uint32_t index = 0; index < regions_.size(); ++index) {
      const Region& region = recomputed_[index];
      if (regions_[index].done == none) continue;
      for (std::uint32_t op = region.begin; op < region.end; ++op)
        for (const Slice slice : {model_.ops[op].reads, model_.ops[op].saves})
          for (const std::uint32_t tensor : model_.list(slice)) {
            const bool lives_on = model_.tensors[tensor].value || tensors_[tensor].pinned_until != none;
            if (is_made_before(tensor, region) && lives_on && !held[tensor]) tensors_[tensor].region_input = true;
          }
    }
  }

  // Where reads are not known, a region is called with what it saves and has not made. Where it saves nothing of that kind, what the last
  // op before it left is taken for its argument. Many regions may be called with what one op made: each of its tensors waits for the last
  // backward of those that begin before the tensor goes.
  void pin_arguments() {
    if (!model_.conventions.drop_at_region_end) return;
    struct Calls {
      std::vector<std::uint32_t> begin, done;  // of regions; the last backward of this one and those before
    };
    std::map<std::uint32_t, Calls> calls;  // by the op that left something
    const std::vector<std::uint32_t> last_left = find_last_left();
    for (std::uint32_t index = 0; index < regions_.size(); ++index) {
      const std::uint32_t begin = recomputed_[index].begin;
      if (last_left[begin] == none || regions_[index].done == none) continue;
      const Arguments known = find_arguments(index);
      if (known == Arguments::read) continue;
      if (known == Arguments::saved) {
        doubt_others(index, last_left[begin]);
        continue;
      }
      Calls& of = calls[last_left[begin]];
      of.done.push_back(std::max(regions_[index].done, of.done.empty() ? 0 : of.done.back()));
      of.begin.push_back(begin);
    }
    for (const auto& [made, of] : calls)
      for (const std::uint32_t tensor : model_.list(model_.ops[made].writes)) {
        const std::uint32_t freed = tensors_[tensor].freed_by;
        const auto count = static_cast<std::size_t>(std::upper_bound(of.begin.begin(), of.begin.end(), freed) - of.begin.begin());
        if (freed == none || count == 0 || of.done[count - 1] <= freed) continue;
        if (tensors_[tensor].pinned_until == none || tensors_[tensor].pinned_until < of.done[count - 1])
          tensors_[tensor].pinned_until = of.done[count - 1];
        doubt(freed, of.done[count - 1], 0);
        if (!model_.tensors[tensor].value) tensors_[tensor].region_input = true;  // a value's ops say whether it is
      }
  }

  // argument_of_ tells it of tensors until the next region is asked for.
  Arguments find_arguments(std::uint32_t index) {
    return arguments_of(
        model_, recomputed_[index].begin, recomputed_[index].end, [&](std::uint32_t tensor) { return tensors_[tensor].producer; },
        [&](std::uint32_t tensor) { argument_of_[tensor] = index; });
  }

  // What `left` has made and the region does not save may be an argument too (x of x + f(c)): if it is, it lives on.
  void doubt_others(std::uint32_t index, std::uint32_t left) {
    constexpr std::size_t max_outputs = 64;  // of an operator; a file may state any number, for any number of regions
    const auto writes = model_.list(model_.ops[left].writes);
    const std::uint32_t begin = recomputed_[index].begin;
    for (const std::uint32_t tensor : writes.first(std::min(writes.size(), max_outputs)))
      if (argument_of_[tensor] != index && tensors_[tensor].freed_by != none && tensors_[tensor].freed_by >= begin)
        doubt(tensors_[tensor].freed_by, regions_[index].done, model_.tensors[tensor].bytes);
    if (writes.size() > max_outputs) doubt(begin, regions_[index].done, max_total_bytes);
  }
  // `more`: bytes that may live then, and are not taken to.
  void doubt(std::uint32_t from, std::uint32_t until, std::uint64_t more) {
    if (from >= until) return;
    out_.doubt_bytes = std::min(max_total_bytes, out_.doubt_bytes + more);
    out_.doubt_from = std::min(out_.doubt_from, from);
    out_.doubt_until = std::max(out_.doubt_until, until);
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

  void find_ends() {
    const std::vector<bool> held = held_by_program();
    for (std::uint32_t tensor = 0; tensor < tensors_.size(); ++tensor) {
      const OfTensor& state = tensors_[tensor];
      if (!state.copied || state.last_outside == none || held[tensor]) continue;
      if (regions_[out_.home(tensor)].done == none || state.last_outside >= regions_[out_.home(tensor)].done) continue;
      if (out_.outside_over.empty()) out_.outside_over.resize(model_.ops.size());
      out_.outside_over[state.last_outside].push_back(tensor);
    }
  }
  // OfTensor that are freed by no op that needs them: the program itself holds on to them.
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

  const Model& model_;
  const std::vector<Region>& recomputed_;
  RegionDecisions out_;
  std::vector<OfTensor>& tensors_ = out_.tensors;
  std::vector<OfRegion>& regions_ = out_.regions;
  std::vector<std::uint32_t>& region_of_ = out_.region_of;
  std::vector<bool> is_cast_;                                                           // by op
  std::vector<std::uint32_t> argument_of_;                                              // by tensor: region
  std::vector<std::uint32_t> last_part_;                                                // by op: the last part of its operator
  std::unordered_map<std::string_view, std::map<std::uint32_t, std::uint32_t>> calls_;  // of a region, by module: runs of its ops
};

}  // namespace

RegionDecisions decide_regions(const Model& model, const std::vector<Region>& recomputed) { return Decider(model, recomputed).decide(); }

}  // namespace liveset::model
