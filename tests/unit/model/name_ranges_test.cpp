// Lists of names in ranges of numbers: shorter, and the same list.
#include "viewer/model/name_ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "viewer/model/policy.h"

namespace liveset::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Names = std::vector<std::string>;

Names expanded(const Names& names) {
  Names all;
  for (const std::string& name : names) EXPECT_TRUE(add_names(name, 1000, all)) << name;
  return all;
}

TEST(NameRanges, StandForEachOfTheirNames) {
  EXPECT_THAT(expanded({"GPT.bs.9..11.ln1"}), ElementsAre("GPT.bs.9.ln1", "GPT.bs.10.ln1", "GPT.bs.11.ln1"));
  EXPECT_THAT(expanded({"b.0..1.h0..1"}), ElementsAre("b.0.h0", "b.0.h1", "b.1.h0", "b.1.h1"));
  // None of these is a range from a number to a larger one.
  for (const char* const name :
       {"GPT.bs.1", "a..b", "3..1", "2..2", "07..9", "1...3", "x..3", "3..", "..3", "99999999999..3", "GPT.*.ln", ""})
    EXPECT_THAT(expanded({name}), ElementsAre(name));
  Names names;
  EXPECT_FALSE(add_names("h0..1000", 1000, names));
  EXPECT_FALSE(add_names("0..9.0..9.0..9.0..9.0..9.0..9.0..9.0..9.0..9.0..9", 1000, names));
  EXPECT_LE(names.size(), 2002U);
}

TEST(NameRanges, JoinNumbersThatFollowEachOther) {
  EXPECT_THAT(with_ranges({"b.0", "b.1", "b.2", "b.4", "b.6", "b.7"}), ElementsAre("b.0..2", "b.4", "b.6..7"));
  EXPECT_THAT(with_ranges({"b.1.ln1", "b.1.ln2", "b.0.ln1", "b.0.ln2", "head"}), ElementsAre("b.0..1.ln1..2", "head"));
  EXPECT_THAT(with_ranges({"b.08", "b.09", "b.*.x", "a#2", "a#3"}), ElementsAre("b.08", "b.09", "b.*.x", "a#2..3"));
  EXPECT_THAT(with_ranges({}), ElementsAre());
}

// Any list of names comes back, in whatever order.
TEST(NameRanges, AreTheSameList) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    Names names;
    for (std::size_t count = 1 + random() % 30; names.size() < count;) {
      std::string name = random() % 2 == 0 ? "m" : "net.b";
      for (std::size_t part = 0; part <= random() % 3; ++part) name += "." + std::string(random() % 2, 'h') + std::to_string(random() % 4);
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    const Names shorter = with_ranges(names);
    EXPECT_LE(shorter.size(), names.size());
    Names back = expanded(shorter);
    std::sort(names.begin(), names.end());
    std::sort(back.begin(), back.end());
    EXPECT_EQ(back, names);
  }
}

TEST(NameRanges, ArePartOfAPolicy) {
  const Result<Policy> policy = parse_policy("regions:GPT.bs.0..2.attn,head");
  ASSERT_TRUE(policy);
  EXPECT_THAT(policy->names, ElementsAre("GPT.bs.0.attn", "GPT.bs.1.attn", "GPT.bs.2.attn", "head"));
  EXPECT_EQ(in_ranges("regions:a.0,a.1,a.2,b"), "regions:a.0..2,b");
  EXPECT_EQ(in_ranges("segments:1,2,3"), "segments:1,2,3");
  EXPECT_EQ(in_ranges("selective:a0,a1"), "selective:a0,a1") << "names of operators have no ranges";
  EXPECT_THAT(parse_policy("regions:h0..2000000").error().message(), HasSubstr("more than 1000000 names"));
}

}  // namespace
}  // namespace liveset::model
