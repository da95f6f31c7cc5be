// liveset.hpp: the same as liveset.h for C++, with scopes that end by themselves, values as objects, and an arena that reports
// what it does. One include, nothing to link; every call is an inline test of one pointer when nothing records.
//
//   liveset::Arena arena("cpu/arena");
//   for (int i = 0; i < steps; ++i) {
//     liveset::Step step(i);
//     {
//       liveset::Phase forward(LIVESET_FORWARD);
//       liveset::Module block("block0");
//       void* memory = arena.allocate(bytes);
//       liveset::Value h0("h0", nullptr, 0);
//       h0.create(bytes, arena.heap(), memory, {input});
//       h0.retain();
//     }
//     ...
//   }
//
// Scopes are bound to the thread that makes them and must end there, in reverse order. Names may be freed after the call. When
// making a name costs something (a string is put together), ask liveset::recording() first.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "liveset.h"

namespace liveset {

inline bool recording() { return liveset_recording() != 0; }

// ---- Scopes

// Begins a scope of any kind and ends it at the end of the block. Ends it also when recording began in between or stopped:
// the recorder ignores an end that has no begin.
class Scope {
 public:
  Scope(liveset_scope kind, const char* name, std::int64_t number) : kind_(kind) { liveset_scope_begin(kind, name, number); }
  ~Scope() { liveset_scope_end(kind_); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  liveset_scope kind_;
};

struct Step : Scope {
  explicit Step(std::int64_t index) : Scope(LIVESET_STEP, nullptr, index) {}
};
struct Microbatch : Scope {
  explicit Microbatch(std::int64_t index) : Scope(LIVESET_MICROBATCH, nullptr, index) {}
};
struct Phase : Scope {
  explicit Phase(liveset_phase phase) : Scope(LIVESET_PHASE, nullptr, phase) {}
};
struct Module : Scope {
  explicit Module(const char* name) : Scope(LIVESET_MODULE, name, 0) {}
};
struct Op : Scope {
  explicit Op(const char* name) : Scope(LIVESET_OP, name, 0) {}
};
// A region, for example a chunk that is recomputed. attribute() says something of the innermost scope of the thread, so call it
// while no other scope is open inside.
struct Region : Scope {
  explicit Region(const char* name) : Scope(LIVESET_REGION, name, 0) {}
  void attribute(const char* key, const char* json) const { liveset_attribute(key, json); }
  void attribute(const char* key, std::int64_t number) const {
    if (recording()) liveset_attribute(key, std::to_string(number).c_str());
  }
};

// ---- Values

// A named logical value: what happens to it, in the words of the logical ledger. Copies mean the same value.
class Value {
 public:
  Value() = default;
  // `group` may be null. `layer`: index of the operation that makes it, -1 when there is none.
  explicit Value(const char* name, const char* group = nullptr, std::int64_t layer = -1) : id_(liveset_value_open(name, group, layer)) {}
  explicit Value(const std::string& name, const char* group = nullptr, std::int64_t layer = -1) : Value(name.c_str(), group, layer) {}

  using Reads = std::vector<Value>;
  // First made: its size, its storage (heap 0 and null when not stated), the values that the operation read.
  void create(std::size_t bytes, liveset_heap heap = 0, const void* storage = nullptr, const Reads& reads = {}) const {
    event(LIVESET_CREATE, heap, storage, bytes, reads);
  }
  void retain() const { event(LIVESET_RETAIN); }  // kept for backward
  void drop() const { event(LIVESET_DROP); }      // given up now, made again later
  // The operation of this value runs (backward), and reads these. `layer` -1: the value's own.
  void use(const Reads& reads, std::int64_t layer = -1) const { event(LIVESET_USE, 0, nullptr, 0, reads, layer); }
  // Made again after a drop: the next incarnation.
  void remake(std::size_t bytes, liveset_heap heap = 0, const void* storage = nullptr, const Reads& reads = {}) const {
    event(LIVESET_REMAKE, heap, storage, bytes, reads);
  }
  // Made again although still kept: counted once.
  void merge(std::size_t bytes, liveset_heap heap = 0, const void* storage = nullptr, const Reads& reads = {}) const {
    event(LIVESET_MERGE, heap, storage, bytes, reads);
  }
  void release() const { event(LIVESET_RELEASE); }  // needed no more
  void alias(Value of) const { event(LIVESET_ALIAS, 0, nullptr, 0, {of}); }
  void offload() const { event(LIVESET_OFFLOAD); }
  void prefetch() const { event(LIVESET_PREFETCH); }

  liveset_value id() const { return id_; }

 private:
  void event(int kind, liveset_heap heap = 0, const void* storage = nullptr, std::size_t bytes = 0, const Reads& reads = {},
             std::int64_t number = -1) const {
    static_assert(sizeof(Value) == sizeof(liveset_value));
    if (id_ == 0) return;
    liveset_value_event(kind, id_, heap, storage, bytes, reads.empty() ? nullptr : &reads.front().id_,
                        static_cast<std::uint32_t>(reads.size()), number);
  }

  liveset_value id_ = 0;
};

// ---- Memory

// Reports what an allocator of your own does. Thread-safe, as the allocator is.
class Heap {
 public:
  // `name` as people shall read it: "cpu/arena", "cuda:0/pool".
  explicit Heap(const char* name, liveset_device device = LIVESET_CPU, int device_index = 0)
      : id_(liveset_heap_open(name, device, device_index)) {}
  // After the allocation. `stream`: the CUDA stream handle, 0 for none.
  void allocated(const void* address, std::size_t bytes, std::uint64_t stream = 0) const { liveset_alloc(id_, address, bytes, stream); }
  // Before the block is freed.
  void freeing(const void* address) const { liveset_free(id_, address); }
  void segment_allocated(const void* address, std::size_t bytes) const { liveset_segment_alloc(id_, address, bytes); }
  void segment_freeing(const void* address, std::size_t bytes) const { liveset_segment_free(id_, address, bytes); }
  liveset_heap id() const { return id_; }

 private:
  liveset_heap id_;
};

// A small instrumented arena: segments from operator new, blocks of multiples of 64 bytes cut from them, freed blocks kept for the
// same size. Each block and segment is reported; sizes are reported as they were asked for. Gives its segments back at its end;
// blocks that are then still out are reported as freed. Thread-safe.
class Arena {
 public:
  explicit Arena(const char* name, std::size_t segment_bytes = std::size_t{1} << 20) : heap_(name), segment_bytes_(segment_bytes) {}
  ~Arena() {
    for (const auto& block : live_) heap_.freeing(block.first);
    for (const auto& segment : segments_) heap_.segment_freeing(segment.memory.get(), segment.bytes);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void* allocate(std::size_t bytes) {
    const std::lock_guard<std::mutex> guard(mutex_);
    const std::size_t rounded = round(bytes);
    auto& kept = free_[rounded];
    char* address = nullptr;
    if (!kept.empty()) {
      address = kept.back();
      kept.pop_back();
    } else {
      address = cut(rounded);
    }
    live_.emplace(address, bytes);
    heap_.allocated(address, bytes);
    return address;
  }
  // `address` from allocate(), or null.
  void deallocate(void* address) {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto block = live_.find(static_cast<char*>(address));
    if (block == live_.end()) return;
    heap_.freeing(address);
    free_[round(block->second)].push_back(block->first);
    live_.erase(block);
  }
  liveset_heap heap() const { return heap_.id(); }

 private:
  struct Segment {
    std::unique_ptr<char[]> memory;
    std::size_t bytes, used;
  };
  static std::size_t round(std::size_t bytes) { return bytes == 0 ? 64 : (bytes + 63) / 64 * 64; }
  char* cut(std::size_t bytes) {
    if (segments_.empty() || segments_.back().bytes - segments_.back().used < bytes) {
      const std::size_t size = bytes > segment_bytes_ ? bytes : segment_bytes_;
      segments_.push_back({std::unique_ptr<char[]>(new char[size]), size, 0});
      heap_.segment_allocated(segments_.back().memory.get(), size);
    }
    Segment& segment = segments_.back();
    char* address = segment.memory.get() + segment.used;
    segment.used += bytes;
    return address;
  }

  Heap heap_;
  std::size_t segment_bytes_;
  std::mutex mutex_;
  std::vector<Segment> segments_;
  std::map<std::size_t, std::vector<char*>> free_;
  std::unordered_map<char*, std::size_t> live_;
};

}  // namespace liveset
