// The stand-in driver in several processes, and beside what is not its own.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/standin/driver.h"
#include "tests/support/temporary_folder.h"

namespace standin {
namespace {

// The status of tests/standin/process.cpp with these arguments; its standard error goes to `said`.
int run_process(std::vector<std::string> arguments, std::string* said = nullptr) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  const auto child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    arguments.insert(arguments.begin(), STANDIN_PROCESS);
    std::vector<char*> pointers;
    for (auto& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    execv(STANDIN_PROCESS, pointers.data());
    _exit(127);
  }
  close(ends[1]);
  char letter = 0;
  while (read(ends[0], &letter, 1) == 1)
    if (said != nullptr) *said += letter;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Another process of the dry run begins anew and opens what this one shows; a child of fork has no driver.
TEST_F(DriverTest, ProcessesShareMemoryAndForkDoesNot) {
  const auto address = allocate(3 * mebibyte);
  SharedHandle handle{};
  ASSERT_EQ(call("cuIpcGetMemHandle", &handle, address), success);
  Address opened = 0;
  EXPECT_EQ(call("cuIpcOpenMemHandle", &opened, handle, 1u), invalid_context);
  std::string text;
  for (const unsigned char byte : handle.bytes) {
    constexpr char digits[] = "0123456789abcdef";
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  EXPECT_EQ(run_process({"open", text, std::to_string(3 * mebibyte)}), 0);
  const auto child = fork();
  if (child == 0) {
    int count = 0;
    _exit(call("cuDeviceGetCount", &count) == not_initialized && call("cuInit", 0u) == not_initialized ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(call("cuMemFree", address), success);
}

TEST(DriverBeside, ARealLibraryEndsTheProcessWithALine) {
  const std::string described = "gpu=test\nmemory_bytes=1073741824\nfolder=";
  setenv("LIVESET_STANDIN", (described + LIVESET_LIB_DIR "/liveset/standin").c_str(), 1);
  std::string said;
  EXPECT_EQ(run_process({"map", STANDIN_FOREIGN}, &said), 2);
  EXPECT_EQ(said, "liveset dryrun: a real NVIDIA library is loaded beside the stand-ins: " STANDIN_FOREIGN
                  " (a Python finds the stand-ins by PYTHONPATH, which -I and -E keep out; --python names one that the command does not "
                  "show)\n");
  // NVIDIA's own runtime asks for private tables before anything else: the library is named then, too.
  std::string said_of_tables;
  EXPECT_EQ(run_process({"tables", STANDIN_FOREIGN}, &said_of_tables), 2);
  EXPECT_EQ(said_of_tables, said);
  EXPECT_EQ(run_process({"map", LIVESET_LIB_DIR "/liveset/standin/cuda13/libcudart.so.13"}), 0);
}

// Parts of NVIDIA's libraries, and copies of them with a hash in the name as wheels bring them, are real ones too.
TEST(DriverBeside, PartsAndRenamedCopiesOfRealLibrariesAreKnown) {
  setenv("LIVESET_STANDIN", "gpu=test\nmemory_bytes=1073741824\nfolder=" LIVESET_LIB_DIR "/liveset/standin", 1);
  const liveset::test::TemporaryFolder folder;
  const auto status_of = [&](const char* name) {
    std::filesystem::copy(STANDIN_FOREIGN, folder.file(name));
    return run_process({"map", folder.file(name)});
  };
  for (const char* name : {"libcudnn_graph.so.9", "libcudart-d0da41ae.so.11.0", "libcusolverMg.so.11", "libcufftw.so.11",
                           "libnvrtc-builtins.so.13.0", "libcuda.so.1", "libcuda.so.580.65.06"})
    EXPECT_EQ(status_of(name), 2) << name;
  for (const char* name : {"libcuda_utilities.so", "libcudata.so", "libnvToolsExt.so.1", "libmycublas.so"})
    EXPECT_EQ(status_of(name), 0) << name;
}

TEST(DriverBeside, DevicesThatAreNotVisibleAreNotThere) {
  setenv("LIVESET_STANDIN", "gpu=test\nmemory_bytes=1073741824\ndevices=4", 1);
  setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
  EXPECT_EQ(run_process({"count", "libc.so.6"}), 2);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_EQ(run_process({"count", "libc.so.6"}), 100);
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(run_process({"count", "libc.so.6"}), 4);
}

TEST(DriverBeside, WhatIsNotUnderstoodEndsTheProcessWithALine) {
  setenv("LIVESET_STANDIN", "gpu=test\nmemory_bytes=1073741824\ndevices=65", 1);
  std::string said;
  EXPECT_EQ(run_process({"map", "libc.so.6"}, &said), 2);
  EXPECT_EQ(said,
            "liveset dryrun: LIVESET_STANDIN is not what `liveset dryrun` of this version writes: gpu=test memory_bytes=1073741824 "
            "devices=65\n");
}

}  // namespace
}  // namespace standin
