// Which modules of a step are its layers.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "viewer/model/model.h"

namespace liveset::model {

// Modules that are called and members of one family ("GPT.bs.0", "GPT.bs.1": "GPT.bs.*"; "net.layer1.0": "net.layer*.*"). Of all families
// with two members and more the one whose members save most bytes, of equal ones the outermost. Without any: a root that is called more
// than once in a forward (blocks that the program calls one by one), else the children of the root.
std::string repeated_modules(const Model& model);

// A unit for each call of a module that `pattern` names, or of one below it: a run of forward ops. A member that is called twice is two
// units; a call that records no graph (Op::no_graph) is none.
std::vector<Unit> units_of(const Model& model, std::string_view pattern);
// The same with a bound (name_pattern.h); at 0 `looks` left there are none.
std::vector<Unit> units_of(const Model& model, std::string_view pattern, std::uint64_t& looks);

}  // namespace liveset::model
