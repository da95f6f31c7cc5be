// Alignment of two sequences, and what a comparison of ledgers calls a difference.
#include <gtest/gtest.h>

#include <random>

#include "viewer/compare/align.h"
#include "viewer/compare/logical_compare.h"
#include "viewer/model/predict.h"

namespace liveset::compare {
namespace {

using Sequence = std::vector<std::uint32_t>;

// Length of the longest common subsequence, by the textbook table.
std::size_t longest_common(const Sequence& a, const Sequence& b) {
  std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 1; i <= a.size(); ++i)
    for (std::size_t j = 1; j <= b.size(); ++j)
      table[i][j] = a[i - 1] == b[j - 1] ? table[i - 1][j - 1] + 1 : std::max(table[i - 1][j], table[i][j - 1]);
  return table[a.size()][b.size()];
}

// Every entry of both sides once and in order, pairs are equal; gives the number of pairs.
std::size_t checked_pairs(const Sequence& a, const Sequence& b, const Alignment& rows) {
  std::size_t i = 0, j = 0, pairs = 0;
  for (const auto& [left, right] : rows) {
    EXPECT_TRUE(left != absent || right != absent);
    EXPECT_TRUE(left == absent || left == i++);
    EXPECT_TRUE(right == absent || right == j++);
    if (left == absent || right == absent) continue;
    EXPECT_EQ(a[left], b[right]);
    ++pairs;
  }
  EXPECT_EQ(i, a.size());
  EXPECT_EQ(j, b.size());
  return pairs;
}

TEST(Align, FindsTheLongestCommonSubsequence) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    Sequence a(random() % 20), b(random() % 20);
    for (auto& entry : a) entry = random() % 4;
    for (auto& entry : b) entry = random() % 4;
    EXPECT_EQ(checked_pairs(a, b, align(a, b)), longest_common(a, b));
  }
}

TEST(Align, BeyondItsLimitTakesTheMiddleAsAWhole) {
  const Sequence a{9, 1, 2, 3, 9}, b{9, 4, 2, 6, 9};
  EXPECT_EQ(checked_pairs(a, b, align(a, b, 1)), 2U);
  EXPECT_EQ(checked_pairs(a, b, align(a, b, 4)), 3U);
}

ledger::LogicalLedger predicted(const std::string& policy, std::uint64_t bytes = 8) {
  const model::Model chain = *model::make_chain(std::vector<std::uint64_t>(7, bytes), std::vector<std::uint64_t>(6, 1));
  return model::predict(chain, *model::parse_policy(policy))->ledger;
}

TEST(Compare, ALedgerDoesNotDifferFromItself) {
  for (const char* policy : {"save-all", "segment:2", "segments:3,2,1"}) {
    const LogicalComparison same = compare_logical(predicted(policy), predicted(policy), false);
    EXPECT_EQ(same.error, 0.0);
    EXPECT_EQ(same.predicted_only + same.recorded_only + same.live_differs, 0U);
  }
}

// save-all has 28 events and no re-runs; segment:2 34 with 3 reruns and 3 merges: 6 recorded only, and in the forward three drops for
// three keeps (h1, h3, h5).
TEST(Compare, PolicyThatIsNotTheRecordedOne) {
  const LogicalComparison other = compare_logical(predicted("save-all"), predicted("segment:2"), false);
  EXPECT_EQ(other.predicted_only, 3U);
  EXPECT_EQ(other.recorded_only, 9U);
  EXPECT_DOUBLE_EQ(other.errors.peak_ids, 2.0 / 7);
  EXPECT_DOUBLE_EQ(other.errors.layers, 0.5);
  EXPECT_DOUBLE_EQ(other.errors.events, 12.0 / 34);
  EXPECT_EQ(other.held.only_predicted.size(), 3U);
  EXPECT_EQ(other.held.only_recorded.size(), 0U);
  EXPECT_DOUBLE_EQ(other.error, 0.5);
}

TEST(Compare, OtherSizesDifferInTheCurveOnly) {
  const LogicalComparison other = compare_logical(predicted("segment:2", 8), predicted("segment:2", 10), false);
  EXPECT_EQ(other.predicted_only + other.recorded_only, 0U);
  EXPECT_EQ(other.live_differs, 33U);  // all but the last, where nothing lives
  EXPECT_DOUBLE_EQ(other.errors.peak_bytes, 0.2);
  EXPECT_DOUBLE_EQ(other.errors.peak_ids, 0.0);
  EXPECT_EQ(other.held.only_predicted.size(), 4U);
}

// What a graph retains has names of its own: compared by size, the loss expression's own apart.
TEST(Compare, RetainedStoragesAreComparedBySize) {
  ledger::LogicalBuilder builder;
  const auto add = [&](const char* name, std::uint64_t bytes, trace::Phase phase) {
    ledger::LogicalValue value;
    value.name = name;
    value.derived = true;
    ledger::LogicalInput input;
    input.value = builder.add_value(std::move(value));
    input.bytes = bytes;
    input.phase = phase;
    builder.append(input);
    return input.value;
  };
  std::vector<std::uint32_t> kept;
  for (const char* name : {"x", "b1", "b2", "b3"}) kept.push_back(add(name, 8, trace::Phase::forward));
  kept.push_back(add("loss/scalar", 8, trace::Phase::loss));
  add("not retained", 8, trace::Phase::forward);
  builder.mark_loss(kept);
  const ledger::LogicalLedger recorded = builder.finish();
  const LogicalComparison same = compare_logical(predicted("segment:2"), recorded, false);
  EXPECT_TRUE(same.held_only);
  EXPECT_FALSE(same.held.by_name);
  EXPECT_EQ(same.error, 0.0);
  ASSERT_EQ(same.held.of_the_loss.size(), 1U);
  EXPECT_EQ(same.held.of_the_loss[0].name, "loss/scalar");
  EXPECT_DOUBLE_EQ(compare_logical(predicted("save-all"), recorded, false).errors.held, 3.0 / 7);
}

}  // namespace
}  // namespace liveset::compare
