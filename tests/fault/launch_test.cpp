// `liveset run` in surroundings that are not as one wishes: it does what it can, says the rest, and leaves nothing
// behind.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/fault/recorded_job.h"

namespace liveset::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Launch : public RecordedJob {
 protected:
  Launch() { fs::create_directory(temporary); }
  // `job` under `run`, below "sh -c" so that `before` can set things up.
  Ran run_after(const std::string& before, const std::string& options, const std::string& job, const std::string& after = "") const {
    return run_command(before + " " + liveset_program + " run " + options + " -o " + trace() + " -- " + job + " " + after);
  }
  std::uint64_t events() const { return count_trace(trace()).value_or(Counted{}).events; }

  const std::string temporary = folder.file("temporary");
};

bool is_stopped(pid_t pid) { return first_line_of("/proc/" + std::to_string(pid) + "/stat").find(") T ") != std::string::npos; }

TEST_F(Launch, AStopThatIsNotTheTerminalsStopsTheJobOnly) {
  Running run(command({job_program, "sleep-after"}), folder.file("error"));
  ASSERT_EQ(run.line(), "ready\n");
  const pid_t job = run.child("job");
  kill(job, SIGSTOP);
  ASSERT_TRUE(eventually([&] { return is_stopped(job); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // for the launcher to see it
  EXPECT_FALSE(is_stopped(run.pid()));
  kill(job, SIGCONT);
  kill(run.pid(), SIGCONT);
  run.close_input();
  EXPECT_EQ(run.wait(), 0);
  EXPECT_EQ(events(), 2U);
}

TEST_F(Launch, ClosedStandardDescriptorsAreTheJobsAffairOnly) {
  for (const std::string closed : {"<&-", ">&-", "2>&-", "<&- >&- 2>&-"}) {
    EXPECT_EQ(run_after("", "", job_program + " hello", closed).status, 7) << closed;
    EXPECT_EQ(events(), 18U) << closed;
    fs::remove(trace());
  }
  const std::string show = "sh -c 'ls /proc/$$/fd >" + folder.file("shown") + "' <&- 2>&-";
  run_command(show);
  const std::string bare = read_file(folder.file("shown"));
  run_after("", "", show);
  EXPECT_EQ(read_file(folder.file("shown")), bare);
}

TEST_F(Launch, TheCollectorKeepsNoFileOfTheLauncher) {
  const int held = open(written(folder, "held", "").c_str(), O_RDONLY);  // inherited
  Running run(command({job_program, "sleep-after"}), folder.file("error"));
  close(held);
  ASSERT_EQ(run.line(), "ready\n");
  const fs::path open_files = "/proc/" + std::to_string(run.child("liveset-collect")) + "/fd";
  std::size_t seen = 0;
  for (const auto& entry : fs::directory_iterator(open_files)) {
    std::error_code gone;
    EXPECT_NE(fs::read_symlink(entry.path(), gone), folder.file("held"));
    ++seen;
  }
  EXPECT_GT(seen, 4U);
}

TEST_F(Launch, NoFolderIsLeftWhenThePreloadNeedsALink) {
  const fs::path bin = folder.path() / "a b" / "bin", lib = folder.path() / "a b" / "lib";
  fs::create_directories(bin);
  fs::create_directories(lib);
  fs::copy_file(liveset_program, bin / "liveset");
  fs::copy_file(fs::path(LIVESET_BIN_DIR) / "../lib/libliveset_preload.so", lib / "libliveset_preload.so");
  const Ran ran =
      run_command("TMPDIR=" + temporary + " '" + (bin / "liveset").string() + "' run -o " + trace() + " -- " + job_program + " hello");
  EXPECT_EQ(ran.status, 7) << ran.err;
  EXPECT_EQ(events(), 18U);
  EXPECT_TRUE(fs::is_empty(temporary));
}

TEST_F(Launch, AKilledLauncherLeavesNoFolderAndTheTraceIsWhole) {
  std::vector<std::string> all = command({job_program, "sleep-after"});
  all.insert(all.begin(), {"/usr/bin/env", "TMPDIR=" + temporary});
  Running run(all, folder.file("error"));
  ASSERT_EQ(run.line(), "ready\n");
  EXPECT_FALSE(fs::is_empty(temporary));
  kill(run.pid(), SIGKILL);
  EXPECT_EQ(run.wait(), 128 + SIGKILL);
  run.close_input();
  EXPECT_TRUE(eventually([&] { return fs::is_empty(temporary); }));
  EXPECT_EQ(events(), 2U);
}

TEST_F(Launch, AProcessThatOutlivesTheRunKeepsTheFolderUntilItsEnd) {
  const std::string queue = folder.file("queue");
  ASSERT_EQ(mkfifo(queue.c_str(), 0600), 0);
  const int held = open(queue.c_str(), O_RDWR | O_CLOEXEC);
  const std::string out = folder.file("out");
  const Ran ran =
      run_after("TMPDIR=" + temporary, "",
                "sh -c '" + job_program + " sleep-after <" + queue + " >" + out + " & until [ -s " + out + " ]; do sleep 0.01; done'");
  EXPECT_THAT(ran.err, HasSubstr("1 process is still being recorded"));
  EXPECT_FALSE(fs::is_empty(temporary));
  close(held);
  EXPECT_TRUE(eventually([&] { return fs::is_empty(temporary); }));
  EXPECT_EQ(events(), 2U);
}

TEST_F(Launch, WithoutDescriptorsTheJobRunsUnrecorded) {
  // The loader needs one as well: what the tests' own surroundings left open must not take it.
  const std::string close_others = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ";
  for (const char* limit : {"4", "6", "8"}) {
    const Ran ran = run_after(close_others + "ulimit -n " + limit + ";", "", "sh -c 'exit 5'");
    EXPECT_EQ(ran.status, 5) << limit;
    EXPECT_THAT(ran.err, testing::StartsWith("liveset: the job will not be recorded: ")) << limit;
  }
}

TEST_F(Launch, WithoutItsTemporaryFolderItTakesTmp) {
  EXPECT_EQ(run_after("TMPDIR=/nowhere", "", job_program + " hello").err, "liveset: " + trace() + ": 18 events\n");
}

TEST_F(Launch, ALogFileThatCannotBeIsSaidAndNoFolderMadeForIt) {
  const Ran ran = run_after("", "--log-file " + folder.file("none/log"), job_program + " hello");
  EXPECT_EQ(ran.status, 7);
  EXPECT_THAT(ran.err, testing::StartsWith("liveset: the collector keeps no log: " + folder.file("none/log: No such file")));
  EXPECT_FALSE(fs::exists(folder.file("none")));
  EXPECT_EQ(events(), 18U);
}

TEST_F(Launch, ALogFileAloneIsWritten) {
  EXPECT_EQ(run_after("", "--log-file " + folder.file("log"), job_program + " hello").status, 7);
  EXPECT_THAT(read_file(folder.file("log")), HasSubstr("records"));
}

TEST_F(Launch, AForgottenDoubleDashIsForgiven) {
  EXPECT_EQ(run_command(liveset_program + " run -q -o " + trace() + " " + job_program + " hello").status, 7);
  EXPECT_EQ(events(), 18U);
  const Ran ran = run_command(liveset_program + " run -q sh -c 'echo \"$@\"' sh -o x -- --strict");
  EXPECT_EQ(ran.out, "-o x -- --strict\n") << ran.err;
  EXPECT_EQ(run_command(liveset_program + " run --unknown " + job_program + " hello").status, 2);
}

TEST_F(Launch, AnOlderTraceIsNotTakenForThisRuns) {
  run_after("", "", job_program + " hello");
  EXPECT_THAT(run_after("", "", "true").err, HasSubstr("nothing was recorded (" + trace() + " is of an earlier run): "));
}

}  // namespace
}  // namespace liveset::test
