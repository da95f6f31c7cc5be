// What is open in a thread, and the names that wait there: the rules and the limits.
#include "viewer/ledger/open_scopes.h"

#include <gtest/gtest.h>

#include "viewer/ledger/slot_names.h"

namespace liveset::ledger {
namespace {

constexpr std::uint64_t deepest = OpenStack<int>::max_depth;

// Of keys 1, 2, ... this many are begun.
OpenStack<int> opened(std::uint64_t many) {
  OpenStack<int> stack;
  for (std::uint64_t key = 1; key <= many; ++key) EXPECT_EQ(stack.begin(key) != nullptr, key <= deepest);
  return stack;
}

TEST(OpenStacks, AnEndEndsAllInside) {
  OpenStack<int> stack = opened(5);
  std::vector<int> closed;
  for (std::size_t i = 0; i < stack.size(); ++i) stack[i] = static_cast<int>(i) + 1;
  stack.end(9, [&](int item) { closed.push_back(item); });
  EXPECT_EQ(stack.size(), 5U);
  stack.end(3, [&](int item) { closed.push_back(item); });
  EXPECT_EQ(closed, (std::vector<int>{5, 4, 3}));
  EXPECT_EQ(stack.key(), 2U);
}

TEST(OpenStacks, WhatIsTooDeepEndsBeforeTheRest) {
  OpenStack<int> stack = opened(deepest + 2);
  stack.end(deepest + 2);
  stack.end(deepest + 1);
  EXPECT_EQ(stack.size(), deepest);
  stack.end(deepest);
  EXPECT_EQ(stack.size(), deepest - 1);
}

TEST(OpenStacks, AnExceptionThatLeavesWhatIsTooDeepEndsThatToo) {
  OpenStack<int> stack = opened(deepest + 3);
  stack.end(100);
  EXPECT_EQ(stack.size(), 99U);
  stack.end(99);
  EXPECT_EQ(stack.size(), 98U);
}

TEST(OpenStacks, AKeyThatRepeatsTooDeepEndsFromWithin) {
  OpenStack<int> stack;
  for (std::uint64_t i = 0; i < deepest + 2; ++i) stack.begin(7);
  stack.end(7);
  stack.end(7);
  EXPECT_EQ(stack.size(), deepest);
  for (std::uint64_t i = 0; i < deepest; ++i) stack.end(7);
  EXPECT_TRUE(stack.empty());
}

TEST(RoundsOfRegions, OfTooManyAreCounted) {
  RegionRounds rounds(1);
  rounds.forward(0, 1);
  rounds.forward(0, 2);
  EXPECT_EQ(rounds.again(0, 1), 1U);
  EXPECT_EQ(rounds.again(0, 1), 2U);
  EXPECT_EQ(rounds.left_out(), 0U);
  EXPECT_EQ(rounds.again(0, 2), 1U);
  EXPECT_EQ(rounds.again(0, 2), 1U);
  EXPECT_EQ(rounds.left_out(), 2U);
}

TEST(NamesOfSlots, OfTooManyAreCountedAndTakeNoRoom) {
  const trace::Dictionary dictionary;
  SlotNames names(dictionary, 2 * SlotNames::slots_of_region + 4);
  for (const std::uint32_t region : {1U, 2U})
    for (const std::int64_t index : {0, 1}) names.waits(0, region, index, 10 * region + static_cast<std::uint32_t>(index));
  EXPECT_EQ(names.left_out(), 0U);
  for (std::uint32_t region = 3; region < 100; ++region) names.waits(0, region, 0, 5);
  names.waits(0, 1, 2, 5);
  EXPECT_EQ(names.left_out(), 98U);
  EXPECT_EQ(names.find(3, 0).slot, 0U);
  names.waits(0, 1, 1, 12);  // is known
  EXPECT_EQ(names.left_out(), 98U);
  EXPECT_EQ(names.find(1, 0).slot, 10U);
  EXPECT_EQ(names.find(1, 1).slot, 12U);
  EXPECT_EQ(names.find(2, 1).slot, 21U);
  names.forward(1);  // gives two slots back, and there is room for no region
  names.waits(0, 1, 5, 13);
  names.waits(0, 1, 6, 14);
  EXPECT_EQ(names.left_out(), 98U);
  EXPECT_EQ(names.find(1, 6).slot, 14U);
}

}  // namespace
}  // namespace liveset::ledger
