// Proposes selective policies: every layer runs again, and the outputs of some operators are kept.
//
// Which operators is a knapsack (plan/knapsack.h) over their names: an operator takes the bytes of the values that it makes in the layers,
// and saves the cost of making them again. It is solved for `points` capacities between nothing and everything. What the executor then
// finds is not only that: what a kept operator reads need not be made again for it, and a re-run stops early; so these are proposals.
#pragma once
#include <string>
#include <vector>

#include "viewer/model/model.h"

namespace liveset::model {

// "selective:mm,bmm", each once; empty where no operator has a name.
std::vector<std::string> selective_policies(const Model& model, std::uint64_t points = 16);

}  // namespace liveset::model
