// The small network of the demo, its arithmetic in one fixed order: 3 inputs -> 4 tanh -> dropout -> 2, and the loss over all pairs.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

namespace gradient_cache {

constexpr std::size_t row_count = 4;  // queries, and documents
using Input = std::array<double, 3>;
using Hidden = std::array<double, 4>;
using Representation = std::array<double, 2>;
using Matrix1 = std::array<std::array<double, 4>, 3>;
using Matrix2 = std::array<std::array<double, 2>, 4>;
using Scores = std::array<std::array<double, 4>, 4>;

enum Side { query, document };
constexpr const char* side_names[] = {"query", "document"};
extern const std::array<std::array<Input, row_count>, 2> inputs;  // by side

// state = 1664525 state + 1013904223 mod 2^32; a draw advances the state first.
struct Random {
  std::uint32_t state = 0;
  double draw();
};

struct Row {
  Hidden t{}, m{}, z{};  // tanh, dropout mask, their product
  Representation r{};
};
// Draws four numbers in column order, none when `dropout` is 0.
Row encode(const Input& input, double dropout, Random& random);

struct Gradients {
  Matrix1 w1{};
  Matrix2 w2{};
  void add(const Gradients& other);
};
// Adds one row's vector-Jacobian product.
void add_gradient(const Input& input, const Row& row, const Representation& gradient, Gradients& sum);
double largest_difference(const Gradients& a, const Gradients& b);

using Representations = std::array<std::array<Representation, row_count>, 2>;  // by side
struct Loss {
  double value = 0;
  Scores scores{};
  Representations gradients{};
};
// Mean over the queries of the cross-entropy of its scores, the document of the same index being the right one.
Loss loss_of(const Representations& representations);

struct Chunk {
  Side side = query;
  std::vector<std::size_t> rows;
};
// Every query chunk in order, then every document chunk.
std::vector<Chunk> chunks_of(std::size_t size);

}  // namespace gradient_cache
