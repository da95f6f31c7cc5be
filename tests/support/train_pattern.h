// Synthetic event streams of a known shape, the same on every machine: what benchmarks and large tests feed on.
//
// train: 48 layers of 24 operations under an exact-size caching allocator, 8 sequence lengths that change from step to
// step. Each operation allocates its output; about 55 % of them are kept for backward, the others die 1-6 operations
// later. Backward walks the operations in reverse, allocates a gradient that dies 1-6 operations later, and frees what
// was kept. As in a real model, what happens to an operation's output is the same in every layer and step; what is
// random is the sequence length of a step and the time. Gaps are 1.5-20 us: a part that belongs to the operation, and
// 11 random bits. At most some 640 blocks are live. random: the worst case. 100,000 live blocks of 1,024 kinds are
// replaced at random, gaps are 60-190 ns.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profiler/writer/trace_writer.h"
#include "proto/trace.pb.h"

namespace liveset::test {

// splitmix64: small, and its numbers are the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t limit) { return next() % limit; }

 private:
  std::uint64_t state_;
};

class TrainPattern {
 public:
  static constexpr int layers = 48, operations = 24, sequence_lengths = 8;
  static constexpr std::uint32_t heap = 1, thread = 1, scopes = 1 + layers * (operations + 1);

  explicit TrainPattern(std::uint64_t seed = 1) : random_(seed) {
    Random shape(42);
    for (Operation& operation : operations_) {
      operation.bytes_per_token = 512 << shape.below(6);
      operation.kept = shape.below(100) < 55;
      for (std::uint64_t& lifetime : operation.lifetime) lifetime = 1 + shape.below(6);
      for (std::uint64_t& gap : operation.gap_ns) gap = 1500 + shape.below(16'400);
    }
  }

  // Names everything that the events refer to.
  static void define(writer::TraceWriter& writer) {
    writer.define_source(1, "synthetic", "1", "every block of the pattern", "nothing");
    writer.define_string(1, "cuda:0");
    writer.define_heap(heap, 1, proto::CUDA, 0, 1);
    writer.define_thread(thread, 1, "train");
    writer.define_string(2, "GPT");
    writer.define_scope(1, 0, proto::SCOPE_MODULE, 2);
    std::uint32_t string = 3, scope = 2;
    for (int layer = 0; layer < layers; ++layer) {
      writer.define_string(string, "h." + std::to_string(layer));
      const std::uint32_t parent = scope;
      writer.define_scope(scope++, 1, proto::SCOPE_MODULE, string++);
      for (int operation = 0; operation < operations; ++operation) {
        writer.define_string(string, "op" + std::to_string(operation));
        writer.define_scope(scope++, parent, proto::SCOPE_OP, string++);
      }
    }
  }

  // The next event; there is always one more.
  const writer::Event& next() {
    if (position_ == step_.size()) make_step();
    return step_[position_++];
  }

 private:
  struct Operation {
    std::uint64_t bytes_per_token = 0;
    bool kept = false;
    std::array<std::uint64_t, 2> lifetime{}, gap_ns{};  // forward, backward
  };
  struct Block {
    std::uint64_t address = 0, size = 0;
  };

  static std::uint32_t scope_of(int layer, int operation) {
    return static_cast<std::uint32_t>(2 + layer * (operations + 1) + 1 + operation);
  }

  void make_step() {
    step_.clear();
    position_ = 0;
    scope_ = 0;
    phase_ = proto::PHASE_FORWARD;
    writer::Event& begin = add(proto::EVENT_STEP_BEGIN, 1500);
    begin.number = steps_++;
    const std::uint64_t tokens = 512 * (1 + random_.below(sequence_lengths));
    std::vector<Block> kept;
    for (int layer = 0; layer < layers; ++layer) {
      for (int index = 0; index < operations; ++index) forward(layer, index, tokens, kept);
    }
    phase_ = proto::PHASE_BACKWARD;
    for (int layer = layers - 1; layer >= 0; --layer) {
      for (int index = operations - 1; index >= 0; --index) backward(layer, index, tokens, kept);
    }
    for (std::uint64_t i = 0; i < lifetimes; ++i) let_die(gap());
  }

  void forward(int layer, int index, std::uint64_t tokens, std::vector<Block>& kept) {
    const Operation& operation = operations_[static_cast<std::size_t>(index)];
    scope_ = scope_of(layer, index);
    const Block block = allocate(operation.bytes_per_token * tokens, operation.gap_ns[0] + gap());
    if (operation.kept)
      kept.push_back(block);
    else
      dies_after(block, operation.lifetime[0]);
    let_die(operation.gap_ns[0] / 2 + gap());
  }

  void backward(int layer, int index, std::uint64_t tokens, std::vector<Block>& kept) {
    const Operation& operation = operations_[static_cast<std::size_t>(index)];
    scope_ = scope_of(layer, index);
    dies_after(allocate(operation.bytes_per_token * tokens, operation.gap_ns[1] + gap()), operation.lifetime[1]);
    if (operation.kept) {
      release(kept.back(), operation.gap_ns[1] / 2 + gap());
      kept.pop_back();
    }
    let_die(operation.gap_ns[1] / 2 + gap());
  }

  std::uint64_t gap() { return random_.next() & 2047; }

  writer::Event& add(int kind, std::uint64_t gap_ns) {
    writer::Event& made = step_.emplace_back();
    made.kind = static_cast<std::uint8_t>(kind);
    made.time_ns = time_ns_ += std::max<std::uint64_t>(1500, gap_ns);
    made.thread = thread;
    made.phase = static_cast<std::uint8_t>(phase_);
    made.scope = scope_;
    return made;
  }
  void add_block(int kind, const Block& block, std::uint64_t gap_ns) {
    writer::Event& made = add(kind, gap_ns);
    made.heap = heap;
    made.address = block.address;
    made.size = block.size;
    made.has_totals = true;
    made.total = live_bytes_;
    made.reserved = top_ - bottom;
  }

  // Exact-size cache: the block of this size that was freed last, else a new one.
  Block allocate(std::uint64_t size, std::uint64_t gap_ns) {
    std::vector<std::uint64_t>& cached = cache_[size];
    Block block{top_, size};
    if (cached.empty()) {
      top_ += size;
    } else {
      block.address = cached.back();
      cached.pop_back();
    }
    live_bytes_ += size;
    add_block(proto::EVENT_ALLOC, block, gap_ns);
    return block;
  }
  void release(const Block& block, std::uint64_t gap_ns) {
    cache_[block.size].push_back(block.address);
    live_bytes_ -= block.size;
    add_block(proto::EVENT_FREE_REQUESTED, block, gap_ns);
  }
  void dies_after(const Block& block, std::uint64_t operations_later) { dying_[(clock_ + operations_later) % lifetimes].push_back(block); }
  void let_die(std::uint64_t gap_ns) {
    std::vector<Block>& due = dying_[++clock_ % lifetimes];
    for (const Block& block : due) release(block, gap_ns);
    due.clear();
  }

  static constexpr std::uint64_t bottom = 0x7f0000000000;
  static constexpr std::uint64_t lifetimes = 8;

  Random random_;
  std::array<Operation, operations> operations_;
  std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> cache_;
  std::array<std::vector<Block>, lifetimes> dying_;
  std::uint64_t clock_ = 0, top_ = bottom, live_bytes_ = 0, time_ns_ = 0;
  std::int64_t steps_ = 0;
  std::uint32_t scope_ = 0;
  int phase_ = proto::PHASE_OTHER;
  std::vector<writer::Event> step_;
  std::size_t position_ = 0;
};

class RandomPattern {
 public:
  static constexpr std::size_t live_blocks = 100'000;

  explicit RandomPattern(std::uint64_t seed = 1) : random_(seed) {
    for (std::uint64_t& size : sizes_) size = 512 * (1 + random_.below(4096));
    // Addresses are handed out in a random order, as a general-purpose allocator's look.
    for (std::size_t i = 0; i < 2 * live_blocks; ++i) free_.push_back(0x7f0000000000 + (i << 21));
  }
  static void define(writer::TraceWriter& writer) { TrainPattern::define(writer); }

  const writer::Event& next() {
    event_ = {};
    event_.thread = 1;
    event_.heap = 1;
    event_.time_ns = time_ns_ += 60 + random_.below(130);
    if (full_ && !allocate_next_) {
      allocate_next_ = true;
      slot_ = random_.below(live_blocks);
      event_.kind = proto::EVENT_FREE_REQUESTED;
      event_.address = live_[slot_];
      free_.push_back(live_[slot_]);
      std::swap(free_.back(), free_[random_.below(free_.size())]);
      return event_;
    }
    allocate_next_ = false;
    const std::size_t kind = random_.below(sizes_.size());
    event_.kind = proto::EVENT_ALLOC;
    event_.size = sizes_[kind];
    event_.scope = static_cast<std::uint32_t>(1 + kind);
    event_.address = free_.back();
    free_.pop_back();
    if (full_)
      live_[slot_] = event_.address;
    else
      live_.push_back(event_.address);
    full_ = live_.size() == live_blocks;
    return event_;
  }

 private:
  Random random_;
  std::array<std::uint64_t, 1024> sizes_{};
  std::vector<std::uint64_t> live_, free_;
  std::size_t slot_ = 0;
  bool full_ = false, allocate_next_ = false;
  std::uint64_t time_ns_ = 0;
  writer::Event event_;
};

}  // namespace liveset::test
