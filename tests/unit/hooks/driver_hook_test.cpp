// The driver hook in programs that use CUDA (fake libraries: tests/support/fake_cuda): every call recorded once, none twice.
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/fault/recorded_job.h"

namespace liveset::test {
namespace {

using nlohmann::json;

const std::string tests_folder = LIVESET_TEST_BIN_DIR;
const std::string preload = std::string(LIVESET_LIB_DIR) + "/libliveset_preload.so";

struct Seen {
  std::string kind, heap;
  std::uint64_t bytes = 0, address = 0, stream = 0;
  bool operator==(const Seen& other) const {
    return kind == other.kind && heap == other.heap && bytes == other.bytes && address == other.address && stream == other.stream;
  }
};
void PrintTo(const Seen& seen, std::ostream* out) {
  *out << seen.kind << " " << seen.heap << " " << seen.bytes << " at " << std::hex << seen.address << std::dec << " stream " << seen.stream;
}

constexpr std::uint64_t place(std::uint64_t number) { return 0x700000000000 + number * 0x100000000; }

class DriverHook : public RecordedJob {
 protected:
  std::vector<Seen> seen(const std::string& mode, const std::string& before = "", const std::string& options = "") {
    const Ran ran =
        run_command(before + liveset_program + " run -q " + options + " -o " + trace() + " -- " + tests_folder + "/cuda_job " + mode);
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(ran.err, "");
    return read_trace();
  }
  std::vector<Seen> read_trace() {
    std::vector<Seen> all;
    auto file = trace::TraceFile::open(trace());
    if (!file) {
      ADD_FAILURE() << file.error().message();
      return all;
    }
    EXPECT_EQ(file->health().lost_events, expected_lost);
    for (const trace::Source& source : file->dictionary().sources) {
      if (source.name == "driver") cannot_see = source.cannot_see;
    }
    const trace::Dictionary& names = file->dictionary();
    const Status status = trace::for_each_event(*file, [&](const trace::Event& event) {
      Seen one{std::string(trace::kind_name(event.kind)), std::string(names.string(names.heaps[event.heap].name)), event.size,
               event.address, event.stream};
      if (event.kind == trace::Kind::kernel) one.kind = names.string(event.name);
      all.push_back(one);
      return true;
    });
    EXPECT_TRUE(status);
    return all;
  }

  std::string cannot_see;
  std::uint64_t expected_lost = 0;
};

TEST_F(DriverHook, SeesEveryAllocationOfALinkedProgramOnce) {
  const std::string device = "cuda:0/program", host = "host/program";
  constexpr std::uint64_t granule = 2 << 20, first_handle = 0x1000;
  const std::vector<Seen> expected = {
      // A free that fails is taken back.
      {"segment_alloc", device, 1000, place(0)},
      {"segment_free", device, 1000, place(0)},
      {"segment_alloc", device, 1000, place(0)},
      {"segment_free", device, 1000, place(0)},
      {"oom", device, std::uint64_t{1} << 41},
      {"segment_alloc", device, 5120, place(1)},  // ten rows of 512
      {"segment_free", device, 5120, place(1)},
      {"segment_alloc", "managed:1/program", 3000, place(2)},
      {"segment_free", "managed:1/program", 3000, place(2)},
      {"segment_alloc", device, 4000, place(3), 5},
      {"segment_free", device, 4000, place(3), 5},
      {"pool_create", device, 1 << 20, first_handle},
      {"segment_alloc", device, 5000, place(4), 6},
      {"segment_free", device, 5000, place(4)},
      {"pool_trim", device, 0, first_handle},
      {"pool_destroy", device, 1 << 20, first_handle},
      {"segment_alloc", device, 64 * 32 * 16, first_handle + 1},
      {"segment_free", device, 64 * 32 * 16, first_handle + 1},
      {"segment_alloc", device, 8 * 8 * 4, first_handle + 2},
      {"segment_free", device, 8 * 8 * 4, first_handle + 2},
      {"segment_alloc", device, 256 + 32 + 4, first_handle + 3},  // 8x8x4, 4x4x2, 2x2x1
      {"segment_free", device, 256 + 32 + 4, first_handle + 3},
      {"host_alloc", host, 7000, place(5)},
      {"host_free", host, 7000, place(5)},
      {"host_alloc", host, 8000, place(6)},
      {"host_free", host, 8000, place(6)},
      {"host_register", host, 4096, 0x5000},
      {"host_unregister", host, 4096, 0x5000},
      {"address_reserve", device, 4 * granule, place(7)},
      {"handle_create", device, granule, first_handle + 4},
      {"handle_create", device, granule, first_handle + 5},
      {"segment_map", device, granule, place(7)},
      {"segment_map", device, granule, place(7) + granule},
      {"segment_unmap", device, granule, place(7)},
      {"segment_unmap", device, granule, place(7) + granule},
      {"handle_release", device, granule, first_handle + 5},  // the other one is retained
      {"import_begin", device, granule, place(7)},
      {"import_end", device, granule, place(7)},
      {"address_free", device, 4 * granule, place(7)},
      {"import_begin", device, granule, place(8)},
      {"import_end", device, granule, place(8)},
      {"import_begin", device, 9000, first_handle + 7},
      {"import_begin", device, 600, place(9)},
      {"import_end", device, 600, place(9)},
      {"import_end", device, 9000, first_handle + 7},
  };
  EXPECT_THAT(seen("linked"), testing::ElementsAreArray(expected));
  EXPECT_THAT(cannot_see, testing::HasSubstr("contexts"));
  EXPECT_THAT(cannot_see, testing::HasSubstr("kernel launches"));
  EXPECT_THAT(cannot_see, testing::Not(testing::HasSubstr("another hook")));
}

TEST_F(DriverHook, FollowsLookUpsByNameVersionAndFlags) {
  const std::vector<Seen> expected = {
      {"segment_alloc", "cuda:0/program", 100, place(0)},    {"segment_free", "cuda:0/program", 100, place(0)},
      {"segment_alloc", "cuda:0/program", 200, 0x10000000},  {"segment_free", "cuda:0/program", 200, 0x10000000},
      {"segment_alloc", "cuda:0/program", 300, place(1), 9}, {"segment_free", "cuda:0/program", 300, place(1), 8},
      {"segment_alloc", "cuda:0/program", 400, place(2)},    {"segment_free", "cuda:0/program", 400, place(2)},
      {"host_alloc", "host/program", 500, place(3)},         {"host_free", "host/program", 500, place(3)},
  };
  EXPECT_THAT(seen("looked-up"), testing::ElementsAreArray(expected));
}

TEST_F(DriverHook, NamesTheLibraryThatCalledTheRuntime) {
  const std::vector<Seen> expected = {
      {"segment_alloc", "cuda:0/program", 1000, place(0)}, {"segment_free", "cuda:0/program", 1000, place(0)},
      {"segment_alloc", "cuda:0/program", 6000, place(1)}, {"segment_alloc", "cuda:0/program", 2000, place(2), 4},
      {"host_alloc", "host/program", 3000, place(3)},      {"segment_alloc", "cuda:0/plug-in", 4000, place(4)},
      {"segment_alloc", "cuda:0/nccl", 5000, place(5)},    {"segment_free", "cuda:0/plug-in", 4000, place(4)},
      {"segment_alloc", "cuda:0/program", 6000, place(6)},
  };
  EXPECT_THAT(seen("runtime"), testing::ElementsAreArray(expected));
}

// A wheel's copy of the runtime; its library is unloaded, and loaded again.
TEST_F(DriverHook, KnowsARuntimeWithAHashInItsName) {
  const std::vector<Seen> expected = {{"segment_alloc", "cuda:0/hashed", 100, place(0)}, {"segment_alloc", "cuda:0/hashed", 200, place(1)}};
  EXPECT_THAT(seen("hashed"), testing::ElementsAreArray(expected));
}

TEST_F(DriverHook, AContextTakesItsMemoryAlong) {
  const std::string device = "cuda:0/program", host = "host/program";
  const std::vector<Seen> expected = {
      {"segment_alloc", device, 1000, place(0)},
      {"segment_alloc", device, 2000, place(1), 5},
      {"segment_free", device, 1000, place(0)},
      {"host_alloc", host, 3000, place(2)},
      {"host_free", host, 3000, place(2)},
      {"segment_alloc", device, 4000, place(3)},
      {"segment_alloc", "cuda:1/program", 5000, place(4)},
      {"segment_free", device, 4000, place(3)},
      {"segment_alloc", device, 6000, place(5)},
      {"segment_free", device, 6000, place(5)},
      {"segment_alloc", device, 7000, place(6)},
      {"segment_free", device, 7000, place(6)},
      {"segment_alloc", device, 8000, place(6)},
  };
  EXPECT_THAT(seen("contexts"), testing::ElementsAreArray(expected));
}

TEST_F(DriverHook, CountsWhatLiesOnADeviceBeyondItsTables) {
  expected_lost = 1;
  const std::vector<Seen> expected = {{"segment_alloc", "cuda:31/program", 100, place(0)},
                                      {"segment_alloc", "cuda:32/program", 100, place(1)},
                                      {"segment_alloc", "cuda:63/program", 100, place(2)}};
  EXPECT_THAT(seen("devices"), testing::ElementsAreArray(expected));
}

TEST_F(DriverHook, TheSummaryTellsWhatLiesOutsideTheAllocator) {
  seen("runtime");
  const Ran ran = run_command(liveset_program + " summary --format json " + trace());
  ASSERT_EQ(ran.status, 0) << ran.err;
  const json summary = json::parse(ran.out);
  EXPECT_EQ(summary.at("counters").at("cuda:0").at("outside_allocator").at("peak"), 6000 + 2000 + 5000 + 6000);
  EXPECT_EQ(summary.at("counters").at("host").at("pinned").at("peak"), 3000);
  EXPECT_EQ(summary.at("owners"), json({{"program", 14000}, {"nccl", 5000}}));
  const Ran table = run_command(liveset_program + " summary " + trace());
  EXPECT_THAT(table.out, testing::HasSubstr("cuda:0 at its fullest (event 8): 18.55 KiB, outside"));
}

TEST_F(DriverHook, TheSummaryCountsKernels) {
  seen("launches", "", "--kernels launches");
  const Ran ran = run_command(liveset_program + " summary --format json " + trace());
  ASSERT_EQ(ran.status, 0) << ran.err;
  const json kernels = json::parse(ran.out).at("kernels");
  EXPECT_EQ(kernels.at("launches"), 6);
  EXPECT_EQ(kernels.at("different"), 5);
  EXPECT_EQ(kernels.at("phases"), json({{"other", 6}}));
  EXPECT_EQ(kernels.at("names").at(0).at("name"), "first_kernel");
  EXPECT_EQ(kernels.at("names").at(0).at("launches"), 2);
}

// Their sum must be what the allocator says it has reserved: they lie in its heap. When it finds no memory it says so itself.
TEST_F(DriverHook, PutsTheAllocatorsSegmentsIntoItsHeap) {
  constexpr std::uint64_t granule = 2 << 20;
  const std::vector<Seen> expected = {
      {"segment_alloc", "cuda:0", granule, place(0)},     {"handle_create", "cuda:0", granule, 0x1000},
      {"segment_map", "cuda:0", granule, 0x600000000000}, {"segment_unmap", "cuda:0", granule, 0x600000000000},
      {"handle_release", "cuda:0", granule, 0x1000},
  };
  EXPECT_THAT(seen("allocator"), testing::ElementsAreArray(expected));
}

TEST_F(DriverHook, AGraphsNodeIsAnAddressFirstAndMemoryAtItsLaunch) {
  const std::string device = "cuda:0/program";
  const std::vector<Seen> expected = {
      {"graph_alloc", device, 6000, place(0)},     {"segment_alloc", device, 6000, place(0), 3},
      {"segment_free", device, 6000, place(0), 3}, {"graph_alloc", device, 6000, place(1)},
      {"graph_free", device, 6000, place(1)},      {"segment_alloc", device, 6000, place(1), 4},
      {"segment_free", device, 6000, place(1), 4}, {"graph_alloc", device, 500, place(2)},
      {"graph_free", device, 500, place(2)},       {"pool_trim", device, 0, 0},
  };
  EXPECT_THAT(seen("graphs"), testing::ElementsAreArray(expected));
}

TEST_F(DriverHook, NamesKernelsWhenAsked) {
  const std::string device = "cuda:0/kernels";
  const std::vector<Seen> expected = {
      {"first_kernel", device, 0, 0, 11}, {"second_kernel", device, 0, 0, 12}, {"third_kernel", device, 0, 0, 13},
      {"first_kernel", device, 0, 0, 11}, {"unnamed kernel", device, 0, 0, 0}, {"(CUDA graph)", device, 0, 0, 7},
  };
  EXPECT_THAT(seen("launches", "", "--kernels launches"), testing::ElementsAreArray(expected));
  EXPECT_THAT(cannot_see, testing::Not(testing::HasSubstr("kernel launches")));
}

TEST_F(DriverHook, LeavesKernelsAloneOtherwise) {
  const Ran ran = run_command(liveset_program + " run -q -o " + trace() + " -- " + tests_folder + "/cuda_job launches");
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_FALSE(std::filesystem::exists(trace()));
}

TEST_F(DriverHook, KeepsAllocationsOfManyThreadsApart) {
  const std::vector<Seen> all = seen("threads");
  EXPECT_EQ(all.size(), 16000U);
  std::map<std::uint64_t, int> events;  // by address, none of which the fake driver gives out twice
  for (const Seen& one : all) {
    EXPECT_EQ(one.kind, events[one.address]++ == 0 ? "segment_alloc" : "segment_free");
    EXPECT_EQ(one.bytes, 64U);
    EXPECT_EQ(one.heap, "cuda:0/program");
  }
  EXPECT_EQ(events.size(), 8000U);
}

// A library's constructor may run before ours: it gets its memory, and recording begins after.
TEST_F(DriverHook, TakesCallsBeforeItsOwnConstructor) {
  for (const std::string& how : {std::string(), "LD_PRELOAD=" + preload + " ", liveset_program + " run -q -o " + trace() + " -- "}) {
    const Ran ran = run_command(how + tests_folder + "/early_job");
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.out, "700100000000\n") << how;
  }
  const std::vector<Seen> all = read_trace();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back(), (Seen{"segment_alloc", "cuda:0/early", 100, place(1)}));
}

TEST_F(DriverHook, IsSilentInAForkedChild) {
  const std::vector<Seen> expected = {{"segment_alloc", "cuda:0/program", 100, place(0)},
                                      {"segment_alloc", "cuda:0/program", 200, place(1)}};
  EXPECT_THAT(seen("fork"), testing::ElementsAreArray(expected));
}

// The program checks dlsym itself, and prints what is not as it should be: without us, with us, and recorded.
TEST_F(DriverHook, LeavesDlsymAsItIs) {
  for (const std::string& how : {std::string(), "LD_PRELOAD=" + preload + " ", liveset_program + " run -q -o " + trace() + " -- "}) {
    const Ran ran = run_command(how + tests_folder + "/cuda_job semantics");
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.out, "") << how;
    EXPECT_EQ(ran.err, "") << how;
  }
}

TEST_F(DriverHook, DoesNotPretendThatThereIsCuda) {
  for (const std::string& how : {std::string(), "LD_PRELOAD=" + preload + " ", liveset_program + " run -q -o " + trace() + " -- "}) {
    const Ran ran = run_command(how + tests_folder + "/no_cuda_job");
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.out, "") << how;
  }
  EXPECT_FALSE(std::filesystem::exists(trace()));
}

TEST_F(DriverHook, FindsNothingThatWasOpenedForOneLibraryOnly) {
  for (const std::string& how : {std::string(), "LD_PRELOAD=" + preload + " ", liveset_program + " run -q -o " + trace() + " -- "}) {
    const Ran ran = run_command(how + tests_folder + "/no_cuda_job local");
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.out, "") << how;
  }
}

constexpr const char* other_hook = "/fake_cuda/libother_hook.so";

// It is still asked.
TEST_F(DriverHook, CallsAnotherHookOfDlsymBehindIt) {
  const Ran ran = run_command("LD_PRELOAD=" + tests_folder + other_hook + " " + liveset_program + " run -q -o " + trace() + " -- " +
                              tests_folder + "/cuda_job looked-up");
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, testing::HasSubstr("other hook: 1\n"));
  EXPECT_THAT(read_trace(), testing::SizeIs(10));
  EXPECT_THAT(cannot_see, testing::HasSubstr("another hook of dlsym behind us: " + tests_folder + other_hook));
}

// What it answers does not come by us: exported functions do, and the trace says that there is more.
TEST_F(DriverHook, SaysThatAnotherHookOfDlsymStandsBeforeIt) {
  const std::string shell = "sh -c 'LD_PRELOAD=" + tests_folder + other_hook + ":$LD_PRELOAD exec " + tests_folder + "/cuda_job linked'";
  const Ran ran = run_command(liveset_program + " run -q -o " + trace() + " -- " + shell);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(read_trace(), testing::SizeIs(45));
  EXPECT_THAT(cannot_see, testing::HasSubstr("another hook of dlsym before us: " + tests_folder + other_hook));
}

}  // namespace
}  // namespace liveset::test
