// Follows a schedule: who lives, who is made again, how many bytes. It decides nothing and refuses what cannot be.
#include "viewer/model/predict.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "viewer/model/file_place.h"

namespace liveset::model {
namespace {

using Do = Instruction::Do;
using ledger::LogicalInput;
using ledger::LogicalKind;
using trace::Phase;

class Executor {
 public:
  Executor(const Model& model, Schedule schedule, const PredictOptions& options)
      : model_(model), schedule_(std::move(schedule)), ledger_(options.ledger), builder_(model.conventions.physical_copy) {
    for (const StaticStorage& storage : model.statics)
      if (storage.from_step <= options.step)
        out_.memory.statics.push_back(storage);
      else if (comes_in_step(storage, options.step))
        coming_.push_back(&storage);
    out_.memory.static_bytes = static_bytes(model, options);
    live_bytes_ = out_.memory.peak_bytes = out_.memory.static_bytes;
    rounded_ = static_cast<std::uint64_t>(std::count_if(out_.memory.statics.begin(), out_.memory.statics.end(),
                                                        [](const StaticStorage& storage) { return storage.rounded; }));
    out_.memory.peak_is_rounded = rounded_ != 0;
    std::fill(std::begin(out_.memory.phase_peak), std::end(out_.memory.phase_peak), 0);
  }

  Result<Prediction> run() {
    const std::uint64_t microbatches = model_.microbatches.count;
    tensors_ = model_.tensors.size() + schedule_.extra.size();
    if (Status status = check_microbatches(model_, tensors_); !status) return status.take_error();
    states_.resize(tensors_ * microbatches);
    const bool made_by_layers = (ledger_ || !schedule_.region_inputs.empty()) && is_made_by_layers();
    // Values that a program names itself (liveset.h), which cannot say what a region holds: recorded, they are activations.
    if (made_by_layers) schedule_.region_inputs.clear();
    for (const Instruction& instruction : schedule_.instructions) {
      follow(instruction);
      if (failed_) return Error{ErrorKind::unreadable, "", {}, one_line("bad model: " + wrong_), ""};
    }
    phase_ = Phase::optimizer;
    if (!coming_.empty()) come(true);
    out_.memory.may_be_higher = most_in_doubt_ > out_.memory.peak_bytes;
    out_.memory.peak_is_estimate = out_.memory.peak_is_estimate || out_.memory.may_be_higher;
    out_.ledger = builder_.finish();
    out_.ledger.has_layers = made_by_layers;
    out_.boundaries = std::move(schedule_.boundaries);
    out_.extra = std::move(schedule_.extra);
    std::move(came_.begin(), came_.end(), std::back_inserter(out_.extra));
    out_.extra_cost = recompute_cost_;
    return std::move(out_);
  }

 private:
  enum class Life : std::uint8_t { unborn, live, dropped, released };
  struct State {
    Life life = Life::unborn;
    bool away = false;                    // offloaded
    std::uint32_t id = ledger::no_index;  // in the ledger
    std::uint32_t block = none;
    std::uint32_t copy = none;  // block of the second making of a kept value
    std::uint32_t made = 0;     // how often
  };

  // Whether each forward op is a layer that makes a value: then the makings that the ledger counts are layers. Ops of a layer are not.
  bool is_made_by_layers() const {
    const auto ops = std::count_if(model_.ops.begin(), model_.ops.end(), [](const Op& op) { return op.in_layers(); });
    if (model_.units.size() != static_cast<std::size_t>(ops)) return false;
    return std::all_of(model_.units.begin(), model_.units.end(), [&](const Unit& unit) {
      const auto writes = model_.list(model_.ops[unit.begin].writes);
      return unit.end == unit.begin + 1 && std::any_of(writes.begin(), writes.end(), [&](std::uint32_t tensor) {
               return model_.tensors[tensor].value && model_.tensors[tensor].layer > 0;
             });
    });
  }

  const Tensor& tensor_of(std::uint32_t tensor) const {
    return tensor < model_.tensors.size() ? model_.tensors[tensor] : schedule_.extra[tensor - model_.tensors.size()];
  }
  State& state_of(std::uint32_t tensor) { return states_[tensor + (model_.is_shared(tensor_of(tensor)) ? 0 : microbatch_ * tensors_)]; }

  bool fail(const std::string& what) {
    if (!failed_) wrong_ = what;
    failed_ = true;
    return false;
  }

  void follow(const Instruction& instruction) {
    microbatch_ = instruction.microbatch;
    phase_ = instruction.phase;
    if (!coming_.empty()) come(false);
    // What is held at the loss is what the forward leaves; where the loss reads what, not every model says.
    if (ledger_ && instruction.what == Do::run && (phase_ == Phase::loss || phase_ == Phase::backward || phase_ == Phase::recompute))
      builder_.mark_loss();
    switch (instruction.what) {
      case Do::run: return run_op(instruction);
      case Do::begin: return make(instruction.subject, {}, none);
      case Do::keep: return say(LogicalKind::keep, instruction.subject);
      case Do::drop: return end(instruction.subject, LogicalKind::drop, Life::dropped);
      case Do::release: return end(instruction.subject, LogicalKind::release, Life::released);
      case Do::forget: return forget(instruction.subject);
      case Do::offload: return move(instruction.subject, true);
      case Do::prefetch: return move(instruction.subject, false);
    }
  }

  // The static storages that come in this step and in this phase.
  void come(bool is_end) {
    if (phase_ != Phase::backward && phase_ != Phase::recompute && phase_ != Phase::optimizer) return;
    const auto stay = std::stable_partition(coming_.begin(), coming_.end(), [&](const StaticStorage* storage) {
      return phase_ != Phase::optimizer && phase_of_coming(*storage) == Phase::optimizer;
    });
    for (auto each = stay; each != coming_.end(); ++each) {
      optimizer_makes_states_ = !is_end && (optimizer_makes_states_ || phase_of_coming(**each) == Phase::optimizer);
      Tensor tensor;
      tensor.id = (*each)->id;
      tensor.bytes = (*each)->bytes;
      tensor.memory_class = (*each)->memory_class;
      tensor.value = false;
      tensor.rounded = (*each)->rounded;
      const auto index = static_cast<std::uint32_t>(tensors_ + came_.size());
      came_.push_back(std::move(tensor));
      out_.memory.blocks[add_block(index, none, came_.back().bytes, came_.back().memory_class, 0)].stays = true;
    }
    coming_.erase(stay, coming_.end());
  }

  // The id of a value in the ledger.
  std::uint32_t id_of(std::uint32_t tensor) {
    State& state = state_of(tensor);
    if (state.id != ledger::no_index) return state.id;
    const Tensor& described = tensor_of(tensor);
    ledger::LogicalValue value;
    value.name = described.id;
    value.bytes = described.bytes;
    value.layer = described.layer;
    value.memory_class = described.memory_class;
    value.counted = model_.conventions.count_inputs || described.layer != 0;
    if (model_.microbatches.count > 1) value.microbatch = microbatch_;
    return state.id = builder_.add_value(std::move(value));
  }

  void say(LogicalKind kind, std::uint32_t tensor, std::span<const std::uint32_t> reads = {}, std::int64_t layer = ledger::no_number) {
    if (!ledger_ || !tensor_of(tensor).value) return;
    read_ids_.clear();
    for (const std::uint32_t read : reads)
      if (tensor_of(read).value) read_ids_.push_back(id_of(read));
    LogicalInput input;
    input.phase = phase_;
    input.kind = kind;
    input.value = id_of(tensor);
    input.reads = read_ids_;
    input.layer = layer;
    builder_.append(input);
  }

  void run_op(const Instruction& instruction) {
    const Op& op = model_.ops[instruction.subject];
    op_ = instruction.subject;
    ran_again_ = ran_again_ || phase_ == Phase::recompute;
    is_doubtful_ = is_doubtful_ || (model_.conventions.regions_doubtful && (!instruction.graph || ran_again_));
    is_estimate_ = model_.conventions.drop_at_region_end && op.phase == Phase::forward && phase_ == Phase::forward && !instruction.graph;
    is_estimate_ = is_estimate_ || (model_.conventions.returns_unknown && ran_again_ && phase_ == Phase::backward);
    // Where forwards of several microbatches come before the first one's backward, one of them may be in doubt while another one runs.
    const bool stays = arguments_in_doubt_ && model_.microbatches.order != Microbatches::Order::one_by_one && phase_ != Phase::optimizer;
    if (phase_ != Phase::recompute && !stays) arguments_in_doubt_ = op_ >= schedule_.doubt_from && op_ <= schedule_.doubt_until;
    is_estimate_ = is_estimate_ || arguments_in_doubt_;
    for (const std::uint32_t read : model_.list(op.reads)) {
      const State& state = state_of(read);
      if (state.life != Life::live || state.away) {
        fail("op '" + op.id + "' reads '" + tensor_of(read).id + "' where it does not live");
        return;
      }
    }
    if (op.phase == Phase::forward) {
      out_.forward_cost += op.cost;
      if (phase_ == Phase::recompute) recompute_cost_ += op.cost;
    }
    const std::uint32_t workspace =
        op.workspace == 0 ? none : add_block(none, instruction.subject, op.workspace, trace::MemoryClass::temporary, 0);
    bool said = false;
    for (const std::uint32_t tensor : model_.list(op.writes)) {
      if (!instruction.graph && tensor_of(tensor).for_backward) continue;
      make(tensor, said ? std::span<const std::uint32_t>() : model_.list(op.reads), instruction.subject);
      said = said || tensor_of(tensor).value;
    }
    if (op.phase == Phase::loss || op.phase == Phase::backward) use(op);
    if (workspace != none) free_block(workspace);
  }

  // The loss and backward read; of a backward op the value it belongs to comes first.
  void use(const Op& op) {
    for (const std::uint32_t read : model_.list(op.reads)) {
      if (!tensor_of(read).value) continue;
      say(LogicalKind::use, read, model_.list(op.reads));
      return;
    }
  }

  void make(std::uint32_t tensor, std::span<const std::uint32_t> reads, std::uint32_t op) {
    const Tensor& described = tensor_of(tensor);
    State& state = state_of(tensor);
    if (state.life == Life::live) {
      if (described.accumulates) return pass_through(described, op);
      // Only a forward op that runs again makes what lives.
      if (phase_ != Phase::recompute || described.once) return;
      say(LogicalKind::merge, tensor, reads);
      if (model_.conventions.physical_copy && state.copy == none)
        state.copy = add_block(tensor, op, described.bytes, described.memory_class, state.made++);
      return;
    }
    say(state.life == Life::unborn || (state.life == Life::released && !described.value) ? LogicalKind::create : LogicalKind::rerun, tensor,
        reads);
    state.life = Life::live;
    state.block = add_block(tensor, op, described.bytes, class_of_making(tensor, described.value && state.made > 0), state.made);
    ++state.made;
  }

  trace::MemoryClass class_of_making(std::uint32_t tensor, bool again) const {
    const trace::MemoryClass stated = tensor_of(tensor).memory_class;
    if (stated != trace::MemoryClass::activation && stated != trace::MemoryClass::temporary) return stated;
    if (again) return stated == trace::MemoryClass::activation ? trace::MemoryClass::recomputed_activation : stated;
    return tensor < schedule_.region_inputs.size() && schedule_.region_inputs[tensor] ? trace::MemoryClass::checkpoint_input : stated;
  }

  // The gradient of a later microbatch is added to the first one's.
  void pass_through(const Tensor& described, std::uint32_t op) {
    free_block(add_block(none, op, described.bytes, trace::MemoryClass::temporary, 0));
  }

  void end(std::uint32_t tensor, LogicalKind kind, Life life) {
    State& state = state_of(tensor);
    if (state.life != Life::live) {
      fail("'" + tensor_of(tensor).id + "' goes where it does not live");
      return;
    }
    say(kind, tensor);
    state.life = life;
    if (!state.away) free_block(state.block);
    if (state.copy != none) free_block(state.copy);
    state.block = state.copy = none;
    state.away = false;
  }

  void forget(std::uint32_t tensor) {
    State& state = state_of(tensor);
    if (state.copy != none) free_block(state.copy);
    state.copy = none;
  }

  // What comes back is what left: the same making of the tensor, in a block of its own.
  void move(std::uint32_t tensor, bool away) {
    State& state = state_of(tensor);
    if (state.life != Life::live || state.away == away) return;
    say(away ? LogicalKind::offload : LogicalKind::prefetch, tensor);
    state.away = away;
    const PredictedBlock left = out_.memory.blocks[state.block];
    (away ? out_.offloaded_bytes : out_.prefetched_bytes) += left.bytes;
    if (away) return free_block(state.block);
    state.block = add_block(tensor, left.op, left.bytes, left.memory_class, left.incarnation);
    out_.memory.blocks[state.block].came_back = true;
  }

  std::uint32_t add_block(std::uint32_t tensor, std::uint32_t op, std::uint64_t bytes, trace::MemoryClass memory_class,
                          std::uint32_t incarnation) {
    MemoryCurve& memory = out_.memory;
    const auto index = static_cast<std::uint32_t>(memory.blocks.size());
    PredictedBlock block;
    block.tensor = tensor;
    block.op = op;
    block.microbatch = microbatch_;
    block.incarnation = incarnation;
    block.memory_class = memory_class;
    block.phase = phase_;
    block.bytes = bytes;
    block.rounded = tensor != none && (tensor < tensors_ ? tensor_of(tensor) : came_[tensor - tensors_]).rounded;
    rounded_ += block.rounded ? 1 : 0;
    block.made = memory.events.size();
    memory.blocks.push_back(block);
    live_bytes_ += bytes;
    add_event(index, true);
    return index;
  }

  void free_block(std::uint32_t index) {
    MemoryCurve& memory = out_.memory;
    memory.blocks[index].freed = memory.events.size();
    live_bytes_ -= memory.blocks[index].bytes;
    rounded_ -= memory.blocks[index].rounded ? 1 : 0;
    add_event(index, false);
  }

  void add_event(std::uint32_t block, bool alloc) {
    MemoryCurve& memory = out_.memory;
    if (live_bytes_ > memory.peak_bytes) memory.peak_event = memory.events.size();
    if (arguments_in_doubt_) most_in_doubt_ = std::max(most_in_doubt_, live_bytes_ + schedule_.doubt_bytes);
    const bool is_uncertain = is_doubtful_ || (phase_ == Phase::optimizer ? optimizer_makes_states_ : is_estimate_);
    const auto raise = [&](std::uint64_t& peak, bool& is_estimate, bool& is_rounded) {
      const auto raise_mark = [&](bool& mark, bool now) { mark = live_bytes_ > peak ? now : mark && (now || live_bytes_ < peak); };
      raise_mark(is_estimate, is_uncertain);
      raise_mark(is_rounded, rounded_ != 0);
      peak = std::max(peak, live_bytes_);
    };
    raise(memory.peak_bytes, memory.peak_is_estimate, memory.peak_is_rounded);
    const auto phase = static_cast<std::size_t>(phase_);
    raise(memory.phase_peak[phase], memory.phase_is_estimate[phase], memory.phase_is_rounded[phase]);
    MemoryEvent event;
    event.block = block;
    event.op = op_;
    event.alloc = alloc;
    event.phase = phase_;
    event.is_estimate = is_uncertain;
    memory.events.push_back(event);
  }

  const Model& model_;
  Schedule schedule_;
  bool ledger_;
  ledger::LogicalBuilder builder_;
  Prediction out_;
  std::size_t tensors_ = 0;
  std::vector<State> states_;
  std::vector<std::uint32_t> read_ids_;
  std::uint64_t live_bytes_ = 0, recompute_cost_ = 0;
  std::uint64_t rounded_ = 0;  // blocks and statics that live
  std::uint32_t microbatch_ = 0, op_ = none;
  bool is_estimate_ = false;
  bool is_doubtful_ = false, arguments_in_doubt_ = false;
  std::uint64_t most_in_doubt_ = 0;           // bytes
  bool ran_again_ = false;                    // some op
  std::vector<const StaticStorage*> coming_;  // in this step, and not there yet
  std::vector<Tensor> came_;
  bool optimizer_makes_states_ = false;
  Phase phase_ = Phase::other;
  bool failed_ = false;
  std::string wrong_;
};

}  // namespace

std::string Prediction::tensor_name(const Model& model, std::uint32_t tensor) const {
  if (tensor == none) return "workspace";
  return tensor < model.tensors.size() ? model.tensors[tensor].id : extra[tensor - model.tensors.size()].id;
}

Phase phase_of_coming(const StaticStorage& storage) {
  switch (storage.memory_class) {
    case trace::MemoryClass::gradient:
    case trace::MemoryClass::library:
    case trace::MemoryClass::temporary: return Phase::backward;
    default: return Phase::optimizer;
  }
}

bool MemoryCurve::order_is_estimate() const {
  return std::any_of(events.begin(), events.end(), [](const MemoryEvent& event) { return event.is_estimate; });
}

std::uint64_t static_bytes(const Model& model, const PredictOptions& options) {
  std::uint64_t bytes = 0;
  for (const StaticStorage& storage : model.statics)
    if (storage.from_step <= options.step) bytes += storage.bytes;
  return bytes;
}

Result<Prediction> execute(const Model& model, Schedule schedule, const PredictOptions& options) {
  return Executor(model, std::move(schedule), options).run();
}

Result<Prediction> predict(const Model& model, const Policy& policy, const PredictOptions& options) {
  Result<Schedule> schedule = make_schedule(model, policy);
  if (!schedule) {
    Error error = schedule.take_error();  // with names of the file's
    error.what = one_line(std::move(error.what));
    error.hint = one_line(std::move(error.hint));
    return error;
  }
  return execute(model, std::move(*schedule), options);
}

}  // namespace liveset::model
