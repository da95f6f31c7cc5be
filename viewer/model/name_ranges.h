// Lists of names in few words: "GPT.bs.0..5.attn" is GPT.bs.0.attn, GPT.bs.1.attn, ... GPT.bs.5.attn. No path of a module has a number, two
// dots and a number in it, and no shell takes them for its own.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace liveset::model {

// The names that one stands for: itself, where it has no range from a number to a larger one. They are made one by one: a few characters
// may stand for more of them than memory holds.
class RangedName {
 public:
  static constexpr std::size_t max_ranges = 4;

  explicit RangedName(std::string_view name);  // which must outlive this

  bool has_too_many_ranges() const { return ranges_.size() > max_ranges; }  // then it stands for nothing
  std::uint64_t count() const { return count_; }                            // of names; of more than 2^64 one less
  std::string at(std::uint64_t index) const;                                // below 2^32; the numbers behind count up first

 private:
  struct Range {
    std::size_t begin = 0, end = 0;  // in the name
    std::uint32_t from = 0, to = 0;
    std::uint64_t size() const { return std::uint64_t{to} - from + 1; }
  };
  std::string_view name_;
  std::vector<Range> ranges_;
  std::uint64_t count_ = 1;
};

// The same names, in ranges where their numbers follow each other; a range stands where its first name stood. Numbers far behind in a name
// stay as they are.
std::vector<std::string> with_ranges(const std::vector<std::string>& names);

}  // namespace liveset::model
