// Names that a policy or a model file gives: paths of modules, and operators.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace liveset::model {

// `pattern` names `path`: it is the path, or its end behind a '.' or '/' ("bs.0" names "GPT.bs.0"); a '*' stands for any text without
// these two.
bool matches_name(std::string_view pattern, std::string_view path);
// The same where a file gives both, many times: `looks` is how many characters may yet be looked at, and at 0 nothing matches.
inline constexpr std::uint64_t max_looks = 400'000'000;  // a second at most
bool matches_name(std::string_view pattern, std::string_view path, std::uint64_t& looks);

// Where a path's first, second, ... part ends, 64 of them at most: "GPT.bs.0" -> 3, 6, 8.
void ends_of_parts(std::string_view path, std::string_view separators, std::vector<std::size_t>& ends);

// `path` is the module or lies in it: "GPT.bs.0.ln1" in "GPT.bs.0".
bool lies_in(std::string_view path, std::string_view module);

// Two names of the same operator have the same key: "mm", "aten.mm", "aten::mm.default" and autograd's "MmBackward0"; case and underscores
// do not count.
std::string operator_key(std::string_view name);

}  // namespace liveset::model
