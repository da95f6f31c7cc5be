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
  std::uint64_t shared = 0;  // measured blocks that lie in a module of the predicted side, and pairs of values by their own name
};

Match match_items(const Side& measured, const Side& predicted);

}  // namespace liveset::compare
