// What lives in each heap, while events pass: resolves a free's address to its allocation, and keeps the running sums.
#pragma once
#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <vector>

#include "proto/trace.pb.h"

namespace liveset::writer {

struct LiveBlock {
  std::uint64_t ordinal = 0;  // which allocation of the trace it was
  std::uint64_t size = 0;
};

class LiveHeap {
 public:
  // Null when no block is live there.
  const LiveBlock* find(std::uint64_t address) const {
    const auto found = blocks_.find(address);
    return found == blocks_.end() ? nullptr : &found->second;
  }
  // False, and nothing changes, when a block is live there already.
  bool allocate(std::uint64_t address, LiveBlock block, std::uint64_t event) {
    if (!blocks_.try_emplace(address, block).second) return false;
    seen_ = true;
    live_bytes_ += block.size;
    if (live_bytes_ > peak_bytes_) {
      peak_bytes_ = live_bytes_;
      peak_event_ = event;
    }
    return true;
  }
  // `completes_later`: FREE_COMPLETED will ask for the block once more.
  bool free(std::uint64_t address, bool completes_later, LiveBlock& block) {
    const auto found = blocks_.find(address);
    if (found == blocks_.end()) return false;
    block = found->second;
    live_bytes_ -= block.size;
    if (completes_later) incomplete_[address] = block;
    blocks_.erase(found);
    return true;
  }
  bool complete(std::uint64_t address, LiveBlock& block) {
    const auto found = incomplete_.find(address);
    if (found == incomplete_.end()) return free(address, false, block);
    block = found->second;
    incomplete_.erase(found);
    return true;
  }

  // The allocator's own counters after an event. What the TOTAL and RESERVED columns hold of them is in the results.
  struct Reported {
    std::int64_t total_error = 0;
    std::int64_t reserved_delta = 0;
    bool mismatch = false;  // the error is not the one that the heap began with
  };
  Reported report(std::uint64_t total, std::uint64_t reserved);

  bool seen() const { return seen_; }
  void touch() { seen_ = true; }
  void describe(std::uint32_t heap, proto::HeapTotal& total) const;

 private:
  absl::flat_hash_map<std::uint64_t, LiveBlock> blocks_, incomplete_;
  std::uint64_t live_bytes_ = 0, peak_bytes_ = 0, peak_event_ = 0;
  std::uint64_t total_ = 0, reserved_ = 0;
  std::int64_t baseline_ = 0;
  bool seen_ = false, reported_ = false;
};

}  // namespace liveset::writer
