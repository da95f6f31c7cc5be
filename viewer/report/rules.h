// The user's own categories of blocks: a JSON file of rules, of which the first that fits a block names its category.
//
//   {"rules": [{"category": "attention", "module": "*.attn*", "op": "Softmax*", "min_bytes": 1048576}]}
//
// In patterns `*` stands for any text, also none, and `?` for one character; the rest is compared as it is. A rule fits where all
// that it states does.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/ledger/live_block.h"
#include "viewer/trace/result.h"

namespace liveset::report {

using ledger::LiveBlock;

struct Rule {
  enum Field { module, op, stack, memory_class, dtype, fields };
  std::string category;
  std::string patterns[fields];
  bool has_pattern[fields] = {};
  std::uint64_t min_bytes = 0, max_bytes = std::numeric_limits<std::uint64_t>::max();
};
using Rules = std::vector<Rule>;

// Usage errors name the file, the rule by its number from 1, and the field.
Result<Rules> parse_rules(std::string_view json, const std::string& path);
Result<Rules> read_rules(const std::string& path);

bool matches(std::string_view pattern, std::string_view text);
// Name of the category, "(no category)" where no rule fits.
std::string category_of(const Rules& rules, const LiveBlock& block);

}  // namespace liveset::report
