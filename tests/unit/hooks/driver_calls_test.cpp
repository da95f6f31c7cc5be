// Which function a look-up means: names, versions and flags as the driver's interface defines them.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "hooks/driver/calls.h"

namespace liveset::driver {
namespace {

std::string asked_for(const char* name, int version, Word flags = 0) {
  const int row = row_asked_for(name, version, flags);
  return row < 0 ? "" : rows[row].name;
}

TEST(DriverCalls, AreFoundByTheirExportedNames) {
  for (int row = 0; row < row_count; ++row) EXPECT_EQ(row_named(rows[row].name), row) << rows[row].name;
  EXPECT_EQ(row_named("cuInit"), -1);
  EXPECT_EQ(row_named(""), -1);
  EXPECT_EQ(row_named("cuMemAlloc_v3"), -1);
  EXPECT_EQ(row_named("zzz"), -1);
}

TEST(DriverCalls, StandOnceEach) {
  std::set<std::string> names;
  for (const Row& row : rows) EXPECT_TRUE(names.insert(row.name).second) << row.name;
}

TEST(DriverCalls, TheNewestThatTheVersionAllowsIsMeant) {
  EXPECT_EQ(asked_for("cuMemAlloc", 3020), "cuMemAlloc_v2");
  EXPECT_EQ(asked_for("cuMemAlloc", 13000), "cuMemAlloc_v2");
  EXPECT_EQ(asked_for("cuMemAlloc", 3019), "cuMemAlloc");
  EXPECT_EQ(asked_for("cuMemAlloc", 1000), "");
  EXPECT_EQ(asked_for("cuGraphAddNode", 12020), "cuGraphAddNode");  // without edges: other positions of its arguments
  EXPECT_EQ(asked_for("cuGraphAddNode", 12030), "cuGraphAddNode_v2");
  EXPECT_EQ(asked_for("cuIpcOpenMemHandle", 10000), "cuIpcOpenMemHandle");
  EXPECT_EQ(asked_for("cuIpcOpenMemHandle", 11000), "cuIpcOpenMemHandle_v2");
  EXPECT_EQ(asked_for("cuGetProcAddress", 11030), "cuGetProcAddress");  // four arguments
  EXPECT_EQ(asked_for("cuGetProcAddress", 12000), "cuGetProcAddress_v2");
  EXPECT_EQ(asked_for("cuGetProcAddress_v2_ptsz", 13000), "cuGetProcAddress_v2_ptsz");
  EXPECT_EQ(asked_for("cuMemGetInfo", 13000), "");
  EXPECT_EQ(asked_for("", 13000), "");
  EXPECT_EQ(asked_for("cudaMalloc", 13000), "");
}

TEST(DriverCalls, FlagsChooseTheStreamOfTheThread) {
  EXPECT_EQ(asked_for("cuMemAllocAsync", 11020, 0), "cuMemAllocAsync");
  EXPECT_EQ(asked_for("cuMemAllocAsync", 11020, 1), "cuMemAllocAsync");
  EXPECT_EQ(asked_for("cuMemAllocAsync", 11020, 2), "cuMemAllocAsync_ptsz");
  EXPECT_EQ(asked_for("cuMemAlloc", 3020, 2), "cuMemAlloc_v2");  // takes no stream: has no such twin
  EXPECT_EQ(asked_for("cuLaunchKernel", 7000, 2), "cuLaunchKernel_ptsz");
  EXPECT_EQ(asked_for("cuLaunchKernel", 4000, 2), "cuLaunchKernel");  // before CUDA 7 there was none
}

// Asked by a runtime that does not say what it was made for.
TEST(DriverCalls, WithoutAVersionOnlyWhatAllVersionsAgreeOnIsMeant) {
  const auto asked = [](const char* name, Word flags) {
    const int row = row_asked_for_at_any_version(name, flags);
    return std::string(row < 0 ? "" : rows[row].name);
  };
  EXPECT_EQ(asked("cuMemAlloc", 0), "cuMemAlloc_v2");
  EXPECT_EQ(asked("cuMemAllocAsync", 2), "cuMemAllocAsync_ptsz");
  EXPECT_EQ(asked("cuGraphLaunch", 0), "cuGraphLaunch");
  EXPECT_EQ(asked("cuMulticastCreate", 0), "cuMulticastCreate");
  EXPECT_EQ(asked("cuGraphAddNode", 0), "");  // 12.2 and 12.3 differ
  EXPECT_EQ(asked("cuMemGetInfo", 0), "");
}

TEST(DriverCalls, ExportedNamesMeanThemselves) {
  EXPECT_EQ(asked_for("cuMemAlloc_v2", 13000), "cuMemAlloc_v2");
  EXPECT_EQ(asked_for("cuMemAllocAsync_ptsz", 13000), "cuMemAllocAsync_ptsz");
}

}  // namespace
}  // namespace liveset::driver
