// What PyTorch 2.14 reads, reads as it does; what it refuses is refused.
#include "viewer/allocator/settings.h"

#include <gmock/gmock.h>

namespace liveset::allocator {
namespace {

using testing::HasSubstr;

Settings parsed(const std::string& text) {
  Result<Settings> settings = parse_settings(text);
  EXPECT_TRUE(settings) << text << ": " << (settings ? "" : settings.error().message());
  return settings ? *settings : Settings();
}
std::string refused(const std::string& text) {
  const Result<Settings> settings = parse_settings(text);
  EXPECT_FALSE(settings) << text;
  return settings ? "" : settings.error().message();
}

TEST(AllocatorSettings, Defaults) {
  for (const char* text : {"", " ", "backend:native"}) {
    const Settings settings = parsed(text);
    EXPECT_EQ(settings.max_split_size, unlimited);
    EXPECT_EQ(settings.max_non_split_rounding_size, 20 * mebibyte);
    EXPECT_EQ(settings.large_segment_size, 20 * mebibyte);
    EXPECT_EQ(settings.garbage_collection_threshold, 0);
    EXPECT_EQ(settings.memory_fraction, 1);
    EXPECT_FALSE(settings.expandable_segments);
    for (const std::uint64_t divisions : settings.roundup_power2_divisions) EXPECT_EQ(divisions, 0U);
  }
}

TEST(AllocatorSettings, EveryKey) {
  const Settings settings = parsed(
      "max_split_size_mb:30, expandable_segments : True,garbage_collection_threshold:0.8,max_non_split_rounding_mb:25,"
      "large_segment_size_mb:64,per_process_memory_fraction:0.5,roundup_power2_divisions:8,pinned_use_background_threads:True,");
  EXPECT_EQ(settings.max_split_size, 30 * mebibyte);
  EXPECT_TRUE(settings.expandable_segments);
  EXPECT_EQ(settings.garbage_collection_threshold, 0.8);
  EXPECT_EQ(settings.max_non_split_rounding_size, 25 * mebibyte);
  EXPECT_EQ(settings.large_segment_size, 64 * mebibyte);
  EXPECT_EQ(settings.memory_fraction, 0.5);
  EXPECT_EQ(settings.roundup_power2_divisions[7], 8U);
  EXPECT_EQ(settings.without_effect, std::vector<std::string>{"pinned_use_background_threads"});
  EXPECT_EQ(parsed("max_split_size_mb:30,max_split_size_mb:40").max_split_size, 40 * mebibyte);
  EXPECT_EQ(parsed("max_split_size_mb:18446744073709551615").max_split_size, unlimited);
}

TEST(AllocatorSettings, DivisionsAsAList) {
  // Before the first interval its value, after ">" the rest, off where nothing is said.
  const Settings settings = parsed("roundup_power2_divisions:[4:8,16:4,64:0,>:2]");
  const std::array<std::uint64_t, 16> expected{8, 8, 8, 0, 4, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2};
  EXPECT_EQ(settings.roundup_power2_divisions, expected);
  EXPECT_EQ(parsed("roundup_power2_divisions:[1048576:4]").roundup_power2_divisions[15], 4U);
  EXPECT_EQ(parsed("roundup_power2_divisions:[]").roundup_power2_divisions[3], 0U);
}

TEST(AllocatorSettings, Rounding) {
  const Settings off = parsed(""), divided = parsed("roundup_power2_divisions:4");
  // 1200 KiB lie between 1 and 2 MiB: a quarter of 1 MiB is a step, 1280 KiB the next.
  EXPECT_EQ(rounded_size(divided, 1200 << 10), 1280U << 10);
  EXPECT_EQ(rounded_size(off, 1200 << 10), 1200U << 10);
  EXPECT_EQ(rounded_size(divided, 2048), 2048U);        // 512 x 4: in steps of 512 up to here
  EXPECT_EQ(rounded_size(divided, 2049), 2560U);        // a quarter of 2,048 is 512
  EXPECT_EQ(rounded_size(divided, 1 << 20), 1U << 20);  // a power of two stays
  EXPECT_EQ(rounded_size(divided, (std::uint64_t{1} << 60) - 1), std::uint64_t{1} << 60);
  EXPECT_EQ(rounded_size(off, 1), 512U);
  EXPECT_EQ(rounded_size(parsed("roundup_power2_divisions:[1:9223372036854775808]"), 5000), 5120U);  // more steps than it has bytes: off
}

TEST(AllocatorSettings, WhatIsRefused) {
  EXPECT_THAT(refused("max_split_size_mb:19"), HasSubstr("less than 20"));
  EXPECT_THAT(refused("max_non_split_rounding_mb:19"), HasSubstr("less than 20"));
  EXPECT_THAT(refused("large_segment_size_mb:10"), HasSubstr("less than 11"));
  EXPECT_THAT(refused("large_segment_size_mb:999999999999"), HasSubstr("256 TiB"));
  EXPECT_THAT(refused("max_split_size_mb:-5"), HasSubstr("no whole number"));
  EXPECT_THAT(refused("garbage_collection_threshold:1"), HasSubstr("between 0 and 1"));
  EXPECT_THAT(refused("garbage_collection_threshold:nan"), HasSubstr("between 0 and 1"));
  EXPECT_THAT(refused("per_process_memory_fraction:1.5"), HasSubstr("from 0 to 1"));
  EXPECT_THAT(refused("expandable_segments:true"), HasSubstr("neither True nor False"));
  EXPECT_THAT(refused("roundup_power2_divisions:3"), HasSubstr("no power of two"));
  EXPECT_THAT(refused("roundup_power2_divisions:[3:2]"), HasSubstr("\"3\" is no power of two in MiB"));
  EXPECT_THAT(refused("roundup_power2_divisions:[4:3]"), HasSubstr("no power of two and not 0"));
  EXPECT_THAT(refused("roundup_power2_divisions:[4:2"), HasSubstr("no end"));
  EXPECT_THAT(refused("backend:cudaMallocAsync"), HasSubstr("only native is"));
  EXPECT_THAT(refused("segment_size_mb:1"), HasSubstr("those with an effect are expandable_segments"));
  EXPECT_THAT(refused("max_split_size_mb"), HasSubstr("followed by no value"));
  EXPECT_THAT(refused("max_split_size_mb:"), HasSubstr("no whole number"));
  EXPECT_THAT(refused(",max_split_size_mb:30"), HasSubstr("followed by no value"));
  EXPECT_THAT(refused("max_split_size_mb:30:40"), HasSubstr("no comma"));
  EXPECT_THAT(refused(std::string(1 << 20, '[')), HasSubstr("followed by no value"));
}

}  // namespace
}  // namespace liveset::allocator
