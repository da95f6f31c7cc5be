// Code objects are addresses here: the table never looks at what lies there.
#include "hooks/python/frame_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace liveset::python {
namespace {

class FrameTables : public testing::Test {
 protected:
  static std::uint64_t code(std::uint64_t number) { return 0x7f0000000000U + number * 16; }
  const std::unique_ptr<FrameTable> table = std::make_unique<FrameTable>();
};

TEST_F(FrameTables, KnowWhatTheyLearned) {
  EXPECT_EQ(table->find(code(1), 0), FrameTable::unknown);
  EXPECT_TRUE(table->learn(code(1), 0, 7));
  EXPECT_TRUE(table->learn(code(1), 5, 8));
  EXPECT_TRUE(table->learn(code(2), 5, FrameTable::no_frame));
  EXPECT_EQ(table->find(code(1), 0), 7U);
  EXPECT_EQ(table->find(code(1), 5), 8U);
  EXPECT_EQ(table->find(code(2), 5), FrameTable::no_frame);
  EXPECT_EQ(table->find(code(2), 0), FrameTable::unknown);
  EXPECT_TRUE(table->learn(code(1), 5, 9));  // two threads at once
  EXPECT_EQ(table->find(code(1), 5), 9U);
}

TEST_F(FrameTables, TakeACodeObjectAtAnOldAddressForANewOne) {
  const std::uint64_t before = table->generation();
  table->forget(code(1));
  EXPECT_EQ(table->generation(), before);  // nobody can remember what was never known
  table->learn(code(1), 3, 7);
  table->learn(code(2), 3, 8);
  EXPECT_EQ(table->generation(), before);
  table->forget(code(1));
  EXPECT_NE(table->generation(), before);
  EXPECT_EQ(table->find(code(1), 3), FrameTable::unknown);
  EXPECT_EQ(table->find(code(2), 3), 8U);
  table->learn(code(1), 4, 9);
  EXPECT_EQ(table->find(code(1), 3), FrameTable::unknown);
  EXPECT_EQ(table->find(code(1), 4), 9U);
}

TEST_F(FrameTables, SayWhatTheyCanHold) {
  EXPECT_TRUE(FrameTable::can_hold(code(1), 0));
  EXPECT_FALSE(FrameTable::can_hold(code(1), -1));
  EXPECT_FALSE(FrameTable::can_hold(code(1), std::int64_t{1} << 26));
  EXPECT_FALSE(FrameTable::can_hold(std::uint64_t{1} << 47, 0));
}

TEST_F(FrameTables, AreBoundedAndNeverWrong) {
  const std::uint64_t before = table->generation();
  for (std::uint32_t i = 0; i < 300'000; ++i) {  // all live: more than there is room for
    ASSERT_TRUE(table->learn(code(i), i % 7, i % 60'000 + 1));
    ASSERT_EQ(table->find(code(i), i % 7), i % 60'000 + 1);
  }
  EXPECT_NE(table->generation(), before);
  for (std::uint32_t i = 0; i < 300'000; ++i) {
    const std::uint32_t frame = table->find(code(i), i % 7);
    ASSERT_TRUE(frame == FrameTable::unknown || frame == i % 60'000 + 1);
  }
}

TEST_F(FrameTables, EndWithTheirNumbers) {
  const auto old = std::make_unique<FrameTable>(FrameTable::most_serial - 1);
  EXPECT_TRUE(old->learn(code(1), 1, 5));
  old->forget(code(1));
  EXPECT_FALSE(old->learn(code(1), 1, 5));
  EXPECT_EQ(old->find(code(1), 1), FrameTable::unknown);
}

TEST_F(FrameTables, AnswerWhileOthersWrite) {
  // The first code object lives all the time; others come and go so often that the table is cleared again and again.
  std::atomic<bool> end{false};
  std::thread writer([&] {
    for (std::uint32_t i = 0; i < 100'000; ++i) {
      table->learn(code(100 + i), 1, 77);
      if (i % 2 == 0) table->forget(code(100 + i));
    }
    end = true;
  });
  std::uint64_t wrong = 0;
  while (!end) {
    const std::uint32_t frame = table->find(code(1), 1);
    if (frame == FrameTable::unknown) table->learn(code(1), 1, 42);
    wrong += frame != FrameTable::unknown && frame != 42 ? 1 : 0;
  }
  writer.join();
  EXPECT_EQ(wrong, 0U);
}

}  // namespace
}  // namespace liveset::python
