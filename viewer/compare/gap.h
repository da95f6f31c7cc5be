// The difference of two peaks, measured - predicted, in classes that sum to it exactly.
//
// Blocks of both sides are paired by name, and by size alone only where one side names none. In this order:
//   own name   what the program, or both, name themselves: "h3", "bs.0.f1.weight"; the k-th with the k-th
//   order      the k-th block of a size that a module made in a phase of the step; so a value has its partner also in a run that keeps
//              it for another reason (a checkpoint region's input)
//   sequence   what is left of one module and slot, in the order of birth, by size: as long a common sequence as there is
//   name       what is left of values of one module and slot: the same value in another size
//   class      what is left of the random states that regions keep, in order
//   before     what is left of what the step found, as a sequence of sizes in each family
//   order      again, beside a model: of values and temporaries, since the model of a recorded step takes for a temporary what a policy
//              makes it keep
//   size       the k-th block of a size with the k-th, where one side names nothing at all (a snapshot of the allocator), and a requested
//              size with a larger block that the allocator would not split: what is left then has the names of the other side
// A pair adds nothing but its difference in size: rounding, where the allocator makes the same of both sizes. A block without a partner
// adds its bytes to the class of its family.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "viewer/compare/side.h"

namespace liveset::compare {

// Blocks of one name in one class of the gap.
struct GapRow {
  std::string name;
  std::int64_t bytes = 0;
  std::uint64_t measured = 0, predicted = 0;  // bytes of either side
  std::uint64_t blocks = 0;
};

struct GapPart {
  std::int64_t bytes = 0;
  std::vector<GapRow> rows;  // by the size of their bytes, falling; the first max_rows
  std::uint64_t all_rows = 0;
};

// Values that live at the two peaks, those that recomputes made among them.
struct ValueCounts {
  std::uint64_t matched = 0, resized = 0, missing = 0, extra = 0;  // resized: of the matched ones
  std::uint64_t matched_bytes = 0, missing_bytes = 0, extra_bytes = 0;
};

struct Gap {
  static constexpr std::size_t max_rows = 100;
  std::int64_t difference = 0;
  std::array<GapPart, gap_classes> parts;  // by GapClass; sum to `difference`
  ValueCounts values;
  std::uint64_t paired_by_size = 0;  // pairs of the last rule
  const GapPart& part(GapClass gap_class) const { return parts[static_cast<std::size_t>(gap_class)]; }
};

Gap compare_peaks(const Side& measured, const Side& predicted);

// Whether the gap may be read as one job compared with itself.
enum class Verdict : std::uint8_t {
  comparable,
  another_network,        // they share no name of a value: no difference between them means anything
  no_values,              // neither tells of values: the gap is by class alone
  no_values_on_one_side,  // what one side's blocks are for is not known
};
Verdict verdict_of(const Side& measured, const Side& predicted);

}  // namespace liveset::compare
