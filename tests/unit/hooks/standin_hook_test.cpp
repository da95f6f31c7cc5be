// The driver hook under a program of nvcc with the shared runtime, on the stand-in device: every call once, none twice.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/fault/recorded_job.h"

namespace liveset::test {
namespace {

struct Taken {
  std::string kind, heap;
  std::uint64_t bytes;
  bool operator==(const Taken& other) const { return kind == other.kind && heap == other.heap && bytes == other.bytes; }
};
void PrintTo(const Taken& taken, std::ostream* out) { *out << taken.kind << " " << taken.heap << " " << taken.bytes; }

class StandinHook : public RecordedJob {};

TEST_F(StandinHook, SeesEveryCallOfTheRuntimeOnce) {
  const std::string program = std::string(LIVESET_BIN_DIR) + "/memory_calls";
  if (!std::filesystem::exists(program)) GTEST_SKIP() << "SKIPPED: no CUDA toolkit to compile tests/unit/hooks/memory_calls.cu";
  const std::string standin = std::string(LIVESET_SOURCE_DIR) + "/tests/standin/run_on_standin.sh " + LIVESET_BIN_DIR + "/.. cuda13 ";
  const Ran ran = run_command(standin + liveset_program + " run -q --kernels launches -o " + trace() + " -- " + program);
  ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
  const std::uint64_t pitch = std::stoull(ran.out);
  EXPECT_EQ(ran.out, std::to_string(pitch) + "\n");

  const std::string device = "cuda:0/program", host = "host/program";
  std::vector<Taken> expected = {{"segment_alloc", device, 100000}, {"kernel fill", "cuda:0/kernels", 0}, {"segment_free", device, 100000}};
  const auto add = [&](const std::string& kind, const std::string& heap, std::uint64_t bytes) {
    expected.push_back({kind + (kind == "host_register" ? "" : "_alloc"), heap, bytes});
    expected.push_back({kind == "host_register" ? "host_unregister" : kind + "_free", heap, bytes});
  };
  add("segment", device, pitch * 10);
  add("segment", device, pitch * 30);
  add("segment", "managed:0/program", 3000);
  add("segment", device, 4000);
  expected.push_back({"pool_create", device, 0});
  add("segment", device, 5000);
  expected.push_back({"pool_destroy", device, 0});
  add("segment", device, 64 * 32 * 16);
  add("host", host, 7000);
  add("host", host, 8000);
  add("host_register", host, 8192);
  add("segment", "cuda:1/program", 6000);
  expected.push_back({"oom", device, std::uint64_t{1} << 40});
  expected.push_back({"graph_alloc", device, 9000});
  expected.push_back({"graph_free", device, 9000});
  add("segment", device, 9000);
  expected.push_back({"segment_alloc", device, 200000});
  expected.push_back({"segment_free", device, 200000});  // with the device's context

  auto file = trace::TraceFile::open(trace());
  ASSERT_TRUE(file) << file.error().message();
  const trace::Dictionary& names = file->dictionary();
  std::vector<Taken> seen;
  const Status status = trace::for_each_event(*file, [&](const trace::Event& event) {
    std::string kind(trace::kind_name(event.kind));
    if (event.kind == trace::Kind::attribute) return true;  // what the stand-in says of itself
    if (event.kind == trace::Kind::kernel) kind += " " + std::string(names.string(event.name));
    if (kind == "kernel (CUDA graph)") return true;
    seen.push_back({kind, std::string(names.string(names.heaps[event.heap].name)), event.size});
    return true;
  });
  ASSERT_TRUE(status);
  EXPECT_THAT(seen, testing::ElementsAreArray(expected));
}

}  // namespace
}  // namespace liveset::test
