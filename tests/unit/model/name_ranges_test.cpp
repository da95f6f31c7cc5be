// Lists of names in ranges of numbers: shorter, and the same list.
#include "viewer/model/name_ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "viewer/model/model.h"
#include "viewer/model/policy.h"

namespace liveset::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Names = std::vector<std::string>;

Names expanded(const Names& names) {
  Names all;
  for (const std::string& name : names) {
    const RangedName ranged(name);
    EXPECT_FALSE(ranged.has_too_many_ranges()) << name;
    for (std::uint64_t i = 0; i < ranged.count(); ++i) all.push_back(ranged.at(i));
  }
  return all;
}

TEST(NameRanges, StandForEachOfTheirNames) {
  EXPECT_THAT(expanded({"GPT.bs.9..11.ln1"}), ElementsAre("GPT.bs.9.ln1", "GPT.bs.10.ln1", "GPT.bs.11.ln1"));
  EXPECT_THAT(expanded({"b.0..1.h0..1"}), ElementsAre("b.0.h0", "b.0.h1", "b.1.h0", "b.1.h1"));
  // None of these is a range from a number to a larger one.
  for (const char* const name :
       {"GPT.bs.1", "a..b", "3..1", "2..2", "07..9", "1...3", "x..3", "3..", "..3", "99999999999..3", "GPT.*.ln", ""})
    EXPECT_THAT(expanded({name}), ElementsAre(name));
  EXPECT_THAT(expanded({"0..1..2"}), ElementsAre("0..2", "1..2")) << "a number is in one range only";
}

TEST(NameRanges, AreCountedWithoutTheirNames) {
  EXPECT_EQ(RangedName("h0..1000").count(), 1001U);
  EXPECT_EQ(RangedName("0..9.0..9.0..9.0..9").count(), 10'000U);
  EXPECT_EQ(RangedName("0..9.0..9.0..9.0..9").at(1234), "1.2.3.4");
  EXPECT_EQ(RangedName("0..4294967295").count(), std::uint64_t{1} << 32);
  EXPECT_EQ(RangedName("0..4294967295").at(4294967295), "4294967295");
  EXPECT_EQ(RangedName("0..4294967295.0..4294967295.0..4294967295").count(), ~std::uint64_t{0});
  EXPECT_TRUE(RangedName("0..9.0..9.0..9.0..9.0..9").has_too_many_ranges());
}

TEST(NameRanges, JoinNumbersThatFollowEachOther) {
  EXPECT_THAT(with_ranges({"b.0", "b.1", "b.2", "b.4", "b.6", "b.7"}), ElementsAre("b.0..2", "b.4", "b.6..7"));
  EXPECT_THAT(with_ranges({"b.1.ln1", "b.1.ln2", "b.0.ln1", "b.0.ln2", "head"}), ElementsAre("b.0..1.ln1..2", "head"));
  EXPECT_THAT(with_ranges({"b.08", "b.09", "b.*.x", "a#2", "a#3"}), ElementsAre("b.08", "b.09", "b.*.x", "a#2..3"));
  EXPECT_THAT(with_ranges({}), ElementsAre());
}

// What is written in ranges can be read: no name gets more of them than that.
TEST(NameRanges, JoinAtMostFourNumbersOfAName) {
  Names names;
  for (int i = 0; i < 64; ++i) {
    names.emplace_back("m");
    for (int bit = 0; bit < 6; ++bit) names.back() += "." + std::to_string(i >> bit & 1);
  }
  const Names shorter = with_ranges(names);
  EXPECT_THAT(shorter, ElementsAre("m.0..1.0..1.0..1.0..1.0.0", "m.0..1.0..1.0..1.0..1.1.0", "m.0..1.0..1.0..1.0..1.0.1",
                                   "m.0..1.0..1.0..1.0..1.1.1"));
  Names back = expanded(shorter);
  std::sort(names.begin(), names.end());
  std::sort(back.begin(), back.end());
  EXPECT_EQ(back, names);
}

// A long name has many numbers, and is put together again for each that may be joined.
TEST(NameRanges, JoinLongNames) {
  std::string tail;
  for (int i = 0; i < 200'000; ++i) tail += ".1";
  EXPECT_THAT(with_ranges({"a.0" + tail, "a.1" + tail}), ElementsAre("a.0..1" + tail));
  EXPECT_THAT(with_ranges({"a" + tail + ".0", "a" + tail + ".1"}), ElementsAre("a" + tail + ".0", "a" + tail + ".1"));
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
  EXPECT_THAT(policy->names, ElementsAre("GPT.bs.0..2.attn", "head"));
  EXPECT_EQ(in_ranges("regions:a.0,a.1,a.2,b"), "regions:a.0..2,b");
  EXPECT_EQ(in_ranges("regions:a.0..2,a.3,a.4"), "regions:a.0..2,a.3,a.4") << "it has ranges already";
  EXPECT_EQ(in_ranges("segments:1,2,3"), "segments:1,2,3");
  EXPECT_EQ(in_ranges("selective:a0,a1"), "selective:a0,a1") << "names of operators have no ranges";
  EXPECT_THAT(parse_policy("regions:h0..2000000").error().message(), HasSubstr("more than 1000000 names"));
  EXPECT_THAT(parse_policy("regions:a,h0..999999").error().message(), HasSubstr("more than 1000000 names"));
  EXPECT_TRUE(parse_policy("regions:a,h0..999998"));
}

Model model_of(int modules) {
  std::string ops;
  for (int i = 0; i < modules; ++i) ops += "op { module: 'net." + std::to_string(i) + "' }\n";
  Result<Model> model = parse_model("general { unit: 'net'\n" + ops + "op { phase: 'loss' } }", "");
  EXPECT_TRUE(model) << model.error().message();
  return std::move(*model);
}
std::string followed(const Model& model, const std::string& policy) {
  const Result<Policy> parsed = parse_policy(policy);
  if (!parsed) return parsed.error().what;
  const Result<Regions> regions = regions_of(model, *parsed);
  if (!regions) return regions.error().what;
  std::string names;
  for (const Region& region : regions->recomputed) names += (names.empty() ? "" : " ") + region.name;
  return names;
}

TEST(NameRanges, AreFollowed) {
  const Model model = model_of(12);
  EXPECT_EQ(followed(model, "regions:net.8..10,net.0"), "net.0 net.8 net.9 net.10");
  EXPECT_EQ(followed(model, "regions:3..4"), "net.3 net.4");
  EXPECT_EQ(followed(model, "regions:*.0..1"), "net.0 net.1");
  EXPECT_EQ(followed(model, "regions:net.10..13"), "policy 'regions:net.10..13': the model has no layer and no module 'net.12'");
}

// A policy of a few characters, or a few times as long as what somebody means, stands for as much as its ranges say.
TEST(NameRanges, AreNotFollowedForever) {
  std::string many = "regions:";
  for (int i = 0; i < 200'000; ++i) many += "0..1a";
  EXPECT_THAT(parse_policy(many).error().what, HasSubstr("name 1 has more than 4 ranges"));
  const Model small = model_of(3);
  const std::string x(1'000'000, 'x');
  EXPECT_THAT(followed(small, "regions:" + x + "0..999998"), HasSubstr("has no layer and no module '" + x + "0'"));
  std::string expects;
  for (int i = 0; i < 20'000; ++i) expects += "expect { policy: 'regions:h0..999998' counter: 'peak_ids' value: 1 }\n";
  EXPECT_TRUE(parse_model("chain { length: 3 bytes: 1 }\n" + expects, ""));

  constexpr int modules = 60'000;
  const std::string too_long = "has too many names, or too long ones, for so many modules", all = "0.." + std::to_string(modules - 1);
  const Model large = model_of(modules);
  EXPECT_THAT(followed(large, "regions:" + all), HasSubstr(too_long));
  EXPECT_THAT(followed(large, "regions:*." + all), HasSubstr(too_long));
  EXPECT_THAT(followed(large, "regions:" + std::string(100'000, '*') + "." + all), HasSubstr(too_long));
  std::string patterns = "regions:net.*";
  for (int i = 0; i < modules; ++i) patterns += ",net.*";
  EXPECT_THAT(followed(large, patterns), HasSubstr(too_long));
  const std::string last = "net." + std::to_string(modules - 1);
  EXPECT_TRUE(followed(large, "regions:net." + all).ends_with(" " + last));
  EXPECT_TRUE(followed(large, "regions:net.*").ends_with(" " + last));
}

}  // namespace
}  // namespace liveset::model
