#include "viewer/model/recorded_step.h"

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "viewer/ledger/attribution.h"
#include "viewer/ledger/classes.h"
#include "viewer/ledger/path_names.h"
#include "viewer/ledger/value_names.h"
#include "viewer/model/name_pattern.h"
#include "viewer/model/name_ranges.h"
#include "viewer/model/past.h"
#include "viewer/model/repeated_modules.h"
#include "viewer/model/step_events.h"

namespace liveset::model {
namespace {

using ledger::Block;
using trace::Event;
using trace::MemoryClass;
using trace::Phase;

constexpr std::uint64_t max_step_events = 100'000'000;
// Earlier steps that are followed one by one; where there are more, these are the first: later ones find the cache as they left it.
constexpr std::size_t max_past_steps = 3;

Error cannot(const trace::TraceFile& file, std::string what, std::string hint) {
  return {ErrorKind::unreadable, file.path(), {}, std::move(what), std::move(hint)};
}

// What a step needs and the trace lacks: of a trace that was read only in part, that is the likely reason.
Error lacks(const trace::TraceFile& file, std::string what, std::string hint) {
  const trace::Health& health = file.health();
  if (!health.truncated && health.damaged_packets == 0) return cannot(file, std::move(what), std::move(hint));
  return cannot(file,
                (health.truncated ? "is truncated" : "is damaged") + (health.note.empty() ? "" : " (" + health.note + ")") +
                    ", and what is left " + what,
                "copy the file again if another one is whole, or record the job again");
}

// Since format 1.4, unless this torch hides it (hooks/autograd/coverage.cpp).
bool says_returns(const trace::TraceFile& file) {
  const auto& sources = file.dictionary().sources;
  return file.header().format_minor >= 4 && std::none_of(sources.begin(), sources.end(), [](const trace::Source& source) {
           return source.name == "autograd" && source.cannot_see.find("returned") != std::string::npos;
         });
}

class StepModel {
 public:
  // `events` are the step's, arranged.
  StepModel(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger, const ledger::Attribution& attribution,
            const Statements& statements, const ledger::Step& step, const StepEvents& events)
      : file_(file),
        ledger_(ledger),
        attribution_(attribution),
        statements_(statements),
        step_(step),
        events_(events),
        drafts_(events.drafts()),
        paths_(file.dictionary()) {}

  // `wanted`: the pattern of its layers; empty: chosen here.
  Result<RecordedStep> make(const std::string& wanted) {
    if (!events_.numbered())
      return cannot(file_, "does not say which operator made a block", "record the job again: traces say it since format 1.3");
    if (events_.saves().empty())
      return cannot(file_, "step " + std::to_string(step_.number) + " has no backward that a graph walk preceded",
                    "a model comes from a step of a PyTorch job that was recorded from its begin");
    tensors();
    ops();
    if (saves_in_backward_)
      return cannot(file_,
                    "step " + std::to_string(step_.number) + " differentiates its own backward (create_graph=True), which is not modelled",
                    "a model comes from a step whose backward saves nothing");
    statics();
    return model(wanted);
  }

 private:
  std::string unique(std::string name) {
    const std::uint32_t number = ++used_[name];
    return ledger::numbered_name(std::move(name), number);
  }

  std::uint32_t tensor_of(std::uint32_t ordinal) const {
    const auto found = index_.find(ordinal);
    return found == index_.end() ? none : found->second;
  }

  void add_tensor(std::uint32_t ordinal, std::string name) {
    const Block& block = *ledger_.blocks.find(ordinal);
    Tensor tensor;
    tensor.id = unique(std::move(name));
    tensor.bytes = statements_.requested(ordinal);
    tensor.rounded = statements_.is_rounded(ordinal);
    tensor.memory_class = ledger::class_of(block);
    tensor.wrapped_number = events_.is_wrapped_number(ordinal);
    tensor.block = ordinal;
    index_[ordinal] = builder_.add_tensor(std::move(tensor));
  }

  // "GPT.bs.0.ln1/NativeLayerNormBackward0.result1" of what the graph holds; else the module or node that made it.
  std::string name_of(std::uint32_t ordinal, const Draft& by) {
    const trace::Dictionary& names = file_.dictionary();
    std::string module(paths_.module(by.scope));
    if (const std::uint32_t slot = events_.first_slot(ordinal); slot != 0) return ledger::value_name(std::move(module), names.string(slot));
    const std::string node(names.string(by.name));
    return ledger::value_name(std::move(module), (node.empty() ? std::string(trace::phase_name(by.phase)) : node) + ".temporary");
  }

  void tensors() {
    // What the step found and lets go of.
    std::vector<std::uint32_t> given;
    for (const Draft& each : drafts_)
      for (const std::uint32_t ordinal : each.frees)
        if (ledger_.blocks.find(ordinal)->birth < step_.first_event) given.push_back(ordinal);
    std::sort(given.begin(), given.end());
    for (const std::uint32_t ordinal : given) {
      const Block& block = *ledger_.blocks.find(ordinal);
      add_tensor(ordinal, "before the step/" + std::string(trace::class_name(ledger::class_of(block))));
      builder_.model.inputs.push_back(index_[ordinal]);
    }
    for (const Draft& each : drafts_)
      for (const std::uint32_t ordinal : each.writes) {
        add_tensor(ordinal, name_of(ordinal, each));
        builder_.model.tensors[index_[ordinal]].no_output = is_copy_of_input(ordinal, each);
      }
  }

  // silu_() and others that overwrite what backward needs save a copy of it: their node is made first. An input is there before the node.
  bool is_copy_of_input(std::uint32_t ordinal, const Draft& by) const {
    const std::int64_t node = events_.saved_as_self(ordinal);
    return is_forward(by.phase) && node != no_node && node <= by.node;
  }

  void ops() {
    std::unordered_map<std::int64_t, std::uint32_t> first_op, first_backward;  // by node
    std::unordered_map<std::uint32_t, std::uint32_t> writer;                   // by tensor: draft
    for (std::uint32_t index = 0; index < drafts_.size(); ++index) {
      const Draft& each = drafts_[index];
      for (const std::uint32_t ordinal : each.writes) writer[tensor_of(ordinal)] = index;
      if (each.node != no_node && is_forward(each.phase)) first_op.try_emplace(each.node, index);
      if (each.node != no_node && each.phase == Phase::backward) first_backward.try_emplace(each.node, index);
    }
    std::vector<std::vector<std::uint32_t>> saves(drafts_.size());
    // All that a node saves is saved when the last of it is made. That may be an op behind the node's own: silu_() copies what it
    // overwrites, and the copy is an operator.
    for (const auto& [node, list] : events_.saves()) {
      const auto at = first_op.find(node);
      if (at == first_op.end()) continue;
      std::vector<std::uint32_t> tensors;
      for (const StepEvents::Saved& each : list) {
        const std::uint32_t tensor = tensor_of(each.ordinal);
        if (tensor == none) continue;
        tensors.push_back(tensor);
        const auto made = writer.find(tensor);
        if (made == writer.end()) continue;
        if (is_forward(drafts_[made->second].phase))
          at->second = std::max(at->second, made->second);
        else if (made->second > at->second)
          saves_in_backward_ = true;
      }
      saves[at->second].insert(saves[at->second].end(), tensors.begin(), tensors.end());
    }
    std::vector<std::uint32_t> death(builder_.model.tensors.size(), none);  // draft
    for (std::uint32_t index = 0; index < drafts_.size(); ++index)
      for (const std::uint32_t ordinal : drafts_[index].frees)
        if (const std::uint32_t tensor = tensor_of(ordinal); tensor != none) death[tensor] = index;
    for (std::uint32_t index = 0; index < drafts_.size(); ++index) {
      const Draft& each = drafts_[index];
      ModelBuilder::Lists lists;
      for (const std::uint32_t ordinal : each.writes) lists.writes.push_back(tensor_of(ordinal));
      for (const std::uint32_t ordinal : each.frees)
        if (const std::uint32_t tensor = tensor_of(ordinal); tensor != none) lists.frees.push_back(tensor);  // else a damaged trace lost it
      lists.saves = std::move(saves[index]);
      std::sort(lists.saves.begin(), lists.saves.end());
      saves_in_backward_ = saves_in_backward_ || (each.phase == Phase::backward && !lists.saves.empty());
      Op op;
      op.no_graph = each.no_graph && is_forward(each.phase);
      op.phase = each.phase == Phase::recompute ? Phase::forward : each.phase;
      op.module = builder_.module(paths_.module(each.scope));
      op.enters = entered_again(index);
      if (each.node != no_node && is_forward(each.phase) && lists.saves.empty())
        op.saves_static = events_.saves_static(each.node) && first_op[each.node] == index;
      op.name = file_.dictionary().string(each.name);
      op.id = op_id(each);
      op.cost = time_to_next(index);
      op.packs_before = std::none_of(lists.saves.begin(), lists.saves.end(), [&](std::uint32_t tensor) {
        const auto made = writer.find(tensor);
        return made != writer.end() && made->second == index;
      });
      op.continues = index > 0 && each.node != no_node && is_forward(each.phase) && drafts_[index - 1].node == each.node &&
                     is_forward(drafts_[index - 1].phase);
      if (each.phase == Phase::backward && each.node != no_node) {
        if (const auto forward = first_op.find(each.node); forward != first_op.end() && forward->second < index)
          op.forward = forward->second;
        const bool first = first_backward[each.node] == index;
        if (op.forward != none && first) needs(each.node, index, death, lists.reads);
        op.after_function = op.forward != none && !first && each.after_function;
      }
      builder_.add_op(std::move(op), lists);
    }
  }

  // What a node needs when it runs: what was saved for it, as far as it lives.
  void needs(std::int64_t node, std::uint32_t index, const std::vector<std::uint32_t>& death, std::vector<std::uint32_t>& reads) const {
    const auto found = events_.saves().find(node);
    if (found == events_.saves().end()) return;
    for (const StepEvents::Saved& each : found->second)
      if (const std::uint32_t tensor = tensor_of(each.ordinal); tensor != none && (death[tensor] == none || death[tensor] >= index))
        reads.push_back(tensor);
  }

  // Op::enters: where the module's path alone tells that another call of it began, nothing need be said.
  std::uint32_t entered_again(std::uint32_t index) {
    const Draft& each = drafts_[index];
    if (each.enters == none || !is_forward(each.phase) || index == 0) return none;
    const Draft& last = drafts_[index - 1];
    const std::string_view module = paths_.module(each.enters);
    const bool says_more =
        is_forward(last.phase) && lies_in(paths_.module(last.scope), module) && lies_in(paths_.module(each.scope), module);
    return says_more ? builder_.module(module) : none;
  }

  std::string op_id(const Draft& each) {
    std::string name(file_.dictionary().string(each.name));
    if (name.empty()) name = trace::phase_name(each.phase);
    if (each.node != no_node) name += "@" + std::to_string(each.node);
    return unique((each.phase == Phase::backward ? "backward/" : "") + name);
  }

  std::uint64_t time_to_next(std::uint32_t index) const {
    const Draft& each = drafts_[index];
    if (index + 1 == drafts_.size() || drafts_[index + 1].thread != each.thread || drafts_[index + 1].phase != each.phase) return 0;
    return drafts_[index + 1].time_ns - std::min(drafts_[index + 1].time_ns, each.time_ns);
  }

  void statics() {
    const trace::Dictionary& names = file_.dictionary();
    ledger_.blocks.for_each([&](std::uint32_t ordinal, const Block& block) {
      if (block.heap() != ledger_.shown_heap || block.birth >= step_.first_event || block.death < step_.end_event) return;
      if (block.death != Block::none && index_.find(ordinal) != index_.end()) return;
      if (block.death < step_.first_event) return;
      StaticStorage storage;
      storage.bytes = statements_.requested(ordinal);
      storage.rounded = statements_.is_rounded(ordinal);
      storage.memory_class = ledger::class_of(block);
      storage.block = ordinal;
      const auto details = attribution_.details.find(ordinal);
      std::string name;
      if (details != attribution_.details.end() && !details->second.names.empty()) name = names.string(details->second.names.front().name);
      storage.id = unique(name.empty() ? std::string(trace::class_name(storage.memory_class)) : std::move(name));
      if (storage.memory_class == MemoryClass::optimizer_state) storage.from_step = 1;
      builder_.model.statics.push_back(std::move(storage));
    });
  }

  // What the regions of a step rest on does not hold for it: most of what forward saved is freed by no node, so the graph was kept
  // (retain_graph=True), and with it what regions make again; or a layer saves nothing for a backward of this step, and leaves what no op
  // saves beyond the next layer: a graph that another step's backward takes, or none.
  static bool is_irregular(const Model& model) {
    std::vector<bool> saved(model.tensors.size()), made(model.tensors.size());
    std::vector<std::uint32_t> freed_by(model.tensors.size(), none);
    for (std::uint32_t op = 0; op < model.ops.size(); ++op) {
      for (const std::uint32_t tensor : model.list(model.ops[op].saves)) saved[tensor] = true;
      for (const std::uint32_t tensor : model.list(model.ops[op].writes)) made[tensor] = true;
      for (const std::uint32_t tensor : model.list(model.ops[op].frees)) freed_by[tensor] = op;
    }
    std::uint64_t by_nodes = 0, by_others = 0;
    for (std::uint32_t tensor = 0; tensor < model.tensors.size(); ++tensor)
      if (saved[tensor] && made[tensor])
        (freed_by[tensor] != none && model.ops[freed_by[tensor]].forward != none ? by_nodes : by_others) += 1;
    if (by_others > by_nodes) return true;
    for (std::size_t unit = 0; unit + 1 < model.units.size(); ++unit) {
      bool saves = false, outlives = false;
      for (std::uint32_t op = model.units[unit].begin; op < model.units[unit].end; ++op) {
        saves = saves || model.ops[op].saves.count != 0;
        for (const std::uint32_t tensor : model.list(model.ops[op].writes))
          outlives = outlives || (!saved[tensor] && freed_by[tensor] >= model.units[unit + 1].end);
      }
      if (outlives && !saves) return true;
    }
    return false;
  }

  void find_containers() {
    std::unordered_set<std::string_view> called;
    const auto& scopes = file_.dictionary().scopes;
    for (std::uint32_t scope = 0; scope < scopes.size(); ++scope)
      if (scopes[scope].kind == trace::ScopeKind::module) called.insert(paths_.module(scope));
    std::vector<std::size_t> ends;
    for (const std::string_view path : builder_.model.modules) {
      ends_of_parts(path, ".", ends);
      for (const std::size_t end : ends)
        if (!called.contains(path.substr(0, end))) builder_.model.containers.emplace(path.substr(0, end));
    }
  }

  // For a message: the first of the modules that are called, outer ones before what lies in them.
  static std::string modules_in_words(const Model& model) {
    constexpr std::size_t most_listed = 8, most_looked_at = 1000;
    std::vector<std::string> called;
    std::set<std::string_view> known;
    std::vector<std::size_t> ends;
    for (const std::string_view path : model.modules) {
      ends_of_parts(path, ".", ends);
      for (const std::size_t end : ends)
        if (called.size() < most_looked_at && !model.containers.contains(path.substr(0, end)) && known.insert(path.substr(0, end)).second)
          called.emplace_back(path.substr(0, end));
    }
    if (called.empty()) return "it has none";
    std::stable_sort(called.begin(), called.end(), [](const std::string& a, const std::string& b) {
      return std::count(a.begin(), a.end(), '.') < std::count(b.begin(), b.end(), '.');
    });
    const std::vector<std::string> names = with_ranges(called);
    std::string text = "it has ";
    for (std::size_t i = 0; i < std::min(names.size(), most_listed); ++i) text += (i == 0 ? "" : ", ") + names[i];
    return names.size() > most_listed ? text + " and others" : text;
  }

  Result<RecordedStep> model(const std::string& wanted) {
    RecordedStep out;
    Model& model = builder_.model;
    const trace::Dictionary& names = file_.dictionary();
    const trace::Heap& heap = names.heaps[ledger_.shown_heap];
    out.heap = names.string(heap.name);
    model.name = "step " + std::to_string(step_.number) + " of " + file_.path();
    model.cost_unit = "ns";
    model.conventions.rerun = Conventions::Rerun::early_stop;
    model.conventions.physical_copy = true;
    model.conventions.drop_at_region_end = true;
    model.conventions.frees_are_listed = true;
    model.conventions.returns_unknown = !says_returns(file_);
    model.physical.heap = out.heap;
    model.physical.caching_allocator = heap.device_type == cuda;
    if (statements_.expands()) model.physical.allocator_settings = "expandable_segments:True";
    model.physical.rng_state = heap.device_type == 0 ? cpu_rng_state : 0;
    find_containers();
    const std::string unit = wanted.empty() ? repeated_modules(model) : wanted;
    model.units = units_of(model, unit);
    if (!model.units.empty()) model.unit_pattern = unit;
    model.conventions.regions_doubtful = events_.graphs_cross() || is_irregular(model);
    if (!wanted.empty() && model.units.empty())
      return Error{ErrorKind::usage, file_.path(), {}, "no module of the step is called '" + unit + "'", modules_in_words(model)};
    Result<Model> finished = builder_.finish();
    if (!finished) return cannot(file_, finished.error().what, "this is a fault of liveset, or the trace is damaged");
    out.model = std::move(*finished);
    out.unit = out.model.unit_pattern;
    out.step = step_.number;
    out.first_event = step_.first_event;
    out.end_event = step_.end_event;
    out.peak_bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(step_.peak().peak_bytes, 0));
    if (file_.health().lost_events != 0 || file_.health().damaged_packets != 0)
      out.model.estimate = "of " + file_.path() + " " + (file_.health().damaged_packets != 0 ? "parts are damaged" : "events were lost") +
                           ", and the step may have had more";
    if (!out.model.estimate.empty()) out.notes.push_back("an estimate: " + out.model.estimate);
    if (out.model.conventions.regions_doubtful)
      out.notes.emplace_back(
          "the step has a forward whose backward is not in it, or a backward twice: what is said of policies with regions is an estimate "
          "and may be far off");
    if (out.model.conventions.returns_unknown)
      out.notes.emplace_back(
          "where functions of backward returned is not in the trace (format 1.4 has it, of torch's own functions): peaks of regions are "
          "estimates");
    if (heap.device_type != 0) out.notes.emplace_back("costs are the host's time to launch, not the device's");
    return out;
  }

  const trace::TraceFile& file_;
  const ledger::PhysicalLedger& ledger_;
  const ledger::Attribution& attribution_;
  const Statements& statements_;
  const ledger::Step& step_;
  const StepEvents& events_;
  const std::vector<Draft>& drafts_;
  ledger::PathNames paths_;
  ModelBuilder builder_;
  std::unordered_map<std::uint32_t, std::uint32_t> index_;  // by ordinal: tensor
  std::unordered_map<std::string, std::uint32_t> used_;
  bool saves_in_backward_ = false;
};

// A step is whole when another one follows it.
Result<const ledger::Step*> choose_step(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger,
                                        const std::optional<std::int64_t>& wanted) {
  if (ledger.steps.empty())
    return lacks(file, "has no steps, so no step can be taken from it", "a model comes from a recorded training step");
  const auto has_backward = [&](const ledger::Step& step) {
    return std::any_of(ledger.backwards.begin(), ledger.backwards.end(),
                       [&](const ledger::Backward& each) { return each.event >= step.first_event && each.event < step.end_event; });
  };
  const auto& steps = ledger.steps;
  if (wanted) {
    const auto found = std::find_if(steps.begin(), steps.end(), [&](const ledger::Step& step) { return step.number == *wanted; });
    if (found == steps.end())
      return Error{ErrorKind::usage,
                   file.path(),
                   {},
                   "has no step " + std::to_string(*wanted),
                   "its steps are " + std::to_string(steps.front().number) + ".." + std::to_string(steps.back().number)};
    if (!has_backward(*found)) return cannot(file, "step " + std::to_string(*wanted) + " has no backward", "give another --step");
    return &*found;
  }
  for (std::size_t index = steps.size(); index-- > 0;)
    if ((index + 1 < steps.size() || steps.size() == 1) && has_backward(steps[index])) return &steps[index];
  for (std::size_t index = steps.size(); index-- > 0;)
    if (has_backward(steps[index])) return &steps[index];
  if (file.dictionary().values.size() > 1)
    return lacks(
        file, "tells of values by liveset.h, and of no autograd graph that was walked: there is no step to model",
        "whatif, plan and model take steps of PyTorch jobs; ledger --logical shows this trace, compare sets a model file beside it");
  return lacks(file, "has no step with a backward, so there are no activations to model", "record training, not inference");
}

bool recomputes(const ledger::Step& step) { return step.phases[static_cast<std::size_t>(Phase::recompute)].peak_bytes >= 0; }
bool is_too_long(const ledger::Step& step) {
  return step.first_event + max_step_events < step.end_event && step.end_event != ledger::no_event;
}

}  // namespace

Result<RecordedStep> model_of_step(const trace::TraceFile& file, const RecordedStepOptions& options) {
  ledger::PhysicalOptions physical;
  physical.progress = options.progress;
  if (!options.heap.empty()) {
    Result<std::uint32_t> heap = ledger::find_heap(file, options.heap);
    if (!heap) return heap.take_error();
    physical.heap = *heap;
  }
  Result<ledger::PhysicalLedger> ledger = ledger::build_physical(file, physical);
  if (!ledger) return ledger.take_error();
  if (ledger->shown_heap == 0) return lacks(file, "has no blocks", "a model comes from a recorded training step");
  if (ledger->shown_heap >= file.dictionary().heaps.size()) return lacks(file, "does not name its heaps", "record the job again");
  Result<const ledger::Step*> step = choose_step(file, *ledger, options.step);
  if (!step) return step.take_error();
  if (recomputes(**step))
    return cannot(file, "step " + std::to_string((*step)->number) + " recomputes: a model comes from a step without checkpointing",
                  "record one step with checkpointing off; compare shows this one beside a prediction");
  if (is_too_long(**step))
    return cannot(file, "step " + std::to_string((*step)->number) + " has more than 10^8 events", "give a shorter step");
  ledger::AttributionOptions attribute;
  attribute.details_at = (*step)->first_event;
  attribute.progress = options.progress;
  Result<ledger::Attribution> attribution = ledger::attribute_blocks(file, *ledger, attribute);
  if (!attribution) return attribution.take_error();

  // What earlier steps left matters to an allocator that keeps what it has.
  const std::span<const ledger::Step> all(ledger->steps);
  const auto index = static_cast<std::size_t>(*step - all.data());
  const bool caches = file.dictionary().heaps[ledger->shown_heap].device_type == cuda;
  const std::span<const ledger::Step> earlier = all.first(caches ? std::min(index, max_past_steps) : 0);
  Statements statements(file, *ledger);
  const auto is_modelled = [&](const ledger::Step& each) { return !is_too_long(each) && !recomputes(each); };
  std::vector<std::unique_ptr<StepEvents>> past_events;  // null: that step is replayed as it was recorded
  for (const ledger::Step& each : earlier)
    past_events.push_back(is_modelled(each) ? std::make_unique<StepEvents>(file, *ledger, statements, each) : nullptr);
  StepEvents events(file, *ledger, statements, **step);
  const std::uint64_t end = (*step)->end_event;
  Status status = trace::for_each_event(file, [&](const Event& event) {
    if (event.index >= end) return false;
    statements.visit(event);
    for (const std::unique_ptr<StepEvents>& each : past_events)
      if (each != nullptr) each->visit(event);
    events.visit(event);
    return true;
  });
  if (!status) return status.take_error();
  const auto model_of = [&](StepEvents& each, const ledger::Step& of, const std::string& unit) {
    each.arrange();
    return StepModel(file, *ledger, *attribution, statements, of, each).make(unit);
  };
  Result<RecordedStep> found = model_of(events, **step, options.unit);
  if (!found || !caches) return found;
  std::vector<PastStep> past;
  for (std::size_t i = 0; i < earlier.size(); ++i) {
    past.push_back({earlier[i].first_event, earlier[i].end_event, std::nullopt});
    if (past_events[i] == nullptr) continue;
    // So is one without a backward, or of another network.
    if (Result<RecordedStep> each = model_of(*past_events[i], earlier[i], found->unit); each) past.back().model = std::move(each->model);
  }
  found->model.past = std::make_shared<const std::vector<PastPart>>(
      make_past(*ledger, std::move(past), {(*step)->first_event, end, index == earlier.size()}));
  return found;
}

}  // namespace liveset::model
