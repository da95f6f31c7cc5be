// What the preload may ask of, and show to, the programs it is loaded into.
#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/run_program.h"

namespace liveset {
namespace {

const std::string preload = std::string(LIVESET_LIB_DIR) + "/libliveset_preload.so";

std::vector<std::string> lines_of(const std::string& command) {
  std::istringstream text(test::run_command(command).out);
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST(Preload, ShowsNothingButItsInterface) {
  std::vector<std::string> shown;
  for (const std::string& line : lines_of("nm -D --defined-only " + preload)) shown.push_back(line.substr(line.rfind(' ') + 1));
  EXPECT_THAT(shown, testing::Contains("liveset_api_v1"));
  for (const std::string& name : shown) {
    EXPECT_THAT(name, testing::AnyOf("liveset_api_v1", testing::StartsWith("_ZN3c1022memoryProfilingEnabled"),
                                     testing::StartsWith("_ZN3c1027reportMemoryUsageToProfiler"),
                                     testing::StartsWith("_ZN3c1027reportOutOfMemoryToProfiler"), "dlsym",
                                     testing::StartsWith("_ZN5torch8autograd6Engine17evaluate_function"),
                                     testing::StartsWith("_ZN5torch8autograd16validate_outputs"),
                                     testing::StartsWith("_ZN4c10d7Reducer18initialize_buckets"),
                                     testing::StartsWith("_ZN4c10d7Reducer17all_reduce_bucket"),
                                     testing::MatchesRegex("cu(da)?[A-Z][A-Za-z0-9]+(_v[23])?(_ptsz)?")));
  }
}

// glibc's parts of before 2.34 among them: a program that has none of them is to start there, too.
TEST(Preload, NeedsTheCLibraryOnly) {
  std::vector<std::string> needed;
  for (const std::string& line : lines_of("readelf -d " + preload)) {
    if (line.find("(NEEDED)") == std::string::npos) continue;
    needed.push_back(line.substr(line.find('[')));
  }
  EXPECT_THAT(needed, testing::UnorderedElementsAre("[libc.so.6]", "[libdl.so.2]", "[libpthread.so.0]"));
}

TEST(Preload, LoadsOnGlibc228) {
  std::size_t symbols = 0;
  for (const std::string& line : lines_of("objdump -T " + preload)) {
    const std::size_t at = line.find("GLIBC_");
    if (at == std::string::npos) continue;
    ++symbols;
    int major = 0, minor = 0;
    ASSERT_GE(std::sscanf(line.c_str() + at, "GLIBC_%d.%d", &major, &minor), 2) << line;
    EXPECT_TRUE(major == 2 && minor <= 28) << line;
  }
  EXPECT_GT(symbols, 20U);
}

TEST(Preload, TakesLittleOfTheScarceStaticThreadStorage) {
  int segments = 0;
  for (const std::string& line : lines_of("readelf -lW " + preload)) {
    std::istringstream fields(line);
    std::string type, offset, address, physical, in_file, in_memory;
    fields >> type >> offset >> address >> physical >> in_file >> in_memory;
    if (type != "TLS") continue;
    ++segments;
    EXPECT_LE(std::stoul(in_memory, nullptr, 16), 64U) << line;
  }
  EXPECT_EQ(segments, 1);
}

// Told to record, in a program that never has an event.
TEST(Preload, OpensNothingBeforeTheFirstEvent) {
  if (test::run_command("command -v strace").status != 0) GTEST_SKIP() << "SKIPPED: no strace";
  const test::TemporaryFolder folder;
  const test::Ran ran = test::run_command("LIVESET_SOCKET=" + folder.file("socket") + " strace -f -E LD_PRELOAD=" + preload +
                                          " -e trace=socket,memfd_create,openat,mmap /bin/true");
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.err.find("libliveset_preload.so"), std::string::npos);  // it was loaded, and strace saw it
  EXPECT_EQ(ran.err.find("memfd"), std::string::npos);
  EXPECT_EQ(ran.err.find("socket("), std::string::npos);
}

}  // namespace
}  // namespace liveset
