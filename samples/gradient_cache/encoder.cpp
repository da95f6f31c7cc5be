#include "samples/gradient_cache/encoder.h"

#include <algorithm>
#include <cmath>

namespace gradient_cache {
namespace {

constexpr Matrix1 w1{{{.3, -.2, .5, .1}, {-.4, .6, .2, -.3}, {.1, .3, -.5, .4}}};
constexpr Matrix2 w2{{{.5, -.2}, {.1, .6}, {-.4, .3}, {.2, .5}}};

template <class Matrix>
double matrix_difference(const Matrix& a, const Matrix& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[i].size(); ++j) most = std::max(most, std::fabs(a[i][j] - b[i][j]));
  return most;
}

template <class Matrix>
void add_matrix(Matrix& sum, const Matrix& part) {
  for (std::size_t i = 0; i < sum.size(); ++i)
    for (std::size_t j = 0; j < sum[i].size(); ++j) sum[i][j] += part[i][j];
}

}  // namespace

const std::array<std::array<Input, row_count>, 2> inputs{{
    {{{.2, .5, -.1}, {.6, -.3, .4}, {-.2, .8, .7}, {.3, .1, -.5}}},
    {{{.1, .7, -.2}, {.3, -.1, .6}, {-.3, .5, .9}, {.7, .1, -.4}}},
}};

double Random::draw() {
  state = 1664525U * state + 1013904223U;
  return state / 4294967296.0;
}

Row encode(const Input& input, double dropout, Random& random) {
  Row row;
  for (std::size_t j = 0; j < row.t.size(); ++j) {
    double sum = 0;
    for (std::size_t i = 0; i < input.size(); ++i) sum += input[i] * w1[i][j];
    row.t[j] = std::tanh(sum);
  }
  for (double& mask : row.m) mask = dropout == 0 ? 1 : random.draw() >= dropout ? 1 / (1 - dropout) : 0;
  for (std::size_t j = 0; j < row.z.size(); ++j) row.z[j] = row.t[j] * row.m[j];
  for (std::size_t c = 0; c < row.r.size(); ++c)
    for (std::size_t j = 0; j < row.z.size(); ++j) row.r[c] += row.z[j] * w2[j][c];
  return row;
}

void Gradients::add(const Gradients& other) {
  add_matrix(w1, other.w1);
  add_matrix(w2, other.w2);
}

void add_gradient(const Input& input, const Row& row, const Representation& gradient, Gradients& sum) {
  Hidden inner{};
  for (std::size_t j = 0; j < inner.size(); ++j) {
    double product = 0;
    for (std::size_t c = 0; c < gradient.size(); ++c) product += gradient[c] * w2[j][c];
    inner[j] = product * row.m[j] * (1 - row.t[j] * row.t[j]);
    for (std::size_t c = 0; c < gradient.size(); ++c) sum.w2[j][c] += row.z[j] * gradient[c];
  }
  for (std::size_t i = 0; i < input.size(); ++i)
    for (std::size_t j = 0; j < inner.size(); ++j) sum.w1[i][j] += input[i] * inner[j];
}

double largest_difference(const Gradients& a, const Gradients& b) {
  return std::max(matrix_difference(a.w1, b.w1), matrix_difference(a.w2, b.w2));
}

Loss loss_of(const Representations& representations) {
  Loss loss;
  Scores gradient{};
  const double scale = 1.0 / row_count;
  for (std::size_t i = 0; i < row_count; ++i) {
    for (std::size_t j = 0; j < row_count; ++j)
      for (std::size_t c = 0; c < 2; ++c) loss.scores[i][j] += representations[query][i][c] * representations[document][j][c];
    const auto& row = loss.scores[i];
    const double most = *std::max_element(row.begin(), row.end());
    Hidden power{};
    double sum = 0;
    for (std::size_t j = 0; j < row_count; ++j) sum += power[j] = std::exp(row[j] - most);
    loss.value += scale * (most + std::log(sum) - row[i]);
    for (std::size_t j = 0; j < row_count; ++j) gradient[i][j] = scale * (power[j] / sum - (i == j ? 1 : 0));
  }
  for (std::size_t i = 0; i < row_count; ++i)
    for (std::size_t c = 0; c < 2; ++c)
      for (std::size_t j = 0; j < row_count; ++j) {
        loss.gradients[query][i][c] += gradient[i][j] * representations[document][j][c];
        loss.gradients[document][i][c] += gradient[j][i] * representations[query][j][c];
      }
  return loss;
}

std::vector<Chunk> chunks_of(std::size_t size) {
  std::vector<Chunk> chunks;
  for (const Side side : {query, document})
    for (std::size_t begin = 0; begin < row_count; begin += size) {
      Chunk chunk{side, {}};
      for (std::size_t row = begin; row < std::min(begin + size, row_count); ++row) chunk.rows.push_back(row);
      chunks.push_back(std::move(chunk));
    }
  return chunks;
}

}  // namespace gradient_cache
