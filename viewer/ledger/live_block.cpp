#include "viewer/ledger/live_block.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "viewer/ledger/classes.h"
#include "viewer/ledger/path_names.h"
#include "viewer/ledger/value_names.h"

namespace liveset::ledger {
namespace {

using trace::MemoryClass;
using trace::Phase;

// Name of the innermost scope of kind op.
std::string_view op_of(const trace::Dictionary& names, std::uint32_t scope) {
  for (int depth = 0; scope != 0 && scope < names.scopes.size() && depth < 256; ++depth, scope = names.scopes[scope].parent) {
    if (names.scopes[scope].kind == trace::ScopeKind::op) return names.string(names.scopes[scope].name);
  }
  return "";
}

std::string name_of(const trace::Dictionary& names, const BlockName& name) {
  const std::uint32_t id = name.value != 0 && name.value < names.values.size() ? names.values[name.value].name : name.name;
  return std::string(names.string(id));
}

// A module path at birth costs a walk up the scope tree; live sets repeat few scopes.
class ScopeNames {
 public:
  explicit ScopeNames(const trace::Dictionary& names) : names_(names), paths_(names) {}
  const std::pair<std::string_view, std::string_view>& of(std::uint32_t scope) {
    const auto found = known_.find(scope);
    if (found != known_.end()) return found->second;
    return known_[scope] = {paths_.module(scope), op_of(names_, scope)};
  }

 private:
  const trace::Dictionary& names_;
  PathNames paths_;
  std::map<std::uint32_t, std::pair<std::string_view, std::string_view>> known_;
};

std::string with_name(std::string text, std::string_view name, const char* separator = ": ") {
  return name.empty() ? text : text.append(separator).append(name);
}

std::string stated_text(MemoryClass memory_class, std::string_view name) {
  switch (memory_class) {
    case MemoryClass::optimizer_state: return with_name("optimizer state", name);
    case MemoryClass::checkpoint_input: return with_name("checkpoint region input", name);
    case MemoryClass::rng_state: return with_name("random state kept for a recompute", name);
    default: return with_name("stated: " + std::string(trace::class_name(memory_class)), name, ", ");
  }
}

std::string phase_text(Phase phase) {
  switch (phase) {
    case Phase::forward: return "born and freed inside one module call";
    case Phase::loss: return "born and freed between forward and backward";
    case Phase::optimizer: return "born and freed inside one optimizer step";
    default: return "born and freed inside one phase";
  }
}

std::string evidence_text(const trace::Dictionary& names, const LiveBlock& block, Evidence evidence, const BlockDetails& details) {
  const std::string_view name = names.string(details.class_name);
  const std::string node(names.string(details.born_node));
  const std::string in_node = node.empty() ? "in backward, outside its nodes" : "in node " + node;
  const std::string region = block.region.empty() ? "a recompute" : block.region;
  switch (evidence) {
    case Evidence::none: return "nothing states it";
    case Evidence::storage: return stated_text(block.memory_class, name);
    case Evidence::value: return with_name("value", block.names.empty() ? std::string_view() : std::string_view(block.names.front()), " ");
    case Evidence::graph: return with_name("graph", name);
    case Evidence::remade: return "remade by " + region;
    case Evidence::offload: return with_name("offloaded", name);
    case Evidence::collective: return with_name("collective", name);
    case Evidence::outlives_recompute: return "made by " + region + ", outlives it";
    case Evidence::accumulated: return "AccumulateGrad";
    case Evidence::between_nodes: return "born " + in_node + ", freed in the same backward";
    case Evidence::root_gradient: return "made at the start of a backward, before its nodes";
    case Evidence::in_node: return "born and freed " + in_node;
    case Evidence::in_recompute: return "born and freed inside " + region;
    case Evidence::in_phase: return phase_text(block.detail.phase);
    case Evidence::dropped: return "given up by " + region;
    case Evidence::outlives_backward: return "born " + in_node + ", outlives its backward";
    case Evidence::unfinished_backward: return "born " + in_node + " of a backward that has no end";
    case Evidence::lifetime: return "no graph of its step holds it";
    case Evidence::read_again: return "given up by " + region + ", and read by its recompute";
    case Evidence::dropped_alive: return "given up by " + region + ", and alive when that made it again";
    case Evidence::outside_steps: return "born outside the steps";
  }
  return "";
}

std::pair<std::string, std::string> op_and_slot(const trace::Dictionary& names, const BlockDetails& details) {
  const std::string_view slot_name = names.string(details.slot_name.slot);
  // What a selective checkpoint keeps is in no slot: "selective.aten.addmm.default".
  constexpr std::string_view kept = "selective.";
  if (names.string(details.slot_name.node) == "selective" && slot_name.starts_with(kept))
    return {std::string(slot_name.substr(kept.size())) + " (kept)", ""};
  const auto [node, slot] = node_and_slot(names, details.slot_name);
  return {std::string(node), std::string(slot)};
}

// Of parameters that are whole for a while somewhere in the trace: what lives beside a whole one is a shard, at every moment.
std::set<std::string_view> sharded_names(const trace::Dictionary& names) {
  constexpr std::string_view gathered = "gathered:";
  std::set<std::string_view> found;
  for (const std::string& text : names.strings)
    if (std::string_view(text).starts_with(gathered)) found.insert(std::string_view(text).substr(gathered.size()));
  return found;
}

void tell(const trace::Dictionary& names, const BlockDetails& details, const std::set<std::string_view>& sharded, LiveBlock& block) {
  for (const BlockName& name : details.names) block.names.push_back(name_of(names, name));
  block.is_named_value = !details.names.empty() && details.names.front().value != 0;
  std::tie(block.op, block.slot) = op_and_slot(names, details);
  if (block.op.empty()) block.op = names.string(details.born_node);
  block.dtype = trace::dtype_name(details.dtype);
  if (details.region < names.scopes.size()) block.region = names.string(names.scopes[details.region].name);
  if (details.slot >= 0) block.region_slot = details.slot;
  if (details.microbatch >= 0) block.microbatch = details.microbatch;
  block.incarnation = details.incarnation;
  if (block.memory_class != MemoryClass::parameter) return;
  block.is_gathered = details.gathered;
  block.is_sharded = !details.gathered && std::any_of(details.names.begin(), details.names.end(), [&](const BlockName& name) {
    return name.memory_class == MemoryClass::parameter && sharded.contains(names.string(name.name));
  });
}

}  // namespace

Status for_each_live_block(const trace::TraceFile& file, const PhysicalLedger& ledger, const Attribution& attribution, std::uint64_t event,
                           const std::function<void(LiveBlock&&)>& visit) {
  constexpr std::size_t at_once = 65536;
  const std::vector<std::uint32_t> ordinals = live_blocks(ledger, ledger.shown_heap, event);
  const trace::Dictionary& names = file.dictionary();
  const BlockDetails nothing;
  const std::set<std::string_view> sharded = sharded_names(names);
  ScopeNames scopes(names);
  std::map<std::uint32_t, std::string> stacks;
  for (std::size_t first = 0; first < ordinals.size(); first += at_once) {
    const std::span<const std::uint32_t> some(ordinals.data() + first, std::min(at_once, ordinals.size() - first));
    Result<std::vector<BlockDetail>> details = describe_blocks(file, ledger, some);
    if (!details) return details.take_error();
    for (const BlockDetail& detail : *details) {
      const Block& known = *ledger.blocks.find(detail.ordinal);
      const Evidence evidence = known.stated() == MemoryClass::none ? Evidence::none : known.evidence();
      LiveBlock block;
      block.detail = detail;
      block.memory_class = class_of(known);
      block.guess = is_guess(evidence);
      std::tie(block.module, block.scope_op) = scopes.of(detail.scope);
      const auto found = attribution.details.find(detail.ordinal);
      const BlockDetails& more = found != attribution.details.end() ? found->second : nothing;
      tell(names, more, sharded, block);
      if (!block.slot.empty()) {
        const std::string_view module =
            more.slot_name.saved_in != 0 ? scopes.of(more.slot_name.saved_in).first : std::string_view(block.module);
        block.name = incarnation_name(value_name(std::string(module), names.string(more.slot_name.slot)), more.incarnation);
      }
      if (!block.scope_op.empty()) block.op = block.scope_op;
      if (detail.stack != 0) {
        const auto known_stack = stacks.find(detail.stack);
        block.stack = known_stack != stacks.end() ? known_stack->second : stacks[detail.stack] = names.stack_text(detail.stack);
      }
      block.evidence = evidence_text(names, block, evidence, more);
      visit(std::move(block));
    }
  }
  return Done{};
}

}  // namespace liveset::ledger
