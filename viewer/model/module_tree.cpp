#include "viewer/model/module_tree.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "viewer/ledger/value_names.h"
#include "viewer/model/name_pattern.h"

namespace liveset::model {

std::string NamedRun::name() const { return ledger::numbered_name(std::string(path), number); }

std::string NamedRun::numbered() const { return std::string(path) + "#" + std::to_string(number); }

NamedRuns::NamedRuns(const Model& model) {
  for (const Unit& unit : model.units) {
    const auto [path, number] = split_number(unit.name);
    layers_[path].push_back(static_cast<std::uint32_t>(runs_.size()));
    runs_.push_back({path, std::max(number, 1U), unit.begin, unit.end, true});
  }
  add_modules(model);
}

void NamedRuns::add_modules(const Model& model) {
  std::vector<std::uint32_t> open;  // runs that the op before is in, the outermost first
  std::vector<std::size_t> ends;
  std::uint32_t last = none;
  for (std::uint32_t op = 0; op < model.ops.size(); ++op) {
    const Op& each = model.ops[op];
    const std::uint32_t module = each.in_layers() ? each.module : none;
    if (module == none) {
      open.clear();
    } else if (module != last || open.empty() || each.enters != none) {
      const std::string_view path = model.modules[module];
      ends_of_parts(path, "./", ends);
      std::size_t same = 0;
      const std::size_t entered = each.enters == none ? std::string_view::npos : model.modules[each.enters].size();
      while (same < open.size() && same < ends.size() && ends[same] != entered && runs_[open[same]].path == path.substr(0, ends[same]))
        ++same;
      open.resize(same);
      for (; same < ends.size(); ++same) {
        std::vector<std::uint32_t>& runs = modules_[path.substr(0, ends[same])];
        open.push_back(static_cast<std::uint32_t>(runs_.size()));
        runs.push_back(open.back());
        runs_.push_back({path.substr(0, ends[same]), static_cast<std::uint32_t>(runs.size()), op, op, false});
      }
    }
    last = module;
    for (const std::uint32_t run : open) runs_[run].end = op + 1;
  }
}

std::pair<std::string_view, std::uint32_t> split_number(std::string_view name) {
  const auto sign = name.rfind('#');
  std::uint32_t number = 0;
  if (sign == std::string_view::npos) return {name, 0};
  const auto [end, error] = std::from_chars(name.data() + sign + 1, name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size() || number == 0) return {name, 0};
  return {name.substr(0, sign), number};
}

bool NamedRuns::is_one_of_many(const NamedRun& run) const {
  const Runs& of = run.layer ? layers_ : modules_;
  const auto found = of.find(run.path);
  return found != of.end() && found->second.size() > 1;
}

std::vector<std::uint32_t> NamedRuns::exactly(std::string_view name) const {
  const auto [path, number] = split_number(name);
  for (const Runs* of : {&layers_, &modules_}) {
    const auto found = of->find(path);
    if (found == of->end()) continue;
    if (number == 0) return found->second;
    for (const std::uint32_t run : found->second)
      if (runs_[run].number == number) return {run};
  }
  return {};
}

std::vector<std::uint32_t> NamedRuns::find(std::string_view pattern) const {
  std::uint64_t looks = std::numeric_limits<std::uint64_t>::max();
  return find(pattern, looks);
}

std::vector<std::uint32_t> NamedRuns::find(std::string_view pattern, std::uint64_t& looks) const {
  const auto spend = [&](std::size_t characters) { looks -= std::min<std::uint64_t>(looks, characters); };
  spend(32 + pattern.size());
  std::vector<std::uint32_t> found = exactly(pattern);
  spend(8 * found.size());
  if (!found.empty()) return found;
  const bool of_one = split_number(pattern).second != 0;  // or of a pattern of such, "bs.*#2"
  bool layers = false;
  for (std::uint32_t index = 0; index < runs_.size() && looks != 0; ++index) {
    const NamedRun& run = runs_[index];
    spend(of_one ? 32 + run.path.size() : 1);
    if (!run.layer && (layers || (!found.empty() && run.begin < runs_[found.back()].end))) continue;
    if (!(of_one ? matches_name(pattern, run.numbered(), looks) : matches_name(pattern, run.path, looks))) continue;
    layers = layers || run.layer;
    found.push_back(index);
    spend(8);
  }
  return found;
}

}  // namespace liveset::model
