#include "profiler/launch/job_program.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>

#include "profiler/launch/elf_file.h"
#include "tests/support/temporary_folder.h"

namespace liveset::launch {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A PATH of our own.
class JobProgramTest : public testing::Test {
 protected:
  JobProgramTest() {
    make("python", "#!/bin/sh\n");
    setenv("PATH", folder.path().c_str(), 1);
  }
  ~JobProgramTest() override { setenv("PATH", before.c_str(), 1); }
  std::string make(const std::string& name, const std::string& text) const {
    test::write_file(folder.file(name), text);
    fs::permissions(folder.file(name), fs::perms::owner_all);
    return folder.file(name);
  }
  static std::vector<std::string> python(const std::vector<std::string>& command) { return find_job_program(command).python; }

  const TemporaryFolder folder;
  const std::string before = std::getenv("PATH");
};

TEST_F(JobProgramTest, ThePythonThatIsNamed) {
  EXPECT_THAT(python({"python", "train.py", "-I"}), ElementsAre("python"));
  EXPECT_THAT(python({"/a/venv/bin/python3.12", "-m", "train"}), ElementsAre("/a/venv/bin/python3.12"));
  EXPECT_THAT(python({"python3.13t", "-c", "import this"}), ElementsAre("python3.13t"));
  EXPECT_THAT(python({"python"}), ElementsAre("python"));
}

TEST_F(JobProgramTest, ItsOptionsAreKeptUpToTheScript) {
  EXPECT_THAT(python({"python", "-u", "-W", "error", "-X", "dev", "train.py", "-E"}),
              ElementsAre("python", "-u", "-W", "error", "-X", "dev"));
  EXPECT_THAT(python({"python", "-Werror", "-I", "-m", "train"}), ElementsAre("python", "-Werror", "-I"));
  EXPECT_THAT(python({"python", "-Im", "train", "-u"}), ElementsAre("python", "-I"));
  EXPECT_THAT(python({"python", "-uW", "error", "train.py"}), ElementsAre("python", "-uW", "error"));
  EXPECT_THAT(python({"python", "--check-hash-based-pycs", "never", "-s", "train.py"}),
              ElementsAre("python", "--check-hash-based-pycs", "never", "-s"));
  EXPECT_THAT(python({"python", "-", "x"}), ElementsAre("python"));
}

TEST_F(JobProgramTest, ScriptsNameTheirInterpreter) {
  const std::string torchrun = make("torchrun", "#!/a/venv/bin/python -sP\nimport sys\n");
  EXPECT_THAT(python({"torchrun", "--nproc-per-node", "2", "train.py"}), ElementsAre("/a/venv/bin/python", "-sP"));
  EXPECT_THAT(python({torchrun, "train.py"}), ElementsAre("/a/venv/bin/python", "-sP"));
  const std::string by_env = make("by_env", "#!/usr/bin/env python3\n");
  EXPECT_THAT(python({by_env}), ElementsAre("/usr/bin/env", "python3"));
  const std::string by_split = make("by_split", "#!/usr/bin/env -S python3 -u\n");
  EXPECT_THAT(python({by_split}), ElementsAre("/usr/bin/env", "python3", "-u"));
  const std::string by_long_path = make("accelerate", "#!/bin/sh\n'''exec' \"/a long path/bin/python\" \"$0\" \"$@\"\n' '''\n");
  EXPECT_THAT(python({by_long_path, "launch"}), ElementsAre("/a long path/bin/python"));
}

// The variable names a Python, too.
TEST_F(JobProgramTest, VariablesAndOptionsOfAWrapperAreNotTheProgram) {
  EXPECT_THAT(python({"env", "PYSPARK_PYTHON=/usr/bin/python3", "python", "train.py"}),
              ElementsAre("env", "PYSPARK_PYTHON=/usr/bin/python3", "python"));
  EXPECT_THAT(python({"env", "-u", "A", "B=/bin/sh", "python3", "-u", "x.py"}),
              ElementsAre("env", "-u", "A", "B=/bin/sh", "python3", "-u"));
  EXPECT_THAT(python({"uv", "run", "--python=/usr/bin/python3", "python", "x.py"}),
              ElementsAre("uv", "run", "--python=/usr/bin/python3", "python"));
  EXPECT_THAT(python({"/a=b/python", "x.py"}), ElementsAre("/a=b/python"));
  EXPECT_THAT(python({"nice", "/a=b/python", "x.py"}), ElementsAre("nice", "/a=b/python"));
}

TEST_F(JobProgramTest, BehindWrappers) {
  make("torchrun", "#!/a/venv/bin/python\n");
  EXPECT_THAT(python({"env", "-u", "HOME", "A=1", "python", "-u", "x.py"}), ElementsAre("env", "-u", "HOME", "A=1", "python", "-u"));
  EXPECT_THAT(python({"nice", "-n", "10", "timeout", "5", "python3", "x.py"}), ElementsAre("nice", "-n", "10", "timeout", "5", "python3"));
  EXPECT_THAT(python({"nohup", "torchrun", "x.py"}), ElementsAre("nohup", "/a/venv/bin/python"));
  EXPECT_THAT(python({"uv", "run", "--with", "torch", "python", "x.py"}), ElementsAre("uv", "run", "--with", "torch", "python"));
  EXPECT_THAT(find_job_program({"uv", "run", "torchrun", "x.py"}).problem, HasSubstr("cannot tell which Python"));
}

TEST_F(JobProgramTest, AShellTakesThePythonOfThePath) {
  EXPECT_THAT(python({"/bin/sh", "-c", "python x.py"}), ElementsAre("python"));
  EXPECT_THAT(python({make("train.sh", "#!/bin/bash\npython x.py\n")}), ElementsAre("python"));
  fs::remove(folder.file("python"));
  EXPECT_THAT(find_job_program({"/bin/sh", "-c", "python x.py"}).problem, HasSubstr("PATH has no python"));
}

TEST_F(JobProgramTest, OtherPrograms) {
  const JobProgram found = find_job_program({"/proc/self/exe", "python"});
  EXPECT_EQ(found.program, "/proc/self/exe");
  EXPECT_THAT(found.python, IsEmpty());
  EXPECT_EQ(find_job_program({"env", "A=1", "/proc/self/exe"}).program, "/proc/self/exe");
  EXPECT_THAT(find_job_program({"nice", "-n", "5"}).problem, HasSubstr("cannot tell"));
}

// A Python that answers as the real one does.
class TorchInstallTest : public JobProgramTest {
 protected:
  TorchInstall ask(const std::string& script) const { return find_torch({make("python3", "#!/bin/sh\n" + script)}); }
  TorchInstall answer(const std::string& json) const { return ask("echo noise; echo 'liveset-answer " + json + "'; echo more"); }
};

TEST_F(TorchInstallTest, AnAnswer) {
  const TorchInstall found = answer(
      R"({"executable": "/v/python", "ignores_environment": true, "torch": "/v/torch", "version": "2.14.1", "cuda": "13.0", "nvidia": ["/v/n"]})");
  EXPECT_EQ(found.problem, "");
  EXPECT_EQ(found.folder, "/v/torch");
  EXPECT_EQ(found.cuda, "13.0");
  EXPECT_THAT(found.nvidia, ElementsAre("/v/n"));
  EXPECT_TRUE(found.ignores_environment);
}

TEST_F(TorchInstallTest, NoTorchOrOneWithoutCuda) {
  EXPECT_EQ(
      answer(R"({"executable": "/v/python", "ignores_environment": false, "torch": "", "version": "", "cuda": "", "nvidia": []})").problem,
      "/v/python: this Python has no torch (--python names another one)");
  const std::string cpu = R"({"executable": "/v/python", "ignores_environment": false, "nvidia": [], "torch": "/v/torch", )";
  EXPECT_THAT(answer(cpu + R"("version": "2.14.1+cpu", "cuda": ""})").problem, HasSubstr("its torch 2.14.1+cpu is built without CUDA"));
}

TEST_F(TorchInstallTest, WhatIsMissingOrOfAnotherType) {
  EXPECT_THAT(answer(R"({"executable": null, "ignores_environment": false, "torch": "", "version": "", "cuda": "", "nvidia": []})").problem,
              HasSubstr("/python3: this Python has no torch"));
  EXPECT_THAT(answer(R"({"torch": 7, "nvidia": [7]})").problem, HasSubstr("this Python has no torch"));
}

TEST_F(TorchInstallTest, NoAnswer) {
  EXPECT_THAT(ask("exit 3").problem, HasSubstr("gave no answer when asked for its torch (exit status 3)"));
  EXPECT_THAT(ask("echo 'liveset-answer {'").problem, HasSubstr("gave no answer"));
  EXPECT_THAT(find_torch({folder.file("none")}).problem, HasSubstr("No such file or directory"));
}

TEST(ElfFile, WhatAProgramNeeds) {
  const auto own = read_elf("/proc/self/exe");
  ASSERT_TRUE(own);
  EXPECT_THAT(own->needed, testing::Contains("libc.so.6"));
  EXPECT_FALSE(own->has_device_code);
  EXPECT_FALSE(read_elf("/etc/passwd"));
  EXPECT_FALSE(read_elf("/no/such/file"));
}

TEST(ElfFile, DamageIsNoCrash) {
  const TemporaryFolder folder;
  const std::string bytes = test::read_file("/proc/self/exe");
  for (const std::size_t length : {std::size_t{0}, std::size_t{63}, std::size_t{64}, bytes.size() / 2, bytes.size() - 1}) {
    test::write_file(folder.file("cut"), bytes.substr(0, length));
    EXPECT_FALSE(read_elf(folder.file("cut"))) << length;
  }
}

}  // namespace
}  // namespace liveset::launch
