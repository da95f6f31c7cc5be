#include "viewer/model/region_tree.h"

#include <algorithm>

#include "viewer/model/region_decisions.h"

namespace liveset::model {
namespace {

using trace::Phase;
using Rerun = Conventions::Rerun;

constexpr std::uint32_t max_ops_back = 1000;  // in which a module's argument is looked for

struct Interval {
  std::uint32_t begin = 0, end = 0, run = none;
};

std::uint64_t above(std::uint64_t bytes, std::uint64_t less) { return bytes - std::min(bytes, less); }

// What is alive in the step without checkpointing, op by op.
struct Curve {
  std::vector<std::uint64_t> before, high;        // at the begin of an op; the most while it runs
  std::vector<std::uint32_t> producer, freed_by;  // of tensors; none: given to the step, beyond its end
  std::uint32_t backward = none;                  // the first backward op

  explicit Curve(const Model& model)
      : before(model.ops.size()), high(model.ops.size()), producer(model.tensors.size(), none), freed_by(model.tensors.size(), none) {
    std::vector<bool> lives(model.tensors.size());
    std::uint64_t live = 0;
    for (const std::uint32_t tensor : model.inputs) {
      live += model.tensors[tensor].bytes;
      lives[tensor] = true;
    }
    for (std::uint32_t index = 0; index < model.ops.size(); ++index) {
      const Op& op = model.ops[index];
      before[index] = live;
      if (op.phase == Phase::backward && backward == none) backward = index;
      for (const std::uint32_t tensor : model.list(op.writes)) {
        if (producer[tensor] == none && !lives[tensor]) producer[tensor] = index;
        if (!lives[tensor]) live += model.tensors[tensor].bytes;
        lives[tensor] = true;
      }
      high[index] = live + op.workspace;
      for (const std::uint32_t tensor : model.list(op.frees)) {
        freed_by[tensor] = index;
        if (lives[tensor]) live -= model.tensors[tensor].bytes;
        lives[tensor] = false;
      }
    }
  }
};

class TreeWriter {
 public:
  TreeWriter(const Model& model, const NamedRuns& runs) : model_(model), runs_(runs), curve_(model) {}

  RegionTree write() {
    find_own();
    find_readers();
    find_backwards();
    rest_of_step();
    children(intervals(), 0, static_cast<std::uint32_t>(model_.ops.size()), plan::no_parent, 0);
    loss();
    finish();
    return std::move(out_);
  }

 private:
  struct Readers {
    std::uint32_t first = none, last = none;  // ops of the forward and the loss that read or save the tensor
    std::uint32_t saver = none;               // the first that saves it
  };

  bool is_forward(std::uint32_t op) const { return model_.ops[op].phase == Phase::forward; }
  bool retained(std::uint32_t tensor) const {
    if (curve_.backward == none || curve_.producer[tensor] == none || curve_.producer[tensor] >= curve_.backward) return false;
    return curve_.freed_by[tensor] == none || curve_.freed_by[tensor] >= curve_.backward;
  }

  // own_[op]: what the ops before it, in the forward, retain.
  void find_own() {
    own_.assign(model_.ops.size() + 1, 0);
    cost_.assign(model_.ops.size() + 1, 0);
    for (std::uint32_t op = 0; op < model_.ops.size(); ++op) {
      own_[op + 1] = own_[op];
      cost_[op + 1] = cost_[op] + (is_forward(op) ? model_.ops[op].cost : 0);
      if (!is_forward(op)) continue;
      for (const std::uint32_t tensor : model_.list(model_.ops[op].writes))
        if (curve_.producer[tensor] == op && retained(tensor)) own_[op + 1] += model_.tensors[tensor].bytes;
    }
  }

  void find_readers() {
    readers_.resize(model_.tensors.size());
    for (std::uint32_t index = 0; index < model_.ops.size(); ++index) {
      const Op& op = model_.ops[index];
      if (op.phase != Phase::forward && op.phase != Phase::loss) continue;
      for (const Slice slice : {op.reads, op.saves})
        for (const std::uint32_t tensor : model_.list(slice)) {
          readers_[tensor].first = std::min(readers_[tensor].first, index);
          readers_[tensor].last = index;
        }
      for (const std::uint32_t tensor : model_.list(op.saves)) readers_[tensor].saver = std::min(readers_[tensor].saver, index);
    }
  }

  // Of each forward op: its first backward op, where it saved something, and the most that lives in its backward. A backward op that
  // belongs to no forward op (a parameter's gradient is added) goes with the one before it.
  void find_backwards() {
    first_backward_.assign(model_.ops.size(), none);
    high_backward_.assign(model_.ops.size(), 0);
    std::uint32_t last = none;
    for (std::uint32_t index = 0; index < model_.ops.size(); ++index) {
      if (model_.ops[index].phase != Phase::backward) continue;
      const std::uint32_t forward = model_.ops[index].forward;
      if (forward != none && is_forward(forward)) last = forward;
      if (last == none) {
        loss_high_ = std::max(loss_high_, curve_.high[index]);
        continue;
      }
      high_backward_[last] = std::max(high_backward_[last], curve_.high[index]);
      if (forward == last && first_backward_[last] == none && (model_.ops[last].is_taken_back() || !stops_early()))
        first_backward_[last] = index;
    }
  }
  bool stops_early() const { return model_.conventions.rerun == Rerun::early_stop; }

  // Runs that a policy can name, one for each run of ops; the outer ones first. Anything that lies across another one is left out.
  std::vector<Interval> intervals() const {
    std::vector<Interval> found;
    for (std::uint32_t index = 0; index < runs_.all().size(); ++index) {
      const NamedRun& run = runs_.all()[index];
      if (run.begin < run.end && can_be_named(index)) found.push_back({run.begin, run.end, index});
    }
    const auto same = [](const Interval& a, const Interval& b) { return a.begin == b.begin && a.end == b.end; };
    std::sort(found.begin(), found.end(), [&](const Interval& a, const Interval& b) {
      if (!same(a, b)) return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
      const bool layer = runs_.all()[a.run].layer;
      return layer != runs_.all()[b.run].layer ? layer : a.run > b.run;  // children come behind their parents
    });
    found.erase(std::unique(found.begin(), found.end(), same), found.end());
    std::vector<Interval> nested;
    std::vector<std::uint32_t> open;
    for (const Interval& each : found) {
      while (!open.empty() && open.back() <= each.begin) open.pop_back();
      if (!open.empty() && each.end > open.back()) continue;
      open.push_back(each.end);
      nested.push_back(each);
    }
    return nested;
  }
  // Names are members of a list in a policy, and a '*' stands for more than itself.
  bool can_be_named(std::uint32_t index) const {
    const NamedRun& run = runs_.all()[index];
    if (run.path.empty() || run.path.find_first_of(",*") != std::string_view::npos) return false;
    const std::vector<std::uint32_t> found = runs_.find(run.name());
    return found.size() == 1 && found.front() == index;
  }

  std::uint32_t add(std::uint32_t parent, std::uint32_t run) {
    plan::Module module;
    module.parent = parent;
    module.may_checkpoint = false;
    out_.modules.push_back(module);
    out_.run.push_back(run);
    return static_cast<std::uint32_t>(out_.modules.size() - 1);
  }

  // The modules in [begin, end) and, between them, what belongs to none. Gives back the interval after the last one.
  std::size_t children(const std::vector<Interval>& all, std::uint32_t begin, std::uint32_t end, std::uint32_t parent, std::size_t next) {
    std::uint32_t from = begin;
    while (next < all.size() && all[next].begin < end) {
      const Interval each = all[next++];
      gap(from, each.begin, parent);
      from = each.end;
      const std::uint32_t module = add(parent, each.run);
      if (next < all.size() && all[next].begin < each.end)
        next = children(all, each.begin, each.end, module, next);
      else
        leaf(out_.modules[module], each.begin, each.end);
      checkpoint(out_.modules[module], module, each.begin, each.end);
    }
    gap(from, end, parent);
    return next;
  }

  void gap(std::uint32_t begin, std::uint32_t end, std::uint32_t parent) {
    while (begin < end && !is_forward(begin)) ++begin;
    if (begin < end) leaf(out_.modules[add(parent, none)], begin, end);
  }

  void leaf(plan::Module& module, std::uint32_t begin, std::uint32_t end) const {
    module.own = own_[end] - own_[begin];
    for (std::uint32_t op = begin; op < end; ++op)
      if (is_forward(op)) module.temporary = std::max(module.temporary, above(std::max(curve_.high[op], high_backward_[op]), own_[end]));
  }

  void checkpoint(plan::Module& module, std::uint32_t index, std::uint32_t begin, std::uint32_t end) {
    std::uint32_t last_saver = none, backward = none;
    std::uint64_t high_forward = 0, high_backward = 0;
    for (std::uint32_t op = begin; op < end; ++op) {
      if (!is_forward(op)) return;
      if (model_.ops[op].is_taken_back()) last_saver = op;
      high_forward = std::max(high_forward, curve_.high[op]);
      high_backward = std::max(high_backward, high_backward_[op]);
      backward = std::min(backward, first_backward_[op]);
    }
    if (backward == none) return;
    std::uint32_t stop = end;
    if (stops_early()) stop = last_saver + (model_.ops[last_saver].packs_before ? 0U : 1U);
    std::uint64_t high_again = curve_.before[begin];
    for (std::uint32_t op = begin; op < stop; ++op) high_again = std::max(high_again, curve_.high[op]);

    std::uint64_t dropped = 0, again = 0;  // given up; kept for others, and made a second time all the same
    find_dropped(begin, end, dropped, again);
    if (dropped == 0 && (again == 0 || !stops_early())) return;
    const std::uint64_t waits = waiting(index, begin, end) + model_.physical.rng_state;
    module.may_checkpoint = true;
    module.cost = cost_[stop] - cost_[begin];
    const std::uint64_t own = own_[end] - own_[begin], base = own_[begin] + own - dropped + waits;
    module.boundary = own - dropped + waits;
    // Where re-runs stop early, the kept one goes before the second is made (schedule.cpp, outside_ends).
    const std::uint64_t gone = dropped + (stops_early() ? again : 0), twice = stops_early() ? 0 : again;
    const std::uint64_t rerun =
        above(curve_.before[backward], gone) + waits + (high_again - curve_.before[begin]) + model_.physical.rng_state;
    module.working = std::max({above(high_forward, base), above(rerun, base), above(high_backward + waits + twice, base)});
    ++out_.checkpointable;
  }

  // As schedule.cpp decides it.
  void find_dropped(std::uint32_t begin, std::uint32_t end, std::uint64_t& dropped, std::uint64_t& again) const {
    bool output = model_.conventions.drop_at_region_end;  // where reads are not known: what the last op that left something has made
    for (std::uint32_t op = end; op-- > begin;) {
      bool left = false;
      for (const std::uint32_t tensor : model_.list(model_.ops[op].writes)) {
        const std::uint32_t freed = curve_.freed_by[tensor];
        if (curve_.producer[tensor] != op || (freed != none && freed < end)) continue;
        left = true;
        const Tensor& described = model_.tensors[tensor];
        const Readers& readers = readers_[tensor];
        if (!described.value || !retained(tensor)) continue;
        const bool outside = readers.first < begin || (readers.last != none && readers.last >= end);
        if (!output && !outside && !described.wrapped_number)
          dropped += described.bytes;
        else if (readers.saver < end && (stops_early() || model_.conventions.physical_copy))
          again += described.bytes;
      }
      if (left) output = false;
    }
  }

  // Bytes that a forward without checkpoints lets go of, and that the region must find again.
  std::uint64_t waiting(std::uint32_t index, std::uint32_t begin, std::uint32_t end) {
    std::uint64_t bytes = 0;
    waits_for_.resize(model_.tensors.size(), none);
    const auto wait = [&](std::uint32_t tensor) {
      const std::uint32_t freed = curve_.freed_by[tensor], made = curve_.producer[tensor];
      if (waits_for_[tensor] == index || freed == none || freed >= curve_.backward || (made != none && made >= begin)) return;
      waits_for_[tensor] = index;
      bytes += model_.tensors[tensor].bytes;
    };
    const auto producer = [&](std::uint32_t tensor) { return curve_.producer[tensor]; };
    const bool guesses =
        model_.conventions.drop_at_region_end && arguments_of(model_, begin, end, producer, [](std::uint32_t) {}) == Arguments::unknown;
    for (std::uint32_t op = begin; op < end; ++op) {
      for (const Slice slice : {model_.ops[op].reads, model_.ops[op].saves})
        for (const std::uint32_t tensor : model_.list(slice)) wait(tensor);
      if (!guesses) continue;
      for (const std::uint32_t tensor : model_.list(model_.ops[op].frees)) wait(tensor);
    }
    if (guesses) called_with(begin, wait);
    return bytes;
  }
  template <class Wait>
  void called_with(std::uint32_t begin, Wait wait) const {
    for (std::uint32_t op = begin; op-- > begin - std::min(begin, max_ops_back);) {
      bool left = false;
      for (const std::uint32_t tensor : model_.list(model_.ops[op].writes)) {
        if (curve_.freed_by[tensor] != none && curve_.freed_by[tensor] < begin) continue;
        left = true;
        wait(tensor);
      }
      if (left) return;
    }
  }

  // Optimizer and what else no checkpoint changes, and what the step was given.
  void rest_of_step() {
    plan::Module& module = out_.modules[add(plan::no_parent, none)];
    for (const std::uint32_t tensor : model_.inputs)
      if (curve_.freed_by[tensor] == none || curve_.freed_by[tensor] >= curve_.backward) module.own += model_.tensors[tensor].bytes;
    for (std::uint32_t op = 0; op < model_.ops.size(); ++op)
      if (const Phase phase = model_.ops[op].phase; phase == Phase::optimizer || phase == Phase::other)
        module.temporary = std::max(module.temporary, above(curve_.high[op], module.own));
    for (std::uint64_t& own : own_) own += module.own;
  }

  void loss() {
    plan::Module& module = out_.modules[add(plan::no_parent, none)];
    std::uint64_t high = loss_high_;
    for (std::uint32_t op = 0; op < model_.ops.size(); ++op) {
      if (model_.ops[op].phase != Phase::loss) continue;
      high = std::max({high, curve_.high[op], high_backward_[op]});
      for (const std::uint32_t tensor : model_.list(model_.ops[op].writes))
        if (curve_.producer[tensor] == op && retained(tensor)) module.own += model_.tensors[tensor].bytes;
    }
    module.temporary = above(high, own_.back() + module.own);
  }

  void finish() {
    out_.end.resize(out_.modules.size());
    for (std::uint32_t i = static_cast<std::uint32_t>(out_.modules.size()); i-- > 0;) {
      out_.end[i] = std::max(out_.end[i], i + 1);
      if (const std::uint32_t parent = out_.modules[i].parent; parent != plan::no_parent)
        out_.end[parent] = std::max(out_.end[parent], out_.end[i]);
    }
  }

  const Model& model_;
  const NamedRuns& runs_;
  Curve curve_;
  RegionTree out_;
  std::vector<std::uint64_t> own_, cost_;
  std::vector<Readers> readers_;
  std::vector<std::uint32_t> first_backward_, waits_for_;
  std::vector<std::uint64_t> high_backward_;
  std::uint64_t loss_high_ = 0;
};

}  // namespace

RegionTree region_tree(const Model& model, const NamedRuns& runs) { return TreeWriter(model, runs).write(); }

}  // namespace liveset::model
