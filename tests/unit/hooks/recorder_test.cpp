// Recorder and collector in one process, so that the thread sanitizer sees both ends. One recording a program: each case is run
// by itself.
#include "hooks/core/recorder.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "hooks/core/process.h"
#include "hooks/core/stacks.h"
#include "hooks/core/thread.h"
#include "profiler/collect/collector.h"
#include "profiler/collect/wire.h"
#include "proto/trace.pb.h"
#include "tests/support/temporary_folder.h"
#include "viewer/trace/trace_file.h"

namespace liveset::core {
namespace {

class RecorderTest : public testing::Test {
 protected:
  void SetUp() override {
    if (process.flag() != flag_off) GTEST_SKIP() << "one recording a program: ctest runs each case by itself";
    setenv("LIVESET_SOCKET", folder_.file("socket").c_str(), 1);
    collector_ = std::make_unique<collect::Collector>(collect::listen_at(folder_.file("socket")), -1);
    collector_->set_output(folder_.file("trace.liveset"));
    process.start();
    wait_limit_ns = 60'000'000'000;  // a busy machine may keep the collector off its processor for longer than a job would wait
    if (collects_at_once) start_collecting();
  }
  void start_collecting() {
    collecting_ = std::thread([this] { collector_->run(); });
  }
  // Ends the collection and gives all events.
  std::vector<trace::Event> events() {
    collector_->stop();
    collecting_.join();
    auto opened = trace::TraceFile::open(folder_.file("trace.liveset"));
    if (!opened) {
      ADD_FAILURE() << opened.error().message();
      return {};
    }
    file = std::make_unique<trace::TraceFile>(std::move(*opened));
    EXPECT_TRUE(file->health().has_footer);
    std::vector<trace::Event> all;
    const Status read = trace::for_each_event(*file, [&](const trace::Event& event) {
      all.push_back(event);
      all.back().reads = nullptr;
      return true;
    });
    EXPECT_TRUE(read);
    return all;
  }

  std::string file_text(std::uint32_t stack) const { return file->dictionary().stack_text(stack); }

  std::unique_ptr<trace::TraceFile> file;
  bool collects_at_once = true;

 private:
  test::TemporaryFolder folder_;
  std::unique_ptr<collect::Collector> collector_;
  std::thread collecting_;
};

// An allocator that counts under its lock and reports after it, as PyTorch's CPU allocator does.
class CountingAllocator {
 public:
  explicit CountingAllocator(std::uint32_t heap) : heap_(heap) {}
  std::uint64_t allocate(std::uint64_t bytes) {
    std::uint64_t address = 0;
    Totals totals{};
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      if (unused_.empty()) unused_.push_back(0x1000 + 64 * next_++);
      address = unused_.back();
      unused_.pop_back();
      sizes_[address] = bytes;
      totals.allocated = total_ += bytes;
    }
    record_alloc(heap_, address, bytes, 0, Phase::other, &totals);
    return address;
  }
  void release(std::uint64_t address) {
    std::uint64_t bytes = 0;
    Totals totals{};
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      bytes = sizes_[address];
      totals.allocated = total_ -= bytes;
    }
    record_free(heap_, address, bytes, Phase::other, &totals);
    const std::lock_guard<std::mutex> guard(mutex_);
    unused_.push_back(address);
  }

 private:
  std::uint32_t heap_;
  std::mutex mutex_;
  std::vector<std::uint64_t> unused_;
  std::map<std::uint64_t, std::uint64_t> sizes_;
  std::uint64_t total_ = 0, next_ = 0;
};

TEST_F(RecorderTest, TwentyThreadsFreeEachOthersBlocks) {
  constexpr int threads = 20, rounds = 2000;
  declare_source("test", "1", "", "");
  CountingAllocator allocator(intern_heap("cpu", 0, 0, "test"));
  std::mutex mutex;
  std::deque<std::uint64_t> handed;
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      for (int i = 0; i < rounds; ++i) {
        const std::uint64_t made = allocator.allocate(64U * (1 + static_cast<unsigned>(31 * i + 17 * t) % 61));
        std::uint64_t other = 0;
        {
          const std::lock_guard<std::mutex> guard(mutex);
          handed.push_back(made);
          if (handed.size() < 30 + static_cast<std::size_t>(t)) continue;
          other = handed.front();
          handed.pop_front();
        }
        allocator.release(other);
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  for (const std::uint64_t address : handed) allocator.release(address);

  std::uint64_t allocs = 0, frees = 0, others = 0, mismatches = 0;
  std::map<std::uint32_t, int> by_thread;
  for (const trace::Event& event : events()) {
    allocs += event.kind == trace::Kind::alloc;
    frees += event.kind == trace::Kind::free_requested;
    others += event.kind != trace::Kind::alloc && event.kind != trace::Kind::free_requested;
    by_thread[event.thread] += event.kind == trace::Kind::alloc;
    if (!event.has_totals || event.total_error != 0) ++mismatches;
  }
  EXPECT_EQ(mismatches, 0U);  // conservation, at every event
  EXPECT_EQ(allocs, 40'000U);
  EXPECT_EQ(frees, 40'000U);
  EXPECT_EQ(others, 0U);
  EXPECT_EQ(file->health().lost_events, 0U);
  EXPECT_EQ(file->health().unmatched_frees, 0U);
  EXPECT_EQ(by_thread[0], 0);  // every event has a thread
  for (const auto& [thread, count] : by_thread) {
    EXPECT_TRUE(count == 0 || count == rounds) << "thread " << thread << ": " << count;  // 0: only frees at the end, or thread 0
  }
}

TEST_F(RecorderTest, ThreadsComeAndGo) {
  constexpr int threads = 2000;
  declare_source("test", "1", "", "");
  CountingAllocator allocator(intern_heap("cpu", 0, 0, "test"));
  for (int done = 0; done < threads;) {
    std::vector<std::thread> running;
    for (int i = 0; i < 8; ++i, ++done) running.emplace_back([&] { allocator.release(allocator.allocate(64)); });
    for (std::thread& thread : running) thread.join();
  }
  std::map<std::uint32_t, int> by_thread;
  std::uint64_t mismatches = 0;
  for (const trace::Event& event : events()) {
    mismatches += event.total_error != 0;
    ++by_thread[event.thread];
  }
  EXPECT_EQ(mismatches, 0U);
  EXPECT_EQ(by_thread.size(), static_cast<std::size_t>(threads));
  for (const auto& [thread, count] : by_thread) EXPECT_EQ(count, 2) << "thread " << thread;
  EXPECT_EQ(file->health().lost_events, 0U);
}

TEST_F(RecorderTest, EveryFieldArrives) {
  declare_source("test", "2.1", "all of it", "nothing");
  const std::uint32_t heap = intern_heap("cuda:3", 1, 3, "test");
  const std::uint32_t outer = intern_scope(0, ScopeKind::module, intern_string("net", 3));
  const std::uint32_t inner = intern_scope(outer, ScopeKind::region, intern_string("chunk", 5));
  std::uint32_t reads[20];
  for (std::uint32_t i = 0; i < 20; ++i) reads[i] = intern_value(intern_string("v", 1), 0, i);
  record_mark(32, 5);
  set_phase(Phase::backward);
  scope_begin(outer);
  scope_begin(inner);
  const Totals totals{1024, 4096};
  record_alloc(heap, 0x7000, 1024, 99, Phase::recompute, &totals);
  record_alloc(heap, 0x8000, 512, 77, Phase::other, nullptr);
  record_value(65, reads[7], heap, 0x7000, 1024, intern_string("node.slot", 9), 7, reads, 20, -12);
  record_attribute(intern_string("key", 3), intern_string("[1,2]", 5));
  record_counter(heap, intern_string("rows", 4), -3);
  scope_end();
  scope_end();
  scope_end();  // one too many: nothing
  const std::vector<trace::Event> all = events();
  ASSERT_EQ(all.size(), 11U);
  const auto& names = file->dictionary();
  EXPECT_EQ(all[0].kind, trace::Kind::step_begin);
  EXPECT_EQ(all[0].number, 5);
  EXPECT_EQ(all[1].kind, trace::Kind::phase);
  EXPECT_EQ(all[1].phase, trace::Phase::backward);
  EXPECT_EQ(all[2].scope, outer);
  EXPECT_EQ(names.scope_path(all[3].scope), "net/chunk");
  EXPECT_EQ(all[4].phase, trace::Phase::recompute);
  EXPECT_EQ(all[4].scope, inner);
  EXPECT_EQ(all[4].address, 0x7000U);
  EXPECT_EQ(all[4].size, 1024U);
  EXPECT_EQ(all[4].stream, 99U);
  EXPECT_TRUE(all[4].has_totals);
  EXPECT_EQ(all[5].stream, 77U);
  EXPECT_FALSE(all[5].has_totals);
  EXPECT_EQ(all[5].phase, trace::Phase::backward);
  EXPECT_EQ(all[6].kind, trace::Kind::value_retain);
  EXPECT_EQ(all[6].value, reads[7]);
  EXPECT_EQ(all[6].read_count, 20U);
  EXPECT_EQ(all[6].number, -12);
  EXPECT_EQ(all[6].memory_class, trace::MemoryClass::activation);
  EXPECT_EQ(names.string(all[6].name), "node.slot");
  EXPECT_EQ(names.string(all[7].name), "key");
  EXPECT_EQ(names.string(all[7].text), "[1,2]");
  EXPECT_EQ(all[8].number, -3);
  EXPECT_EQ(all[9].kind, trace::Kind::scope_end);
  EXPECT_EQ(all[9].scope, inner);
  EXPECT_EQ(all[10].scope, outer);
  ASSERT_GT(names.heaps.size(), all[4].heap);
  const trace::Heap& read_heap = names.heaps[all[4].heap];
  EXPECT_EQ(names.string(read_heap.name), "cuda:3");
  EXPECT_EQ(read_heap.device_type, 1);
  EXPECT_EQ(read_heap.device_index, 3);
  EXPECT_EQ(names.sources[read_heap.source].name, "test");
  EXPECT_EQ(names.sources[read_heap.source].version, "2.1");
  EXPECT_EQ(names.sources[read_heap.source].covers, "all of it");
  EXPECT_EQ(names.sources[read_heap.source].cannot_see, "nothing");
  EXPECT_EQ(file->header().process.pid, getpid());
  EXPECT_FALSE(file->header().process.command.empty());
  EXPECT_NE(file->header().process.start_time, 0U);
}

TEST_F(RecorderTest, ScopesDeeperThanAreKeptStillEndRight) {
  const std::uint32_t scope = intern_scope(0, ScopeKind::module, intern_string("m", 1));
  for (int i = 0; i < 400; ++i) scope_begin(scope);
  for (int i = 0; i < 400; ++i) scope_end();
  EXPECT_EQ(current_scope(), 0U);
  EXPECT_EQ(events().size(), 800U);
}

// Eight times what a ring holds, faster than it can be written.
TEST_F(RecorderTest, ABurstWaitsForRoomAndLosesNothing) {
  constexpr int count = 1'000'000;
  const std::uint32_t heap = intern_heap("cpu", 0, 0, nullptr), name = intern_string("n", 1);
  for (int i = 0; i < count; ++i) record_counter(heap, name, i);
  const std::vector<trace::Event> all = events();
  EXPECT_EQ(file->health().lost_events, 0U);
  ASSERT_EQ(all.size(), static_cast<std::size_t>(count));
  EXPECT_EQ(all.back().number, count - 1);
}

TEST_F(RecorderTest, AConnectionThatKeepsSilentIsClosed) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, std::getenv("LIVESET_SOCKET"));
  const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  ASSERT_EQ(connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  pollfd closed{connection, POLLIN, 0};
  EXPECT_EQ(poll(&closed, 1, 60'000), 1);
  close(connection);
  record_counter(1, 0, 5);
  EXPECT_EQ(events().size(), 1U);
}

// A single small ring that nobody empties before start_collecting().
class FullRingTest : public RecorderTest {
 protected:
  FullRingTest() {
    collects_at_once = false;
    setenv("LIVESET_ON_FULL", "drop", 1);
    setenv("LIVESET_RING_BYTES", "65536", 1);
    setenv("LIVESET_RING_TOTAL", "70000", 1);
  }
  static constexpr std::uint64_t ring_units = 65536 / sizeof(channel::Unit);
  static void fill_ring() {
    for (std::uint64_t i = 0; i < ring_units; ++i) record_counter(1, 0, 0);
  }
};

TEST_F(FullRingTest, WhatADroppedEventChangesIsChanged) {
  const std::uint32_t outer = intern_scope(0, ScopeKind::module, intern_string("outer", 5));
  const std::uint32_t inner = intern_scope(outer, ScopeKind::module, intern_string("inner", 5));
  const std::uint32_t dropped = intern_scope(inner, ScopeKind::module, intern_string("dropped", 7));
  scope_begin(outer);
  scope_begin(inner);
  begin_phase(Phase::forward);
  fill_ring();
  scope_begin(dropped);
  EXPECT_EQ(current_scope(), dropped);
  scope_end();
  EXPECT_EQ(current_scope(), inner);
  scope_end();
  EXPECT_EQ(current_scope(), outer);
  begin_phase(Phase::backward);
  EXPECT_EQ(current_phase(), Phase::backward);
  end_phase();
  EXPECT_EQ(current_phase(), Phase::forward);
  end_phase();
  EXPECT_EQ(current_phase(), Phase::other);
  record_mark(channel::kind_step_begin, 7);
  EXPECT_EQ(last_step(), 7);
  scope_end();
  EXPECT_EQ(current_scope(), 0U);
  start_collecting();
  const std::size_t kept = events().size();
  EXPECT_EQ(kept, ring_units - 2);  // less who the thread is
  EXPECT_EQ(file->health().lost_events, 3 + ring_units + 8 - kept);
}

#ifndef __SANITIZE_THREAD__  // which cannot follow a thread that ends without a word
TEST_F(FullRingTest, TheFullRingOfADeadThreadIsFoundOnce) {
  std::thread([] {
    fill_ring();
    syscall(SYS_exit, 0);  // no destructor runs
  }).join();
  for (int i = 0; i < 3; ++i) record_counter(1, 0, 1);  // finds the ring, and cannot use it
  start_collecting();
  std::atomic<bool> owned{false}, tried{false};
  std::thread owner([&] {
    for (int i = 0; i < 5000 && this_thread == nullptr; ++i) {
      record_counter(1, 0, 2);
      usleep(1000);
    }
    owned = true;
    while (!tried) usleep(1000);
  });
  while (!owned) usleep(1000);
  EXPECT_EQ(current_scope(), 0U);
  EXPECT_EQ(this_thread, nullptr);  // it is the other's
  tried = true;
  owner.join();
  const std::vector<trace::Event> all = events();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back().number, 2);
}
#endif

TEST_F(RecorderTest, BlocksCarryTheStackThatTheSourceGives) {
  static std::uint32_t step = 0, none = 0;
  const std::uint32_t heap = intern_heap("cpu", 0, 0, nullptr);
  record_alloc(heap, 0x1000, 64, 0, Phase::other, nullptr);  // nobody was asked for stacks
  const std::uint32_t script = intern_string("train.py", 8);
  step =
      intern_stack(intern_stack(0, intern_frame(intern_string("main", 4), script, 9)), intern_frame(intern_string("step", 4), script, 7));
  stack_source = [] { return step; };
  const Totals totals{128, 128};
  record_alloc(heap, 0x2000, 64, 0, Phase::other, &totals);
  record_memory(channel::kind_segment_alloc, heap, 0x3000, 64, 0, Phase::other);  // has no such column
  stack_source = [] { return intern_reason(none, "nobody knows"); };
  record_free(heap, 0x2000, 64, Phase::other, nullptr);
  record_free(heap, 0x1000, 64, Phase::other, nullptr);
  stack_source = nullptr;
  const std::vector<trace::Event> all = events();
  ASSERT_EQ(all.size(), 5U);
  EXPECT_EQ(all[0].stack, 0U);
  EXPECT_EQ(file_text(all[1].stack), "train.py:7 step < train.py:9 main");
  EXPECT_TRUE(all[1].has_totals);
  EXPECT_EQ(all[2].stack, 0U);
  EXPECT_EQ(file_text(all[3].stack), "(nobody knows)");
  EXPECT_EQ(all[3].stack, all[4].stack);
  EXPECT_FALSE(all[3].has_totals);
}

// The number before each block and each begin and end of a scope, where it is another one than the thread's last.
TEST_F(RecorderTest, SequencesAreSaidWhereTheyChange) {
  static thread_local std::uint64_t next = 0;
  const std::uint32_t heap = intern_heap("cpu", 0, 0, nullptr);
  const std::uint32_t scope = intern_scope(0, ScopeKind::module, intern_string("net", 3));
  const Totals totals{64, 4096};
  record_alloc(heap, 0x1000, 64, 0, Phase::other, nullptr);  // nobody was asked
  sequence_source = [] { return next; };
  record_free(heap, 0x1000, 64, Phase::other, nullptr);  // is of no operator
  scope_begin(scope);                                    // 0, which was not said yet
  record_alloc(heap, 0x1000, 64, 0, Phase::forward, &totals);
  next = 7;
  record_alloc(heap, 0x2000, 64, 5, Phase::recompute, &totals);  // 7
  record_alloc(heap, 0x3000, 64, 0, Phase::other, nullptr);
  next = 8;
  record_memory(channel::kind_segment_alloc, heap, 0x9000, 64, 0, Phase::other);
  record_alloc(heap, 0x4000, 64, 0, Phase::other, nullptr);  // 8, without totals
  next = std::uint64_t{1} << 40;
  scope_end();  // 2^40
  std::thread([&] {
    next = std::uint64_t{1} << 40;
    record_alloc(heap, 0x5000, 64, 0, Phase::other, nullptr);  // that thread's own
  }).join();
  std::thread([&] { scope_begin(scope); }).join();  // the next owner of that ring begins anew
  sequence_source = [] { return no_sequence; };
  record_alloc(heap, 0x6000, 64, 0, Phase::other, nullptr);
  sequence_source = nullptr;
  std::map<std::uint32_t, std::string> of_thread;
  std::vector<trace::Event> sequences;
  for (const trace::Event& event : events()) {
    std::string& said = of_thread[event.thread];
    said += said.empty() ? "" : " ";
    if (event.kind == trace::Kind::sequence) {
      sequences.push_back(event);
      said += std::to_string(event.number);
    } else {
      said += trace::kind_name(event.kind);
    }
  }
  EXPECT_EQ(of_thread[1], "alloc free_requested 0 scope_begin alloc 7 alloc alloc segment_alloc 8 alloc 1099511627776 scope_end alloc");
  EXPECT_EQ(of_thread[2], "1099511627776 alloc");
  EXPECT_EQ(of_thread[3], "0 scope_begin");
  ASSERT_EQ(sequences.size(), 6U);
  EXPECT_EQ(sequences[0].scope, 0U);
  EXPECT_EQ(sequences[1].scope, scope);
  EXPECT_EQ(sequences[1].phase, trace::Phase::recompute);
  EXPECT_EQ(sequences[3].scope, scope);
}

// Before the first block after the return, in the same event of the ring: alone, and with a number and totals.
TEST_F(RecorderTest, ReturnsAreSaidBeforeTheFirstBlockAfterThem) {
  const std::uint32_t heap = intern_heap("cpu", 0, 0, nullptr);
  const Totals totals{64, 4096};
  say_node_returned(true);  // of a thread that has recorded nothing
  std::uint64_t next = 0x1000;
  const auto allocate = [&](const Totals* counters) { record_alloc(heap, next += 0x1000, 64, 0, Phase::backward, counters); };
  record_node(channel::kind_node_begin, intern_string("SumBackward0", 12), 3);
  say_node_returned(true);
  record_free(heap, 0x1000, 64, Phase::other, nullptr);  // takes nothing
  say_node_returned(false);
  allocate(nullptr);
  say_node_returned(true);
  allocate(nullptr);
  allocate(nullptr);
  say_node_returned(false);
  sequence_source = [] { return std::uint64_t{9}; };
  say_node_returned(true);
  allocate(&totals);
  say_node_returned(false);
  sequence_source = nullptr;
  std::string said;
  for (const trace::Event& event : events()) said += std::string(trace::kind_name(event.kind)) + " ";
  EXPECT_EQ(said, "node_begin free_unmatched alloc node_returned alloc alloc sequence node_returned alloc ");
}

TEST_F(RecorderTest, BlocksAreWhatIsStatedUntilThatEnds) {
  const std::uint32_t heap = intern_heap("cpu", 0, 0, nullptr);
  record_alloc(heap, 0x1000, 64, 0, Phase::other, nullptr);
  begin_stating(11, intern_string("maker", 5));
  record_alloc(heap, 0x2000, 64, 0, Phase::other, nullptr);
  set_phase(Phase::backward);
  record_alloc(heap, 0x3000, 64, 0, Phase::other, nullptr);
  end_stating();
  record_alloc(heap, 0x4000, 64, 0, Phase::other, nullptr);
  std::vector<std::uint64_t> stated;
  for (const trace::Event& event : events()) {
    if (event.kind == trace::Kind::storage) stated.push_back(event.address);
  }
  EXPECT_EQ(stated, (std::vector<std::uint64_t>{0x2000, 0x3000}));
}

TEST_F(RecorderTest, StacksLeaveRoomForOtherNames) {
  std::uint32_t last = 0, made = 0;
  for (std::uint32_t frame = 1; frame <= 70'000; ++frame) made += intern_frame(1, 2, frame) != 0;
  EXPECT_EQ(made, 65'535U);
  made = 0;
  for (std::uint32_t frame = 1; frame <= 600'000; ++frame) {
    const std::uint32_t stack = intern_stack(frame % 1000, frame);
    if (stack == 0) continue;
    EXPECT_EQ(stack, last + 1);
    last = stack;
    ++made;
  }
  EXPECT_EQ(made, 1U << 19);
  EXPECT_NE(intern_string("a name", 6), 0U);
  record_mark(channel::kind_step_begin, 0);
  EXPECT_EQ(events().size(), 1U);
  EXPECT_EQ(file->health().lost_names, 70'000 - 65'535U + 600'000 - (1U << 19));
  EXPECT_EQ(file->dictionary().stacks.size(), (1U << 19) + 1);
}

}  // namespace
}  // namespace liveset::core
