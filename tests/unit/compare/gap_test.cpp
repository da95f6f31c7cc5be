// Which blocks are partners, and which class the rest of a difference is in: sides by hand, every figure worked out on paper.
#include "viewer/compare/gap.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "viewer/compare/match.h"

namespace liveset::compare {
namespace {

using trace::MemoryClass;
using trace::Phase;

// A side whose counter is the sum of its blocks.
class SideBuilder {
 public:
  Item& block(std::uint64_t bytes, MemoryClass memory_class = MemoryClass::activation, const std::string& module = "Net.a",
              const std::string& slot = "MulBackward0.self") {
    Item item;
    item.bytes = bytes;
    item.memory_class = memory_class;
    item.phase = memory_class == MemoryClass::recomputed_activation ? Phase::recompute : Phase::forward;
    item.module = builder_.text(module);
    item.slot = builder_.text(slot);
    item.name = builder_.text(module.empty() ? slot : module + "/" + slot);
    builder_.add(item);
    side.peak.bytes = side.peak.bytes.value_or(0) + bytes;
    return side.items.back();
  }
  Item& named(const std::string& name, std::uint64_t bytes, MemoryClass memory_class) {
    Item& item = block(bytes, memory_class, "", name);
    item.is_own_name = true;
    return item;
  }
  void beyond(GapClass gap_class, std::int64_t bytes) {
    side.extras[static_cast<std::size_t>(gap_class)] += bytes;
    side.peak.bytes = static_cast<std::uint64_t>(static_cast<std::int64_t>(side.peak.bytes.value_or(0)) + bytes);
  }
  Side side;

 private:
  ItemBuilder builder_{side};
};

std::int64_t sum_of(const Gap& gap) {
  return std::accumulate(gap.parts.begin(), gap.parts.end(), std::int64_t{0},
                         [](std::int64_t sum, const GapPart& part) { return sum + part.bytes; });
}

std::int64_t bytes_of(const Gap& gap, GapClass gap_class) { return gap.part(gap_class).bytes; }

// A snapshot names nothing. Of 512 twice, 1000 and 3000 against a parameter of 512, two values of 512 and 4000 and a temporary of 1024
// the sizes that both have are partners; the rest has the class that each side knows. 1000 and 1024 are one size of the allocator.
TEST(Gap, BlocksWithoutNamesArePairedBySize) {
  SideBuilder measured, predicted;
  for (const std::uint64_t bytes : {512, 1000, 512, 3000}) measured.block(bytes, MemoryClass::unattributed, "", "");
  predicted.named("weight", 512, MemoryClass::parameter);
  predicted.block(512);
  predicted.block(4000);
  predicted.block(1024, MemoryClass::temporary);
  const Gap gap = compare_peaks(measured.side, predicted.side);
  EXPECT_EQ(gap.difference, 5024 - 6048);
  EXPECT_EQ(sum_of(gap), gap.difference);
  EXPECT_EQ(gap.paired_by_size, 3U);
  EXPECT_EQ(bytes_of(gap, GapClass::rounding), -24);
  EXPECT_EQ(bytes_of(gap, GapClass::missing_values), -4000);
  EXPECT_EQ(bytes_of(gap, GapClass::unattributed), 3000);
  EXPECT_EQ(bytes_of(gap, GapClass::static_memory), 0);
  // Of 40 MiB the allocator splits off what is more than 1 MiB: 41,000,000 bytes are given the block whole, 40,000,000 are not.
  constexpr std::uint64_t mib = 1 << 20;
  measured.block(41'000'000, MemoryClass::unattributed, "", "");
  measured.block(40'000'000, MemoryClass::unattributed, "", "");
  predicted.named("embedding", 40 * mib, MemoryClass::parameter);
  const Gap unsplit = compare_peaks(measured.side, predicted.side);
  EXPECT_EQ(unsplit.paired_by_size, 4U);
  EXPECT_EQ(bytes_of(unsplit, GapClass::rounding), -24 + 41'000'000 - 40 * static_cast<std::int64_t>(mib));
  EXPECT_EQ(bytes_of(unsplit, GapClass::unattributed), 3000 + 40'000'000);
  EXPECT_EQ(sum_of(unsplit), unsplit.difference);
  // Where both sides name something, sizes alone make no pair.
  measured.block(4000, MemoryClass::activation, "Net.other");
  EXPECT_EQ(compare_peaks(measured.side, predicted.side).paired_by_size, 0U);
}

TEST(Gap, ValuesThatOneSideHolds) {
  SideBuilder measured, predicted;
  measured.block(1000).order = 1;
  measured.block(3000).order = 1;
  predicted.block(1000).order = 1;
  predicted.block(200, MemoryClass::activation, "Net.b").order = 1;
  const Gap gap = compare_peaks(measured.side, predicted.side);
  EXPECT_EQ(gap.difference, 2800);
  EXPECT_EQ(bytes_of(gap, GapClass::extra_values), 3000);
  EXPECT_EQ(bytes_of(gap, GapClass::missing_values), -200);
  EXPECT_EQ(sum_of(gap), 2800);
  EXPECT_EQ(gap.values.matched, 1U);
  EXPECT_EQ(gap.values.extra, 1U);
  EXPECT_EQ(gap.values.missing, 1U);
  ASSERT_EQ(gap.part(GapClass::missing_values).rows.size(), 1U);
  EXPECT_EQ(gap.part(GapClass::missing_values).rows[0].name, "Net.b/MulBackward0.self");
}

// The second block of 512 bytes of its module is the second one, though the first one is not there, and though another thing holds it.
TEST(Gap, OrderFindsThePartnerOfAValueThatIsKeptForAnotherReason) {
  SideBuilder measured, predicted;
  measured.block(512).order = 1;
  measured.block(512).order = 2;
  predicted.block(512, MemoryClass::checkpoint_input, "Net.a", "NativeLayerNormBackward0.input").order = 2;
  const Match match = match_items(measured.side, predicted.side);
  EXPECT_EQ(match.partner_of_measured, (std::vector<std::uint32_t>{Match::none, 0}));
  EXPECT_EQ(match.partner_of_predicted, (std::vector<std::uint32_t>{1}));
}

TEST(Gap, SameSizeInAnotherModuleIsNoPartner) {
  SideBuilder measured, predicted;
  measured.block(4096, MemoryClass::activation, "Net.a").order = 1;
  predicted.block(4096, MemoryClass::activation, "Net.b").order = 1;
  const Gap gap = compare_peaks(measured.side, predicted.side);
  EXPECT_EQ(gap.difference, 0);
  EXPECT_EQ(bytes_of(gap, GapClass::extra_values), 4096);
  EXPECT_EQ(bytes_of(gap, GapClass::missing_values), -4096);
}

// Without orders the sizes of one slot are aligned as a sequence: 1024 2048 1024 against 2048 1024.
TEST(Gap, SequenceOfOneSlot) {
  SideBuilder measured, predicted;
  for (const std::uint64_t bytes : {1024, 2048, 1024}) measured.block(bytes);
  for (const std::uint64_t bytes : {2048, 1024}) predicted.block(bytes);
  const Match match = match_items(measured.side, predicted.side);
  EXPECT_EQ(match.partner_of_predicted, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(bytes_of(compare_peaks(measured.side, predicted.side), GapClass::extra_values), 1024);
}

TEST(Gap, SameValueInAnotherSize) {
  SideBuilder measured, predicted;
  measured.block(4096).order = 1;
  predicted.block(8192).order = 1;
  const Gap gap = compare_peaks(measured.side, predicted.side);
  EXPECT_EQ(gap.difference, -4096);
  EXPECT_EQ(bytes_of(gap, GapClass::resized_values), -4096);
  EXPECT_EQ(gap.values.matched, 1U);
  EXPECT_EQ(gap.values.resized, 1U);
  EXPECT_EQ(sum_of(gap), -4096);
}

// 1000 bytes are a block of 1024 on a GPU, 4 bytes one of 512.
TEST(Gap, RoundingOfPairsIsAClassOfItsOwn) {
  SideBuilder measured, predicted;
  measured.block(1024).order = 1;
  predicted.block(1000).order = 1;
  measured.named("bias", 512, MemoryClass::parameter);
  predicted.named("bias", 4, MemoryClass::parameter);
  const Gap gap = compare_peaks(measured.side, predicted.side);
  EXPECT_EQ(bytes_of(gap, GapClass::rounding), 24 + 508);
  EXPECT_EQ(gap.difference, 532);
  EXPECT_EQ(gap.values.resized, 0U);
  // The CPU's allocator gives what was asked for: these are other sizes.
  measured.side.heap = "cpu";
  const Gap on_cpu = compare_peaks(measured.side, predicted.side);
  EXPECT_EQ(bytes_of(on_cpu, GapClass::rounding), 0);
  EXPECT_EQ(bytes_of(on_cpu, GapClass::resized_values), 24);
  EXPECT_EQ(bytes_of(on_cpu, GapClass::static_memory), 508);
  EXPECT_EQ(on_cpu.values.resized, 1U);
  predicted.side.heap = "cuda:0";
  EXPECT_EQ(bytes_of(compare_peaks(measured.side, predicted.side), GapClass::rounding), 532);
}

TEST(Gap, EachFamilyHasItsClass) {
  SideBuilder measured, predicted;
  measured.block(1, MemoryClass::recomputed_activation);
  measured.block(20, MemoryClass::temporary).phase = Phase::recompute;  // its family is that of its birth: see below
  measured.block(300, MemoryClass::temporary);
  measured.block(4000, MemoryClass::library);
  measured.block(50'000, MemoryClass::gradient);
  measured.block(600'000, MemoryClass::activation_gradient);
  measured.block(7'000'000, MemoryClass::optimizer_state, "", "");
  measured.block(80'000'000, MemoryClass::communication);
  measured.block(900'000'000, MemoryClass::unattributed);
  measured.block(10, MemoryClass::rng_state).is_overdue = true;
  measured.side.items[1].family = family_of(MemoryClass::temporary, Phase::recompute);
  predicted.side.peak.bytes = 0;
  const Gap gap = compare_peaks(measured.side, predicted.side);
  EXPECT_EQ(bytes_of(gap, GapClass::recompute_working_set), 21);
  EXPECT_EQ(bytes_of(gap, GapClass::temporaries), 4300);
  EXPECT_EQ(bytes_of(gap, GapClass::gradients), 650'000);
  EXPECT_EQ(bytes_of(gap, GapClass::static_memory), 7'000'000);
  EXPECT_EQ(bytes_of(gap, GapClass::communication), 80'000'000);
  EXPECT_EQ(bytes_of(gap, GapClass::unattributed), 900'000'000);
  EXPECT_EQ(bytes_of(gap, GapClass::over_retention), 10);
  EXPECT_EQ(bytes_of(gap, GapClass::extra_values), 0);
  EXPECT_EQ(sum_of(gap), gap.difference);
}

TEST(Gap, WhatTheCounterHasBeyondBlocks) {
  SideBuilder measured, predicted;
  measured.block(1000).order = 1;
  predicted.block(1000).order = 1;
  measured.beyond(GapClass::cached, 5000);
  measured.beyond(GapClass::unattributed, 70);
  predicted.beyond(GapClass::cached, 6000);
  const Gap gap = compare_peaks(measured.side, predicted.side);
  EXPECT_EQ(bytes_of(gap, GapClass::cached), -1000);
  EXPECT_EQ(bytes_of(gap, GapClass::unattributed), 70);
  EXPECT_EQ(gap.difference, -930);
}

// An overdue value that the other side holds too is no reason for a difference.
TEST(Gap, OverRetentionCountsOnlyWhereItIsExtra) {
  SideBuilder measured, predicted;
  measured.block(512).order = 1;
  measured.side.items[0].is_overdue = true;
  predicted.block(512).order = 1;
  EXPECT_EQ(bytes_of(compare_peaks(measured.side, predicted.side), GapClass::over_retention), 0);
}

TEST(Gap, VerdictOfAnotherNetwork) {
  const auto side = [](bool tells_of_values, std::vector<std::string> known) {
    Side made;
    made.tells_of_values = tells_of_values;
    made.known = std::move(known);
    return made;
  };
  const Side net = side(true, {"Net", "Net.a"}), other = side(true, {"Other", "Other.a"}), part = side(true, {"Net.a"}),
             silent = side(false, {"Net"});
  EXPECT_EQ(verdict_of(net, net), Verdict::comparable);
  EXPECT_EQ(verdict_of(net, part), Verdict::comparable);
  EXPECT_EQ(verdict_of(net, other), Verdict::another_network);
  EXPECT_EQ(verdict_of(silent, silent), Verdict::no_values);
  EXPECT_EQ(verdict_of(net, silent), Verdict::no_values_on_one_side);
}

// What a step found is paired in the order of birth, by size: 100 500 300 against 500 300 200.
TEST(Gap, WhatIsOlderThanTheStepIsPairedAsASequence) {
  SideBuilder measured, predicted;
  for (const std::uint64_t bytes : {100 * 1024, 500 * 1024, 300 * 1024})
    measured.block(bytes, MemoryClass::activation, "", "indices").is_older = true;
  for (const std::uint64_t bytes : {500 * 1024, 300 * 1024, 200 * 1024})
    predicted.block(bytes, MemoryClass::activation, "", "before the step").is_older = true;
  const Match match = match_items(measured.side, predicted.side);
  EXPECT_EQ(match.partner_of_measured, (std::vector<std::uint32_t>{Match::none, 0, 1}));
}

TEST(Gap, RowsAreTheLargestOfManyNames) {
  SideBuilder measured, predicted;
  predicted.side.peak.bytes = 0;
  for (std::uint64_t i = 1; i <= 250; ++i) measured.block(i * 1024, MemoryClass::activation, "Net." + std::to_string(i));
  const GapPart part = compare_peaks(measured.side, predicted.side).part(GapClass::extra_values);
  EXPECT_EQ(part.all_rows, 250U);
  ASSERT_EQ(part.rows.size(), Gap::max_rows);
  EXPECT_EQ(part.rows[0].bytes, 250 * 1024);
  EXPECT_EQ(part.rows[99].bytes, 151 * 1024);
}

// Every block once: a partner has that block as its partner, of the same family, and the classes sum to the difference.
TEST(Gap, ClassesOfRandomSidesSumToTheDifference) {
  std::mt19937 random(11);
  constexpr MemoryClass classes[] = {
      MemoryClass::parameter,     MemoryClass::gradient,  MemoryClass::optimizer_state,       MemoryClass::checkpoint_input,
      MemoryClass::activation,    MemoryClass::rng_state, MemoryClass::recomputed_activation, MemoryClass::temporary,
      MemoryClass::communication, MemoryClass::loss,      MemoryClass::unattributed};
  for (int round = 0; round < 500; ++round) {
    SideBuilder sides[2];
    for (SideBuilder& builder : sides) {
      builder.side.peak.bytes = 0;
      for (std::size_t i = random() % 40; i-- > 0;) {
        const std::string module = random() % 4 == 0 ? "" : "Net." + std::to_string(random() % 3);
        Item& item = builder.block(random() % 5 * 400, classes[random() % std::size(classes)], module, "S" + std::to_string(random() % 3));
        item.order = static_cast<std::uint32_t>(random() % 4);
        item.is_own_name = random() % 5 == 0;
        item.is_overdue = random() % 7 == 0;
      }
      for (int i = 0; i < 3; ++i)
        builder.beyond(static_cast<GapClass>(random() % gap_classes), static_cast<std::int64_t>(random() % 2000) - 500);
    }
    const Side &measured = sides[0].side, &predicted = sides[1].side;
    const Match match = match_items(measured, predicted);
    std::size_t pairs = 0;
    for (std::uint32_t i = 0; i < measured.items.size(); ++i) {
      const std::uint32_t partner = match.partner_of_measured[i];
      if (partner == Match::none) continue;
      ++pairs;
      ASSERT_EQ(match.partner_of_predicted[partner], i);
      if (match.paired_by_size == 0) {
        ASSERT_EQ(measured.items[i].family, predicted.items[partner].family);
      }
    }
    EXPECT_EQ(static_cast<std::size_t>(std::count(match.partner_of_predicted.begin(), match.partner_of_predicted.end(), Match::none)),
              predicted.items.size() - pairs);
    const Gap gap = compare_peaks(measured, predicted);
    ASSERT_EQ(sum_of(gap), gap.difference);
    ASSERT_EQ(gap.difference, static_cast<std::int64_t>(*measured.peak.bytes - *predicted.peak.bytes));
    const Gap other_way = compare_peaks(predicted, measured);
    ASSERT_EQ(other_way.difference, -gap.difference);
    // Of equal choices another one may be taken, so what values lose to one of these they win in another.
    const auto of_values = [](const Gap& of) {
      return bytes_of(of, GapClass::extra_values) + bytes_of(of, GapClass::missing_values) + bytes_of(of, GapClass::resized_values) +
             bytes_of(of, GapClass::over_retention) + bytes_of(of, GapClass::recompute_working_set);
    };
    ASSERT_EQ(of_values(other_way), -of_values(gap));
    for (const GapClass gap_class : {GapClass::temporaries, GapClass::gradients, GapClass::static_memory, GapClass::communication,
                                     GapClass::cached, GapClass::outside_allocator, GapClass::unattributed})
      ASSERT_EQ(bytes_of(other_way, gap_class), -bytes_of(gap, gap_class)) << gap_class_name(gap_class);
  }
}

}  // namespace
}  // namespace liveset::compare
