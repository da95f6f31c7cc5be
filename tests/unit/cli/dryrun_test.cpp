// What `liveset dryrun` refuses: one line on stderr, status 2, and the job is not started.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/support/run_program.h"

namespace liveset::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

class DryRun : public testing::Test {
 protected:
  // A Python that has, as it says, this torch. Started as a job it leaves a file.
  std::string python(const std::string& torch, const std::string& cuda, const std::string& version = "2.14.1") const {
    const std::string answer = R"(liveset-answer {"executable": "/v/python", "ignores_environment": false, "nvidia": [], "torch": ")" +
                               torch + R"(", "version": ")" + version + R"(", "cuda": ")" + cuda + "\"}";
    return script("python3", "case \"$1\" in -c) echo '" + answer + "';; *) touch " + folder.file("started") + ";; esac");
  }
  std::string script(const std::string& name, const std::string& text) const {
    write_file(folder.file(name), "#!/bin/sh\n" + text + "\n");
    fs::permissions(folder.file(name), fs::perms::owner_all);
    return folder.file(name);
  }
  // The one line behind "liveset: ".
  std::string refused(const std::string& options, const std::string& job) const {
    const Ran ran = run_program("liveset dryrun " + options + " -o " + folder.file("out.liveset") + " -- " + job);
    EXPECT_EQ(ran.status, 2) << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, StartsWith("liveset: "));
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_FALSE(fs::exists(folder.file("started")));
    EXPECT_FALSE(fs::exists(folder.file("out.liveset")));
    return ran.err.substr(std::min<std::size_t>(ran.err.size(), 9));
  }

  const TemporaryFolder folder;
};

TEST_F(DryRun, UnknownGpuListsTheKnown) {
  EXPECT_THAT(refused("--gpu h1000", "python3 x.py"),
              StartsWith("unknown GPU \"h1000\" (known: a100-40, a100-80, b200, h100, h200, l40s, rtx4090;"));
}

TEST_F(DryRun, AGpuFileThatIsWrong) {
  write_file(folder.file("mine.json"), "{\"gpu\": \"mine\",\n\"facts\": {\"name\": 7}}");
  EXPECT_EQ(
      refused("--gpu " + folder.file("mine.json"), "python3 x.py"),
      folder.file("mine.json") + R"(: facts.name: must be {"value": ..., "source": "..."} or {"value": ..., "assumed": "..."})" + "\n");
}

TEST_F(DryRun, MemoryMustBeASize) {
  for (const char* size : {"0", "-1", "0GiB", "lots", "80G", "''"})
    EXPECT_THAT(refused(std::string("--memory ") + size, "python3 x.py"), HasSubstr("is no size above 0")) << size;
}

TEST_F(DryRun, MemoryMustHoldAContext) {
  write_file(folder.file("mine.json"), R"({"gpu": "mine", "facts": {"name": {"value": "Mine", "source": "me"},
    "capability": {"value": "9.0", "source": "me"}, "multiprocessors": {"value": 1, "source": "me"},
    "memory_bytes": {"value": 5000, "source": "me"}, "context_bytes": {"value": 4096, "source": "me"}}})");
  EXPECT_EQ(refused("--gpu " + folder.file("mine.json") + " --memory 4096", "python3 x.py"),
            "--memory: 4096 bytes must be more than the 4096 bytes of a context on this device\n");
  EXPECT_THAT(refused("--memory 1", "python3 x.py"), StartsWith("--memory: 1 bytes must be more than"));
}

TEST_F(DryRun, WorldMustBePositive) {
  for (const char* world : {"0", "-2", "x"})
    EXPECT_THAT(refused(std::string("--world ") + world, "python3 x.py"), HasSubstr("--world")) << world;
}

TEST_F(DryRun, WhatNoStandInCanBe) {
  EXPECT_EQ(refused("--memory 17TiB", "python3 x.py"), "--memory: a dry run's device has at most 16 TiB\n");
  EXPECT_THAT(refused("--world 1048577", "python3 x.py"), HasSubstr("not in range 1 to 1048576"));
  const std::string launcher = written(folder, "torchrun", "#!" + python("/v/torch", "13.0") + "\n");
  fs::permissions(launcher, fs::perms::owner_all);
  EXPECT_EQ(refused("", launcher + " --nproc-per-node 65 x.py"), "65 ranks on a host: a dry run has at most 64 devices\n");
}

TEST_F(DryRun, NoTorch) {
  EXPECT_EQ(refused("", python("", "") + " x.py"), "/v/python: this Python has no torch (--python names another one)\n");
}

TEST_F(DryRun, ThePythonThatIsNamedIsAsked) {
  EXPECT_EQ(refused("--python " + python("", ""), "sh -c 'exec nothing'"),
            "/v/python: this Python has no torch (--python names another one)\n");
}

TEST_F(DryRun, TorchWithoutCuda) {
  EXPECT_EQ(refused("", python("/v/torch", "", "2.14.1+cpu") + " x.py"),
            "/v/python: its torch 2.14.1+cpu is built without CUDA; a dry run needs a CUDA build of torch (no GPU)\n");
}

TEST_F(DryRun, AnotherCudaFamily) {
  EXPECT_THAT(refused("", python("/v/torch", "11.8") + " x.py"),
              StartsWith("torch 2.14.1 in /v/torch is of CUDA 11.8, another family than a dry run stands in for ("));
}

TEST_F(DryRun, AnInterpreterThatTakesNoPath) {
  const std::string isolated = script("python3",
                                      "echo 'liveset-answer {\"executable\": \"/v/python\", \"ignores_environment\": true, \"nvidia\": [], "
                                      "\"torch\": \"/v/torch\", \"version\": \"2\", \"cuda\": \"13.0\"}'");
  EXPECT_EQ(refused("", isolated + " -I x.py"),
            isolated + ": options -I and -E keep PYTHONPATH out, by which the stand-in libraries come; start it without them\n");
}

TEST_F(DryRun, NoProgramAndUnknownOptions) {
  EXPECT_THAT(refused("", ""), HasSubstr("dryrun: no program is named"));
  EXPECT_THAT(refused("--bogus", "python3 x.py"), HasSubstr("dryrun: unknown option --bogus"));
  EXPECT_THAT(refused("", "/no/such/program"), HasSubstr("No such file or directory"));
  EXPECT_THAT(refused("--backing some", "python3 x.py"), HasSubstr("'some' is none of none|small|all"));
}

TEST_F(DryRun, HelpShowsExamples) {
  const Ran ran = run_program("liveset dryrun --help");
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.out, HasSubstr("liveset dryrun -- torchrun --nproc-per-node 2 train.py"));
  EXPECT_THAT(ran.out, HasSubstr("a build for\nCUDA 13 or 12, runs"));  // lines are filled, not cut twice
  for (const char* gpu : {"a100-40", "a100-80", "b200", "h100", "h200", "l40s", "rtx4090"}) EXPECT_THAT(ran.out, HasSubstr(gpu));
}

// A device code section and no libcudart.so among what is needed: NVIDIA's runtime is inside.
TEST_F(DryRun, AStaticRuntime) {
  const std::string source =
      written(folder, "job.c", "__attribute__((section(\".nv_fatbin\"))) int code = 1; int main(void) { return code; }");
  ASSERT_EQ(run_command("cc -o " + folder.file("job") + " " + source).status, 0);
  EXPECT_THAT(refused("", folder.file("job")), HasSubstr("has NVIDIA's runtime linked in statically"));
}

}  // namespace
}  // namespace liveset::test
