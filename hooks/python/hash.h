// Digests of a tensor's elements in host memory, in the order of its indices, whatever its strides. Nothing is allocated or
// copied: what the hooks read must not show in the job's own memory.
#pragma once
#include <cstdint>

namespace liveset::python {

constexpr int most_dimensions = 64;  // torch's own limit
constexpr std::uint64_t most_item_bytes = 16;

// `strides` count elements and are never negative.
struct Strided {
  const unsigned char* data = nullptr;
  std::uint64_t item_bytes = 1;  // at most most_item_bytes
  int dimensions = 0;
  std::uint64_t sizes[most_dimensions], strides[most_dimensions];
};

// XXH64 of the elements' bytes, as if they lay one behind the other. NaNs and zeros count by their bits.
std::uint64_t hash(const Strided& tensor);

// Writes the same bytes to a file. False: not all of them.
bool write_elements(const Strided& tensor, int file);

// How the elements are to be read; numbers are proto DType + 1.
struct Figures {
  bool known = false;  // false: of a type that is no number here; only the hash is
  double sum_of_squares = 0, max_abs = 0;
  std::uint64_t not_finite = 0;  // elements; they are in neither figure. Parts of a complex one count by themselves
};
Figures figures(const Strided& tensor, int dtype);

}  // namespace liveset::python
