#include "viewer/compare/align.h"

#include <algorithm>

namespace liveset::compare {
namespace {

constexpr std::uint64_t none = ~std::uint64_t{0};

// Furthest x on each diagonal k = x - y after d steps, for every d: enough to walk back.
using Trail = std::vector<std::vector<std::int64_t>>;

class Myers {
 public:
  Myers(const std::uint32_t* left, std::int64_t left_size, const std::uint32_t* right, std::int64_t right_size)
      : left_(left), right_(right), n_(left_size), m_(right_size) {}

  bool search(std::int64_t limit) {
    std::vector<std::int64_t> furthest(static_cast<std::size_t>(2 * limit + 3), 0);
    const std::int64_t zero = limit + 1;
    for (std::int64_t d = 0; d <= limit; ++d) {
      for (std::int64_t k = -d; k <= d; k += 2) {
        const auto at = [&](std::int64_t diagonal) -> std::int64_t& { return furthest[static_cast<std::size_t>(zero + diagonal)]; };
        std::int64_t x = k == -d || (k != d && at(k - 1) < at(k + 1)) ? at(k + 1) : at(k - 1) + 1;
        while (x < n_ && x - k < m_ && x - k >= 0 && left_[x] == right_[x - k]) ++x;
        at(k) = x;
        if (x >= n_ && x - k >= m_) {
          keep(furthest, zero, d);
          return true;
        }
      }
      keep(furthest, zero, d);
    }
    return false;
  }

  // Entries in reverse order, indices from the sequences' begin.
  Alignment walk_back() const {
    Alignment reversed;
    std::int64_t x = n_, y = m_;
    for (auto d = static_cast<std::int64_t>(trail_.size()) - 1; d > 0; --d) {
      const std::int64_t k = x - y;
      const auto before = [&](std::int64_t diagonal) {
        return diagonal < -(d - 1) || diagonal > d - 1
                   ? std::int64_t{-1}
                   : trail_[static_cast<std::size_t>(d - 1)][static_cast<std::size_t>(diagonal + d - 1)];
      };
      const bool down = k == -d || (k != d && before(k - 1) < before(k + 1));
      const std::int64_t from_x = before(down ? k + 1 : k - 1), from_y = from_x - (down ? k + 1 : k - 1);
      const std::int64_t step_x = down ? from_x : from_x + 1, step_y = down ? from_y + 1 : from_y;
      while (x > step_x && y > step_y) reversed.emplace_back(--x, --y);
      if (down)
        reversed.emplace_back(none, --y);
      else
        reversed.emplace_back(--x, none);
    }
    while (x > 0 && y > 0) reversed.emplace_back(--x, --y);
    return reversed;
  }

 private:
  void keep(const std::vector<std::int64_t>& furthest, std::int64_t zero, std::int64_t d) {
    trail_.emplace_back(furthest.begin() + zero - d, furthest.begin() + zero + d + 1);
  }

  const std::uint32_t* left_;
  const std::uint32_t* right_;
  std::int64_t n_, m_;
  Trail trail_;
};

}  // namespace

Alignment align(const std::vector<std::uint32_t>& left, const std::vector<std::uint32_t>& right, std::int64_t max_differences) {
  Alignment rows;
  rows.reserve(std::max(left.size(), right.size()));
  std::size_t head = 0, tail = 0;
  const std::size_t shorter = std::min(left.size(), right.size());
  while (head < shorter && left[head] == right[head]) ++head;
  while (tail < shorter - head && left[left.size() - 1 - tail] == right[right.size() - 1 - tail]) ++tail;
  for (std::size_t i = 0; i < head; ++i) rows.emplace_back(i, i);

  const auto left_middle = static_cast<std::int64_t>(left.size() - head - tail),
             right_middle = static_cast<std::int64_t>(right.size() - head - tail);
  Myers myers(left.data() + head, left_middle, right.data() + head, right_middle);
  const std::int64_t limit = std::min(max_differences, left_middle + right_middle);
  if (myers.search(limit)) {
    Alignment middle = myers.walk_back();
    std::reverse(middle.begin(), middle.end());
    for (const auto& [l, r] : middle) rows.emplace_back(l == none ? none : l + head, r == none ? none : r + head);
  } else {
    for (std::int64_t i = 0; i < left_middle; ++i) rows.emplace_back(head + static_cast<std::size_t>(i), none);
    for (std::int64_t i = 0; i < right_middle; ++i) rows.emplace_back(none, head + static_cast<std::size_t>(i));
  }
  for (std::size_t i = tail; i > 0; --i) rows.emplace_back(left.size() - i, right.size() - i);
  return rows;
}

}  // namespace liveset::compare
