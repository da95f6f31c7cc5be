#include "profiler/launch/shadow.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/support/temporary_folder.h"

namespace liveset::launch {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

class ShadowTest : public testing::Test {
 protected:
  ShadowTest() {
    for (const char* file :
         {"site/torch/__init__.py", "site/torch/nn/module.py", "site/torch/lib/libtorch_cuda.so", "site/torch/lib/libcudart.so.13",
          "site/nvidia/cu13/include/cuda.h", "site/nvidia/cu13/bin/nvcc", "site/nvidia/cu13/lib/libcudart.so.13",
          "site/nvidia/cu13/lib/libcudart_static.a", "site/nvidia/cu13/lib/libnvblas.so.13", "site/nvidia/cudnn/include/cudnn.h",
          "site/nvidia/cudnn/lib/libcudnn.so.9", "site/nvidia/other/data.txt", "cuda13/libcudart.so.13", "cuda13/libcudnn.so.9",
          "cuda13/libunheard.so.1", "cuda12/libcudart.so.12", "cuda12/libnccl.so.2", "site.py", "empty.so"}) {
      fs::create_directories(at(file).parent_path());
      test::write_file(at(file), file);
    }
    setenv("TMPDIR", folder.path().c_str(), 1);
  }
  ~ShadowTest() override { unsetenv("TMPDIR"); }
  fs::path at(const std::string& name) const { return folder.path() / name; }
  ShadowPlan plan(const std::string& family = "cuda13", bool wheels = true) const {
    std::vector<std::string> nvidia;
    if (wheels) nvidia.push_back(at("site/nvidia"));
    return {at("site/torch"), nvidia, at(family), at("empty.so"), ""};
  }

  const TemporaryFolder folder;
};

TEST_F(ShadowTest, TorchIsLinkedFileByFileWhereRunPathsStart) {
  const Shadow shadow(plan());
  ASSERT_EQ(shadow.problem(), "");
  const fs::path torch = fs::path(shadow.folder()) / "torch";
  EXPECT_FALSE(fs::is_symlink(torch));
  EXPECT_FALSE(fs::is_symlink(torch / "lib"));
  EXPECT_EQ(fs::read_symlink(torch / "__init__.py"), at("site/torch/__init__.py"));
  EXPECT_EQ(fs::read_symlink(torch / "nn"), at("site/torch/nn"));
  EXPECT_EQ(fs::read_symlink(torch / "lib/libtorch_cuda.so"), at("site/torch/lib/libtorch_cuda.so"));
  EXPECT_FALSE(fs::exists(torch / "lib/libcudart.so.13"));  // NVIDIA's, carried by torch
}

TEST_F(ShadowTest, TheWheelsHaveStandInsAndEverythingElse) {
  const Shadow shadow(plan());
  const fs::path nvidia = fs::path(shadow.folder()) / "nvidia";
  EXPECT_EQ(fs::read_symlink(nvidia / "cu13/lib/libcudart.so.13"), at("cuda13/libcudart.so.13"));
  EXPECT_EQ(fs::read_symlink(nvidia / "cudnn/lib/libcudnn.so.9"), at("cuda13/libcudnn.so.9"));
  EXPECT_EQ(fs::read_symlink(nvidia / "cu13/include"), at("site/nvidia/cu13/include"));
  EXPECT_TRUE(fs::exists(nvidia / "cu13/bin/nvcc"));
  EXPECT_TRUE(fs::exists(nvidia / "cu13/lib/libcudart_static.a"));
  EXPECT_TRUE(fs::exists(nvidia / "cudnn/include/cudnn.h"));
  EXPECT_TRUE(fs::exists(nvidia / "other/data.txt"));
}

TEST_F(ShadowTest, NoSharedLibraryOfTheWheelsIsReachable) {
  const Shadow shadow(plan());
  int seen = 0;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(shadow.folder()) / "nvidia")) {
    const std::string name = entry.path().filename().string();
    if (name.find(".so") == std::string::npos) continue;
    const fs::path target = fs::read_symlink(entry.path());
    EXPECT_TRUE(target == at("empty.so") || target.parent_path() == at("cuda13")) << entry.path();
    seen += target == at("empty.so") ? 1 : 0;
  }
  EXPECT_EQ(seen, 1);  // nvblas is loaded by that name, and is nothing
}

TEST_F(ShadowTest, WhatCannotBeFilledIsNamedNotWhatItWasToHold) {
  fs::path deep = folder.path();
  while (deep.native().size() < 3900) deep /= std::string(100, 'd');
  fs::create_directories(deep);
  const std::string name(250, 'n');  // with it the shadow's path is too long
  test::write_file(at("site/torch/" + name), "");
  setenv("TMPDIR", deep.c_str(), 1);
  const Shadow shadow(plan());
  EXPECT_EQ(shadow.problem(), shadow.folder() + ": cannot be filled: File name too long (TMPDIR chooses another place)");
}

TEST_F(ShadowTest, WithoutTheWheels) {
  const Shadow shadow(plan("cuda12", false));
  ASSERT_EQ(shadow.problem(), "");
  const fs::path nvidia = fs::path(shadow.folder()) / "nvidia";
  EXPECT_TRUE(fs::exists(nvidia / "cuda_runtime/lib/libcudart.so.12"));
  EXPECT_TRUE(fs::exists(nvidia / "nccl/lib/libnccl.so.2"));
}

TEST_F(ShadowTest, ItIsGoneAfterwardsAndTheRealOnesAreNot) {
  std::string made;
  {
    ShadowPlan with_site = plan();
    with_site.site_customize = at("site.py");
    const Shadow shadow(with_site);
    made = shadow.folder();
    EXPECT_EQ(fs::read_symlink(fs::path(made) / "sitecustomize.py"), at("site.py"));
    fs::create_directories(fs::path(made) / "cache/triton");
  }
  EXPECT_FALSE(fs::exists(made));
  EXPECT_TRUE(fs::exists(at("site/torch/nn/module.py")));
  EXPECT_TRUE(fs::exists(at("site/nvidia/cu13/bin/nvcc")));
}

TEST_F(ShadowTest, TroubleIsSaid) {
  ShadowPlan missing = plan();
  missing.torch = at("nowhere");
  EXPECT_EQ(Shadow(missing).problem(), at("nowhere").string() + ": No such file or directory");
  setenv("TMPDIR", at("none").c_str(), 1);
  EXPECT_EQ(Shadow(plan()).problem(),
            at("none").string() + ": no folder can be made there: No such file or directory (TMPDIR chooses another place)");
}

// Names of the wheels as PyPI has them.
TEST(WheelFolder, ByFamily) {
  EXPECT_EQ(wheel_folder("cuda13", "libcublasLt.so.13"), "cu13/lib");
  EXPECT_EQ(wheel_folder("cuda13", "libcudnn.so.9"), "cudnn/lib");
  EXPECT_EQ(wheel_folder("cuda13", "libcusparseLt.so.0"), "cusparselt/lib");
  EXPECT_EQ(wheel_folder("cuda12", "libcublasLt.so.12"), "cublas/lib");
  EXPECT_EQ(wheel_folder("cuda12", "libcudart.so.12"), "cuda_runtime/lib");
  EXPECT_EQ(wheel_folder("cuda12", "libcupti.so.12"), "cuda_cupti/lib");
  EXPECT_EQ(wheel_folder("cuda12", "libnvJitLink.so.12"), "nvjitlink/lib");
  EXPECT_EQ(wheel_folder("cuda12", "libunheard.so.1"), "");
  EXPECT_EQ(wheel_folder("cuda11", "libcudart.so.11"), "");
}

}  // namespace
}  // namespace liveset::launch
