// The stand-in driver on two devices of 1 GiB, and a test with a context on the first that leaves no memory behind.
#pragma once
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "hooks/standin/driver/types.h"
#include "hooks/standin/model/errors.h"

namespace standin {

inline constexpr std::size_t mebibyte = std::size_t{1} << 20;
inline constexpr auto device_bytes = 1024 * mebibyte, context_bytes = 16 * mebibyte;

inline void* driver_library() {
  static void* handle = [] {  // LIVESET_STANDIN is read once
    setenv("LIVESET_STANDIN",
           "gpu=test\nname=Test "
           "GPU\ncapability=90\nmultiprocessors=8\nmemory_bytes=1073741824\ncontext_bytes=16777216\ndevices=2\nbacking=all",
           1);
    return dlopen(LIVESET_LIB_DIR "/liveset/standin/driver/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  }();
  return handle;
}

using LookUp = int (*)(const char*, void**, int, std::uint64_t, int*);
inline LookUp look_up() { return reinterpret_cast<LookUp>(dlsym(driver_library(), "cuGetProcAddress_v2")); }

// A driver function by name, as CUDA 13 knows it.
template <class... Arguments>
int call(const char* name, Arguments... arguments) {
  void* function = nullptr;
  if (look_up()(name, &function, 13000, 0, nullptr) != success) return -1;
  return reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
}

struct DriverTest : testing::Test {
  void* context = nullptr;

  void SetUp() override {
    ASSERT_NE(driver_library(), nullptr) << dlerror();
    ASSERT_EQ(call("cuInit", 0u), success);
    ASSERT_EQ(call("cuDevicePrimaryCtxRetain", &context, 0), success);
    ASSERT_EQ(call("cuCtxSetCurrent", context), success);
  }
  void TearDown() override {
    EXPECT_EQ(used(), context_bytes) << "a test left memory behind";
    call("cuCtxSetCurrent", static_cast<void*>(nullptr));
    call("cuDevicePrimaryCtxRelease", 0);
  }
  static std::size_t used() {
    std::size_t available = 0, total = 0;
    EXPECT_EQ(call("cuMemGetInfo", &available, &total), success);
    EXPECT_EQ(total, device_bytes);
    return total - available;
  }
  static Address allocate(std::size_t bytes) {
    Address address = 0;
    EXPECT_EQ(call("cuMemAlloc", &address, bytes), success);
    return address;
  }
};

}  // namespace standin
