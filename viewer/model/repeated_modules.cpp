#include "viewer/model/repeated_modules.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "viewer/ledger/value_names.h"
#include "viewer/model/name_pattern.h"

namespace liveset::model {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "net.layer1.0" -> "net.layer*.*"
std::string family_of(std::string_view path) {
  std::string family;
  for (const char c : path) {
    if (!is_digit(c))
      family += c;
    else if (family.empty() || family.back() != '*')
      family += '*';
  }
  return family;
}

struct Family {
  std::set<std::string_view> members;
  std::uint64_t bytes = 0;
  std::size_t parts = 0;
};

// Bytes of what each module's own ops save and make.
std::vector<std::uint64_t> saved_bytes(const Model& model) {
  std::vector<bool> saved(model.tensors.size());
  for (const Op& op : model.ops)
    for (const std::uint32_t tensor : model.list(op.saves)) saved[tensor] = true;
  std::vector<std::uint64_t> bytes(model.modules.size());
  for (const Op& op : model.ops) {
    if (!op.in_layers() || op.module == none) continue;
    for (const std::uint32_t tensor : model.list(op.writes))
      if (saved[tensor]) bytes[op.module] += model.tensors[tensor].bytes;
  }
  return bytes;
}

// The root that is called more than once in one forward and saves most: blocks that the program calls one by one. Empty: none is.
std::string repeated_root(const Model& model, const std::vector<std::uint64_t>& bytes) {
  struct Calls {
    std::size_t forward = 0, now = 0, most = 0;  // number of the forward, calls in it, the most in one
    std::uint64_t bytes = 0;
  };
  std::map<std::string_view, Calls> roots;
  const auto root_of = [&](std::uint32_t module) {
    return std::string_view(model.modules[module]).substr(0, model.modules[module].find_first_of("./"));
  };
  for (std::uint32_t module = 0; module < model.modules.size(); ++module) roots[root_of(module)].bytes += bytes[module];
  std::string_view last;
  std::size_t forward = 0;
  for (const Op& op : model.ops) {
    if (op.phase == trace::Phase::backward) ++forward;
    const std::string_view root = op.in_layers() && op.module != none ? root_of(op.module) : std::string_view();
    if (!root.empty() && (root != last || (op.enters != none && model.modules[op.enters] == root))) {
      Calls& calls = roots[root];
      calls.now = calls.forward == forward ? calls.now + 1 : 1;
      calls.forward = forward;
      calls.most = std::max(calls.most, calls.now);
    }
    last = root;
  }
  std::string_view best;
  for (const auto& [root, calls] : roots)
    if (calls.most > 1 && calls.bytes > 0 && (best.empty() || calls.bytes > roots[best].bytes)) best = root;
  return std::string(best);
}

}  // namespace

std::string repeated_modules(const Model& model) {
  const std::vector<std::uint64_t> bytes = saved_bytes(model);
  std::vector<bool> counts(model.modules.size());
  for (const Op& op : model.ops)
    if (op.in_layers() && op.module != none) counts[op.module] = true;
  std::map<std::string, Family> families;
  std::string root;
  std::vector<std::size_t> ends;
  for (std::size_t module = 0; module < model.modules.size(); ++module) {
    if (!counts[module]) continue;
    const std::string_view path = model.modules[module];
    ends_of_parts(path, ".", ends);
    if (root.empty()) root = path.substr(0, ends.front());
    for (std::size_t part = 1; part < ends.size(); ++part) {
      const std::string_view member = path.substr(0, ends[part]);
      if (!is_digit(member.back()) || model.containers.contains(member)) continue;
      Family& family = families[family_of(member)];
      family.members.insert(member);
      family.bytes += bytes[module];
      family.parts = part;
    }
  }
  const Family* best = nullptr;
  std::string name;
  for (const auto& [pattern, family] : families) {
    if (family.members.size() < 2) continue;
    if (best != nullptr && (family.bytes < best->bytes || (family.bytes == best->bytes && family.parts >= best->parts))) continue;
    best = &family;
    name = pattern;
  }
  if (best != nullptr && best->bytes > 0) return name;
  if (std::string repeated = repeated_root(model, bytes); !repeated.empty()) return repeated;
  return root.empty() ? root : root + ".*";
}

std::vector<Unit> units_of(const Model& model, std::string_view pattern) {
  std::uint64_t looks = std::numeric_limits<std::uint64_t>::max();
  return units_of(model, pattern, looks);
}

std::vector<Unit> units_of(const Model& model, std::string_view pattern, std::uint64_t& looks) {
  // The member of the family that a module is or lies in; empty: none.
  std::vector<std::string_view> member(model.modules.size());
  std::vector<std::size_t> ends;
  for (std::size_t module = 0; module < model.modules.size(); ++module) {
    const std::string_view path = model.modules[module];
    looks -= std::min<std::uint64_t>(looks, path.size() / 16);
    ends_of_parts(path, ".", ends);
    for (const std::size_t end : ends)
      if (!model.containers.contains(path.substr(0, end)) && matches_name(pattern, path.substr(0, end), looks)) {
        member[module] = path.substr(0, end);
        break;
      }
  }
  std::vector<Unit> units;
  looks -= std::min<std::uint64_t>(looks, model.ops.size());
  if (looks == 0) return units;
  std::map<std::string_view, std::uint32_t> runs;
  std::string_view current;
  for (std::uint32_t op = 0; op < model.ops.size(); ++op) {
    const Op& each = model.ops[op];
    const std::string_view here = each.in_layers() && each.module != none ? member[each.module] : std::string_view();
    if (!here.empty() && here == current && (each.enters == none || !lies_in(here, model.modules[each.enters]))) {
      units.back().end = op + 1;
      continue;
    }
    current = here;
    if (!here.empty()) units.push_back({ledger::numbered_name(std::string(here), ++runs[here]), op, op + 1});
  }
  return units;
}

}  // namespace liveset::model
