#include "viewer/model/counters.h"

#include <algorithm>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "viewer/allocator/caching_allocator.h"

namespace liveset::model {
namespace {

using allocator::Handle;

// Follows steps through one allocator. Blocks that outlive a step are known by their number in the trace: the next one finds them where
// they were.
class Simulation {
 public:
  explicit Simulation(const allocator::Settings& settings) : allocator_(settings) {}

  // As recorded. What the policy has let go of already is gone.
  void move(std::span<const BlockMove> moves) {
    for (const BlockMove& each : moves) {
      if (each.alloc)
        malloc(each.block, each.bytes);
      else
        free(each.block);
    }
  }

  // `memory` is what `model` predicts.
  void step(const Model& model, const MemoryCurve& memory) {
    begin(model, memory);
    peaks_ = {};
    event_ = never;
    if (memory.events.empty()) raise(trace::Phase::other);  // else the first event, an allocation, is no lower
    std::vector<Handle> handles(memory.blocks.size());
    for (event_ = 0; event_ < memory.events.size(); ++event_) {
      const MemoryEvent& event = memory.events[event_];
      const PredictedBlock& block = memory.blocks[event.block];
      Handle& handle = handles[event.block];
      if (!event.alloc)
        allocator_.free(handle);
      else if (const auto found = found_.find(first_block(model, block)); found != found_.end())
        handle = take(found);
      else
        handle = allocator_.malloc(block.bytes).handle;
      raise(event.phase);
    }
    end(model, memory, handles);
  }

  CounterPeak allocated() const { return peaks_.allocated; }
  CounterPeak active() const { return peaks_.active; }
  CounterPeak reserved() const { return peaks_.reserved; }
  bool exhausted() const { return allocator_.exhausted(); }

 private:
  using Blocks = std::unordered_map<std::uint32_t, Handle>;  // by number in the trace
  struct Peaks {
    CounterPeak allocated, active, reserved;
  };

  void malloc(std::uint32_t block, std::uint64_t bytes) {
    if (const auto [at, is_new] = live_.try_emplace(block); is_new) at->second = allocator_.malloc(bytes).handle;
  }
  void free(std::uint32_t block) {
    const auto found = live_.find(block);
    if (found == live_.end()) return;
    allocator_.free(found->second);
    live_.erase(found);
  }
  Handle take(Blocks::iterator found) {
    const Handle handle = found->second;
    found_.erase(found);
    return handle;
  }

  static std::uint32_t block_of(const Model& model, const PredictedBlock& block) {
    return block.tensor < model.tensors.size() ? model.tensors[block.tensor].block : none;
  }
  // A tensor that is given to the step has its block from before.
  static std::uint32_t first_block(const Model& model, const PredictedBlock& block) {
    return block.op == none && block.incarnation == 0 ? block_of(model, block) : none;
  }

  // What the step finds lives, and nothing else.
  void begin(const Model& model, const MemoryCurve& memory) {
    std::unordered_set<std::uint32_t> wanted;
    for (const StaticStorage& storage : memory.statics) wanted.insert(storage.block);
    for (const std::uint32_t tensor : model.inputs) wanted.insert(model.tensors[tensor].block);
    std::vector<std::pair<std::uint32_t, Handle>> rest;
    for (const auto& [block, handle] : live_)
      if (wanted.count(block) == 0) rest.emplace_back(block, handle);
    std::sort(rest.begin(), rest.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [block, handle] : rest) free(block);
    for (const StaticStorage& storage : memory.statics) {
      if (storage.block != none)
        malloc(storage.block, storage.bytes);
      else if (!has_statics_)
        allocator_.malloc(storage.bytes);
    }
    has_statics_ = true;
    found_.clear();
    for (const std::uint32_t tensor : model.inputs)
      if (const auto found = live_.find(model.tensors[tensor].block); found != live_.end()) {
        found_.insert(*found);
        live_.erase(found);
      }
  }

  // What outlives the step gives way to the next step's, unless the job goes on with it.
  void end(const Model& model, const MemoryCurve& memory, const std::vector<Handle>& handles) {
    for (std::size_t index = 0; index < memory.blocks.size(); ++index) {
      if (memory.blocks[index].freed != never) continue;
      const std::uint32_t block = block_of(model, memory.blocks[index]);
      if (block == none || !live_.try_emplace(block, handles[index]).second) allocator_.free(handles[index]);
    }
    for (const auto& [block, handle] : found_) live_.emplace(block, handle);
  }

  void raise(trace::Phase phase) {
    const allocator::Counters& now = allocator_.counters();
    raise(peaks_.allocated, now.allocated, phase);
    raise(peaks_.active, now.active, phase);
    raise(peaks_.reserved, now.reserved, phase);
  }
  void raise(CounterPeak& peak, std::uint64_t bytes, trace::Phase phase) const {
    if (bytes > peak.bytes) peak = {bytes, event_, phase};
  }

  allocator::CachingAllocator allocator_;
  Blocks live_, found_;  // outside of a step; given to the step that runs, and not yet begun
  bool has_statics_ = false;
  Peaks peaks_;
  std::uint64_t event_ = 0;
};

// Whether every earlier step ran under the policy.
Result<bool> follow_past(const Model& model, const Policy& policy, Simulation& simulation) {
  bool all = true;
  for (const PastPart& part : *model.past) {
    simulation.move(part.moves);
    if (!part.step) continue;
    Result<Prediction> earlier = predict(*part.step, policy);
    // A first step may lack what the policy names.
    if (!earlier) {
      all = false;
      earlier = predict(*part.step, *parse_policy("save-all"));
    }
    if (!earlier) return earlier.take_error();
    simulation.step(*part.step, earlier->memory);
  }
  return all;
}

}  // namespace

std::string_view counter_name(CounterKind kind) {
  constexpr std::array<std::string_view, counter_kinds.size()> names{"requested", "allocated", "active", "reserved"};
  return names[static_cast<std::size_t>(kind)];
}

const CounterPeak* PredictedCounters::of(CounterKind kind) const {
  const auto address = [](const std::optional<CounterPeak>& peak) { return peak ? &*peak : nullptr; };
  switch (kind) {
    case CounterKind::requested: return &requested;
    case CounterKind::allocated: return address(allocated);
    case CounterKind::active: return address(active);
    case CounterKind::reserved: return address(reserved);
  }
  return nullptr;
}

Result<PredictedCounters> predict_counters(const Model& model, const Policy& policy, const MemoryCurve& memory) {
  PredictedCounters out;
  out.requested.bytes = memory.peak_bytes;
  out.requested.event = memory.peak_event;
  if (memory.peak_event != never) out.requested.phase = memory.events[memory.peak_event].phase;
  out.outside = model.physical.context + model.physical.communication;
  if (!model.physical.caching_allocator) return out;
  Result<allocator::Settings> settings = allocator::parse_settings(model.physical.allocator_settings);
  if (!settings) return settings.take_error();
  Simulation simulation(*settings);
  const std::span<const std::uint64_t> divisions(settings->roundup_power2_divisions);
  if (model.past == nullptr) {
    simulation.step(model, memory);
    // Only a recorded step has listed frees and does not know what reads what.
    if (model.conventions.frees_are_listed && model.conventions.drop_at_region_end) out.cache_estimate = no_past_estimate;
  } else {
    Result<bool> all = follow_past(model, policy, simulation);
    if (!all) return all.take_error();
    if (!*all) out.cache_estimate = past_estimate;
  }
  if (std::any_of(divisions.begin(), divisions.end(), [](std::uint64_t each) { return each > 1; }) &&
      std::any_of(model.tensors.begin(), model.tensors.end(), [](const Tensor& tensor) { return tensor.rounded; }))
    out.cache_estimate = rounding_estimate;
  simulation.step(model, memory);
  if (simulation.exhausted())
    return Error{ErrorKind::usage, "", {}, "allocator: the layout is too fragmented to be followed", "give --counter requested"};
  out.allocated = simulation.allocated();
  out.active = simulation.active();
  out.reserved = simulation.reserved();
  return out;
}

}  // namespace liveset::model
