// A program that allocates like a training job: the train pattern (tests/support/train_pattern.h) replayed through malloc, at
// sizes / 4096, from 1,024 different call stacks of a dozen frames. scripts/bench runs it bare, under liveset and under
// heaptrack; it prints the nanoseconds an event took (on the wall, and of the processor: what others took from it is not in there), and a
// checksum so that nothing can be left out.
//
//   workload --events N [--burst B --pause-us P] [--cpu K]
//
// Built twice: workload reports each block through liveset.h, workload_bare does not contain those calls.
//
// Bursts: a recorder's ring takes what a burst brings and is drained in the pauses, which are not timed; so the figure is the
// hook's own cost. Without bursts the program goes on at full speed, some hundred times faster than a training job, and the figure
// is that of the slowest stage of the pipeline.
#include <sched.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "hooks/api/liveset.h"
#include "tests/support/train_pattern.h"

namespace {

#ifdef LIVESET_BENCH_BARE
constexpr bool reports = false;
#else
constexpr bool reports = true;
#endif

// One malloc (size > 0) or free of the block in `slot`.
struct Operation {
  std::uint32_t size;
  std::uint16_t slot;
  std::uint16_t site;  // which call stack
};

struct Options {
  std::uint64_t events = 1'000'000;
  std::uint64_t burst = 0;
  long pause_us = 0;
  int cpu = -1;
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const long long number = std::atoll(argv[i + 1]);
    if (std::strcmp(argv[i], "--events") == 0) {
      options.events = static_cast<std::uint64_t>(number);
    } else if (std::strcmp(argv[i], "--burst") == 0) {
      options.burst = static_cast<std::uint64_t>(number);
    } else if (std::strcmp(argv[i], "--pause-us") == 0) {
      options.pause_us = number;
    } else if (std::strcmp(argv[i], "--cpu") == 0) {
      options.cpu = static_cast<int>(number);
    } else {
      return false;
    }
  }
  return argc % 2 == 1;
}

void stay_on(int cpu) {
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  sched_setaffinity(0, sizeof set, &set);
}

std::uint64_t now_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

// Ten frames, two functions a level: the bits of `site` choose one of 1,024 call stacks.
template <int Level, bool Right>
[[gnu::noinline]] void* allocate_from(std::uint16_t site, std::size_t size) {
  void* block = nullptr;
  if constexpr (Level == 0) {
    block = std::malloc(size);
  } else if ((site & (1U << (Level - 1))) != 0) {
    block = allocate_from<Level - 1, true>(site, size);
  } else {
    block = allocate_from<Level - 1, false>(site, size);
  }
  asm volatile("" : "+r"(block));  // no tail call: the frame stays
  return block;
}

std::uint64_t run(const Operation* operations, std::uint64_t count, std::vector<void*>& blocks, liveset_heap heap) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const Operation operation = operations[i];
    void*& block = blocks[operation.slot];
    if (operation.size != 0) {
      block = allocate_from<10, false>(operation.site, operation.size);
      *static_cast<volatile char*>(block) = 1;
      if constexpr (reports) liveset_alloc(heap, block, operation.size, 0);
      sum += operation.size;
    } else {
      if constexpr (reports) liveset_free(heap, block);
      std::free(block);
      block = nullptr;
    }
  }
  return sum;
}

// The pattern's blocks, by address: the same address is the same slot. Its operations decide the call stacks.
std::vector<Operation> make_operations(std::uint64_t events, std::size_t& slots) {
  namespace proto = liveset::proto;
  std::vector<Operation> operations;
  operations.reserve(events);
  std::unordered_map<std::uint64_t, std::uint16_t> slot_of;
  liveset::test::TrainPattern pattern;
  while (operations.size() < events) {
    const auto& event = pattern.next();
    if (event.kind != proto::EVENT_ALLOC && event.kind != proto::EVENT_FREE_REQUESTED) continue;
    const auto slot = slot_of.try_emplace(event.address, static_cast<std::uint16_t>(slot_of.size())).first->second;
    if (slot_of.size() > 0xffff) std::abort();
    const auto size = event.kind == proto::EVENT_ALLOC ? static_cast<std::uint32_t>(event.size / 4096) : 0;
    operations.push_back({size, slot, static_cast<std::uint16_t>(event.scope * 2'654'435'761U >> 22)});
  }
  slots = slot_of.size();
  return operations;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: %s --events N [--burst B --pause-us P] [--cpu K]\n", argv[0]);
    return 2;
  }
  stay_on(options.cpu);
  std::size_t slots = 0;
  const std::vector<Operation> operations = make_operations(options.events, slots);
  std::vector<void*> blocks(slots);
  const liveset_heap heap = reports ? liveset_heap_open("cpu/workload", LIVESET_CPU, 0) : 0;

  const std::uint64_t burst = options.burst != 0 ? options.burst : operations.size();
  std::uint64_t spent = 0, spent_cpu = 0, sum = 0;
  for (std::uint64_t from = 0; from < operations.size(); from += burst) {
    const std::uint64_t count = operations.size() - from < burst ? operations.size() - from : burst;
    const std::uint64_t start = now_ns(CLOCK_MONOTONIC), start_cpu = now_ns(CLOCK_THREAD_CPUTIME_ID);
    sum += run(operations.data() + from, count, blocks, heap);
    spent_cpu += now_ns(CLOCK_THREAD_CPUTIME_ID) - start_cpu;
    spent += now_ns(CLOCK_MONOTONIC) - start;
    if (options.pause_us > 0) {
      const timespec pause{options.pause_us / 1'000'000, options.pause_us % 1'000'000 * 1000};
      nanosleep(&pause, nullptr);
    }
  }
  const auto events = static_cast<double>(operations.size());
  std::printf("{\"events\": %zu, \"ns_per_event\": %.3f, \"cpu_ns_per_event\": %.3f, \"checksum\": %llu, \"recording\": %d}\n",
              operations.size(), static_cast<double>(spent) / events, static_cast<double>(spent_cpu) / events,
              static_cast<unsigned long long>(sum), reports ? liveset_recording() : 0);
  return 0;
}
