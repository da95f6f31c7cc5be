// Pairs the blocks of two sides. The order of the rules stands in gap.h.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "viewer/compare/side.h"

namespace liveset::compare {

struct Match {
  static constexpr std::uint32_t none = 0xffffffffU;
  std::vector<std::uint32_t> partner_of_measured, partner_of_predicted;  // index into the other side's items; none
  std::vector<bool> is_by_size;      // by measured item: one side has no name for the pair; empty: none is
  std::uint64_t paired_by_size = 0;  // pairs that one side has no name for
};

Match match_items(const Side& measured, const Side& predicted);

}  // namespace liveset::compare
