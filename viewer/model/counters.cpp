#include "viewer/model/counters.h"

#include "viewer/allocator/replay.h"

namespace liveset::model {
namespace {

// Steps that are replayed: what the first leaves in the cache is what a late step finds.
constexpr int steps = 2;

class Simulation {
 public:
  Simulation(const MemoryCurve& memory, const allocator::Settings& settings)
      : memory_(memory), replay_(memory.statics.size() + memory.blocks.size(), settings) {}

  Status run() {
    for (std::size_t i = 0; i < memory_.statics.size(); ++i)
      if (Status status = malloc(i, memory_.statics[i].bytes); !status) return status;
    for (int step = 0; step < steps; ++step) {
      if (step + 1 == steps) peaks_ = {};
      for (event_ = 0; event_ < memory_.events.size(); ++event_) {
        const MemoryEvent& event = memory_.events[event_];
        const std::size_t id = memory_.statics.size() + event.block;
        if (Status status = event.alloc ? malloc(id, memory_.blocks[event.block].bytes) : free(id); !status) return status;
        raise(event.phase);
      }
      // What outlives the step gives way to the next step's.
      for (std::size_t block = 0; block < memory_.blocks.size(); ++block)
        if (memory_.blocks[block].freed == never)
          if (Status status = free(memory_.statics.size() + block); !status) return status;
    }
    return Done{};
  }

  CounterPeak allocated() const { return peaks_.allocated; }
  CounterPeak active() const { return peaks_.active; }
  CounterPeak reserved() const { return peaks_.reserved; }

 private:
  struct Peaks {
    CounterPeak allocated, active, reserved;
  };
  Status malloc(std::size_t id, std::uint64_t bytes) {
    allocator::Event event;
    event.id = id;
    event.size = bytes;
    return replay_.add(event);
  }
  Status free(std::size_t id) {
    allocator::Event event;
    event.id = id;
    event.action = allocator::Action::free;
    return replay_.add(event);
  }
  void raise(trace::Phase phase) {
    const allocator::Counters& now = replay_.counters();
    raise(peaks_.allocated, now.allocated, phase);
    raise(peaks_.active, now.active, phase);
    raise(peaks_.reserved, now.reserved, phase);
  }
  void raise(CounterPeak& peak, std::uint64_t bytes, trace::Phase phase) const {
    if (bytes > peak.bytes) peak = {bytes, event_, phase};
  }

  const MemoryCurve& memory_;
  allocator::Replay replay_;
  Peaks peaks_;
  std::uint64_t event_ = 0;
};

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

Result<PredictedCounters> predict_counters(const Model& model, const MemoryCurve& memory) {
  PredictedCounters out;
  out.requested.bytes = memory.peak_bytes;
  out.requested.event = memory.peak_event;
  if (memory.peak_event != never) out.requested.phase = memory.events[memory.peak_event].phase;
  out.outside = model.physical.context + model.physical.communication;
  if (!model.physical.caching_allocator) return out;
  Result<allocator::Settings> settings = allocator::parse_settings(model.physical.allocator_settings);
  if (!settings) return settings.take_error();
  Simulation simulation(memory, *settings);
  if (Status status = simulation.run(); !status) return status.take_error();
  out.allocated = simulation.allocated();
  out.active = simulation.active();
  out.reserved = simulation.reserved();
  return out;
}

}  // namespace liveset::model
