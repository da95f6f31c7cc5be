#include "viewer/compare/model_side.h"

#include <algorithm>
#include <map>

#include "viewer/ledger/value_names.h"
#include "viewer/model/whatif.h"

namespace liveset::compare {
namespace {

using ledger::FoundBy;
using ledger::no_event;
using model::MemoryEvent;
using model::none;
using model::PredictedBlock;
using trace::Phase;

std::string dotted(std::string path) {
  std::replace(path.begin(), path.end(), '/', '.');
  return path;
}

std::uint64_t rounded(std::uint64_t requested) { return ledger::size_units(requested) * ledger::size_unit; }

void name_static(Item& item, std::string_view name, ItemBuilder& builder) {
  item.name = builder.text(name);
  item.slot = name == trace::class_name(item.memory_class) ? 0 : item.name;
  item.is_own_name = item.slot != 0 && family_of(item.memory_class, item.phase) == Family::fixed;
}

}  // namespace

std::uint64_t ModelSide::block_bytes(std::uint64_t requested) const { return rounds_ ? rounded(requested) : requested; }

bool ModelSide::has_bytes() const {
  return std::any_of(model_->tensors.begin(), model_->tensors.end(), [](const model::Tensor& tensor) { return tensor.bytes != 0; }) ||
         std::any_of(model_->statics.begin(), model_->statics.end(),
                     [](const model::StaticStorage& storage) { return storage.bytes != 0; });
}

// One pass over the memory curve: sums, and which op runs.
void ModelSide::follow() {
  const model::MemoryCurve& memory = prediction_.memory;
  for (const model::StaticStorage& storage : memory.statics) static_bytes_ += block_bytes(storage.bytes);
  std::uint64_t now = block_peak_ = static_bytes_, staying = static_bytes_;
  bool backward = false, optimizer = false;
  std::uint32_t microbatch = 0;
  Phase phase = Phase::other;
  std::unordered_map<std::string_view, std::uint32_t> numbers;
  Step step;
  steps_.reserve(memory.events.size());
  for (std::uint64_t i = 0; i < memory.events.size(); ++i) {
    const MemoryEvent& event = memory.events[i];
    const PredictedBlock& block = memory.blocks[event.block];
    backward = backward || event.phase == Phase::backward || event.phase == Phase::recompute || event.phase == Phase::optimizer;
    optimizer = optimizer || event.phase == Phase::optimizer;
    const auto raise_moving = [&] {
      const std::uint64_t bytes = now - staying;
      moving_peak_ = std::max(moving_peak_, bytes);
      moving_since_backward_ = backward ? std::max(moving_since_backward_, bytes) : bytes;
      moving_since_optimizer_ = optimizer ? std::max(moving_since_optimizer_, bytes) : bytes;
    };
    raise_moving();
    now = event.alloc ? now + block_bytes(block.bytes) : now - block_bytes(block.bytes);
    if (block.stays) {
      staying += block_bytes(block.bytes);
      step.op = none;  // no op of the model makes it
      makes_states_ = makes_states_ || event.phase == Phase::optimizer;
    }
    raise_moving();
    if (event.alloc && block.op != none && !block.came_back &&
        (block.op != step.op || block.microbatch != microbatch || block.phase != phase)) {
      const model::Op &now_runs = model_->ops[block.op], *const before = step.op == none ? nullptr : &model_->ops[step.op];
      // Several ops in a row may be one node of backward, and only those nodes are numbered, as in a trace.
      const bool is_same_node = before != nullptr && block.phase == phase && block.microbatch == microbatch && now_runs.forward != none &&
                                now_runs.forward == before->forward && now_runs.name == before->name;
      microbatch = block.microbatch;
      phase = block.phase;
      step.op = block.op;
      if (phase != Phase::backward || now_runs.name.empty())
        step.node_number = 0;
      else if (!is_same_node)
        step.node_number = ++numbers[now_runs.name];
    }
    step.bytes = now;
    steps_.push_back(step);
    if (now > block_peak_) {
      block_peak_ = now;
      peak_event_ = i;
    }
    std::optional<std::uint64_t>& of_phase = side.phase_peaks[static_cast<std::size_t>(event.phase)];
    of_phase = std::max(of_phase.value_or(0), now);
  }
}

bool ModelSide::is_estimate(std::uint64_t event) const {
  const model::MemoryCurve& memory = prediction_.memory;
  if (event == model::never) return false;
  return event == memory.peak_event ? memory.peak_is_estimate : memory.events[event].is_estimate;
}

bool ModelSide::has_new_states(std::uint64_t event) const {
  return makes_states_ && event != model::never && prediction_.memory.events[event].phase == Phase::optimizer;
}

ledger::Place ModelSide::place_of(std::uint64_t event) const {
  ledger::Place place;
  place.phase = prediction_.memory.events[event].phase;
  const Step& step = steps_[event];
  if (step.op == none) return place;
  const model::Op& op = model_->ops[step.op];
  if (op.module != none) place.module = dotted(model_->modules[op.module]);
  // In forward the module says where; which op is a matter of recording.
  if (place.phase == Phase::backward || place.module.empty()) {
    place.node = op.name.empty() ? op.id : op.name;
    place.node_number = std::max<std::uint32_t>(step.node_number, 1);
  }
  return place;
}

Moment ModelSide::moment_at(std::uint64_t event) const {
  const model::MemoryCurve& memory = prediction_.memory;
  Moment moment;
  moment.classes = model::class_bytes_after(memory, event, rounds_ ? rounded : nullptr);
  if (event != model::never) {
    moment.event = event;
    moment.place = place_of(event);
  }
  for (const std::uint64_t bytes : moment.classes) moment.block_bytes += bytes;
  return moment;
}

Item ModelSide::item_of(const PredictedBlock& block, ItemBuilder& builder, std::uint32_t order) const {
  Item item;
  item.memory_class = block.memory_class;
  item.phase = block.phase;
  item.incarnation = block.incarnation;
  item.bytes = block_bytes(block.bytes);
  item.order = order;
  item.is_older = block.op == none && block.incarnation == 0 && block.tensor != none;
  const std::string id = prediction_.tensor_name(*model_, block.tensor);
  const std::string_view name = ledger::without_number(id);  // which models need and traces do not have
  item.is_own_name = model_->modules.empty() && block.tensor != none;
  const model::Op* const op = block.op == none ? nullptr : &model_->ops[block.op];
  const std::string module = op == nullptr || op->module == none ? "" : dotted(model_->modules[op->module]);
  item.module = builder.text(module);
  const Family family = family_of(item.memory_class, item.phase);
  const bool is_value = family == Family::value || family == Family::recompute;
  // As a trace tells of what a node of backward makes: by the node.
  const std::string_view made_by = op == nullptr ? "" : std::string_view(op->name);
  const std::size_t slash = name.rfind('/');
  if (block.stays) {
    name_static(item, name, builder);
    return item;
  }
  if (is_value || item.is_own_name)
    item.slot = builder.text(slash == std::string_view::npos ? name : name.substr(slash + 1));
  else
    item.slot = builder.text(made_by);
  const bool is_again = item.memory_class == trace::MemoryClass::recomputed_activation;
  item.name = builder.text(is_again                       ? ledger::incarnation_name(std::string(name), block.incarnation)
                           : is_value || item.is_own_name ? std::string(name)
                                                          : unnamed_text(module, item.memory_class, made_by));
  return item;
}

void ModelSide::add_items() {
  const model::MemoryCurve& memory = prediction_.memory;
  ItemBuilder builder(side);
  for (const model::StaticStorage& storage : memory.statics) {
    Item item;
    item.memory_class = storage.memory_class;
    item.is_older = true;
    item.bytes = block_bytes(storage.bytes);
    name_static(item, ledger::without_number(storage.id), builder);
    builder.add(item);
  }
  if (peak_event_ == model::never) return;
  std::map<std::tuple<std::uint32_t, Phase, std::uint64_t>, std::uint32_t> orders;  // by module, phase and size
  for (const PredictedBlock& block : memory.blocks) {
    if (block.made > peak_event_) break;  // blocks are in the order in which they are made
    std::uint32_t order = 0;
    if (block.op != none && block.phase != Phase::backward && !block.came_back)
      order = ++orders[{model_->ops[block.op].module, ledger::counted_phase(block.phase), ledger::size_units(block.bytes)}];
    if (block.freed > peak_event_) builder.add(item_of(block, builder, order));
  }
}

// All that the model tells, and of the one that is compared the peak and what it has beyond the blocks.
Status ModelSide::add_counters(const model::Policy& policy) {
  Result<model::PredictedCounters> counters = model::predict_counters(*model_, policy, prediction_.memory);
  if (!counters) return counters.take_error();
  if (!counters->cache_estimate.empty() && side.counter != "requested") side.warnings.emplace_back(counters->cache_estimate);
  std::string known;
  for (const model::CounterKind kind : model::counter_kinds) {
    const model::CounterPeak* const peak = model::counter_peak(*counters, kind);
    if (peak == nullptr) continue;
    const std::string name(model::counter_name(kind));
    const bool is_reserved = kind == model::CounterKind::reserved, is_device = is_reserved && side.counter == "device";
    known += (known.empty() ? "" : ", ") + name;
    side.counters.push_back({name, peak->bytes, false});
    if (is_reserved) {
      // Without the context, as a trace of the driver's calls.
      known += ", device";
      side.counters.push_back({"device", peak->bytes + model_->physical.communication, false});
    }
    if (name != side.counter && !is_device) continue;
    // A late step finds what earlier ones left in the cache: reserved is at its highest all the time.
    peak_event_ = is_reserved ? counters->allocated->event : peak->event;
    side.peak_moment_known = !is_reserved;
    side.peak = moment_at(peak_event_);
    side.peak.bytes = std::max(peak->bytes, side.peak.block_bytes);
    side.peak_is_estimate = is_estimate(peak_event_) || (is_reserved && prediction_.memory.order_is_estimate());
    side.peak_has_new_states = has_new_states(peak_event_);
    side.peak_is_rounded = kind == model::CounterKind::requested && prediction_.memory.peak_is_rounded;
    const GapClass beyond = kind == model::CounterKind::reserved ? GapClass::cached : GapClass::rounding;
    side.extras[static_cast<std::size_t>(beyond)] = static_cast<std::int64_t>(*side.peak.bytes - side.peak.block_bytes);
    if (is_device && model_->physical.communication != 0) {
      side.outside.emplace_back("communication", model_->physical.communication);
      *side.peak.bytes += model_->physical.communication;
    }
  }
  if (!side.peak.bytes)
    return Error{ErrorKind::usage, side.file, {}, "the model tells nothing of the counter \"" + side.counter + "\"", "it has " + known};
  return Done{};
}

Result<ModelSide> ModelSide::make(const model::Model& model, const model::Policy& policy, const ModelOptions& options) {
  Result<model::Prediction> prediction = model::predict(model, policy, {options.step});
  if (!prediction) return prediction.take_error();
  ModelSide made(model, std::move(*prediction));
  Side& side = made.side;
  side.file = options.file;
  side.is_model = true;
  side.heap = model.physical.heap;
  side.counter = options.counter;
  made.rounds_ = model.physical.caching_allocator && options.counter != "requested";
  for (const std::string& module : model.modules) side.known.push_back(dotted(module));
  for (const model::Tensor& tensor : model.tensors)
    if (model.modules.empty() && tensor.value) side.known.push_back(tensor.id);
  side.tells_of_values = std::any_of(model.tensors.begin(), model.tensors.end(), [](const model::Tensor& tensor) { return tensor.value; });
  made.follow();
  if (Status status = made.add_counters(policy); !status) return status.take_error();
  if (const std::uint64_t outside = model.physical.context + model.physical.communication; outside != 0) side.outside_allocator = outside;
  made.add_items();
  return made;
}

void ModelSide::look_at(const ledger::Place& other) {
  std::uint64_t best[5];
  std::fill(std::begin(best), std::end(best), model::never);
  const auto raise = [&](FoundBy by, std::uint64_t event) {
    std::uint64_t& found = best[static_cast<int>(by)];
    if (found == model::never || steps_[event].bytes > steps_[found].bytes) found = event;
  };
  for (std::uint64_t i = 0; i < steps_.size(); ++i) {
    raise(FoundBy::step, i);
    if (prediction_.memory.events[i].phase != other.phase) continue;
    raise(FoundBy::phase, i);
    const Step& step = steps_[i];
    if (step.op == none) continue;
    const model::Op& op = model_->ops[step.op];
    if (!other.module.empty() && op.module != none && dotted(model_->modules[op.module]) == other.module) raise(FoundBy::module, i);
    if (other.node_number != 0 && step.node_number == other.node_number && op.name == other.node) raise(FoundBy::node, i);
  }
  for (int by = static_cast<int>(FoundBy::node); by > 0; --by) {
    if (best[by] == model::never) continue;
    side.at_other = moment_at(best[by]);
    side.at_other->found_by = static_cast<FoundBy>(by);
    // The simulated allocator gives at least the sum of the blocks, and at most its peak.
    const bool is_of_blocks = side.counter != "reserved" && side.counter != "device";
    if (is_of_blocks && (!rounds_ || side.at_other->block_bytes == side.peak.bytes)) side.at_other->bytes = side.at_other->block_bytes;
    return;
  }
}

void ModelSide::prefer_other() {
  if (!side.at_other || side.at_other->bytes != side.peak.bytes) return;
  peak_event_ = side.at_other->event;
  side.peak = moment_at(peak_event_);
  side.peak.bytes = side.peak.block_bytes;
  side.extras = {};
  side.peak_is_estimate = is_estimate(peak_event_);
  side.peak_has_new_states = has_new_states(peak_event_);
  side.items.clear();
  side.rest_blocks = 0;
  side.rest = {};
  add_items();
}

std::uint64_t ModelSide::step_peak(std::uint64_t index) const {
  std::uint64_t statics = 0, with_backward = 0, with_optimizer = 0;
  for (const model::StaticStorage& storage : model_->statics) {
    if (storage.from_step <= index) statics += block_bytes(storage.bytes);
    if (model::comes_in_step(storage, index))
      (model::phase_of_coming(storage) == Phase::backward ? with_backward : with_optimizer) += block_bytes(storage.bytes);
  }
  return statics +
         std::max({moving_peak_, with_backward + moving_since_backward_, with_backward + with_optimizer + moving_since_optimizer_});
}

}  // namespace liveset::compare
