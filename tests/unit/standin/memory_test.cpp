#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/standin/machine.h"

namespace standin {
namespace {

struct MemoryTest : testing::Test {
  Machine machine{small_device()};
  Memory& memory = machine.memory;

  Address allocate(std::size_t bytes) {
    Address address = 0;
    EXPECT_EQ(memory.allocate(0, bytes, Kind::device, &address), success);
    return address;
  }
};

TEST_F(MemoryTest, CountsWhatADeviceGivesInItsUnits) {
  allocate(1);  // 512 bytes
  EXPECT_EQ(memory.used(0), 512u);
  allocate(mebibyte + 1);  // 2 MiB
  EXPECT_EQ(memory.used(0), 512 + 2 * mebibyte);
}

TEST_F(MemoryTest, AddressesRiseAlignedAndAreReusedFromTheLowest) {
  const auto first = allocate(1000);
  const auto second = allocate(5 * mebibyte);
  const auto third = allocate(mebibyte);
  EXPECT_EQ(first % (2 * mebibyte), 0u);
  EXPECT_EQ(second, first + 2 * mebibyte);
  EXPECT_EQ(third, second + 6 * mebibyte);
  EXPECT_EQ(memory.free(second), success);
  EXPECT_EQ(allocate(7 * mebibyte), third + 2 * mebibyte);  // 8 MiB do not fit into the gap of 6
  EXPECT_EQ(allocate(4 * mebibyte), second);
}

TEST_F(MemoryTest, EndsAtTheDevicesSize) {
  Address address = 0;
  EXPECT_EQ(memory.allocate(0, device_bytes + 1, Kind::device, &address), out_of_memory);
  const auto most = allocate(device_bytes);
  EXPECT_EQ(memory.allocate(0, 1, Kind::device, &address), out_of_memory);
  EXPECT_EQ(memory.used(0), device_bytes);
  EXPECT_EQ(memory.free(most), success);
  EXPECT_EQ(memory.used(0), 0u);
  EXPECT_EQ(memory.allocate(0, 1, Kind::device, &address), success);
}

// A caching allocator gives parts of one allocation to one owner after the other.
TEST_F(MemoryTest, ANewOwnerFindsNothingOfTheFormerOnes) {
  const auto address = allocate(4 * mebibyte);
  std::vector<char> given(200000, 'x');
  memory.copy(address + 1000, reinterpret_cast<Address>(given.data()), given.size());
  const auto seen = [&](std::size_t at) {
    char value = 'n';
    memory.copy(reinterpret_cast<Address>(&value), address + at, 1);
    return value;
  };
  memory.forget(address + 100000, 50000);
  for (const std::size_t kept : {1000u, 99999u, 150000u, 200999u}) EXPECT_EQ(seen(kept), 'x') << kept;
  for (const std::size_t gone : {100000u, 125000u, 149999u}) EXPECT_EQ(seen(gone), '\0') << gone;
  memory.copy(address + 120000, reinterpret_cast<Address>(given.data()), 10);
  EXPECT_EQ(seen(120009), 'x');
  memory.forget(address, 4 * mebibyte);
  for (const std::size_t gone : {1000u, 99999u, 120000u, 150000u, 200999u}) EXPECT_EQ(seen(gone), '\0') << gone;
  EXPECT_EQ(memory.free(address), success);
  memory.forget(address, 4 * mebibyte);  // nothing is behind it any more, and nothing is touched
}

TEST_F(MemoryTest, RefusesWhatIsNoAllocation) {
  const auto address = allocate(4096);
  int on_the_stack = 0;
  EXPECT_EQ(memory.free(address + 256), invalid_value);
  EXPECT_EQ(memory.free(reinterpret_cast<Address>(&on_the_stack)), invalid_value);
  EXPECT_EQ(memory.free(address), success);
  EXPECT_EQ(memory.free(address), invalid_value);
  Address none = 0;
  EXPECT_EQ(memory.allocate(0, 0, Kind::device, &none), invalid_value);
}

TEST_F(MemoryTest, KnowsWhoseAnAddressIs) {
  const auto address = allocate(1000);
  auto found = memory.find(address + 999);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->address, address);
  EXPECT_EQ(found->bytes, 1000u);
  EXPECT_FALSE(memory.find(address + 1000));
  EXPECT_TRUE(memory.on_device(address));
}

TEST_F(MemoryTest, HostMemoryIsFreedOnceAndRegisteredOnce) {
  Address pinned = 0;
  ASSERT_EQ(memory.allocate_host(5000, 0, 0, &pinned), success);
  std::memset(reinterpret_cast<void*>(pinned), 1, 5000);
  EXPECT_FALSE(memory.on_device(pinned));
  EXPECT_EQ(memory.unregister_host(pinned), host_memory_not_registered);
  EXPECT_EQ(memory.free_host(pinned), success);
  EXPECT_EQ(memory.free_host(pinned), invalid_value);

  std::vector<char> own(10000);
  const auto begin = reinterpret_cast<Address>(own.data());
  EXPECT_EQ(memory.register_host(begin, own.size(), 0, 0), success);
  EXPECT_EQ(memory.register_host(begin, own.size(), 0, 0), host_memory_already_registered);
  EXPECT_EQ(memory.register_host(begin + 100, 10, 0, 0), host_memory_already_registered);
  EXPECT_EQ(memory.free_host(begin), invalid_value);
  EXPECT_EQ(memory.unregister_host(begin), success);
  EXPECT_EQ(memory.unregister_host(begin), host_memory_not_registered);
}

TEST_F(MemoryTest, KeepsSmallCopiesAndForgetsLargeOnes) {
  std::vector<unsigned char> host(2 * mebibyte, 7), back(2 * mebibyte, 9);
  const auto small = allocate(1000), large = allocate(2 * mebibyte);
  const auto from = reinterpret_cast<Address>(host.data()), to = reinterpret_cast<Address>(back.data());
  memory.copy(small, from, 1000);
  memory.copy(to, small, 1000);
  EXPECT_EQ(back[999], 7);
  EXPECT_EQ(back[1000], 9);
  memory.copy(large, from, host.size());
  memory.copy(to, large, back.size());
  EXPECT_EQ(back, std::vector<unsigned char>(back.size(), 0));
}

TEST(MemoryBacking, NoneReadsZerosAndAllKeepsEverything) {
  std::vector<unsigned char> host(2 * mebibyte, 7);
  for (const char* backing : {"backing=none\n", "backing=all\n"}) {
    Machine machine(small_device(backing));
    Address address = 0;
    ASSERT_EQ(machine.memory.allocate(0, host.size(), Kind::device, &address), success);
    std::vector<unsigned char> back(host.size(), 9);
    machine.memory.copy(address, reinterpret_cast<Address>(host.data()), host.size());
    machine.memory.fill(address, 3, 1, 4);
    machine.memory.copy(reinterpret_cast<Address>(back.data()), address, back.size());
    const bool all = machine.configuration.backing == Backing::all;
    EXPECT_EQ(back[3], all ? 3 : 0);
    EXPECT_EQ(back.back(), all ? 7 : 0);
  }
}

TEST_F(MemoryTest, FillsElementsOfEachWidth) {
  const auto address = allocate(64);
  unsigned char bytes[64];
  memory.fill(address, 0x01020304, 4, 2);
  memory.fill(address + 8, 0xaabb, 2, 1);
  memory.fill(address + 10, 0xcc, 1, 1);
  memory.copy(reinterpret_cast<Address>(bytes), address, 64);
  const unsigned char expected[] = {4, 3, 2, 1, 4, 3, 2, 1, 0xbb, 0xaa, 0xcc, 0};
  EXPECT_EQ(std::memcmp(bytes, expected, sizeof expected), 0);
}

TEST_F(MemoryTest, ThreadsShareADevice) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([this] {
      for (int round = 0; round < 200; ++round) {
        Address address = 0;
        ASSERT_EQ(memory.allocate(0, 3 * mebibyte, Kind::device, &address), success);
        memory.fill(address, 1, 4, 8);
        ASSERT_EQ(memory.find(address + 1)->address, address);
        ASSERT_EQ(memory.free(address), success);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(memory.used(0), 0u);
}

TEST(Contexts, CostTheirBytesWhileTheyLive) {
  Machine machine(small_device());
  Context* context = nullptr;
  bool first = false;
  ASSERT_EQ(machine.contexts.retain_primary(0, &context, &first), success);
  EXPECT_TRUE(first);
  ASSERT_EQ(machine.contexts.retain_primary(0, &context, &first), success);
  EXPECT_FALSE(first);
  EXPECT_EQ(machine.memory.used(0), 16 * mebibyte);
  Context* own = nullptr;
  ASSERT_EQ(machine.contexts.create(0, 0, &own), success);
  EXPECT_EQ(machine.memory.used(0), 32 * mebibyte);
  EXPECT_EQ(machine.contexts.destroy(own), success);
  EXPECT_EQ(machine.contexts.destroy(own), invalid_context);
  EXPECT_EQ(machine.contexts.release_primary(0), success);
  EXPECT_TRUE(machine.contexts.is_context(context));
  EXPECT_EQ(machine.contexts.release_primary(0), success);
  EXPECT_FALSE(machine.contexts.is_context(context));
  EXPECT_EQ(machine.contexts.release_primary(0), invalid_context);
  EXPECT_EQ(machine.memory.used(0), 0u);
}

TEST(Contexts, TakeTheirMemoryWithThem) {
  Machine machine(small_device("devices=2\n"));
  Context* context = nullptr;
  bool first = false;
  Address own = 0, other = 0;
  ASSERT_EQ(machine.contexts.retain_primary(0, &context, &first), success);
  Context* made = nullptr;
  ASSERT_EQ(machine.contexts.create(0, 0, &made), success);
  ASSERT_EQ(machine.memory.allocate(0, mebibyte, Kind::device, &own, context->id), success);
  ASSERT_EQ(machine.memory.allocate(0, mebibyte, Kind::managed, &other, made->id), success);
  machine.memory.fill(own, 7, 1, 100);
  EXPECT_EQ(machine.contexts.reset_primary(0), success);
  EXPECT_EQ(machine.memory.free(own), invalid_value);
  EXPECT_EQ(machine.memory.find(other)->bytes, mebibyte);
  // What was written there is forgotten with it: nobody touches the address any more.
  machine.memory.forget(own, mebibyte);
  EXPECT_EQ(machine.contexts.destroy(made), success);
  EXPECT_FALSE(machine.memory.find(other));
  EXPECT_EQ(machine.memory.used(0), 0u);
}

// What RLIMIT_DATA counts: a sanitizer alone has terabytes of it.
rlim_t data_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (rlim_t kibibytes = 0; word == "VmData:" && status >> kibibytes) return kibibytes * 1024;
  return 0;
}

// A host that refuses pages, as under a limit on a process's data, is a device without memory and no crash at the first copy.
TEST(MemoryBackingDeathTest, WhatTheHostRefusesIsOutOfMemory) {
  const auto run = [] {
    Machine machine(small_device());
    auto& memory = machine.memory;
    Address address = 0, reserved = memory.reserve(512 * mebibyte, AddressSpace::alignment);
    Pool* pool = machine.pools.default_of(0);
    const auto most = data_bytes() + 256 * mebibyte;
    const rlimit limit{most, most};
    setrlimit(RLIMIT_DATA, &limit);
    bool good = memory.allocate(0, 512 * mebibyte, Kind::device, &address) == out_of_memory;
    good = good && memory.add({reserved, 512 * mebibyte, 0, Kind::mapped}, true) == out_of_memory && !memory.find(reserved);
    good = good && memory.allocate_uncounted(0, 512 * mebibyte, Kind::device, &address) == out_of_memory;
    good = good && machine.pools.allocate(pool, 512 * mebibyte, &address) == out_of_memory && pool->used == 0;
    good = good && machine.pools.trim(pool, 0) == success && memory.used(0) == 0;
    good = good && memory.allocate(0, mebibyte, Kind::device, &address) == success;
    _exit(good ? 0 : 1);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace standin
