#include "hooks/core/dictionary.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "hooks/core/shared_memory.h"

namespace liveset::core {
namespace {

using channel::EntryType;

class DictionaryTest : public testing::Test {
 protected:
  static constexpr std::uint64_t region_bytes = 2U << 20, first_bytes = 1U << 20;
  void SetUp() override {
    region_ = make_shared(region_bytes, first_bytes);
    ASSERT_NE(region_.memory, nullptr);
    ASSERT_TRUE(dictionary.attach(control(), region_bytes, first_bytes));
  }
  void TearDown() override {
    munmap(region_.memory, region_bytes);
    close(region_.descriptor);
  }
  channel::Control* control() { return static_cast<channel::Control*>(region_.memory); }
  std::uint32_t text(const std::string& name) {
    return dictionary.intern(EntryType::string, name.data(), static_cast<std::uint32_t>(name.size()));
  }
  // All entries, as the collector reads them.
  std::vector<std::pair<channel::EntryHeader, std::string>> entries() {
    std::vector<std::pair<channel::EntryHeader, std::string>> all;
    const char* at = static_cast<const char*>(region_.memory) + channel::dictionary_offset;
    const char* end = at + control()->dictionary_used.load();
    while (at < end) {
      channel::EntryHeader header;
      std::memcpy(&header, at, sizeof header);
      all.emplace_back(header, std::string(at + sizeof header, header.length));
      at += header.bytes;
    }
    return all;
  }

  Dictionary dictionary;

 private:
  SharedMemory region_;
};

TEST_F(DictionaryTest, SameNameSameIdPerType) {
  EXPECT_EQ(text("a"), 1U);
  EXPECT_EQ(text("b"), 2U);
  EXPECT_EQ(text("a"), 1U);
  EXPECT_EQ(text(""), 3U);
  EXPECT_EQ(dictionary.intern(EntryType::scope, "a", 1), 1U);
  EXPECT_EQ(entries().size(), 4U);
  EXPECT_EQ(entries()[1].second, "b");
}

TEST_F(DictionaryTest, NamesThatDifferInOneByteAreDifferent) {
  std::vector<std::uint32_t> ids;
  for (int length = 1; length < 40; ++length) {
    for (int at = 0; at < length; ++at) {
      std::string name(static_cast<std::size_t>(length), 'x');
      name[static_cast<std::size_t>(at)] = 'y';
      ids.push_back(text(name));
    }
  }
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::unique(ids.begin(), ids.end()), ids.end());
}

TEST_F(DictionaryTest, ASourceIsKnownByItsNameAlone) {
  EXPECT_EQ(dictionary.intern(EntryType::source, "c10", 4, "1\0blocks\0", 9), 1U);
  EXPECT_EQ(dictionary.intern(EntryType::source, "c10", 4, "\0\0", 3), 1U);
  ASSERT_EQ(entries().size(), 1U);
  EXPECT_EQ(entries()[0].second, std::string("c10\0"
                                             "1\0blocks\0",
                                             13));
}

TEST_F(DictionaryTest, FullMeansZeroAndIsCounted) {
  const std::string filler(3900, 'f');
  std::uint32_t last = 0;
  std::uint64_t made = 0;
  do {
    last = text(std::to_string(made) + filler);
    made += last != 0 ? 1 : 0;
  } while (last != 0);
  // 2 MiB less the control page, in entries of 16 bytes of header and about 3,904 of text.
  EXPECT_NEAR(static_cast<double>(made), (2097152.0 - 4096) / 3920, 2);
  EXPECT_EQ(control()->lost[static_cast<int>(channel::LossReason::dictionary_full)].load(), 1U);
  EXPECT_EQ(text("0" + filler), 1U);  // known names are still found
}

TEST_F(DictionaryTest, ManyThreadsAgree) {
  constexpr int threads = 8, names = 2000;
  std::vector<std::vector<std::uint32_t>> ids(threads);
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      for (int i = 0; i < names; ++i) {
        ids[static_cast<std::size_t>(t)].push_back(text("name" + std::to_string(i)));
        // Whoever has an id finds the entry published.
        EXPECT_NE(control()->dictionary_used.load(), 0U);
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  for (int t = 1; t < threads; ++t) EXPECT_EQ(ids[static_cast<std::size_t>(t)], ids[0]);
  ASSERT_EQ(entries().size(), static_cast<std::size_t>(names));
  for (std::uint32_t i = 0; i < names; ++i) EXPECT_EQ(entries()[i].first.id, i + 1);
}

}  // namespace
}  // namespace liveset::core
