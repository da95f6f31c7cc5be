#include "viewer/ledger/retention_casts.h"

#include <algorithm>

namespace liveset::ledger {
namespace {

std::size_t item_bytes(int dtype) {
  switch (dtype) {
    case 5:
    case 15: return 2;  // float16, bfloat16
    case 6: return 4;
    case 7: return 8;
    default: return 0;  // casts between floating types are what is looked for
  }
}

}  // namespace

void Casts::saved(std::uint32_t scope, std::uint32_t slot, std::uint32_t block, std::uint64_t bytes, int dtype) {
  const std::size_t item = item_bytes(dtype);
  if (item == 0) return;
  if (saved_.size() == max_saved) {
    ++left_out_;
    return;
  }
  saved_.push_back({scope, slot, block, bytes / item, static_cast<std::int16_t>(dtype)});
}

void Casts::end_of_walk() {
  // A block that is saved in two dtypes is looked at in another way, and no cast.
  std::sort(saved_.begin(), saved_.end(), [](const Saved& a, const Saved& b) {
    return std::tuple(a.scope, a.block, a.elements, a.dtype, a.slot) < std::tuple(b.scope, b.block, b.elements, b.dtype, b.slot);
  });
  const auto same = [](const Saved& a, const Saved& b) { return a.scope == b.scope && a.block == b.block; };
  saved_.erase(std::unique(saved_.begin(), saved_.end(), same), saved_.end());
  std::sort(saved_.begin(), saved_.end(), [](const Saved& a, const Saved& b) {
    return std::tuple(a.scope, a.elements, a.dtype, a.block) < std::tuple(b.scope, b.elements, b.dtype, b.block);
  });
  // Pairs of one dtype and the next; of three, the one between is in two pairs.
  const auto end_of_dtype = [this](std::size_t begin) {
    const auto key = [this](std::size_t i) { return std::tuple(saved_[i].scope, saved_[i].elements, saved_[i].dtype); };
    std::size_t end = begin;
    while (end < saved_.size() && key(end) == key(begin)) ++end;
    return end;
  };
  for (std::size_t begin = 0, middle = 0; begin < saved_.size(); begin = middle) {
    middle = end_of_dtype(begin);
    if (middle == saved_.size()) break;
    const Saved &one = saved_[begin], &other = saved_[middle];
    const bool is_pair = other.scope == one.scope && other.elements == one.elements;
    if (is_pair && one.elements > 1 && found_.size() < Retention::max_two_dtypes) {
      const std::uint64_t pairs = std::min(middle - begin, end_of_dtype(middle) - middle);
      TwoDtypes& cast = found_[{one.scope, one.elements, one.dtype, other.dtype}];
      cast.scope = one.scope;
      cast.elements = one.elements;
      cast.slots[0] = one.slot;
      cast.slots[1] = other.slot;
      cast.dtypes[0] = one.dtype;
      cast.dtypes[1] = other.dtype;
      cast.blocks += static_cast<std::uint32_t>(pairs);
      ++cast.times;
      cast.bytes = std::max(cast.bytes, pairs * one.elements * (item_bytes(one.dtype) + item_bytes(other.dtype)));
    }
  }
  saved_.clear();
}

std::vector<TwoDtypes> Casts::take() {
  std::vector<TwoDtypes> all;
  for (const auto& [key, cast] : found_) all.push_back(cast);
  std::stable_sort(all.begin(), all.end(), [](const TwoDtypes& a, const TwoDtypes& b) { return a.bytes > b.bytes; });
  return all;
}

}  // namespace liveset::ledger
