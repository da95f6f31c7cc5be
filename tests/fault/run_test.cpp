// `liveset run` around jobs of all kinds: it must be as if it were not there, and the right files must be.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/fault/recorded_job.h"

namespace liveset::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class Run : public RecordedJob {
 protected:
  bool has_trace() const { return std::filesystem::exists(trace()); }
  // Of everything below the folder.
  std::size_t files() const {
    const std::filesystem::recursive_directory_iterator all(folder.path());
    return static_cast<std::size_t>(
        std::count_if(begin(all), end(all), [](const auto& entry) { return entry.path().extension() == ".liveset"; }));
  }
};

TEST_F(Run, RecordsAndSaysSoInOneLine) {
  const Ran ran = run_job("hello");
  EXPECT_EQ(ran.status, 7);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ran.err, "liveset: " + trace() + ": 18 events\n");
  const auto counted = count_trace(trace());
  ASSERT_TRUE(counted);
  EXPECT_EQ(counted->events, 18U);
  EXPECT_EQ(counted->header.process.command, (std::vector<std::string>{job_program, "hello"}));
  EXPECT_EQ(counted->header.process.executable, std::filesystem::canonical(job_program));
  EXPECT_TRUE(counted->has_footer);
}

TEST_F(Run, TheRankOfADistributedJobIsInTheHeader) {
  const std::string run = liveset_program + " run -q -o " + trace() + " -- " + job_program + " hello";
  ASSERT_EQ(run_command("RANK=3 WORLD_SIZE=16 LOCAL_RANK=1 " + run).status, 7);
  trace::Process process = count_trace(trace())->header.process;
  EXPECT_EQ(process.rank, 3);
  EXPECT_EQ(process.world_size, 16);
  EXPECT_EQ(process.local_rank, 1);
  EXPECT_THAT(run_command(liveset_program + " info " + trace()).out, HasSubstr("3 of 16, local 1\n"));
  EXPECT_THAT(run_command(liveset_program + " info --format json " + trace()).out, HasSubstr("\"world_size\": 16"));
  EXPECT_THAT(run_command(liveset_program + " summary " + trace()).out, HasSubstr("rank 3 of 16"));

  // What is no number is no rank, and a rank of 0 is one.
  ASSERT_EQ(run_command("RANK=0 WORLD_SIZE=many LOCAL_RANK=99999999999 " + run).status, 7);
  process = count_trace(trace())->header.process;
  EXPECT_EQ(process.rank, 0);
  EXPECT_EQ(process.world_size, -1);
  EXPECT_EQ(process.local_rank, -1);
  ASSERT_EQ(run_command("env -u RANK " + run).status, 7);
  EXPECT_EQ(count_trace(trace())->header.process.rank, -1);
  EXPECT_THAT(run_command(liveset_program + " info " + trace()).out, Not(HasSubstr("rank")));
}

TEST_F(Run, QuietSaysNothing) {
  const Ran ran = run_command(liveset_program + " run -q -o " + trace() + " -- " + job_program + " hello");
  EXPECT_EQ(ran.status, 7);
  EXPECT_EQ(ran.out + ran.err, "");
  EXPECT_TRUE(has_trace());
}

TEST_F(Run, TheDefaultNameIsOfTheProgram) {
  const Ran ran = run_command("cd " + folder.path().string() + " && " + liveset_program + " run -- " + job_program + " hello");
  EXPECT_EQ(ran.status, 7);
  EXPECT_THAT(ran.err, testing::MatchesRegex("liveset: job-[0-9]+\\.liveset: 18 events\n"));
  EXPECT_EQ(files(), 1U);
}

TEST_F(Run, InputAndOutputAreTheJobs) {
  const Ran ran = run_command("printf 'one\\ntwo\\n' | " + liveset_program + " run -q -o " + trace() + " -- " + job_program + " stdio");
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.out, "one\ntwo\n");
  EXPECT_EQ(ran.err, "");
}

TEST_F(Run, NothingRecordedMeansNoFile) {
  const Ran ran = run_command(liveset_program + " run -o " + trace() + " -- true");
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.err, StartsWith("liveset: nothing was recorded"));
  EXPECT_EQ(files(), 0U);
}

TEST_F(Run, EveryWayToEnd) {
  EXPECT_EQ(run_job("_exit 5").status, 5);
  EXPECT_EQ(count_trace(trace())->events, 2U);
  EXPECT_EQ(run_job("abort").status, 128 + SIGABRT);
  EXPECT_EQ(count_trace(trace())->events, 2U);
  EXPECT_EQ(run_job("running-threads").status, 3);
  EXPECT_GT(count_trace(trace())->events, 800U);
}

// ---- Programs that cannot be recorded

TEST_F(Run, SaysAtOnceWhyAProgramCannotBeRecorded) {
  const std::string setuid = folder.file("setuid");
  std::filesystem::copy_file("/bin/true", setuid);
  chmod(setuid.c_str(), 04755);
  const std::string plain = written(folder, "plain", "text");
  const std::string script = written(folder, "script", std::string("#!") + LIVESET_TEST_BIN_DIR + "/static_job\n");
  chmod(script.c_str(), 0755);
  const std::string other = written(folder, "other",
                                    std::string("\x7f"
                                                "ELF\x01\x01\x01",
                                                7) +
                                        std::string(200, '\0'));
  chmod(other.c_str(), 0755);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"/nowhere/program", "No such file"},
      {"no-such-program-in-path", "not found in PATH"},
      {folder.path().string(), "is a directory"},
      {plain, "is not executable"},
      {setuid, "is setuid"},
      {std::string(LIVESET_TEST_BIN_DIR) + "/static_job", "is statically linked"},
      {script, "is statically linked"},
      {other, "32-bit"}};
  for (const auto& [program, why] : cases) {
    const Ran ran = run_command(liveset_program + " run -o " + trace() + " -- " + program);
    EXPECT_EQ(ran.status, 2) << program;
    EXPECT_THAT(ran.err, HasSubstr(why));
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_EQ(ran.out, "");
  }
  EXPECT_FALSE(has_trace());
}

TEST_F(Run, AnOutputThatCannotBeIsSaidBeforeTheJobStarts) {
  const Ran ran = run_command(liveset_program + " run -o /nowhere/x.liveset -- touch " + folder.file("ran"));
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, HasSubstr("/nowhere"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("ran")));
}

TEST_F(Run, ASecondRunReplacesTheFirstWithAllItsFiles) {
  EXPECT_EQ(run_job("spawn 3").status, 0);
  write_file(trace() + ".d/notes.liveset", "not ours");
  EXPECT_EQ(files(), 4U);
  EXPECT_EQ(run_job("hello").status, 7);
  EXPECT_EQ(further(), std::vector<std::string>{trace() + ".d/notes.liveset"});
  std::filesystem::remove(further()[0]);
  EXPECT_EQ(run_job("spawn 3").status, 0);
  EXPECT_EQ(run_job("hello").status, 7);
  EXPECT_FALSE(std::filesystem::exists(trace() + ".d"));
}

TEST_F(Run, TwoAtOnceDoNotShareAFile) {
  Running first(command({job_program, "sleep-after"}), folder.file("error"));
  ASSERT_EQ(first.line(), "ready\n");
  const Ran second = run_command("cd " + folder.path().string() + " && " + liveset_program + " run -o job.liveset -- touch ran");
  EXPECT_EQ(second.status, 2);
  EXPECT_THAT(second.err, HasSubstr("another run is recording to it"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("ran")));
  first.close_input();
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(run_job("hello").status, 7);
}

TEST_F(Run, WhatIsNoTraceIsNotReplaced) {
  const std::string text = written(folder, "text", "dear diary, this is no liveset trace");
  const std::string locked = written(folder, "locked", "");
  chmod(locked.c_str(), 0444);
  for (const std::string& path : {text, locked, folder.path().string(), std::string("''")}) {
    const Ran ran = run_command(liveset_program + " run -o " + path + " -- touch " + folder.file("ran"));
    EXPECT_EQ(ran.status, 2) << path;
    EXPECT_NE(ran.err, "");
    EXPECT_FALSE(std::filesystem::exists(folder.file("ran")));
  }
  EXPECT_THAT(read_file(text), StartsWith("dear diary"));
}

TEST_F(Run, ASymbolicLinkIsWrittenThrough) {
  std::filesystem::create_symlink("target.liveset", trace());
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(run_job("hello").status, 7);
    EXPECT_TRUE(std::filesystem::is_symlink(trace()));
    EXPECT_EQ(count_trace(folder.file("target.liveset"))->events, 18U);
  }
}

TEST_F(Run, ScriptsRun) {
  const std::string script = written(folder, "script", "#!/bin/sh\nexec " + job_program + " hello\n");
  chmod(script.c_str(), 0755);
  EXPECT_EQ(run_command(liveset_program + " run -q -o " + trace() + " -- " + script).status, 7);
  EXPECT_TRUE(has_trace());
}

// ---- The job's surroundings

TEST_F(Run, TheUsersPreloadStays) {
  const Ran ran = run_command("LD_PRELOAD=libm.so.6 " + liveset_program + " run -q -o " + trace() + " -- sh -c 'echo $LD_PRELOAD'");
  EXPECT_THAT(ran.out, testing::MatchesRegex(".*/libliveset_preload\\.so:libm\\.so\\.6\n"));
}

TEST_F(Run, IgnoredAndBlockedSignalsAreAsBefore) {
  const char* show = " sh -c 'grep -E ^Sig.Blk\\|^SigIgn /proc/self/status'";
  const std::string under = liveset_program + " run -q -o " + trace() + " --";
  const Ran bare = run_command("trap '' HUP; exec" + std::string(show));
  EXPECT_EQ(run_command("trap '' HUP; exec " + under + show).out, bare.out);
  EXPECT_NE(bare.out, "");
}

TEST_F(Run, DescriptorsAreAsBefore) {
  const char* show = " sh -c 'ls /proc/self/fd | sort -n | tr \"\\n\" \" \"'";
  EXPECT_EQ(run_command(liveset_program + " run -q -o " + trace() + " --" + show).out, run_command(show).out);
}

TEST_F(Run, SignalsReachTheJob) {
  for (const int signal : {SIGTERM, SIGHUP, SIGUSR1, SIGINT}) {
    Running run(command({job_program, "sleep-after"}), folder.file("error"));
    ASSERT_EQ(run.line(), "ready\n");
    kill(run.pid(), signal);
    EXPECT_EQ(run.wait(), 128 + signal);
    EXPECT_EQ(count_trace(trace())->events, 2U);
  }
}

TEST_F(Run, AsProcessOne) {
  const Ran probe = run_command("unshare --pid --fork --mount-proc true");
  if (probe.status != 0) GTEST_SKIP() << "SKIPPED: no process namespace of our own is permitted";
  const Ran ran =
      run_command("unshare --pid --fork --mount-proc " + liveset_program + " run -o " + trace() + " -- " + job_program + " hello");
  EXPECT_EQ(ran.status, 7);
  EXPECT_EQ(count_trace(trace())->events, 18U);
}

TEST_F(Run, NothingIsLeftBehind) {
  const std::string temporary = folder.file("temporary");
  std::filesystem::create_directory(temporary);
  EXPECT_EQ(run_command("TMPDIR=" + temporary + " " + liveset_program + " run -q -o " + trace() + " -- " + job_program + " hello").status,
            7);
  EXPECT_TRUE(std::filesystem::is_empty(temporary));
}

// ---- Children

TEST_F(Run, AShellThatStartsTwoJobs) {
  const std::string script = "'" + job_program + " blocks 10 & " + job_program + " blocks 20; wait'";
  const Ran ran = run_command(liveset_program + " run -o " + trace() + " -- sh -c " + script);
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.err, "liveset: " + trace() + ": 60 events of 2 processes, the later ones in " + trace() + ".d/\n");
  ASSERT_EQ(further().size(), 1U);
  const auto first = count_trace(trace()), second = count_trace(further()[0]);
  EXPECT_EQ(std::min(first->events, second->events), 20U);
  EXPECT_EQ(std::max(first->events, second->events), 40U);
  EXPECT_TRUE(first->has_footer && second->has_footer);
  const auto& process = second->header.process;
  EXPECT_EQ(std::filesystem::path(further()[0]).filename().string(),
            "001-" + std::to_string(process.pid) + "-" + std::to_string(process.start_time) + ".liveset");
}

TEST_F(Run, EveryChildItsOwnFile) {
  EXPECT_EQ(run_job("spawn 4").status, 0);
  EXPECT_EQ(files(), 4U);
  for (const std::string& path : further()) EXPECT_EQ(count_trace(path)->events, 20U);
}

TEST_F(Run, AForkedChildIsSilent) {
  EXPECT_EQ(run_job("fork").status, 0);  // the child saw that it is not recorded
  EXPECT_EQ(count_trace(trace())->events, 4U);
  EXPECT_EQ(files(), 1U);
}

TEST_F(Run, AProcessThatBecomesAnotherProgramHasTwoTraces) {
  EXPECT_EQ(run_job("exec " + job_program + " blocks 3").status, 0);
  ASSERT_EQ(further().size(), 1U);
  const auto before = count_trace(trace()), after = count_trace(further()[0]);
  EXPECT_EQ(before->events, 2U);
  EXPECT_EQ(after->events, 6U);
  EXPECT_EQ(before->header.process.pid, after->header.process.pid);
  EXPECT_EQ(before->header.process.exec_count, 0U);
  EXPECT_EQ(after->header.process.exec_count, 1U);
}

TEST_F(Run, OneThatBecomesAProgramThatRecordsNothingStillEndsWell) {
  EXPECT_EQ(run_job("exec true").status, 0);
  EXPECT_EQ(count_trace(trace())->events, 2U);
  EXPECT_EQ(files(), 1U);
}

// ---- Threads

TEST_F(Run, TwentyThreadsAcross) {
  EXPECT_EQ(run_job("cross 20 2000").status, 0);
  const auto counted = count_trace(trace());
  ASSERT_TRUE(counted);
  EXPECT_EQ(counted->allocs, 40'000U);
  EXPECT_EQ(counted->frees, 40'000U);
  EXPECT_EQ(counted->events, 80'000U);  // so no unmatched free, and no free that had to be put in
  EXPECT_EQ(counted->lost, 0U);
}

TEST_F(Run, TenThousandThreadsComeAndGo) {
  EXPECT_EQ(run_job("threads 10000").status, 0);
  const auto counted = count_trace(trace());
  ASSERT_TRUE(counted);
  EXPECT_EQ(counted->events, 20'000U);
  EXPECT_EQ(counted->unmatched, 0U);
  EXPECT_EQ(counted->lost, 0U);
  EXPECT_EQ(counted->by_thread.size(), 10'000U);
  for (const auto& [thread, events] : counted->by_thread) EXPECT_EQ(events, 2U) << "thread " << thread;
}

TEST_F(Run, EventsAfterTheThreadsEndAreRecorded) {
  EXPECT_EQ(run_job("late").status, 0);
  EXPECT_EQ(count_trace(trace())->events, 12U);
}

TEST_F(Run, MoreThreadsThanRingsLoseEventsAndSaySo) {
  const Ran ran = run_command("LIVESET_RING_TOTAL=300000 LIVESET_RING_BYTES=65536 " + liveset_program + " run -o " + trace() + " -- " +
                              job_program + " together 20");
  EXPECT_EQ(ran.status, 0);
  const auto counted = count_trace(trace());
  ASSERT_TRUE(counted);
  EXPECT_GT(counted->events, 0U);
  EXPECT_GE(counted->lost, 16U);  // at most four rings of 64 KiB and a page
  EXPECT_EQ(counted->events + counted->lost, 40U);
  EXPECT_THAT(ran.err, HasSubstr(" lost"));
}

}  // namespace
}  // namespace liveset::test
