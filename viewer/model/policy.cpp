#include "viewer/model/policy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <unordered_map>

#include "viewer/ledger/quantity.h"
#include "viewer/model/module_tree.h"
#include "viewer/model/name_pattern.h"
#include "viewer/model/name_ranges.h"

namespace liveset::model {
namespace {

using Kind = Policy::Kind;

enum class Argument : std::uint8_t { nothing, count, counts, bytes, bytes_and_window, cost, names, moves };

struct Form {
  std::string_view word;
  Kind kind;
  Argument argument;
  std::string_view shown;
};

// Every policy, one line each.
constexpr std::array forms{
    Form{"save-all", Kind::save_all, Argument::nothing, "save-all"},
    Form{"segment", Kind::equal_segments, Argument::count, "segment:K"},
    Form{"segments", Kind::segments, Argument::counts, "segments:N,N,..."},
    Form{"sqrt", Kind::square_root, Argument::nothing, "sqrt"},
    Form{"greedy", Kind::greedy, Argument::bytes, "greedy:BYTES"},
    Form{"full", Kind::full, Argument::nothing, "full"},
    Form{"over", Kind::over, Argument::bytes, "over:BYTES"},
    Form{"under", Kind::under, Argument::cost, "under:COST"},
    Form{"regions", Kind::regions, Argument::names, "regions:NAME,..."},
    Form{"selective", Kind::selective, Argument::names, "selective:OPERATOR,..."},
    Form{"offload", Kind::offload, Argument::bytes_and_window, "offload:BYTES[,N]"},
    Form{"revolve", Kind::revolve, Argument::count, "revolve:C"},
    Form{"rotor", Kind::rotor, Argument::bytes, "rotor:BYTES"},
    Form{"moves", Kind::moves, Argument::moves, "moves:f1,f2,d1,..."},
    Form{"by-hand", Kind::by_hand, Argument::nothing, "by-hand"},
};

// What the number behind the colon is, for messages.
std::string_view argument_name(const Form& form) {
  switch (form.kind) {
    case Kind::equal_segments: return "the segment length";
    case Kind::revolve: return "the number of snapshots";
    case Kind::under: return "the cost";
    default: return form.argument == Argument::nothing ? form.word : "the size";
  }
}

Error bad_policy(std::string what) {
  return {ErrorKind::usage, "", {}, std::move(what), "policies are " + std::string(policy_forms()) + "; as in segment:2 or segments:3,2,1"};
}

// What is wrong, empty when nothing is.
std::string read_count(std::string_view text, std::uint64_t least, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument || (error == std::errc() && number < least))
    return " must be a whole number of at least " + std::to_string(least);
  return error != std::errc() || number > max_layers ? " is too large, at most " + std::to_string(max_layers) : "";
}
std::string take(const Result<std::uint64_t>& found, std::uint64_t& number) {
  if (!found) return " " + found.error().what;
  number = *found;
  return "";
}

std::string read_offload(std::string_view text, Policy& policy) {
  const auto comma = text.find(',');
  if (std::string wrong = take(ledger::parse_byte_size(text.substr(0, comma)), policy.number); !wrong.empty()) return wrong;
  if (comma == std::string_view::npos) return "";
  const std::string wrong = read_count(text.substr(comma + 1), 0, policy.window);
  return wrong.empty() ? "" : ": the window" + wrong;
}

std::string read_argument(Argument argument, std::string_view text, Policy& policy) {
  switch (argument) {
    case Argument::nothing: return text.empty() ? "" : " takes no argument";
    case Argument::count: return read_count(text, 1, policy.number);
    case Argument::bytes: return take(ledger::parse_byte_size(text), policy.number);
    case Argument::bytes_and_window: return read_offload(text, policy);
    case Argument::cost:
      policy.in_time = text.find_first_not_of("0123456789. ") != std::string_view::npos;
      return take(ledger::parse_duration(text), policy.number);
    case Argument::counts:
    case Argument::names:
    case Argument::moves: break;
  }
  for (std::uint64_t names = 0; true;) {
    const auto comma = text.find(',');
    const std::string_view entry = text.substr(0, comma);
    if (argument == Argument::moves) {
      const std::optional<plan::Move> move = plan::read_move(entry);
      if (!move)
        return ": move " + std::to_string(policy.moves.size() + 1) + " '" + std::string(entry) +
               "' is none: f1 runs layer 1, d1 drops what it made, b1 is its backward";
      policy.moves.push_back(*move);
    } else if (argument == Argument::names) {
      if (entry.empty()) return ": name " + std::to_string(policy.names.size() + 1) + " is empty";
      if (policy.kind == Kind::regions) {
        const RangedName all(entry);
        if (all.has_too_many_ranges())
          return ": name " + std::to_string(policy.names.size() + 1) + " has more than " + std::to_string(RangedName::max_ranges) +
                 " ranges";
        if (all.count() > max_layers - names) return ": more than " + std::to_string(max_layers) + " names";
        names += all.count();
      }
      policy.names.emplace_back(entry);
    } else {
      std::uint64_t length = 0;
      if (const std::string wrong = read_count(entry, 1, length); !wrong.empty())
        return ": segment " + std::to_string(policy.lengths.size() + 1) + wrong;
      policy.lengths.push_back(length);
    }
    if (comma == std::string_view::npos) return "";
    text.remove_prefix(comma + 1);
  }
}

// Bytes that the values made in a unit take.
std::vector<std::uint64_t> value_bytes(const Model& model) {
  std::vector<std::uint64_t> bytes(model.units.size());
  std::vector<bool> seen(model.tensors.size());
  for (std::size_t unit = 0; unit < model.units.size(); ++unit)
    for (std::uint32_t op = model.units[unit].begin; op < model.units[unit].end; ++op)
      for (const std::uint32_t tensor : model.list(model.ops[op].writes)) {
        if (model.tensors[tensor].value && !seen[tensor]) bytes[unit] += model.tensors[tensor].bytes;
        seen[tensor] = true;
      }
  return bytes;
}

std::uint64_t cost_of(const Model& model, const Unit& unit) {
  std::uint64_t cost = 0;
  for (std::uint32_t op = unit.begin; op < unit.end; ++op) cost += model.ops[op].cost;
  return cost;
}

// K times K is at least `layers`.
std::uint64_t root_above(std::uint64_t layers) {
  std::uint64_t root = 1;
  while (root * root < layers) ++root;
  return root;
}

// Operators whose outputs are kept, by name.
class KeptOperators {
 public:
  KeptOperators(const Model& model, const std::vector<std::string>& names) : model_(model), names_(names) {
    for (const std::string& name : names) met_.emplace(operator_key(name), false);
  }

  // Of the ops [begin, end).
  std::vector<bool> outputs(std::uint32_t begin, std::uint32_t end) {
    std::vector<bool> keeps(end - begin);
    for (std::uint32_t op = begin; op < end; ++op) {
      keeps[op - begin] = has(model_.ops[op].name);
      if (op > begin && model_.ops[op].continues) keeps[op - begin] = keeps[op - 1 - begin];  // one operator
    }
    return keeps;
  }

  // The first name that no op had; null: none.
  const std::string* unmet() const {
    const auto found = std::find_if(names_.begin(), names_.end(), [&](const std::string& name) { return !met_.at(operator_key(name)); });
    return found == names_.end() ? nullptr : &*found;
  }

 private:
  bool has(std::string_view name) {
    const auto [known, is_new] = known_.try_emplace(name, false);
    if (!is_new || name.empty()) return known->second;
    const auto found = met_.find(operator_key(name));
    if (found != met_.end()) known->second = found->second = true;
    return known->second;
  }

  const Model& model_;
  const std::vector<std::string>& names_;
  std::unordered_map<std::string, bool> met_;         // by key
  std::unordered_map<std::string_view, bool> known_;  // names of ops
};

// A step may have several forwards, each with its backward behind it: no region goes on from one to the next.
std::vector<Region> within_forwards(const Model& model, std::vector<Region> regions) {
  std::vector<Region> parts;
  const auto may_run_again = [](const Op& op) { return op.phase == trace::Phase::forward; };
  constexpr std::size_t max_name = 200;  // of a part: there may be as many as ops
  for (Region& region : regions) {
    if (std::all_of(model.ops.begin() + region.begin, model.ops.begin() + region.end, may_run_again)) {
      parts.push_back(std::move(region));
      continue;
    }
    const std::vector<bool> keeps = std::move(region.keeps_outputs);
    region.name.resize(std::min(region.name.size(), max_name));
    for (std::uint32_t begin = region.begin, end = begin; begin < region.end; begin = end) {
      while (end < region.end && may_run_again(model.ops[end]) == may_run_again(model.ops[begin])) ++end;
      if (!may_run_again(model.ops[begin])) continue;
      Region& part = parts.emplace_back(region);
      part.begin = begin;
      part.end = end;
      if (!keeps.empty()) part.keeps_outputs.assign(keeps.begin() + (begin - region.begin), keeps.begin() + (end - region.begin));
    }
  }
  return parts;
}

class RegionWriter {
 public:
  RegionWriter(const Model& model, const Policy& policy) : model_(model), policy_(policy) {}

  Result<Regions> write() {
    if (const std::string why = mismatch(model_, policy_); !why.empty())
      return Error{ErrorKind::usage, "", {}, "policy '" + policy_.text + "': " + why, "give a number in their unit, as in under:1000"};
    out_.boundaries = {0};
    switch (policy_.kind) {
      case Kind::save_all: break;
      case Kind::full: equal(1); break;
      case Kind::equal_segments: equal(policy_.number); break;
      case Kind::square_root: equal(root_above(layers())); break;
      case Kind::segments: return listed();
      case Kind::greedy: greedy(); break;
      case Kind::over:
      case Kind::under: thresholds(); break;
      case Kind::regions: return named();
      case Kind::selective: return selective();
      case Kind::offload: return offload();
      case Kind::by_hand: return by_hand();
      case Kind::revolve:
      case Kind::rotor:
      case Kind::moves: return bad_policy("policy '" + policy_.text + "' is no set of regions");
    }
    if (policy_.kind == Kind::save_all) layer_by_layer();
    return std::move(out_);
  }

 private:
  std::uint64_t layers() const { return model_.units.size(); }

  void layer_by_layer() {
    out_.boundaries.clear();
    for (std::uint64_t layer = 0; layer <= layers(); ++layer) out_.boundaries.push_back(layer);
  }

  // Segments of `length`, the short one first or last.
  void equal(std::uint64_t length) {
    auto& cuts = out_.boundaries;
    if (model_.conventions.short_segment_first && layers() % length != 0) cuts.push_back(layers() % length);
    while (cuts.back() < layers()) cuts.push_back(std::min(layers(), cuts.back() + length));
    segments();
  }

  void segments() {
    const auto& cuts = out_.boundaries;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
      if (model_.conventions.checkpoint_last_segment || i + 2 != cuts.size()) region(cuts[i], cuts[i + 1]);
  }

  // Of the layers [first, end). What stands between units belongs to the segment when it does on both sides.
  void region(std::uint64_t first, std::uint64_t end) {
    Region region;
    region.begin = model_.units[first].begin;
    region.end = model_.units[end - 1].end;
    region.name = model_.units[first].name + (end - first > 1 ? ".." + model_.units[end - 1].name : "");
    out_.recomputed.push_back(std::move(region));
  }

  Result<Regions> listed() {
    const std::uint64_t sum = std::accumulate(policy_.lengths.begin(), policy_.lengths.end(), std::uint64_t{0});
    if (sum != layers())
      return bad_policy("policy '" + policy_.text + "': the segments have " + std::to_string(sum) + " layers, the model has " +
                        std::to_string(layers()));
    for (const std::uint64_t length : policy_.lengths) out_.boundaries.push_back(out_.boundaries.back() + length);
    segments();
    return std::move(out_);
  }

  void greedy() {
    const std::vector<std::uint64_t> bytes = value_bytes(model_);
    std::uint64_t sum = 0;
    for (std::uint64_t layer = 0; layer < layers(); ++layer) {
      sum += bytes[layer];
      if (sum <= policy_.number && layer + 1 < layers()) continue;
      out_.boundaries.push_back(layer + 1);
      sum = 0;
    }
    segments();
  }

  void thresholds() {
    const std::vector<std::uint64_t> bytes = value_bytes(model_);
    for (std::uint64_t layer = 0; layer < layers(); ++layer)
      if (policy_.kind == Kind::over ? bytes[layer] > policy_.number : cost_of(model_, model_.units[layer]) < policy_.number)
        region(layer, layer + 1);
    layer_by_layer();
  }

  Result<Regions> named() {
    const NamedRuns runs(model_);
    std::vector<std::uint32_t> chosen;
    std::uint64_t looks = max_looks;
    for (const std::string& stated : policy_.names) {
      const RangedName names(stated);
      for (std::uint64_t i = 0; i < names.count(); ++i) {
        const std::string name = names.at(i);
        const std::vector<std::uint32_t> found = runs.find(name, looks);
        if (looks == 0)
          return Error{ErrorKind::usage,
                       "",
                       {},
                       "policy '" + policy_.text + "' has too many names, or too long ones, for so many modules",
                       "name modules by their whole paths"};
        if (found.empty()) return no_such("layer and no module", name, names_of(runs));
        chosen.insert(chosen.end(), found.begin(), found.end());
      }
    }
    const std::vector<NamedRun>& all = runs.all();
    std::sort(chosen.begin(), chosen.end(), [&](std::uint32_t a, std::uint32_t b) {
      return all[a].begin != all[b].begin ? all[a].begin < all[b].begin : all[a].end > all[b].end;
    });
    for (const std::uint32_t index : chosen) {
      const NamedRun& run = all[index];
      if (!out_.recomputed.empty() && run.begin < out_.recomputed.back().end) {
        const Region& outer = out_.recomputed.back();
        if (run.begin == outer.begin && run.end == outer.end) continue;  // named twice
        return bad_policy("policy '" + policy_.text + "': region '" + run.name() + "' lies inside of region '" + outer.name + "'");
      }
      Region region;
      region.begin = run.begin;
      region.end = run.end;
      region.name = run.name();
      out_.recomputed.push_back(std::move(region));
    }
    layer_by_layer();
    return std::move(out_);
  }

  Error no_such(const std::string& what, const std::string& name, const std::string& there) {
    return {ErrorKind::usage, "", {}, "policy '" + policy_.text + "': the model has no " + what + " '" + name + "'", "it has " + there};
  }

  // Layers and modules, for a message: the first and the last layer, and the first few modules that are none.
  std::string names_of(const NamedRuns& runs) const {
    constexpr std::size_t most = 8;
    if (layers() == 0) return "none";
    std::string text = (layers() > 1 ? "the layers " : "the layer ") + model_.units.front().name;
    if (layers() > 1) text += " to " + model_.units.back().name;
    std::size_t modules = 0;
    for (const NamedRun& run : runs.all()) {
      if (run.layer || run.number > 1 || runs.is_layer(run.path)) continue;
      if (modules++ < most) text += (modules == 1 ? "; the modules " : ", ") + std::string(run.path);
    }
    return modules > most ? text + " and " + std::to_string(modules - most) + " others" : text;
  }

  // Operators of the layers, for a message: the first few.
  std::string operators() const {
    std::vector<std::string> found;
    for (const Op& op : model_.ops)
      if (op.phase == trace::Phase::forward && !op.name.empty() && std::find(found.begin(), found.end(), op.name) == found.end()) {
        found.push_back(op.name);
        if (found.size() == 12) break;
      }
    std::string text;
    for (const std::string& name : found) text += (text.empty() ? "" : ", ") + name;
    return text.empty() ? "no operators with names" : text;
  }

  Result<Regions> selective() {
    KeptOperators kept(model_, policy_.names);
    equal(1);
    for (Region& each : out_.recomputed) each.keeps_outputs = kept.outputs(each.begin, each.end);
    if (const std::string* none = kept.unmet()) return no_such("operator", *none, operators());
    return std::move(out_);
  }

  Result<Regions> offload() {
    std::vector<bool> chosen(model_.tensors.size());
    Offload all;
    all.window = policy_.window;
    std::uint64_t largest = 0;
    for (const Op& op : model_.ops)
      for (const std::uint32_t tensor : model_.list(op.writes)) {
        if (op.phase != trace::Phase::forward || chosen[tensor] || !model_.tensors[tensor].value) continue;
        largest = std::max(largest, model_.tensors[tensor].bytes);
        if (model_.tensors[tensor].bytes < policy_.number) continue;
        chosen[tensor] = true;
        all.tensors.push_back(tensor);
      }
    if (all.tensors.empty())
      return Error{ErrorKind::usage,
                   "",
                   {},
                   "policy '" + policy_.text + "': no value that backward needs has " + std::to_string(policy_.number) + " bytes",
                   "the largest has " + std::to_string(largest)};
    out_.offloaded.push_back(std::move(all));
    layer_by_layer();
    return std::move(out_);
  }

  Result<Regions> by_hand() {
    if (model_.regions.empty())
      return Error{ErrorKind::usage, "", {}, "policy 'by-hand': the model file has no region", "add region { module: ... } to it"};
    for (const HandRegion& hand : model_.regions) {
      if (hand.mode == HandRegion::Mode::offload) {
        out_.offloaded.push_back({hand.tensors, hand.stash});
      } else if (hand.mode == HandRegion::Mode::recompute) {
        Region region;
        region.begin = hand.begin;
        region.end = hand.end;
        region.name = hand.id;
        region.preserve_rng = hand.preserve_rng;
        region.early_stop = hand.early_stop;
        KeptOperators kept(model_, hand.save_ops);
        if (!hand.save_ops.empty()) region.keeps_outputs = kept.outputs(hand.begin, hand.end);
        if (const std::string* none = kept.unmet()) return no_such("operator", *none, operators());
        out_.recomputed.push_back(std::move(region));
      }
    }
    std::sort(out_.recomputed.begin(), out_.recomputed.end(), [](const Region& a, const Region& b) { return a.begin < b.begin; });
    layer_by_layer();
    return std::move(out_);
  }

  const Model& model_;
  const Policy& policy_;
  Regions out_;
};

}  // namespace

std::string_view policy_forms() {
  static const std::string text = [] {
    std::string all;
    for (const Form& form : forms) all += (all.empty() ? "" : ", ") + std::string(form.shown);
    return all;
  }();
  return text;
}

Result<Policy> parse_policy(std::string_view text) {
  Policy policy;
  policy.text = text;
  const auto colon = text.find(':');
  const std::string_view word = text.substr(0, colon);
  const auto form = std::find_if(forms.begin(), forms.end(), [&](const Form& each) { return each.word == word; });
  if (form == forms.end()) return bad_policy("unknown policy '" + policy.text + "'");
  policy.kind = form->kind;
  if (form->argument != Argument::nothing && colon == std::string_view::npos)
    return bad_policy("policy '" + policy.text + "' lacks its argument: " + std::string(form->shown));
  const std::string_view rest = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  if (form->argument == Argument::nothing && colon != std::string_view::npos)
    return bad_policy("policy '" + policy.text + "': " + std::string(word) + " takes no argument");
  if (const std::string wrong = read_argument(form->argument, rest, policy); !wrong.empty())
    return bad_policy("policy '" + policy.text + "'" + (wrong.front() == ':' ? wrong : ": " + std::string(argument_name(*form)) + wrong));
  return policy;
}

std::string in_ranges(const std::string& text) {
  const Result<Policy> policy = parse_policy(text);
  if (!policy || policy->kind != Kind::regions) return text;
  if (std::any_of(policy->names.begin(), policy->names.end(), [](const std::string& name) { return RangedName(name).count() > 1; }))
    return text;
  std::string out = "regions:";
  for (const std::string& name : with_ranges(policy->names)) out += (out.back() == ':' ? "" : ",") + name;
  return out;
}

std::string mismatch(const Model& model, const Policy& policy) {
  return policy.in_time && !model.costs_are_times() ? "the model's costs are no times" : "";
}

Result<Regions> regions_of(const Model& model, const Policy& policy) {
  Result<Regions> regions = RegionWriter(model, policy).write();
  if (regions) regions->recomputed = within_forwards(model, std::move(regions->recomputed));
  return regions;
}

}  // namespace liveset::model
