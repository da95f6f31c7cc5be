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
};

Match match_items(const Side& measured, const Side& predicted);

}  // namespace liveset::compare
