// Two runs from the same state, by their fingerprints (`run --fingerprint`): did they compute the same losses, gradients and parameters?
//
// Tensors are matched by step, kind and name. Equal hashes are bitwise equality. Otherwise the largest difference is exact where both
// runs wrote whole tensors (files of just their size, that agree with the samples and norms), else a lower bound: of the sampled elements,
// and of the norms (elements cannot all differ by less than the norms' difference / sqrt(elements)). It is compared with
//     tolerance = eps(dtype) * sqrt(reduction length) * largest absolute element of the two
// which is how far sums of `reduction length` terms, rounded in another order, are expected to lie apart. The length is that of a
// weight's gradient behind a matrix product: rows that went into the model in the step * the longest side of a parameter.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "viewer/trace/trace_file.h"

namespace liveset::compare {

struct TensorPrint {
  std::int64_t step = 0, order = 0;
  std::string what, name, dtype;  // what: loss, gradient or parameter
  std::vector<std::int64_t> shape;
  std::string hash;  // empty: it could not be read
  std::optional<double> norm, max_abs;
  std::uint64_t not_finite = 0;
  std::vector<std::pair<std::uint64_t, std::optional<double>>> samples;  // position; nothing: not finite
  std::string file;                                                      // whole, in the folder of values
};

struct Fingerprint {
  std::string path;
  std::vector<TensorPrint> tensors;  // by step, then loss, gradient, parameter, then order
  std::uint64_t rows = 0;            // most of a step
  std::uint64_t left_out = 0;        // texts that are no JSON, or are too many
};

// An error when the trace was recorded without --fingerprint.
Result<Fingerprint> read_fingerprint(const trace::TraceFile& file);

struct Difference {
  TensorPrint a, b;
  double largest = 0, tolerance = 0;
  bool exact = false;  // false: a lower bound
  bool beyond = false;
  std::string reason;  // why it counts as beyond although no difference is known: another shape, other elements that are not finite
};

struct Equivalence {
  std::uint64_t compared = 0, bitwise_equal = 0;
  std::vector<std::string> unreadable;  // names of what one of the runs could not read: not compared
  std::uint64_t not_finite_a = 0, not_finite_b = 0;
  std::vector<std::string> only_a, only_b;  // names of what the other has not
  bool other_order = false;                 // the same names, in another order
  std::vector<Difference> differences;      // not bitwise equal, in the order of the tensors
  std::uint64_t reduction_length = 1;
};
Equivalence compare_fingerprints(const Fingerprint& a, const Fingerprint& b);

}  // namespace liveset::compare
