// One recorded process, seen from the collector: rings that the test fills, and a clock that it sets (1 tick is 1 ns).
#include "profiler/collect/recording.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "profiler/channel/producer.h"
#include "tests/support/temporary_folder.h"
#include "viewer/trace/trace_file.h"

namespace liveset::collect {
namespace {

using channel::Unit;

constexpr std::uint64_t second = 1'000'000'000, millisecond = 1'000'000;

// Memory that both sides map.
struct Shared {
  explicit Shared(std::uint64_t size) : bytes(size), descriptor(memfd_create("test", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(descriptor, static_cast<off_t>(bytes)), 0);
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  }
  Mapping take() const { return Mapping::open(descriptor, bytes); }
  ~Shared() { munmap(memory, bytes); }
  std::uint64_t bytes;
  int descriptor;
  void* memory;
};

class TestRing {
 public:
  explicit TestRing(std::uint64_t units) : shared_(channel::ring_data_offset + units * sizeof(Unit)) {
    channel::format_ring(shared_.memory, 0, units);
    ring_.attach(shared_.memory);
  }
  Mapping take() const { return shared_.take(); }
  channel::RingHeader& header() { return *static_cast<channel::RingHeader*>(shared_.memory); }
  channel::Producer& producer() { return ring_; }
  // A counter event whose number is its stamp, or what its stamp should count as.
  void count(std::uint64_t ticks) { count(ticks, ticks); }
  void count(std::uint64_t ticks, std::uint64_t number) { put({{ticks, number, 0, 0, channel::kind_counter, 0, 0}}); }
  void put(const std::vector<Unit>& units) {
    ASSERT_TRUE(ring_.has_space(static_cast<std::uint32_t>(units.size())));
    for (std::uint32_t i = 0; i < units.size(); ++i) ring_.unit(i) = units[i];
    ring_.close(static_cast<std::uint32_t>(units.size()));
  }

 private:
  Shared shared_;
  channel::Producer ring_;
};

class RecordingTest : public testing::Test {
 protected:
  RecordingTest() { clock_.start({0, 0}, {second, second}); }
  void start() {
    recording_ = std::make_unique<Recording>(Recording::Identity{}, region_.take(), clock_, [this](const Recording::Identity&) {
      if (on_open) on_open();
      return path();
    });
    for (TestRing* ring : {&a, &b}) ASSERT_TRUE(recording_->add_ring(ring->take()));
  }
  void pass(std::uint64_t ticks) {
    recording_->begin_pass(ticks);
    recording_->drain();
  }
  // Ends the recording; the numbers of all events.
  std::vector<std::int64_t> numbers() {
    recording_->finish("exit");
    std::vector<std::int64_t> all;
    auto opened = trace::TraceFile::open(path());
    if (!opened) {
      ADD_FAILURE() << opened.error().message();
      return all;
    }
    file = std::make_unique<trace::TraceFile>(std::move(*opened));
    EXPECT_TRUE(trace::for_each_event(*file, [&](const trace::Event& event) {
      all.push_back(event.number);
      return true;
    }));
    return all;
  }
  std::string path() const { return folder_.file("trace.liveset"); }
  Recording& recording() { return *recording_; }
  channel::Control& control() { return *static_cast<channel::Control*>(region_.memory); }

  TestRing a{1U << 17}, b{1U << 17};
  std::function<void()> on_open;
  std::unique_ptr<trace::TraceFile> file;

 private:
  test::TemporaryFolder folder_;
  ClockMap clock_;
  Shared region_{channel::dictionary_offset + 4096};
  std::unique_ptr<Recording> recording_;
};

TEST_F(RecordingTest, AFullRingGetsRoomBeforeAllOfItIsWritten) {
  std::uint64_t taken = 0;
  on_open = [&] { taken = a.header().tail; };  // called before the first event is written
  for (std::uint64_t i = 1; i <= 1U << 17; ++i) a.count(i);
  start();
  pass(second);
  EXPECT_GT(taken, 0U);
  EXPECT_LE(taken, 20'000U);
  EXPECT_EQ(a.header().tail, 1U << 17);
  const std::vector<std::int64_t> all = numbers();
  EXPECT_EQ(all.size(), 1U << 17);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
}

TEST_F(RecordingTest, SlicesOfSeveralRingsAndOwnersKeepTheOrder) {
  for (std::uint64_t i = 1; i <= 80'000; ++i) a.count(2 * i);
  // Asked for the ring while its last owner still wrote; its first event counts as stamped then.
  a.put({{30'001, 7, 7, 0, channel::kind_thread, 0, 1}, {}});
  a.count(170'000, 30'001);
  for (std::uint64_t i = 1; i <= 100; ++i) a.count(170'000 + 2 * i);
  for (std::uint64_t i = 1; i <= 80'000; ++i) b.count(2 * i + 1);
  start();
  pass(second);
  const std::vector<std::int64_t> all = numbers();
  EXPECT_EQ(all.size(), 160'101U);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  EXPECT_EQ(file->health().lost_events, 0U);
}

TEST_F(RecordingTest, ValueEventsThatMakeNoSenseAreNotReadBeyondTheirEnd) {
  Unit value{};
  channel::ValueUnit content{};
  content.read_count = channel::max_reads;
  std::memcpy(static_cast<void*>(&value), &content, sizeof value);
  a.count(1);
  a.put({{2, 0, 0, 0, channel::first_value_kind | channel::kind_extended, 0, 0}, value});
  start();
  pass(second);
  EXPECT_EQ(numbers(), std::vector<std::int64_t>{1});
  EXPECT_EQ(file->health().lost_events, 1U);
}

TEST_F(RecordingTest, LossesThatGoOnAreStatedOnceASecond) {
  start();
  for (std::uint64_t i = 0; i < 1500; ++i) {
    a.producer().drop();
    pass(second + i * millisecond);
  }
  numbers();
  EXPECT_EQ(file->health().lost_events, 1500U);
  EXPECT_EQ(file->health().losses.size(), 3U);  // the first, those of the next second, the rest
}

// At every moment some thread is getting its ring, for 300 ms each.
TEST_F(RecordingTest, ThreadsThatComeWithoutAPauseKeepTheirPlaceInTheOrder) {
  start();
  struct Attaching {
    std::uint64_t ticks;
    std::uint32_t generation;
  };
  std::deque<Attaching> attaching;
  std::uintmax_t early = 0;
  for (int i = 0; i < 50; ++i) {
    const std::uint64_t now = second + i * 100 * millisecond;
    recording().begin_pass(now);
    const std::uint32_t generation = control().generation & 1;
    ++control().attaching[generation];
    attaching.push_back({now + 1, generation});
    a.count(now + 2);
    if (attaching.size() > 3) {
      b.count(attaching.front().ticks);
      --control().attaching[attaching.front().generation];
      attaching.pop_front();
    }
    recording().drain();
    recording().flush();
    if (i == 3) early = std::filesystem::file_size(path());
  }
  EXPECT_GT(std::filesystem::file_size(path()), early + 500);  // written as it goes
  const std::vector<std::int64_t> all = numbers();
  EXPECT_EQ(all.size(), 97U);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
}

}  // namespace
}  // namespace liveset::collect
