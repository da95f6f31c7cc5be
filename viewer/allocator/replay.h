// A list of allocations and frees through the simulated caching allocator: its four counters at every event, their peaks, and what is free
// in which segment at one event.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "viewer/allocator/caching_allocator.h"

namespace liveset::allocator {

enum class Action : std::uint8_t { malloc, free, free_requested, free_completed, empty_cache };

struct Event {
  std::uint64_t id = 0;      // of the allocation: below the number of ids that the replay was made for, and no two live ones have the same
  std::uint64_t size = 0;    // malloc: bytes
  std::uint64_t stream = 0;  // malloc
  Action action = Action::malloc;
};

// After the first event at which the counter was at its highest.
struct Peak {
  static constexpr std::uint64_t no_event = unlimited;
  std::uint64_t bytes = 0, event = no_event;
};
struct Peaks {
  Peak requested, allocated, active, reserved;
};

// What keeps a segment from being given back: a block that lives in it.
struct Pin {
  std::uint64_t id = 0;  // of the allocation
  std::uint64_t address = 0, size = 0, requested = 0;
  bool pending = false;  // freed by the program already
};
struct FragmentedSegment {
  std::uint64_t number = 0, address = 0, size = 0, stream = 0;
  bool small = false, expandable = false;
  std::uint64_t used = 0;                          // bytes of the pins
  std::uint64_t free_bytes = 0, largest_free = 0;  // the largest run without a pin
  std::vector<Pin> pins;                           // by address
};
struct Fragmentation {
  std::uint64_t event = Peak::no_event;  // after which
  Counters counters;
  std::vector<FragmentedSegment> segments;  // by number, then address
};

class Replay {
 public:
  // `ids`: every id is below. Costs 8 bytes an id.
  explicit Replay(std::uint64_t ids, const Settings& settings = {}, const Device& device = {})
      : allocator_(settings, device), handles_(ids) {}

  // The next event. Usage errors: an id that is too large, of a malloc whose id lives; the simulation is exhausted. A free of what does not
  // live changes nothing and is counted: it is what follows a malloc that was out of memory, or of 0 bytes.
  Status add(const Event& event);

  std::uint64_t events() const { return events_; }
  std::uint64_t idle_frees() const { return idle_frees_; }
  const Peaks& peaks() const { return peaks_; }
  const CachingAllocator& allocator() const { return allocator_; }
  const Counters& counters() const { return allocator_.counters(); }
  Fragmentation fragmentation() const;  // after the last event

 private:
  CachingAllocator allocator_;
  std::vector<Handle> handles_;  // by id, of what lives
  Peaks peaks_;
  std::uint64_t events_ = 0, idle_frees_ = 0;
};

struct ReplayResult {
  Counters final;
  Peaks peaks;
  Statistics statistics;
  std::uint64_t idle_frees = 0;
  Fragmentation fragmentation;  // after ReplayOptions::at
};
struct ReplayOptions {
  static constexpr std::uint64_t at_peak = unlimited;  // of reserved
  Settings settings;
  Device device;
  std::uint64_t at = at_peak;                                            // an event; beyond the last one: after the last
  std::function<void(std::uint64_t event, const Counters&)> visit = {};  // after every event
};
// All of a list; ids are below its length. Errors as of Replay::add.
Result<ReplayResult> replay(std::span<const Event> events, const ReplayOptions& options = {});

}  // namespace liveset::allocator
