// Names that a policy or a model file gives: paths of modules, and operators.
#pragma once
#include <string>
#include <string_view>

namespace liveset::model {

// `pattern` names `path`: it is the path, or its end behind a '.' or '/' ("bs.0" names "GPT.bs.0"); a '*' stands for any text without
// these two.
bool matches_name(std::string_view pattern, std::string_view path);

// "mm" names "aten.mm", "aten::mm.default" and autograd's "MmBackward0"; case and underscores do not count in autograd's names.
bool matches_operator(std::string_view pattern, std::string_view name);

}  // namespace liveset::model
