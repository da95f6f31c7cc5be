// Lists of names in few words: "GPT.bs.0..5.attn" is GPT.bs.0.attn, GPT.bs.1.attn, ... GPT.bs.5.attn. No path of a module has a number, two
// dots and a number in it, and no shell takes them for its own.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace liveset::model {

// Adds the names that this one stands for: itself, where it has no range from a number to a larger one. False: there would be more than
// `most`.
bool add_names(std::string_view name, std::size_t most, std::vector<std::string>& names);

// The same names, in ranges where their numbers follow each other; a range stands where its first name stood.
std::vector<std::string> with_ranges(const std::vector<std::string>& names);

}  // namespace liveset::model
