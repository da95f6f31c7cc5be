// Random event streams of every kind, and what a reader must make of them.
#pragma once
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "proto/event_columns.h"
#include "tests/support/trace_events.h"
#include "tests/support/train_pattern.h"
#include "viewer/trace/records.h"

namespace liveset::test {

// A stream of `count` events. Written ones refer to `lists`, so keep this object as long as they are used.
class RandomEvents {
 public:
  struct Expected {
    trace::Event event;  // `reads` points into the list below
    std::vector<std::uint32_t> reads;
  };

  RandomEvents(std::uint64_t seed, std::size_t count) : random_(seed) {
    wide_ = random_.below(4) == 0;
    for (std::size_t i = 0; i < count; ++i) add(make());
  }
  const std::vector<writer::Event>& written() const { return written_; }
  const std::vector<Expected>& expected() const { return expected_; }

 private:
  // Small numbers mostly, sometimes any.
  std::uint64_t number() { return wide_ && random_.below(16) == 0 ? random_.next() >> random_.below(64) : random_.below(300); }
  std::uint32_t id() { return static_cast<std::uint32_t>(number() & 0x7fffffff); }
  std::uint64_t address() { return random_.below(3) == 0 && wide_ ? random_.next() : 0x7f0000000000 + (random_.below(200) << 9); }

  int kind() {
    static const std::vector<int> kinds = [] {
      std::vector<int> all;
      for (int k = 1; k < proto::EventKind_ARRAYSIZE; ++k) {
        if (proto::EventKind_IsValid(k)) all.push_back(k);
      }
      return all;
    }();
    const std::uint64_t choice = random_.below(10);
    if (choice < 4) return proto::EVENT_ALLOC;
    if (choice < 8) return proto::EVENT_FREE_REQUESTED;
    return kinds[random_.below(kinds.size())];
  }

  writer::Event make() {
    writer::Event made;
    made.kind = static_cast<std::uint8_t>(kind());
    made.time_ns = time_ns_ += wide_ && random_.below(50) == 0 ? random_.next() >> 20 : random_.below(2000);
    if (random_.below(20) == 0) made.time_ns -= std::min<std::uint64_t>(made.time_ns, random_.below(5000));
    made.phase = static_cast<std::uint8_t>(random_.below(trace::phase_count));
    made.memory_class = static_cast<std::uint8_t>(random_.below(trace::class_count));
    made.has_totals = random_.below(2) == 0;
    made.thread = id();
    made.scope = id();
    made.heap = static_cast<std::uint32_t>(random_.below(4));
    made.name = id();
    made.text = id();
    made.stack = id();
    made.value = id();
    made.stream = number();
    made.address = address();
    made.size = number();
    made.total = number();
    made.reserved = number();
    made.number = static_cast<std::int64_t>(number()) * (random_.below(2) == 0 ? 1 : -1);
    lists_.emplace_back(random_.below(5));
    for (std::uint32_t& read : lists_.back()) read = id();
    made.reads = lists_.back();
    return made;
  }

  void add(const writer::Event& event) {
    written_.push_back(event);
    if (event.kind == proto::EVENT_ALLOC && live_.contains({event.heap, event.address})) {
      writer::Event implied = event;
      implied.kind = proto::EVENT_FREE_REQUESTED;
      implied.has_totals = false;
      expect(implied);
    }
    expect(event);
  }

  // What the documentation says a reader gets: only the fields that the kind has.
  void expect(const writer::Event& event) {
    Expected& made = expected_.emplace_back();
    trace::Event& read = made.event;
    std::uint8_t kind = event.kind;
    const auto block = std::pair(event.heap, event.address);
    if (kind == proto::EVENT_FREE_REQUESTED || kind == proto::EVENT_FREE_COMPLETED) {
      const auto found = live_.find(block);
      if (found == live_.end()) {
        kind = proto::EVENT_FREE_UNMATCHED;
      } else {
        read.allocation = found->second.first;
        sums_[event.heap] -= found->second.second;
        live_.erase(found);
      }
    }
    if (kind == proto::EVENT_ALLOC) {
      read.allocation = allocations_++;
      live_[block] = {read.allocation, event.size};
      sums_[event.heap] += event.size;
    }
    latest_ns_ = std::max(latest_ns_, event.time_ns);
    read.index = expected_.size() - 1;
    read.time_ns = latest_ns_;
    read.kind = static_cast<trace::Kind>(kind);
    read.phase = static_cast<trace::Phase>(event.phase);
    read.thread = event.thread;
    read.scope = event.scope;
    const auto has = [&](proto::ColumnId id) { return (proto::columns_of(kind | proto::kind_has_totals) & proto::column_bit(id)) != 0; };
    if (has(proto::COLUMN_HEAP)) read.heap = event.heap;
    if (has(proto::COLUMN_STREAM)) read.stream = event.stream;
    if (has(proto::COLUMN_ADDRESS)) read.address = event.address;
    if (has(proto::COLUMN_SIZE)) read.size = event.size;
    if (has(proto::COLUMN_STACK)) read.stack = event.stack;
    if (has(proto::COLUMN_VALUE)) read.value = event.value;
    if (has(proto::COLUMN_NAME)) read.name = event.name;
    if (has(proto::COLUMN_TEXT)) read.text = event.text;
    if (has(proto::COLUMN_NUMBER)) read.number = event.number;
    if (has(proto::COLUMN_CLASS)) read.memory_class = static_cast<trace::MemoryClass>(event.memory_class);
    if (has(proto::COLUMN_READS)) made.reads.assign(event.reads.begin(), event.reads.end());
    read.has_totals = event.has_totals && has(proto::COLUMN_TOTAL);
    if (!read.has_totals) return;
    read.total_error = static_cast<std::int64_t>(event.total - sums_[event.heap]);
    read.reserved_delta = static_cast<std::int64_t>(event.reserved - reserved_[event.heap]);
    reserved_[event.heap] = event.reserved;
  }

  Random random_;
  bool wide_ = false;
  std::uint64_t time_ns_ = 0, latest_ns_ = 0, allocations_ = 0;
  std::deque<std::vector<std::uint32_t>> lists_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::pair<std::uint64_t, std::uint64_t>> live_;  // to ordinal and size
  std::map<std::uint32_t, std::uint64_t> sums_, reserved_;
  std::vector<writer::Event> written_;
  std::vector<Expected> expected_;
};

}  // namespace liveset::test
