// Which bytes of device memory were written by copies: what a new owner of the memory must not find there. Not thread-safe.
#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace standin {

class WrittenRanges {
 public:
  void add(std::uint64_t begin, std::uint64_t end) {
    take(begin, end, [](std::uint64_t, std::uint64_t) {});
    ranges_[begin] = end;
  }

  // Takes out what lies between `begin` and `end`, and gives each piece to `piece(begin, end)`.
  template <class Piece>
  void take(std::uint64_t begin, std::uint64_t end, Piece piece) {
    auto range = ranges_.upper_bound(begin);
    if (range != ranges_.begin() && std::prev(range)->second > begin) --range;
    while (range != ranges_.end() && range->first < end) {
      const auto [first, last] = *range;
      range = ranges_.erase(range);
      if (first < begin) ranges_[first] = begin;
      if (last > end) ranges_[end] = last;
      piece(std::max(first, begin), std::min(last, end));
      if (last >= end) break;
    }
  }

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;  // begin -> end, none overlaps another
};

}  // namespace standin
