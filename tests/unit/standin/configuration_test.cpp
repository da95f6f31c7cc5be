#include <gtest/gtest.h>

#include "hooks/standin/limits.h"
#include "tests/unit/standin/machine.h"

namespace standin {
namespace {

TEST(Configuration, ReadsWhatTheLauncherWrites) {
  auto read = Configuration::parse(
      "gpu=h100\nname=NVIDIA "
      "H100\ncapability=90\nmultiprocessors=132\nmemory_bytes=85018279936\ndevices=2\nbacking=none\nassumed=context_bytes,name\nfolder=/a/"
      "b");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->gpu, "h100");
  EXPECT_EQ(read->name, "NVIDIA H100");
  EXPECT_EQ(read->memory_bytes, 85018279936u);
  EXPECT_EQ(read->devices, 2);
  EXPECT_EQ(read->backing, Backing::none);
  EXPECT_EQ(read->folder, "/a/b");
  EXPECT_TRUE(read->is_assumed("context_bytes"));
  EXPECT_FALSE(read->is_assumed("context"));
  EXPECT_EQ(read->number("devices", 7), 2);
  EXPECT_EQ(read->number("absent", 7), 7);
}

TEST(Configuration, RefusesWhatItCannotMean) {
  for (const char* text : {"", "gpu", "memory_bytes=0", "memory_bytes=-1", "memory_bytes=1x", "memory_bytes=1\ndevices=0",
                           "memory_bytes=1\ndevices=65", "memory_bytes=1\nbacking=some", "memory_bytes=99999999999999999999"})
    EXPECT_FALSE(Configuration::parse(text)) << text;
}

// As NVIDIA's programming guide tells it of CUDA_VISIBLE_DEVICES.
TEST(Configuration, VisibleDevices) {
  struct Row {
    const char* list;
    int visible;
  };
  for (const auto& [list, visible] : {Row{"", 0}, Row{"0", 1}, Row{"3,1", 2}, Row{" 0, 2", 2}, Row{"0,1,2,3", 4}, Row{"1,-1,2", 1},
                                      Row{"4", 0}, Row{"0,9,1", 1}, Row{"-1", 0}, Row{"1,1", 0}, Row{"none", 0}, Row{"0,", 1}})
    EXPECT_EQ(visible_devices(list, 4), visible) << list;
}

// The launcher checks against the same numbers: what it lets through must be understood here.
TEST(Configuration, TakesEveryNumberUpToItsLimit) {
  const auto is_understood = [](const char* key, std::int64_t value) {
    return Configuration::parse("memory_bytes=1\n" + std::string(key) + "=" + std::to_string(value)).has_value();
  };
  struct Row {
    const char* key;
    std::int64_t least, most;
  };
  for (const auto& [key, least, most] :
       {Row{"devices", 1, limits::most_devices}, Row{"memory_bytes", 1, limits::most_bytes}, Row{"context_bytes", 0, limits::most_bytes},
        Row{"multiprocessors", 1, limits::most_multiprocessors}, Row{"world", 1, limits::most_ranks},
        Row{"capability", limits::least_capability, limits::most_capability}}) {
    EXPECT_TRUE(is_understood(key, least)) << key;
    EXPECT_TRUE(is_understood(key, most)) << key;
    EXPECT_FALSE(is_understood(key, least - 1)) << key;
    EXPECT_FALSE(is_understood(key, most + 1)) << key;
  }
}

TEST(Configuration, AsManyAndAsLargeDevicesAsThereMayBeHaveAddresses) {
  const auto configuration = *Configuration::parse("devices=" + std::to_string(limits::most_devices) +
                                                   "\nmemory_bytes=" + std::to_string(limits::most_bytes) + "\nbacking=none");
  Memory memory(configuration);
  for (int i = 0; i < 200; ++i) {
    Address address = 0;
    ASSERT_EQ(memory.allocate(i % static_cast<int>(limits::most_devices), 20 * mebibyte, Kind::device, &address), success) << i;
  }
}

// Values of the CUDA programming guide's table of technical specifications.
TEST(Attributes, FollowTheCapability) {
  struct Row {
    const char* capability;
    int major, minor, threads, blocks, shared, shared_of_block;
  };
  for (const auto& row :
       {Row{"70", 7, 0, 2048, 32, 98304, 98304}, Row{"75", 7, 5, 1024, 16, 65536, 65536}, Row{"80", 8, 0, 2048, 32, 167936, 166912},
        Row{"86", 8, 6, 1536, 16, 102400, 101376}, Row{"89", 8, 9, 1536, 24, 102400, 101376}, Row{"90", 9, 0, 2048, 32, 233472, 232448},
        Row{"100", 10, 0, 2048, 32, 233472, 232448}, Row{"120", 12, 0, 1536, 24, 102400, 101376}}) {
    auto device = *Configuration::parse("memory_bytes=1\ncapability=" + std::string(row.capability));
    EXPECT_EQ(device_attribute(device, 75, 0), row.major) << row.capability;
    EXPECT_EQ(device_attribute(device, 76, 0), row.minor) << row.capability;
    EXPECT_EQ(device_attribute(device, 39, 0), row.threads) << row.capability;
    EXPECT_EQ(device_attribute(device, 106, 0), row.blocks) << row.capability;
    EXPECT_EQ(device_attribute(device, 81, 0), row.shared) << row.capability;
    EXPECT_EQ(device_attribute(device, 97, 0), row.shared_of_block) << row.capability;
  }
}

TEST(Attributes, TakeTheProfilesWord) {
  auto device = small_device("attribute.38=12345\nattribute.16=3\n");
  EXPECT_EQ(device_attribute(device, 38, 0), 12345);
  EXPECT_EQ(device_attribute(device, 16, 0), 3);
}

TEST(Occupancy, IsLimitedByThreadsBlocksAndSharedMemory) {
  const auto device = small_device();
  EXPECT_EQ(occupancy(device, 1024, 0), 2);          // 2048 threads
  EXPECT_EQ(occupancy(device, 32, 0), 32);           // 32 blocks
  EXPECT_EQ(occupancy(device, 128, 100 * 1024), 2);  // 228 KiB, of which a block takes 101 KiB
  EXPECT_EQ(occupancy(device, 128, 228 * 1024), 0);  // more than a block can have
  EXPECT_EQ(occupancy(device, 0, 0), 0);
}

TEST(Errors, HaveTheDriversAndTheRuntimesNames) {
  EXPECT_STREQ(words_of(2)->driver_name, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_STREQ(words_of(2)->runtime_name, "cudaErrorMemoryAllocation");
  EXPECT_STREQ(words_of(600)->runtime_name, "cudaErrorNotReady");
  EXPECT_EQ(words_of(12345), nullptr);
}

}  // namespace
}  // namespace standin
