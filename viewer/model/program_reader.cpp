#include "viewer/model/program_reader.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "viewer/model/module_tree.h"
#include "viewer/model/name_pattern.h"
#include "viewer/model/repeated_modules.h"

namespace liveset::model {
namespace {

using trace::Phase;
using Names = google::protobuf::RepeatedPtrField<std::string>;

std::optional<Phase> phase_of(const std::string& name) {
  if (name.empty()) return Phase::forward;
  for (const Phase phase : {Phase::forward, Phase::loss, Phase::backward, Phase::optimizer, Phase::other})
    if (trace::phase_name(phase) == name) return phase;
  return std::nullopt;
}

class ProgramReader {
 public:
  ProgramReader(const Dims& dims, FileErrors& errors, ModelBuilder& builder) : dims_(dims), errors_(errors), builder_(builder) {}

  void read(const proto::Program& program, const Place& place) {
    if (program.op().empty()) {
      errors_.fail(place.path + " has no op");
      return;
    }
    if (static_cast<std::uint64_t>(program.op_size()) > 2 * max_layers) {
      errors_.fail(place.path + " has more than " + std::to_string(2 * max_layers) + " ops");
      return;
    }
    for (int i = 0; i < program.tensor_size() && !errors_.failed(); ++i) tensor(program.tensor(i), place.inner("tensor", i));
    // Backward ops in short form run after the loss, in reverse; what the file has after that comes behind them.
    bool written = false;
    for (int i = 0; i < program.op_size() && !errors_.failed(); ++i) {
      const proto::Program::Op& stated = program.op(i);
      const std::string& phase = stated.phase();
      if (!written && !phase.empty() && phase != "forward" && phase != "loss" && phase != "other") {
        written = true;
        short_backwards(program, place);
      }
      if (!errors_.failed()) op(stated, place.inner("op", i), i);
    }
    if (!written && !errors_.failed()) short_backwards(program, place);
    builder_.model.containers = {program.container().begin(), program.container().end()};
    if (!errors_.failed() && !program.unit().empty()) units(program, place);
    if (!errors_.failed() && !program.layer().empty()) layers(program, place);
  }

 private:
  void tensor(const proto::Program::Tensor& stated, const Place& place) {
    Tensor out;
    out.id = stated.id();
    if (out.id.empty()) {
      errors_.fail(place.line("id", -1) + place.path + " has no id");
      return;
    }
    if (!errors_.size(place, "bytes", stated.has_bytes(), stated.bytes(), "size", stated.size(), dims_, out.bytes)) return;
    if (!stated.memory_class().empty() && !read_class(stated.memory_class(), place, "memory_class", errors_, out.memory_class)) return;
    out.for_backward = stated.for_backward();
    out.accumulates = stated.accumulates();
    out.wrapped_number = stated.wrapped_number();
    out.rounded = stated.rounded();
    out.no_output = stated.no_output();
    if (!stated.view_of().empty()) {
      const auto found = tensors_.find(stated.view_of());
      if (found == tensors_.end()) {
        errors_.fail_at(place, "view_of", -1, "'" + stated.view_of() + "' is no tensor above this one");
        return;
      }
      out.storage = builder_.model.storage_of(found->second);
    }
    if (stated.has_layer() && stated.layer() < -1) {
      errors_.fail_at(place, "layer", -1, "is " + std::to_string(stated.layer()) + ", must be at least -1");
      return;
    }
    out.layer = stated.has_layer() ? stated.layer() : stated.given() ? 0 : -1;
    const std::uint32_t index = builder_.add_tensor(std::move(out));
    if (!tensors_.emplace(stated.id(), index).second) {
      errors_.fail_at(place, "id", -1, "'" + stated.id() + "' is a duplicate");
      return;
    }
    if (stated.given()) builder_.model.inputs.push_back(index);
  }

  bool names(const Place& place, const char* field, const Names& stated, std::vector<std::uint32_t>& out) {
    for (int i = 0; i < stated.size(); ++i) {
      const auto found = tensors_.find(stated[i]);
      if (found == tensors_.end()) return errors_.fail_at(place, field, i, "'" + stated[i] + "' is no tensor");
      out.push_back(found->second);
    }
    return true;
  }

  void op(const proto::Program::Op& stated, const Place& place, int index) {
    Op out;
    out.id = stated.id().empty() ? "op" + std::to_string(index) : stated.id();
    out.name = stated.name();
    out.module = builder_.module(stated.module());
    const std::optional<Phase> phase = phase_of(stated.phase());
    if (!phase) {
      errors_.fail_at(place, "phase", -1, "'" + stated.phase() + "' is none of forward, loss, backward, optimizer, other");
      return;
    }
    out.phase = *phase;
    out.cost = out.phase == Phase::forward ? 1 : 0;
    out.random = !stated.random().empty();
    out.side_effect = stated.side_effect();
    out.continues = stated.continues();
    out.after_function = stated.after_function();
    out.no_graph = stated.no_graph();
    out.saves_static = stated.saves_static();
    for (const auto& [field, is_stated] : {std::pair("no_graph", out.no_graph), std::pair("saves_static", out.saves_static)})
      if (is_stated && !is_forward(out.phase)) {
        errors_.fail_at(place, field, -1, "stands at an op that is no forward op");
        return;
      }
    if (!stated.enters().empty()) {
      if (!lies_in(stated.module(), stated.enters())) {
        errors_.fail_at(place, "enters", -1, "'" + stated.enters() + "' is no module that the op's module lies in");
        return;
      }
      out.enters = builder_.module(stated.enters());
    }
    ModelBuilder::Lists lists;
    if (!errors_.size(place, "cost", stated.has_cost(), stated.cost(), "work", stated.work(), dims_, out.cost) ||
        !errors_.size(place, "workspace", stated.has_workspace(), stated.workspace(), "workspace_size", stated.workspace_size(), dims_,
                      out.workspace) ||
        !names(place, "reads", stated.reads(), lists.reads) || !names(place, "writes", stated.writes(), lists.writes) ||
        !names(place, "saves", stated.saves(), lists.saves) || !frees(place, stated.frees(), lists))
      return;
    if (!packs(stated, place, lists, out) || !forward_of(stated, place, lists, out)) return;
    if (!ops_.emplace(out.id, static_cast<std::uint32_t>(builder_.model.ops.size())).second) {
      errors_.fail_at(place, "id", -1, "'" + out.id + "' is a duplicate");
      return;
    }
    if (stated.has_backward() && !is_forward(out.phase)) {
      errors_.fail(place.line("backward", -1) + place.path + ".backward stands at an op that is no forward op");
      return;
    }
    where_.push_back(index);
    builder_.add_op(std::move(out), lists);
  }

  bool frees(const Place& place, const Names& stated, ModelBuilder::Lists& lists) {
    if (stated.empty() || builder_.model.conventions.frees_are_listed) return names(place, "frees", stated, lists.frees);
    return errors_.fail_at(place, "frees", 0, "is given, but conventions.release is LAST_USE", "say conventions { release: LISTED }");
  }

  bool packs(const proto::Program::Op& stated, const Place& place, const ModelBuilder::Lists& lists, Op& out) {
    if (!proto::Program::Op::Packs_IsValid(stated.packs())) return errors_.fail_at(place, "packs", -1, "must be AUTO, BEFORE or AFTER");
    const auto storage = [&](std::uint32_t tensor) { return builder_.model.storage_of(tensor); };
    std::unordered_set<std::uint32_t> made;
    for (const std::uint32_t tensor : lists.writes) made.insert(storage(tensor));
    const auto own =
        std::find_if(lists.saves.begin(), lists.saves.end(), [&](std::uint32_t saved) { return made.contains(storage(saved)); });
    if (stated.packs() == proto::Program::Op::BEFORE && own != lists.saves.end())
      return errors_.fail_at(place, "packs", -1, "is BEFORE, but the op saves '" + builder_.model.tensors[*own].id + "', which it makes");
    out.packs_before = stated.packs() == proto::Program::Op::AUTO ? own == lists.saves.end() : stated.packs() == proto::Program::Op::BEFORE;
    return true;
  }

  // A backward op reads what its forward op saves, unless it says what it reads.
  bool forward_of(const proto::Program::Op& stated, const Place& place, ModelBuilder::Lists& lists, Op& out) {
    if (stated.backward_of().empty()) {
      return !stated.after_function() || errors_.fail_at(place, "after_function", -1, "stands at an op without backward_of");
    }
    const auto found = ops_.find(stated.backward_of());
    if (found == ops_.end()) return errors_.fail_at(place, "backward_of", -1, "'" + stated.backward_of() + "' is no op above this one");
    if (out.phase != Phase::backward) return errors_.fail_at(place, "backward_of", -1, "stands at an op of another phase than backward");
    out.forward = found->second;
    if (has_backward_.insert(out.forward).second && out.after_function)
      return errors_.fail_at(place, "after_function", -1,
                             "stands at the first backward op of '" + stated.backward_of() + "': no function has run that could return");
    if (stated.reads().empty() && !stated.after_function() && !builder_.model.conventions.frees_are_listed) {
      const auto saves = builder_.model.list(builder_.model.ops[out.forward].saves);
      lists.reads.assign(saves.begin(), saves.end());
    }
    return true;
  }

  void short_backwards(const proto::Program& program, const Place& place) {
    for (auto forward = static_cast<std::uint32_t>(builder_.model.ops.size()); forward-- > 0 && !errors_.failed();) {
      const int index = where_[forward];
      if (!program.op(index).has_backward()) continue;
      const proto::Program::Backward& stated = program.op(index).backward();
      const Place inner = place.inner("op", index).inner("backward");
      Op out;
      out.id = builder_.model.ops[forward].id + "'";
      out.name = builder_.model.ops[forward].name;
      out.module = builder_.model.ops[forward].module;
      out.phase = Phase::backward;
      out.forward = forward;
      has_backward_.insert(forward);
      ModelBuilder::Lists lists;
      const auto saves = builder_.model.list(builder_.model.ops[forward].saves);
      lists.reads.assign(saves.begin(), saves.end());
      if (!errors_.size(inner, "cost", stated.has_cost(), stated.cost(), "work", stated.work(), dims_, out.cost) ||
          !errors_.size(inner, "workspace", stated.has_workspace(), stated.workspace(), "workspace_size", stated.workspace_size(), dims_,
                        out.workspace) ||
          !names(inner, "reads", stated.reads(), lists.reads) || !names(inner, "writes", stated.writes(), lists.writes) ||
          !frees(inner, stated.frees(), lists))
        return;
      if (!ops_.emplace(out.id, static_cast<std::uint32_t>(builder_.model.ops.size())).second) {
        errors_.fail(inner.path + ": an op is called '" + out.id + "' already");
        return;
      }
      builder_.add_op(std::move(out), lists);
    }
  }

  void units(const proto::Program& program, const Place& place) {
    builder_.model.unit_pattern = program.unit();
    std::uint64_t looks = max_looks;
    builder_.model.units = units_of(builder_.model, program.unit(), looks);
    if (looks == 0)
      errors_.fail_at(place, "unit", -1, "is too long a pattern for so many modules");
    else if (builder_.model.units.empty())
      errors_.fail_at(place, "unit", -1, "'" + program.unit() + "' names no module of a forward op",
                      builder_.model.modules.empty() ? "no op has a module" : "there is " + builder_.model.modules.front());
  }

  void layers(const proto::Program& program, const Place& place) {
    std::vector<Unit>& units = builder_.model.units;
    if (!program.unit().empty()) {
      errors_.fail_at(place, "layer", 0, "and unit are both given; give one of them");
      return;
    }
    for (int i = 0; i < program.layer_size(); ++i) {
      const proto::Program::Layer& stated = program.layer(i);
      const Place inner = place.inner("layer", i);
      Unit unit;
      unit.name = stated.name();
      std::uint32_t last = 0;
      if (!forward_op(inner, "first", stated.first(), unit.begin) || !forward_op(inner, "last", stated.last(), last)) return;
      unit.end = last + 1;
      const auto begin = builder_.model.ops.begin() + unit.begin;
      if (unit.end <= unit.begin || std::any_of(begin, begin + (unit.end - unit.begin), [](const Op& op) { return !op.in_layers(); })) {
        errors_.fail_at(inner, "last", -1,
                        "'" + stated.last() + "' does not follow '" + stated.first() + "' with forward ops alone between them");
        return;
      }
      if (!units.empty() && unit.begin < units.back().end) {
        errors_.fail_at(inner, "first", -1, "'" + stated.first() + "' lies in or before the layer above",
                        "layers stand in order and do not overlap");
        return;
      }
      units.push_back(std::move(unit));
    }
  }
  bool forward_op(const Place& place, const char* field, const std::string& name, std::uint32_t& out) {
    const auto found = ops_.find(name);
    if (found == ops_.end() || !builder_.model.ops[found->second].in_layers())
      return errors_.fail_at(place, field, -1, "'" + name + "' is no forward op that records a graph");
    out = found->second;
    return true;
  }

  const Dims& dims_;
  FileErrors& errors_;
  ModelBuilder& builder_;
  std::unordered_map<std::string, std::uint32_t> tensors_, ops_;
  std::unordered_set<std::uint32_t> has_backward_;  // forward ops, so far
  std::vector<int> where_;                          // by op: in the file
};

}  // namespace

void read_program(const proto::Program& program, const Place& place, const Dims& dims, FileErrors& errors, ModelBuilder& builder) {
  ProgramReader(dims, errors, builder).read(program, place);
}

bool read_class(const std::string& name, const Place& place, const char* field, FileErrors& errors, trace::MemoryClass& out) {
  for (int index = 1; index < trace::class_count; ++index)
    if (trace::class_name(static_cast<trace::MemoryClass>(index)) == name) {
      out = static_cast<trace::MemoryClass>(index);
      return true;
    }
  return errors.fail_at(place, field, -1, "'" + name + "' is no class of memory",
                        "classes are parameter, gradient, optimizer_state, activation, ...");
}

namespace {

// What regions name, each looked up by all of them.
struct RegionIds {
  explicit RegionIds(const Model& model) {
    for (std::uint32_t index = 0; index < model.tensors.size(); ++index) tensors.emplace(model.tensors[index].id, index);
    for (std::uint32_t index = 0; index < model.ops.size(); ++index) ops.emplace(model.ops[index].id, index);
  }
  std::unordered_map<std::string_view, std::uint32_t> tensors, ops;
};

void read_region(const proto::Region& stated, const Place& place, const RegionIds& ids, FileErrors& errors, std::uint64_t& looks,
                 Model& model) {
  using Mode = HandRegion::Mode;
  HandRegion region;
  if (!proto::Region::Mode_IsValid(stated.mode())) {
    errors.fail_at(place, "mode", -1, "must be RECOMPUTE, OFFLOAD or SAVE");
    return;
  }
  region.mode = stated.mode() == proto::Region::RECOMPUTE ? Mode::recompute
                : stated.mode() == proto::Region::OFFLOAD ? Mode::offload
                                                          : Mode::save;
  region.id = stated.id();
  region.save_ops = {stated.save_ops().begin(), stated.save_ops().end()};
  region.preserve_rng = !stated.has_preserve_rng() || stated.preserve_rng();
  if (stated.has_early_stop()) region.early_stop = stated.early_stop();
  errors.number(place, "stash", -1, stated.stash(), 0, region.stash);
  if (region.mode == Mode::offload) {
    for (int i = 0; i < stated.tensor_size(); ++i) {
      const auto found = ids.tensors.find(stated.tensor(i));
      if (found == ids.tensors.end() || !model.tensors[found->second].value) {
        errors.fail_at(place, "tensor", i, "'" + stated.tensor(i) + "' is no value that backward needs");
        return;
      }
      region.tensors.push_back(found->second);
    }
    if (region.tensors.empty()) {
      errors.fail(place.line("mode", -1) + place.path + " names no value to offload", "give tensor: \"...\"");
      return;
    }
    model.regions.push_back(std::move(region));
    return;
  }
  if (!stated.module().empty() == !stated.op().empty()) {
    errors.fail(place.path + " names " + (stated.op().empty() ? "nothing" : "modules and ops"), "give module: or op:, one of them");
    return;
  }
  if (!stated.op().empty()) {
    for (int i = 0; i < stated.op_size(); ++i) {
      const auto found = ids.ops.find(stated.op(i));
      if (found == ids.ops.end() || !model.ops[found->second].in_layers()) {
        errors.fail_at(place, "op", i, "'" + stated.op(i) + "' is no forward op that records a graph");
        return;
      }
      if (i > 0 && found->second != region.end) {
        errors.fail_at(place, "op", i, "'" + stated.op(i) + "' does not follow '" + stated.op(i - 1) + "'",
                       "ops of a region follow each other");
        return;
      }
      if (i == 0) region.begin = found->second;
      region.end = found->second + 1;
    }
    if (region.id.empty()) region.id = stated.op(0);
    model.regions.push_back(std::move(region));
    return;
  }
  std::vector<Unit> named;
  for (const Unit& unit : model.units)
    if (matches_name(stated.module(), unit.name, looks) || matches_name(stated.module(), split_number(unit.name).first, looks))
      named.push_back(unit);
  if (named.empty()) named = units_of(model, stated.module(), looks);
  looks -= std::min<std::uint64_t>(looks, 1000 * named.size());
  if (looks == 0) {
    errors.fail_at(place, "module", -1, "is one of too many patterns, or too long a one, for so many modules",
                   "give fewer regions, or their ops");
    return;
  }
  for (const Unit& unit : named) {
    HandRegion each = region;
    each.begin = unit.begin;
    each.end = unit.end;
    if (each.id.empty()) each.id = unit.name;
    model.regions.push_back(std::move(each));
  }
  if (named.empty())
    errors.fail_at(
        place, "module", -1, "'" + stated.module() + "' names no layer",
        model.units.empty() ? "the model has none" : "layers are " + model.units.front().name + " to " + model.units.back().name);
}

// No two regions that recompute overlap, and no two offload one tensor.
void check_regions(const Place& root, FileErrors& errors, const Model& model) {
  std::vector<const HandRegion*> moved_by(model.tensors.size());
  for (const HandRegion& region : model.regions)
    for (const std::uint32_t tensor : region.tensors) {
      if (moved_by[tensor] != nullptr) {
        errors.fail(root.line("region", static_cast<int>(region.stated)) + "regions '" + moved_by[tensor]->id + "' and '" + region.id +
                    "' both offload '" + model.tensors[tensor].id + "'");
        return;
      }
      moved_by[tensor] = &region;
    }
  std::vector<const HandRegion*> recomputed;
  for (const HandRegion& region : model.regions)
    if (region.mode == HandRegion::Mode::recompute) recomputed.push_back(&region);
  std::sort(recomputed.begin(), recomputed.end(), [](const HandRegion* a, const HandRegion* b) { return a->begin < b->begin; });
  for (std::size_t i = 1; i < recomputed.size(); ++i)
    if (recomputed[i]->begin < recomputed[i - 1]->end) {
      const auto later = static_cast<int>(std::max(recomputed[i - 1]->stated, recomputed[i]->stated));
      errors.fail(root.line("region", later) + "regions '" + recomputed[i - 1]->id + "' and '" + recomputed[i]->id + "' overlap",
                  "a region inside of another one is not modelled");
      return;
    }
}

}  // namespace

void read_regions(const proto::Model& parsed, const Place& root, FileErrors& errors, Model& model) {
  if (parsed.region_size() == 0) return;
  const RegionIds ids(model);
  std::uint64_t looks = max_looks;
  for (int i = 0; i < parsed.region_size() && !errors.failed(); ++i) {
    const std::size_t before = model.regions.size();
    read_region(parsed.region(i), root.inner("region", i), ids, errors, looks, model);
    for (std::size_t region = before; region < model.regions.size(); ++region) model.regions[region].stated = static_cast<std::uint32_t>(i);
  }
  if (!errors.failed()) check_regions(root, errors, model);
}

}  // namespace liveset::model
