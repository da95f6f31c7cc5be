#include "hooks/driver/live_memory.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <utility>

namespace liveset::driver {
namespace {

Entry entry_at(Word key, Word bytes, Space space = Space::address) {
  Entry entry;
  entry.key = key;
  entry.bytes = bytes;
  entry.space = space;
  return entry;
}

TEST(LiveMemory, AHandleAndAnAddressOfOneNumberAreTwo) {
  LiveMemory memory;
  Entry found;
  EXPECT_FALSE(memory.find(Space::address, 7, &found));
  EXPECT_TRUE(memory.put(entry_at(7, 100)));
  EXPECT_TRUE(memory.put(entry_at(7, 200, Space::handle)));
  EXPECT_TRUE(memory.find(Space::address, 7, &found));
  EXPECT_EQ(found.bytes, 100U);
  EXPECT_TRUE(memory.find(Space::handle, 7, &found));
  EXPECT_EQ(found.bytes, 200U);
  EXPECT_FALSE(memory.find(Space::host, 7, &found));
}

TEST(LiveMemory, AFreeThatFailsTakesNothing) {
  LiveMemory memory;
  Entry found;
  memory.put(entry_at(7, 100));
  EXPECT_TRUE(memory.begin_leaving(Space::address, 7, &found));
  EXPECT_FALSE(memory.begin_leaving(Space::address, 7, &found));  // another thread frees it, too
  memory.end_leaving(Space::address, 7, false);
  EXPECT_TRUE(memory.begin_leaving(Space::address, 7, &found));
  memory.end_leaving(Space::address, 7, true);
  EXPECT_FALSE(memory.find(Space::address, 7, &found));
}

// Between the real free and its end here, another thread may be given the same address.
TEST(LiveMemory, AnAddressGivenOutAgainStays) {
  LiveMemory memory;
  Entry found;
  memory.put(entry_at(7, 100));
  EXPECT_TRUE(memory.begin_leaving(Space::address, 7, &found));
  memory.put(entry_at(7, 300));
  memory.end_leaving(Space::address, 7, true);
  EXPECT_TRUE(memory.find(Space::address, 7, &found));
  EXPECT_EQ(found.bytes, 300U);
}

TEST(LiveMemory, TellsWhatAnEntryTakesThePlaceOf) {
  LiveMemory memory;
  Entry before;
  memory.put(entry_at(7, 100), &before);
  EXPECT_EQ(before.space, Space::unused);
  memory.put(entry_at(7, 300), &before);
  EXPECT_EQ(before.bytes, 100U);
}

TEST(LiveMemory, AContextTakesItsEntriesAndNoOthers) {
  LiveMemory memory;
  std::set<Word> expected, taken;
  constexpr Word doomed = 5, lasting = 6;
  for (Word key = 0; key < 10000; ++key) {
    Entry entry = entry_at(key * 0x200000, 1);
    entry.context = key % 3 == 0 ? doomed : lasting;
    if (entry.context == doomed) expected.insert(entry.key);
    memory.put(entry);
  }
  Entry found;
  EXPECT_TRUE(memory.begin_leaving(Space::address, 0, &found));  // whoever frees it records that
  expected.erase(0);
  LiveMemory::Walk walk;
  while (memory.take_of_context(doomed, &walk, &found)) EXPECT_TRUE(taken.insert(found.key).second);
  EXPECT_EQ(taken, expected);
  for (Word key = 0; key < 10000; ++key) EXPECT_EQ(memory.find(Space::address, key * 0x200000, &found), key % 3 != 0 || key == 0);
}

TEST(LiveMemory, Counts) {
  LiveMemory memory;
  EXPECT_EQ(memory.count(Space::handle, 7, 1), 0U);
  memory.put(entry_at(7, 100, Space::handle));
  EXPECT_EQ(memory.count(Space::handle, 7, 1), 2U);
  EXPECT_EQ(memory.count(Space::handle, 7, -1), 1U);
}

TEST(LiveMemory, HoldsWhatAMapHolds) {
  LiveMemory memory;
  std::map<std::pair<Space, Word>, Word> expected;
  std::mt19937_64 random(1);
  for (int i = 0; i < 200'000; ++i) {
    const Space space = random() % 2 == 0 ? Space::address : Space::mapping;
    const Word key = random() % 10'000 * (2U << 20);
    if (random() % 3 != 0) {
      const Word bytes = random();
      ASSERT_TRUE(memory.put(entry_at(key, bytes, space)));
      expected[{space, key}] = bytes;
    } else {
      Entry found;
      const auto known = expected.find({space, key});
      ASSERT_EQ(memory.begin_leaving(space, key, &found), known != expected.end());
      if (known == expected.end()) continue;
      ASSERT_EQ(found.bytes, known->second);
      memory.end_leaving(space, key, true);
      expected.erase(known);
    }
  }
  for (const Space space : {Space::address, Space::mapping}) {
    for (Word key = 0; key < 10'000 * (2U << 20); key += 2U << 20) {
      Entry found;
      const auto known = expected.find({space, key});
      ASSERT_EQ(memory.find(space, key, &found), known != expected.end());
      EXPECT_EQ(found.bytes, known != expected.end() ? known->second : 0);
    }
  }
}

}  // namespace
}  // namespace liveset::driver
