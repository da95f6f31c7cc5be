// What a model file says that the model should predict (`expect { policy counter value tolerance }`), beside what it predicts.
#pragma once
#include <cstdint>
#include <vector>

#include "viewer/model/model.h"

namespace liveset::model {

struct CheckedExpectation {
  Expectation expected;
  std::uint64_t predicted = 0;
  std::int64_t difference() const { return static_cast<std::int64_t>(predicted - expected.value); }
  bool holds() const;  // the difference is at most the tolerance's share of what was expected
};

// Each policy is followed once. Errors (unreadable, with the place in the file): the file expects nothing; a policy does not fit the model;
// a counter that the model does not tell, as reserved without the caching allocator.
Result<std::vector<CheckedExpectation>> check_expectations(const Model& model);

}  // namespace liveset::model
