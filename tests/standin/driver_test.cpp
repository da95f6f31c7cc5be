// The stand-in driver as a program meets it that looks its functions up: by dlsym, then cuGetProcAddress by name, version and flags.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/standin/driver.h"

namespace standin {
namespace {

// First of all, while this process's driver was never asked: a child of fork may begin.
TEST(DriverAlone, WithoutADryRunThereIsNoDevice) {
  const auto child = fork();
  if (child == 0) {
    void* library = dlopen(LIVESET_LIB_DIR "/liveset/standin/driver/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    unsetenv("LIVESET_STANDIN");
    const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
    const auto count = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
    int devices = 0;
    _exit(init(0) == no_device && count(&devices) == not_initialized ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

const char* symbol_of(const char* name, int version, std::uint64_t flags) {
  void* function = nullptr;
  Dl_info info{};
  static std::string found;
  if (look_up()(name, &function, version, flags, nullptr) != success || dladdr(function, &info) == 0) return "none";
  // Several names may mean one function: the caller compares addresses through dlsym.
  found = info.dli_sname ? info.dli_sname : "?";
  return found.c_str();
}

TEST_F(DriverTest, LooksUpByNameVersionAndFlags) {
  EXPECT_STREQ(symbol_of("cuMemAlloc", 3020, 0), "cuMemAlloc_v2");
  EXPECT_STREQ(symbol_of("cuMemAllocAsync", 11020, 0), "cuMemAllocAsync");
  EXPECT_STREQ(symbol_of("cuMemAllocAsync", 11020, 2), "cuMemAllocAsync_ptsz");
  EXPECT_STREQ(symbol_of("cuMemcpy", 4000, 2), "cuMemcpy_ptds");
  EXPECT_STREQ(symbol_of("cuStreamGetCaptureInfo", 10010, 0), "cuStreamGetCaptureInfo");
  EXPECT_STREQ(symbol_of("cuStreamGetCaptureInfo", 11030, 0), "cuStreamGetCaptureInfo_v2");
  EXPECT_STREQ(symbol_of("cuStreamGetCaptureInfo", 13000, 0), "cuStreamGetCaptureInfo_v3");
  EXPECT_STREQ(symbol_of("cuStreamGetCaptureInfo", 13000, 2), "cuStreamGetCaptureInfo_v3_ptsz");
  EXPECT_STREQ(symbol_of("cuGraphInstantiate", 12000, 0), "cuGraphInstantiateWithFlags");
  EXPECT_STREQ(symbol_of("cuCtxCreate", 11030, 0), "cuCtxCreate_v2");
  EXPECT_STREQ(symbol_of("cuGetProcAddress", 11030, 0), "cuGetProcAddress");
  EXPECT_STREQ(symbol_of("cuGetProcAddress", 12000, 0), "cuGetProcAddress_v2");

  void* function = nullptr;
  int status = -1;
  EXPECT_EQ(look_up()("cuNoSuchFunction", &function, 13000, 0, &status), not_found);
  EXPECT_EQ(status, 1);
  EXPECT_EQ(look_up()("cuStreamGetCaptureInfo", &function, 9000, 0, &status), not_found);
  EXPECT_EQ(status, 2);
  EXPECT_EQ(function, nullptr);
}

TEST_F(DriverTest, DeviceMemoryAndMisuse) {
  const auto address = allocate(5 * mebibyte);
  EXPECT_EQ(used(), context_bytes + 6 * mebibyte);
  Address base = 0, none = 0;
  std::size_t bytes = 0;
  EXPECT_EQ(call("cuMemGetAddressRange", &base, &bytes, address + 12345), success);
  EXPECT_EQ(base, address);
  EXPECT_EQ(bytes, 5 * mebibyte);
  EXPECT_EQ(call("cuMemFree", address + 256), invalid_value);
  EXPECT_EQ(call("cuMemFree", address), success);
  EXPECT_EQ(call("cuMemFree", address), invalid_value);
  EXPECT_EQ(call("cuMemFree", Address{0}), success);
  EXPECT_EQ(call("cuMemAlloc", &none, std::size_t{0}), invalid_value);
  EXPECT_EQ(call("cuMemAlloc", &none, device_bytes), out_of_memory);  // the context has its share
  unsigned type = 0;
  EXPECT_EQ(call("cuPointerGetAttribute", static_cast<void*>(&type), 2, address), invalid_value);
}

TEST_F(DriverTest, WithoutAContextThereIsNoMemory) {
  ASSERT_EQ(call("cuCtxSetCurrent", static_cast<void*>(nullptr)), success);
  Address address = 0;
  EXPECT_EQ(call("cuMemAlloc", &address, mebibyte), invalid_context);
  EXPECT_EQ(call("cuCtxSetCurrent", context), success);
  int device = 0;
  EXPECT_EQ(call("cuDeviceGet", &device, 2), invalid_device);
  EXPECT_EQ(call("cuDeviceGet", &device, -1), invalid_device);
}

TEST_F(DriverTest, CopiesKeepValues) {
  const auto address = allocate(4 * mebibyte);
  std::string text(3 * mebibyte, 'x'), back(3 * mebibyte, 0);
  EXPECT_EQ(call("cuMemcpyHtoD", address, static_cast<const void*>(text.data()), text.size()), success);
  EXPECT_EQ(call("cuMemsetD8", address, static_cast<unsigned char>('y'), std::size_t{10}), success);
  EXPECT_EQ(call("cuMemcpyDtoH", static_cast<void*>(back.data()), address, back.size()), success);
  EXPECT_EQ(back, std::string(10, 'y') + std::string(3 * mebibyte - 10, 'x'));
  EXPECT_EQ(call("cuMemFree", address), success);
}

TEST_F(DriverTest, HostAndManagedMemory) {
  void* pinned = nullptr;
  ASSERT_EQ(call("cuMemHostAlloc", &pinned, std::size_t{4096}, 0u), success);
  unsigned type = 0;
  EXPECT_EQ(call("cuPointerGetAttribute", static_cast<void*>(&type), 2, reinterpret_cast<Address>(pinned)), success);
  EXPECT_EQ(type, 1u);
  EXPECT_EQ(call("cuMemFree", reinterpret_cast<Address>(pinned)), invalid_value);
  EXPECT_EQ(call("cuMemFreeHost", pinned), success);
  EXPECT_EQ(call("cuMemFreeHost", pinned), invalid_value);

  std::string own(8192, 0);
  EXPECT_EQ(call("cuMemHostRegister", static_cast<void*>(own.data()), own.size(), 0u), success);
  EXPECT_EQ(call("cuMemHostRegister", static_cast<void*>(own.data()), own.size(), 0u), host_memory_already_registered);
  EXPECT_EQ(call("cuMemHostUnregister", static_cast<void*>(own.data())), success);
  EXPECT_EQ(call("cuMemHostUnregister", static_cast<void*>(own.data())), host_memory_not_registered);

  Address managed = 0;
  EXPECT_EQ(call("cuMemAllocManaged", &managed, mebibyte, 3u), invalid_value);
  ASSERT_EQ(call("cuMemAllocManaged", &managed, mebibyte, 1u), success);
  unsigned is_managed = 0;
  EXPECT_EQ(call("cuPointerGetAttribute", static_cast<void*>(&is_managed), 8, managed), success);
  EXPECT_EQ(is_managed, 1u);
  *reinterpret_cast<int*>(managed) = 7;
  EXPECT_EQ(call("cuMemFree", managed), success);
}

TEST_F(DriverTest, VirtualMemory) {
  AllocationProperties properties{};
  properties.type = properties.location.type = 1;
  std::size_t granularity = 0;
  ASSERT_EQ(call("cuMemGetAllocationGranularity", &granularity, static_cast<const AllocationProperties*>(&properties), 0), success);
  Address base = 0;
  ASSERT_EQ(call("cuMemAddressReserve", &base, 4 * granularity, std::size_t{0}, Address{0}, 0ull), success);
  std::uint64_t handle = 0;
  ASSERT_EQ(call("cuMemCreate", &handle, granularity, static_cast<const AllocationProperties*>(&properties), 0ull), success);
  EXPECT_EQ(used(), context_bytes + granularity);
  ASSERT_EQ(call("cuMemMap", base, granularity, std::size_t{0}, handle, 0ull), success);
  const AccessDescription access{{1, 0}, 3};
  EXPECT_EQ(call("cuMemSetAccess", base, granularity, &access, std::size_t{1}), success);
  EXPECT_EQ(call("cuMemRelease", handle), success);
  EXPECT_EQ(call("cuMemAddressFree", base, 4 * granularity), invalid_value);
  EXPECT_EQ(call("cuMemFree", base), invalid_value);
  EXPECT_EQ(call("cuMemUnmap", base, granularity), success);
  EXPECT_EQ(call("cuMemAddressFree", base, 4 * granularity), success);
  properties.location.id = 2;
  EXPECT_EQ(call("cuMemCreate", &handle, granularity, static_cast<const AllocationProperties*>(&properties), 0ull), invalid_device);
}

TEST_F(DriverTest, StreamOrderedAllocation) {
  void *pool = nullptr, *stream = nullptr;
  ASSERT_EQ(call("cuDeviceGetDefaultMemPool", &pool, 0), success);
  ASSERT_EQ(call("cuStreamCreate", &stream, 1u), success);
  Address address = 0;
  ASSERT_EQ(call("cuMemAllocAsync", &address, 3 * mebibyte, stream), success);
  std::uint64_t in_use = 0;
  EXPECT_EQ(call("cuMemPoolGetAttribute", pool, 7, static_cast<void*>(&in_use)), success);
  EXPECT_EQ(in_use, 3 * mebibyte);
  EXPECT_EQ(used(), context_bytes + 32 * mebibyte);
  EXPECT_EQ(call("cuMemFreeAsync", address, stream), success);
  EXPECT_EQ(call("cuMemFreeAsync", address, stream), invalid_value);
  EXPECT_EQ(call("cuStreamSynchronize", stream), success);
  EXPECT_EQ(used(), context_bytes);
  EXPECT_EQ(call("cuMemPoolDestroy", pool), invalid_value);
  EXPECT_EQ(call("cuStreamDestroy", stream), success);
  EXPECT_EQ(call("cuStreamDestroy", stream), invalid_handle);
  EXPECT_EQ(call("cuMemAllocAsync", &address, mebibyte, stream), invalid_handle);
}

TEST_F(DriverTest, KernelsAreFoundByNameAndCheckedAtLaunch) {
  void *module = nullptr, *function = nullptr;
  ASSERT_EQ(call("cuModuleLoadData", &module, static_cast<const void*>("image")), success);
  ASSERT_EQ(call("cuModuleGetFunction", &function, module, "kernel_one"), success);
  const char* name = nullptr;
  EXPECT_EQ(call("cuFuncGetName", &name, function), success);
  EXPECT_STREQ(name, "kernel_one");
  auto launch = [&](unsigned threads, unsigned shared_bytes) {
    return call("cuLaunchKernel", function, 1u, 1u, 1u, threads, 1u, 1u, shared_bytes, static_cast<void*>(nullptr),
                static_cast<void**>(nullptr), static_cast<void**>(nullptr));
  };
  EXPECT_EQ(launch(1024, 0), success);
  EXPECT_EQ(launch(1025, 0), invalid_value);
  EXPECT_EQ(launch(0, 0), invalid_value);
  EXPECT_EQ(launch(32, 300 * 1024), invalid_value);
  EXPECT_EQ(call("cuModuleUnload", module), success);
  EXPECT_EQ(launch(32, 0), invalid_handle);
  EXPECT_EQ(call("cuModuleUnload", module), invalid_handle);
}

TEST_F(DriverTest, PeersAreEnabledOnce) {
  void* peer = nullptr;
  ASSERT_EQ(call("cuDevicePrimaryCtxRetain", &peer, 1), success);
  EXPECT_EQ(call("cuCtxDisablePeerAccess", peer), peer_access_not_enabled);
  EXPECT_EQ(call("cuCtxEnablePeerAccess", peer, 0u), success);
  EXPECT_EQ(call("cuCtxEnablePeerAccess", peer, 0u), peer_access_already_enabled);
  EXPECT_EQ(call("cuCtxDisablePeerAccess", peer), success);
  EXPECT_EQ(call("cuDevicePrimaryCtxRelease", 1), success);
}

TEST_F(DriverTest, ExportTablesEndTheProgramWithALine) {
  EXPECT_EXIT(call("cuGetExportTable", static_cast<const void**>(nullptr), static_cast<const void*>(nullptr)), testing::ExitedWithCode(2),
              "liveset dryrun: .*static cudart");
}

// The runtime of CUDA 12 beside the same driver; its structure of properties is older.
TEST_F(DriverTest, TheRuntimeOfCuda12) {
  void* library = dlopen(LIVESET_LIB_DIR "/liveset/standin/cuda12/libcudart.so.12", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  auto function = [library](const char* name) { return dlvsym(library, name, "libcudart.so.12"); };
  int version = 0;
  EXPECT_EQ(reinterpret_cast<int (*)(int*)>(function("cudaRuntimeGetVersion"))(&version), success);
  EXPECT_EQ(version, 12080);
  alignas(8) unsigned char properties[2048];
  std::memset(properties, 0xff, sizeof properties);
  EXPECT_EQ(reinterpret_cast<int (*)(void*, int)>(function("cudaGetDeviceProperties_v2"))(properties, 0), success);
  int major = 0;
  std::memcpy(&major, properties + 360, sizeof major);
  EXPECT_STREQ(reinterpret_cast<const char*>(properties), "Test GPU");
  EXPECT_EQ(major, 9);
  EXPECT_EQ(properties[1031], 0);
  EXPECT_EQ(properties[1032], 0xff);
  void* memory = nullptr;
  EXPECT_EQ(reinterpret_cast<int (*)(void**, std::size_t)>(function("cudaMalloc"))(&memory, mebibyte), success);
  EXPECT_EQ(reinterpret_cast<int (*)(void*)>(function("cudaFree"))(memory), success);
}

}  // namespace
}  // namespace standin
