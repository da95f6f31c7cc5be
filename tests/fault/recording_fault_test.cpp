// What must survive: jobs and collectors that are killed or stopped, full disks.
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <random>

#include "tests/fault/recorded_job.h"

namespace liveset::test {
namespace {

using testing::HasSubstr;

using Fault = RecordedJob;

// The counter of returned calls in the job's file.
class Counter {
 public:
  explicit Counter(const std::string& path) : path_(path) {
    write_file(path, std::string(4096, '\0'));
    const int file = open(path.c_str(), O_RDWR);
    memory_ = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0);
    close(file);
  }
  ~Counter() { munmap(memory_, 4096); }
  std::uint64_t value() const { return static_cast<const std::atomic<std::uint64_t>*>(memory_)->load(); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  void* memory_;
};

TEST_F(Fault, AJobKilledAtFiftyRandomMomentsLosesNoReturnedCall) {
  std::mt19937 random(50);
  for (int round = 0; round < 50; ++round) {
    const Counter counter(folder.file("counter" + std::to_string(round)));
    Running run(command({job_program, "count", counter.path()}), folder.file("error"));
    const std::uint64_t moment = 1 + random() % 20'000;
    ASSERT_TRUE(eventually([&] { return counter.value() >= moment; }));
    kill(run.child("job"), SIGKILL);
    EXPECT_EQ(run.wait(), 128 + SIGKILL);
    const std::uint64_t returned = counter.value();
    const auto counted = count_trace(trace());
    ASSERT_TRUE(counted);
    EXPECT_EQ(counted->lost, 0U);
    EXPECT_GE(counted->events, returned);
    EXPECT_LE(counted->events, returned + 1);  // the call that was under way
    EXPECT_EQ(counted->unmatched, 0U);
    EXPECT_TRUE(counted->has_footer);
  }
}

TEST_F(Fault, AKilledCollectorCostsTheTraceOnlyItsTail) {
  Running run(command({job_program, "fill", "500000"}), folder.file("error"));
  ASSERT_EQ(run.line(), "ready\n");
  // Flushed every second, so the one event so far arrives.
  ASSERT_TRUE(eventually([&] {
    auto file = trace::TraceFile::open(trace());
    return file && file->events() == 1;
  }));
  kill(run.child("liveset-collect"), SIGKILL);
  run.say();
  EXPECT_THAT(run.line(), testing::StartsWith("filled"));
  run.say();
  EXPECT_EQ(run.wait(), 0);
  EXPECT_THAT(error(), HasSubstr("the collector ended before the job"));
  const auto counted = count_trace(trace());
  ASSERT_TRUE(counted);
  EXPECT_FALSE(counted->has_footer);
  EXPECT_EQ(counted->events, 1U);
}

class StoppedCollector : public RecordedJob {
 protected:
  // Fills a stopped collector's ring with `events` events; 2 more and their frees come before and after.
  Counted fill(const std::string& events, const std::vector<std::string>& options, std::uint64_t drained) {
    Running run(command({job_program, "fill", events}, options), folder.file("error"));
    EXPECT_EQ(run.line(), "ready\n");
    const pid_t collector = run.child("liveset-collect");
    kill(collector, SIGSTOP);
    EXPECT_TRUE(
        eventually([&] { return first_line_of("/proc/" + std::to_string(collector) + "/stat").find(") T ") != std::string::npos; }));
    run.say();
    EXPECT_THAT(run.line(), testing::StartsWith("filled"));
    kill(collector, SIGCONT);
    // What comes next may find the ring full for more than the 10 ms of an event, so it comes when the ring is drained.
    if (drained != 0) {
      EXPECT_TRUE(eventually([&] {
        auto file = trace::TraceFile::open(trace());
        return file && file->events() == drained;
      }));
    }
    run.say();
    EXPECT_EQ(run.wait(), 0);
    return count_trace(trace()).value_or(Counted{});
  }
};

TEST_F(StoppedCollector, LosesNothingWithinTheRingsSize) {
  // 4 MiB of 32-byte units are 131,072; a few are taken by the thread's record and the first block.
  const Counted counted = fill("131000", {}, 131'001);
  EXPECT_EQ(counted.lost, 0U);
  EXPECT_EQ(counted.allocs, 131'001U);
  EXPECT_EQ(counted.frees, 131'001U);
}

TEST_F(StoppedCollector, CountsWhatIsBeyond) {
  for (const char* mode : {"wait", "drop"}) {
    const Counted counted = fill("200000", {"--on-full", mode}, 0);
    EXPECT_GT(counted.lost, 60'000U);
    EXPECT_EQ(counted.allocs + counted.frees + counted.unmatched + counted.lost, 400'002U) << mode;
    ASSERT_FALSE(counted.losses.empty());
    EXPECT_EQ(counted.losses[0].reason, 1);  // ring full
    EXPECT_THAT(error(), HasSubstr(" lost"));
  }
}

TEST_F(Fault, AFullDiskHarmsTheTraceOnlyAndIsStated) {
  const std::string disk = folder.file("disk");
  mkdir(disk.c_str(), 0755);
  if (mount("none", disk.c_str(), "tmpfs", 0, "size=256k") != 0) GTEST_SKIP() << "SKIPPED: mounting a small disk is not permitted";
  const std::string small = disk + "/job.liveset";
  const Ran ran = run_command(liveset_program + " run -o " + small + " -- " + job_program + " churn 1000000");
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.err, HasSubstr(" lost"));
  const auto counted = count_trace(small);
  umount(disk.c_str());
  ASSERT_TRUE(counted);
  EXPECT_GT(counted->events, 0U);
  EXPECT_GT(counted->lost, 0U);
  EXPECT_EQ(counted->events + counted->lost, 2'000'000U);
}

TEST_F(Fault, AFileSizeLimitKillsNobody) {
  // It bounds the memory that job and collector share, too, so there is nothing to record into.
  const Ran ran = run_command("ulimit -f 8; " + liveset_program + " run -o " + trace() + " -- " + job_program + " blocks 1000");
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.err, HasSubstr("nothing was recorded: "));
  EXPECT_THAT(ran.err, HasSubstr("ulimit -f"));
  EXPECT_FALSE(std::filesystem::exists(trace()));
}

TEST_F(Fault, AFileSizeLimitOfTheCollectorIsStated) {
  Running run(command({job_program, "fill", "100000"}), folder.file("error"));
  ASSERT_EQ(run.line(), "ready\n");
  const rlimit limit{4096, 4096};
  ASSERT_EQ(prlimit(run.child("liveset-collect"), RLIMIT_FSIZE, &limit, nullptr), 0);
  run.say();
  EXPECT_THAT(run.line(), testing::StartsWith("filled"));
  run.say();
  EXPECT_EQ(run.wait(), 0);
  EXPECT_THAT(error(), HasSubstr(" lost"));
  EXPECT_THAT(error(), HasSubstr("; the disk is full; the file holds what fitted"));
  const auto counted = count_trace(trace());
  ASSERT_TRUE(counted);
  EXPECT_GT(counted->lost, 0U);
  EXPECT_EQ(counted->events + counted->lost, 200'002U);
}

}  // namespace
}  // namespace liveset::test
