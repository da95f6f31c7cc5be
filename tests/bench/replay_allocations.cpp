// replay_allocations EVENTS [train|random] [SETTINGS]: puts the synthetic pattern's allocations and frees through the simulated caching
// allocator. Prints one JSON object with the CPU time of the replay, the peak of reserved bytes that came out, and the number of segments.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/support/train_pattern.h"
#include "viewer/allocator/replay.h"

namespace {

namespace allocator = liveset::allocator;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Pattern>
std::vector<allocator::Event> events_of(std::uint64_t count) {
  Pattern pattern;
  std::vector<allocator::Event> events;
  std::unordered_map<std::uint64_t, std::uint64_t> live;  // address -> id
  for (std::uint64_t id = 0; events.size() < count;) {
    const liveset::writer::Event& event = pattern.next();
    if (event.kind == liveset::proto::EVENT_ALLOC) {
      live[event.address] = id;
      events.push_back({id++, event.size, 0, allocator::Action::malloc});
    } else if (const auto found = live.find(event.address); event.kind == liveset::proto::EVENT_FREE_REQUESTED && found != live.end()) {
      events.push_back({found->second, 0, 0, allocator::Action::free});
      live.erase(found);
    }
  }
  return events;
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
  const std::string pattern = argc > 2 ? argv[2] : "train";
  const auto settings = allocator::parse_settings(argc > 3 ? argv[3] : "");
  if (count == 0 || (pattern != "train" && pattern != "random") || !settings) {
    std::fputs("usage: replay_allocations EVENTS [train|random] [SETTINGS]\n", stderr);
    return 2;
  }
  const auto events = pattern == "train" ? events_of<liveset::test::TrainPattern>(count) : events_of<liveset::test::RandomPattern>(count);
  const double start = cpu_seconds();
  allocator::Replay replay(events.size(), *settings);
  for (const allocator::Event& event : events) {
    if (!replay.add(event)) return 1;
  }
  const double seconds = cpu_seconds() - start;
  std::printf("{\"events\": %zu, \"replay_seconds\": %.6f, \"peak_reserved\": %llu, \"segments\": %zu}\n", events.size(), seconds,
              static_cast<unsigned long long>(replay.peaks().reserved.bytes), replay.allocator().segments().size());
  return 0;
}
