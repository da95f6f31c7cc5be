// The physical ledger against a plain one that keeps a map of live blocks, on random streams: equal at every event.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/support/tiny_trace.h"
#include "tests/support/train_pattern.h"
#include "viewer/ledger/attribution.h"
#include "viewer/ledger/block_finder.h"
#include "viewer/ledger/classes.h"

namespace liveset::ledger {
namespace {

using test::Random;
using test::TinyTrace;

struct PlainBlock {
  std::uint64_t ordinal = 0, size = 0, born = 0;
  bool in_step = false;
  std::set<int> stated;
};

// What an allocator's user would write down: nothing clever, everything by address.
struct PlainLedger {
  std::map<std::pair<std::uint32_t, std::uint64_t>, PlainBlock> live;
  std::vector<PlainBlock> dead;
  std::map<std::uint32_t, std::uint64_t> sum, peak, peak_event;
  std::uint64_t ordinals = 0;

  void settle(std::uint64_t event) {
    for (const auto& [heap, bytes] : sum) {
      if (bytes > peak[heap]) {
        peak[heap] = bytes;
        peak_event[heap] = event;
      }
    }
  }
};

// Events at random, told to the writer and to the plain ledger alike.
class RandomJob {
 public:
  RandomJob(std::uint64_t seed, std::uint64_t events, Range range) : random_(seed), range_(range) {
    for (const char* name : {"cpu", "cuda:0", "cpu/arena"}) heaps_.push_back(trace.heap(name));
    trace.source("python");
    for (std::uint64_t i = 0; i < events; ++i) one();
  }

  TinyTrace trace;
  PlainLedger plain;
  std::vector<std::map<std::uint32_t, std::uint64_t>> sums;                      // after every event
  std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>> range_peaks;  // first event with the highest sum in the range

 private:
  void one() {
    const std::uint32_t heap = heaps_[random_.below(heaps_.size())];
    const std::uint64_t choice = random_.below(100);
    std::uint64_t event = 0;
    if (choice < 45) {
      event = allocate(heap);
    } else if (choice < 85) {
      event = release();
    } else if (choice < 96) {
      event = state(heap);
    } else if (choice < 98) {
      in_step_ = true;
      event = trace.step(static_cast<std::int64_t>(random_.below(5)));
    } else {
      event = trace.free(heap, 0x999999999);  // never allocated
    }
    plain.settle(event);
    for (const std::uint32_t id : heaps_) {
      const std::uint64_t now = plain.sum[id];
      if (!range_.contains(event)) continue;
      auto& best = range_peaks.try_emplace(id, now, event).first->second;
      if (now > best.first) best = {now, event};
    }
    sums.push_back(plain.sum);
  }
  std::uint64_t allocate(std::uint32_t heap) {
    const std::uint64_t address = 0x1000 * (1 + random_.below(400));
    if (plain.live.count({heap, address}) != 0) return trace.mark(proto::EVENT_MICROBATCH_BEGIN);
    const std::uint64_t size = random_.below(20) == 0 ? (1ULL << 31) + random_.below(1ULL << 40) : random_.below(0x1001);
    const bool huge = size > 0x1000;  // would overlap its neighbours: give it room of its own
    const std::uint64_t at = huge ? (1ULL << 44) + address * (1ULL << 30) : address;
    if (plain.live.count({heap, at}) != 0) return trace.mark(proto::EVENT_MICROBATCH_BEGIN);
    PlainBlock block;
    block.ordinal = plain.ordinals++;
    block.size = size;
    block.in_step = in_step_;
    plain.live[{heap, at}] = block;
    plain.sum[heap] += size;
    return trace.alloc(heap, at, size);
  }
  std::uint64_t release() {
    if (plain.live.empty()) return trace.mark(proto::EVENT_MICROBATCH_END);
    auto it = plain.live.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(random_.below(plain.live.size())));
    const auto [heap, address] = it->first;
    plain.sum[heap] -= it->second.size;
    plain.dead.push_back(it->second);
    plain.live.erase(it);
    return trace.free(heap, address);
  }
  std::uint64_t state(std::uint32_t heap) {
    const std::uint64_t address = 0x1000 * (1 + random_.below(400)) + random_.below(0x1000);
    const int memory_class = 1 + static_cast<int>(random_.below(15));
    for (auto& [key, block] : plain.live) {
      if (key.first == heap && address >= key.second && address - key.second < std::max<std::uint64_t>(block.size, 1))
        block.stated.insert(memory_class);
    }
    return trace.storage(heap, address, memory_class);
  }

  Random random_;
  Range range_;
  std::vector<std::uint32_t> heaps_;
  bool in_step_ = false;
};

// The job has steps, and neither a backward nor phases: what lives on may be held.
MemoryClass plain_class(const PlainBlock& block, bool dead) {
  for (const MemoryClass memory_class : class_precedence) {
    if (block.stated.count(static_cast<int>(memory_class)) != 0) return memory_class;
  }
  if (!block.in_step) return MemoryClass::input;
  return dead ? MemoryClass::temporary : MemoryClass::unattributed;
}

class RandomStreams : public testing::TestWithParam<int> {};

TEST_P(RandomStreams, GiveThePlainLedger) {
  const auto seed = static_cast<std::uint64_t>(GetParam());
  const std::uint64_t events = 200 + 700 * seed;
  const Range range = seed % 3 == 0 ? Range{} : Range{events / 4, events / 2};
  RandomJob job(seed, events, range);
  const trace::TraceFile file = job.trace.open();
  PhysicalOptions options;
  options.range = range;
  Result<PhysicalLedger> ledger = build_physical(file, options);
  ASSERT_TRUE(ledger) << ledger.error().message();
  const Result<Attribution> found = attribute_blocks(file, *ledger);
  ASSERT_TRUE(found) << found.error().message();

  for (const auto& [heap, peak] : job.range_peaks) {
    EXPECT_EQ(ledger->heaps[heap].allocated.peak, peak.first);
    EXPECT_EQ(ledger->heaps[heap].allocated.peak_event, peak.second);
    EXPECT_EQ(ledger->heaps[heap].allocated.final, job.plain.sum[heap]);
  }
  // The sum and its classes at some hundred moments, of every heap.
  std::vector<std::uint64_t> moments;
  for (std::uint64_t event = 0; event < events; event += 1 + events / 97) moments.push_back(event);
  for (std::uint32_t heap = 1; heap <= 3; ++heap) {
    const auto classes = class_bytes_at(*ledger, heap, moments);
    for (std::size_t i = 0; i < moments.size(); ++i) {
      std::uint64_t from_blocks = 0, from_classes = 0;
      for (const std::uint32_t ordinal : live_blocks(*ledger, heap, moments[i]))
        from_blocks += ledger->blocks.bytes(*ledger->blocks.find(ordinal));
      for (const std::uint64_t bytes : classes[i]) from_classes += bytes;
      ASSERT_EQ(from_blocks, job.sums[moments[i]][heap]) << "event " << moments[i];
      ASSERT_EQ(from_classes, from_blocks) << "event " << moments[i];
    }
  }
  for (const auto& [key, block] : job.plain.live)
    EXPECT_EQ(class_of(*ledger->blocks.find(block.ordinal)), plain_class(block, false)) << block.ordinal;
  for (const PlainBlock& block : job.plain.dead)
    EXPECT_EQ(class_of(*ledger->blocks.find(block.ordinal)), plain_class(block, true)) << block.ordinal;
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomStreams, testing::Range(1, 13));

// Everything that evidence may come from, in any order and nesting, of two threads: what a trace never holds, and what a hostile one may.
class RandomEvidence {
 public:
  RandomEvidence(std::uint64_t seed, std::uint64_t events) : random_(seed) {
    trace.source("python");
    heap_ = trace.heap("cpu");
    for (const char* name : {"MulBackward0", "AddmmBackward0", "AccumulateGrad", "gathered:weight"}) strings_.push_back(trace.string(name));
    for (int i = 0; i < 3; ++i)
      scopes_.push_back(trace.scope(i == 0 ? proto::SCOPE_MODULE : proto::SCOPE_REGION, "scope" + std::to_string(i), i == 2 ? 2U : 0U));
    for (std::uint64_t i = 0; i < events; ++i) {
      one();
      sums.push_back(sum_);
    }
  }

  TinyTrace trace;
  std::vector<std::uint64_t> sums;

 private:
  void one() {
    if (random_.below(4) == 0) trace.thread = static_cast<std::uint32_t>(1 + random_.below(2));
    if (random_.below(5) == 0) trace.phase = static_cast<int>(random_.below(8));
    const std::uint64_t choice = random_.below(100);
    if (choice < 35) {
      const std::uint64_t address = 0x1000 * (1 + random_.below(60));
      if (live_.count(address) != 0) return (void)trace.mark(proto::EVENT_MICROBATCH_BEGIN, 1);
      live_[address] = 1 + random_.below(0x1000);
      sum_ += live_[address];
      trace.alloc(heap_, address, live_[address]);
    } else if (choice < 65 && !live_.empty()) {
      auto it = live_.begin();
      std::advance(it, static_cast<std::ptrdiff_t>(random_.below(live_.size())));
      sum_ -= it->second;
      trace.free(heap_, it->first);
      live_.erase(it);
    } else if (choice < 80) {
      mark();
    } else {
      state();
    }
  }
  void mark() {
    constexpr int kinds[] = {proto::EVENT_STEP_BEGIN,     proto::EVENT_STEP_END,     proto::EVENT_MICROBATCH_BEGIN,
                             proto::EVENT_BACKWARD_BEGIN, proto::EVENT_BACKWARD_END, proto::EVENT_SCOPE_BEGIN,
                             proto::EVENT_SCOPE_END,      proto::EVENT_GRAPH_NODE,   proto::EVENT_NODE_BEGIN,
                             proto::EVENT_NODE_END,       proto::EVENT_NODE_BEGIN,   proto::EVENT_NODE_END,
                             proto::EVENT_OUT_OF_MEMORY};
    writer::Event made = test::event(kinds[random_.below(std::size(kinds))], 0);
    made.heap = made.kind == proto::EVENT_OUT_OF_MEMORY ? heap_ : 0;
    made.name = strings_[random_.below(strings_.size())];
    made.scope = scopes_[random_.below(scopes_.size())];
    made.number = static_cast<std::int64_t>(random_.below(9)) - 1;
    trace.add(made);
  }
  void state() {
    constexpr int kinds[] = {proto::EVENT_VALUE_RETAIN,  proto::EVENT_VALUE_DROP,   proto::EVENT_VALUE_USE,  proto::EVENT_VALUE_REMAKE,
                             proto::EVENT_VALUE_OFFLOAD, proto::EVENT_STORAGE,      proto::EVENT_COLLECTIVE, proto::EVENT_HOLDER,
                             proto::EVENT_SEQUENCE,      proto::EVENT_NODE_RETURNED};
    writer::Event made = test::event(kinds[random_.below(std::size(kinds))], 0);
    made.heap = heap_;
    made.address = random_.below(10) == 0 ? 0 : 0x1000 * (1 + random_.below(60)) + random_.below(0x800);
    made.memory_class = static_cast<std::uint8_t>(random_.below(proto::MemoryClass_ARRAYSIZE));
    made.name = strings_[random_.below(strings_.size())];
    made.scope = scopes_[random_.below(scopes_.size())];
    made.number = static_cast<std::int64_t>(random_.below(1 << 12)) - 1;
    trace.add(made);
  }

  Random random_;
  std::uint32_t heap_ = 0;
  std::vector<std::uint32_t> strings_, scopes_;
  std::map<std::uint64_t, std::uint64_t> live_;
  std::uint64_t sum_ = 0;
};

class EveryEvent : public testing::TestWithParam<int> {};

TEST_P(EveryEvent, HasClassesThatSumToWhatLives) {
  constexpr std::uint64_t events = 6000;
  RandomEvidence job(static_cast<std::uint64_t>(GetParam()), events);
  const trace::TraceFile file = job.trace.open();
  Result<PhysicalLedger> ledger = build_physical(file);
  ASSERT_TRUE(ledger) << ledger.error().message();
  const Result<Attribution> found = attribute_blocks(file, *ledger, {events / 2, {}});
  ASSERT_TRUE(found) << found.error().message();
  std::vector<std::uint64_t> moments(events);
  for (std::uint64_t event = 0; event < events; ++event) moments[event] = event;
  const std::vector<ClassBytes> classes = class_bytes_at(*ledger, ledger->shown_heap, moments);
  for (std::uint64_t event = 0; event < events; ++event) {
    std::uint64_t sum = 0;
    for (const std::uint64_t bytes : classes[event]) sum += bytes;
    ASSERT_EQ(sum, job.sums[event]) << "event " << event;
  }
  // A class has its evidence, and nothing but a class has one that decided.
  ledger->blocks.for_each([&](std::uint32_t ordinal, const Block& block) {
    const bool is_known = class_of(block) != MemoryClass::unattributed;
    EXPECT_TRUE(!is_known || block.evidence() != Evidence::none) << ordinal;
    const bool is_detailed = found->details.count(ordinal) != 0;
    EXPECT_EQ(is_detailed, block.live_after(events / 2)) << ordinal;
  });
}

INSTANTIATE_TEST_SUITE_P(Seeds, EveryEvent, testing::Range(1, 9));

// Across chunk and page boundaries (65,536 events, 65,536 allocations): the training pattern, whose live set a map can
// follow.
TEST(TrainPattern, GivesThePlainPeakOverManyChunks) {
  TinyTrace trace;
  test::TrainPattern::define(trace.writer());
  test::TrainPattern pattern(3);
  std::map<std::uint64_t, std::uint64_t> live;
  std::uint64_t sum = 0, peak = 0, peak_event = 0;
  constexpr std::uint64_t events = 300'000;
  for (std::uint64_t i = 0; i < events; ++i) {
    const writer::Event& event = pattern.next();
    trace.writer().append(event);
    if (event.kind == proto::EVENT_ALLOC) {
      live[event.address] = event.size;
      sum += event.size;
    } else if (event.kind == proto::EVENT_FREE_REQUESTED) {
      sum -= live[event.address];
      live.erase(event.address);
    }
    if (sum > peak) {
      peak = sum;
      peak_event = i;
    }
  }
  const trace::TraceFile file = trace.open();
  ASSERT_GT(file.chunks().size(), 4U);
  const Result<PhysicalLedger> ledger = build_physical(file);
  ASSERT_TRUE(ledger);
  EXPECT_EQ(ledger->shown().allocated.peak, peak);
  EXPECT_EQ(ledger->shown().allocated.peak_event, peak_event);
  EXPECT_EQ(ledger->shown().allocated.final, sum);
  EXPECT_EQ(ledger->shown().live_blocks, live.size());
  EXPECT_EQ(ledger->mismatched_events(), 0U);
}

// The lazy map of addresses against a scan of all blocks.
TEST(BlockFinder, FindsWhatAScanFinds) {
  Random random(11);
  BlockTable blocks;
  struct Known {
    std::uint64_t address, size;
    std::uint32_t birth, death, heap;
  };
  std::vector<Known> known;
  // Deaths are known beforehand, as after the first pass: lay out lifetimes first, never two blocks at one place at one
  // time.
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t> taken_until;
  for (std::uint32_t event = 0; event < 20'000; event += 2) {
    const auto heap = static_cast<std::uint32_t>(1 + random.below(2));
    const std::uint64_t slot = random.below(300);
    if (taken_until[{heap, slot}] > event) continue;
    const std::uint32_t death = random.below(10) == 0 ? Block::none : event + 1 + static_cast<std::uint32_t>(random.below(3000));
    taken_until[{heap, slot}] = death;
    const std::uint64_t size = random.below(0x101);
    Block& block = blocks.add(size);
    block.birth = event;
    block.death = death;
    block.facts = Block::pack(heap, 0, false);
    known.push_back({slot * 0x100, size, event, death, heap});
  }
  BlockFinder finder(blocks);
  std::uint32_t next = 0;
  int hits = 0;
  for (std::uint32_t event = 1; event < 20'000; event += 2) {
    for (; next < known.size() && known[next].birth < event; ++next) finder.born(known[next].heap, known[next].address, next);
    if (random.below(3) != 0) continue;
    const auto heap = static_cast<std::uint32_t>(1 + random.below(2));
    const std::uint64_t address = random.below(300 * 0x100);
    std::int64_t expected = BlockFinder::none;
    for (std::uint32_t i = 0; i < next; ++i) {
      const Known& k = known[i];
      if (k.heap == heap && k.death > event && address >= k.address && address - k.address < std::max<std::uint64_t>(k.size, 1))
        expected = i;
    }
    ASSERT_EQ(finder.find(heap, address, event), expected) << "event " << event;
    hits += expected != BlockFinder::none;
  }
  EXPECT_GT(hits, 100);
}

}  // namespace
}  // namespace liveset::ledger
