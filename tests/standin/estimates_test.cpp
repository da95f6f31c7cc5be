// What the stand-in says in the trace about its estimates. This program plays the recorder: it exports the table that liveset.h looks for.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "hooks/api/liveset.h"
#include "hooks/standin/interface.h"

namespace {

const volatile std::uint32_t recording = 1;
// Never destroyed: the driver says its last lines when the process ends.
auto& said = *new std::vector<std::string>;
int pipe_of_child = -1;

void keep(const char* key, const char* json) {
  said.push_back(std::string(key) + " " + json);
  if (pipe_of_child >= 0 && write(pipe_of_child, (said.back() + "\n").c_str(), said.back().size() + 1) < 0) _exit(3);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const liveset_api liveset_api_v1 = {
    1, sizeof(liveset_api), &recording, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, keep, nullptr, nullptr};

namespace {

using testing::ElementsAre;

void* library() {
  static void* handle = [] {
    setenv("LIVESET_STANDIN",
           "gpu=test\nname=Test \"GPU\"\ncapability=80\nmemory_bytes=1073741824\ncontext_bytes=16777216\nassumed=name,context_bytes", 1);
    return dlopen(LIVESET_LIB_DIR "/liveset/standin/driver/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  }();
  return handle;
}

template <class... Arguments>
int call(const char* name, Arguments... arguments) {
  return reinterpret_cast<int (*)(Arguments...)>(dlsym(library(), name))(arguments...);
}

void estimate(const char* what, const char* detail) {
  reinterpret_cast<void (*)(const char*, const char*)>(dlsym(library(), "liveset_standin_estimate"))(what, detail);
}

std::string line(const char* what, const char* detail, int count) {
  return std::string("standin.estimate {\"what\":\"") + what + "\",\"detail\":" + detail + ",\"count\":" + std::to_string(count) +
         ",\"first\":[]}";
}

TEST(Estimates, AreSaidAtPowersOfTwo) {
  ASSERT_NE(library(), nullptr) << dlerror();
  said.clear();
  for (int i = 0; i < 5; ++i) estimate("workspace", "one \"thing\"");
  estimate("workspace", nullptr);
  EXPECT_THAT(said, ElementsAre(line("workspace", "\"one \\\"thing\\\"\"", 1), line("workspace", "\"one \\\"thing\\\"\"", 2),
                                line("workspace", "\"one \\\"thing\\\"\"", 4), line("workspace", "null", 1)));
}

TEST(Estimates, ReadsOfTheDeviceCountAndNothingElse) {
  void* context = nullptr;
  std::uint64_t address = 0, other = 0;
  ASSERT_EQ(call("cuInit", 0u), 0);
  said.clear();
  ASSERT_EQ(call("cuDevicePrimaryCtxRetain", &context, 0), 0);
  EXPECT_THAT(
      said,
      ElementsAre("standin.device {\"gpu\":\"test\",\"name\":\"Test \\\"GPU\\\"\",\"capability\":80,\"memory_bytes\":1073741824,"
                  "\"context_bytes\":16777216,\"devices\":1,\"world\":1,\"backing\":\"small\",\"assumed\":[\"name\",\"context_bytes\"]}",
                  line("context_bytes", "null", 1)));
  ASSERT_EQ(call("cuCtxSetCurrent", context), 0);
  ASSERT_EQ(call("cuMemAlloc_v2", &address, std::size_t{4096}), 0);
  ASSERT_EQ(call("cuMemAlloc_v2", &other, std::size_t{4096}), 0);
  said.clear();
  int value = 5;
  const auto host = reinterpret_cast<std::uint64_t>(&value);
  EXPECT_EQ(call("cuMemcpy", address, host, sizeof value), 0);
  EXPECT_EQ(call("cuMemcpy", other, address, sizeof value), 0);
  EXPECT_THAT(said, ElementsAre());
  value = 0;
  EXPECT_EQ(call("cuMemcpy", host, other, sizeof value), 0);
  EXPECT_EQ(value, 5);
  EXPECT_THAT(said, ElementsAre(line("device_value_read", "null", 1)));
  EXPECT_EQ(call("cuMemFree_v2", address), 0);
  EXPECT_EQ(call("cuMemFree_v2", other), 0);
}

TEST(Estimates, KernelsThatChooseASizeAreToldByTheirNames) {
  void *context = nullptr, *module = nullptr, *function = nullptr, *plain = nullptr;
  ASSERT_EQ(call("cuInit", 0u), 0);
  ASSERT_EQ(call("cuDevicePrimaryCtxRetain", &context, 0), 0);
  ASSERT_EQ(call("cuCtxSetCurrent", context), 0);
  ASSERT_EQ(call("cuModuleLoadData", &module, static_cast<const void*>("image")), 0);
  ASSERT_EQ(call("cuModuleGetFunction", &function, module, "_ZN3cub23DeviceSelectSweepKernelIiEE"), 0);
  ASSERT_EQ(call("cuModuleGetFunction", &plain, module, "_Z3addv"), 0);
  said.clear();
  for (void* kernel : {plain, function})
    EXPECT_EQ(call("cuLaunchKernel", kernel, 1u, 1u, 1u, 32u, 1u, 1u, 0u, static_cast<void*>(nullptr), static_cast<void**>(nullptr),
                   static_cast<void**>(nullptr)),
              0);
  EXPECT_THAT(said, ElementsAre(line("dynamic_shape", "\"select (nonzero, masked_select, boolean index)\"", 1)));
}

TEST(Estimates, KernelsOfTritonAreACompiledModels) {
  void *module = nullptr, *function = nullptr;
  ASSERT_EQ(call("cuInit", 0u), 0);
  ASSERT_EQ(call("cuModuleLoadData", &module, static_cast<const void*>("image")), 0);
  said.clear();
  for (const char* name : {"triton_poi_fused_add_0", "triton_poi_fused_add_0", "my_triton_kernel"})
    ASSERT_EQ(call("cuModuleGetFunction", &function, module, name), 0);
  EXPECT_THAT(said, ElementsAre(line("compiled", "null", 1)));
}

// In a process of its own, whose end says what was not said yet.
TEST(Estimates, UnknownFunctionsAreNamedAndCountedAtTheEnd) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const auto child = fork();
  if (child == 0) {
    close(ends[0]);
    pipe_of_child = ends[1];
    static const char* const names[] = {"known_one", "unknown_one"};
    static std::uint32_t calls[2] = {};
    static LivesetStandinStubs stubs{"libother.so.1", names, calls, 2};
    reinterpret_cast<void (*)(LivesetStandinStubs*)>(dlsym(library(), "liveset_standin_register"))(&stubs);
    const auto unknown = reinterpret_cast<void (*)(const LivesetStandinStubs*, std::uint32_t)>(dlsym(library(), "liveset_standin_unknown"));
    calls[0] = 7;
    calls[1] = 1;
    unknown(&stubs, 1);
    calls[1] = 9;  // later calls are only counted
    std::exit(0);
  }
  close(ends[1]);
  std::string text;
  char letter = 0;
  while (read(ends[0], &letter, 1) == 1) text += letter;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  const auto first = line("unknown_function", "\"libother.so.1 unknown_one\"", 1),
             last = line("unknown_function", "\"libother.so.1 unknown_one\"", 9);
  EXPECT_THAT(text, testing::HasSubstr(first + "\n"));
  EXPECT_THAT(text, testing::HasSubstr(last + "\n"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("known_one\",\"count\":7")));
}

}  // namespace
