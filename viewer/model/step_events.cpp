#include "viewer/model/step_events.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace liveset::model {

using ledger::Block;
using trace::Event;
using trace::Kind;
using trace::Phase;

namespace {
constexpr int int64 = 4, float64 = 7;  // numbers of c10::ScalarType
}

Statements::Statements(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger)
    : ledger_(ledger), finder_(ledger.blocks), rounds_(file.dictionary().heaps[ledger.shown_heap].device_type == cuda) {}

void Statements::visit(const Event& event) {
  stated_ = none;
  expands_ = expands_ || (event.kind == Kind::segment_map && event.heap == ledger_.shown_heap);
  if (event.kind == Kind::alloc) {
    if (event.allocation < ledger_.blocks.end()) finder_.born(event.heap, event.address, static_cast<std::uint32_t>(event.allocation));
  } else if (event.heap == ledger_.shown_heap && (event.kind == Kind::storage || (event.kind == Kind::value_retain && event.value == 0))) {
    const std::int64_t ordinal = finder_.find(event.heap, event.address, event.index);
    if (ordinal == ledger::BlockFinder::none) return;
    stated_ = static_cast<std::uint32_t>(ordinal);
    const Block& block = *ledger_.blocks.find(stated_);
    if (rounds_ && event.size != 0 && event.size <= ledger_.blocks.bytes(block)) requested_[stated_] = event.size;
  }
}

std::uint64_t Statements::requested(std::uint32_t ordinal) const {
  const auto found = requested_.find(ordinal);
  return found != requested_.end() ? found->second : ledger_.blocks.bytes(*ledger_.blocks.find(ordinal));
}

StepEvents::StepEvents(const trace::TraceFile& file, const ledger::PhysicalLedger& ledger, const Statements& statements,
                       const ledger::Step& step)
    : file_(file),
      ledger_(ledger),
      statements_(statements),
      step_(step),
      threads_(std::max<std::size_t>(file.dictionary().threads.size(), 1)) {}

std::uint32_t StepEvents::first_slot(std::uint32_t ordinal) const {
  const auto found = slots_.find(ordinal);
  return found == slots_.end() ? 0 : found->second;
}

std::int64_t StepEvents::saved_as_self(std::uint32_t ordinal) const {
  const auto found = self_node_.find(ordinal);
  return found == self_node_.end() ? no_node : found->second;
}

bool StepEvents::is_module(std::uint32_t scope) const {
  const auto& scopes = file_.dictionary().scopes;
  return scope < scopes.size() && scopes[scope].kind == trace::ScopeKind::module;
}

void StepEvents::visit(const Event& event, Thread& thread) {
  switch (event.kind) {
    case Kind::alloc:
      if (event.heap == ledger_.shown_heap && in_step(event)) allocated(event, thread);
      return;
    case Kind::free_requested:
      if (in_step(event)) freed(event, thread);
      return;
    case Kind::sequence:
      thread.next_node = event.number;
      if (thread.first_node == no_node || event.index < step_.first_event) thread.first_node = event.number;
      // Numbers are a thread's own: where several run forward, only what none of them can have made in this step is known to be older.
      if (thread.next_node > thread.first_node && (first_made_ == no_node || thread.first_node < first_made_))
        first_made_ = thread.first_node;
      numbered_ = true;
      return;
    case Kind::scope_begin:
      if (is_module(event.scope)) module_begins(event, thread);
      return entered(event, thread, event.scope);
    case Kind::scope_end: return scope_ends(event, thread);
    case Kind::node_begin:
      thread.returned = false;
      thread.nodes.begin(ledger::node_key(event.name, event.number), {event.name, event.number});
      if (in_step(event)) node_runs(event, thread);
      return;
    case Kind::node_returned: thread.returned = !thread.nodes.empty(); return;
    case Kind::node_end:
      thread.returned = false;
      thread.nodes.end(ledger::node_key(event.name, event.number));
      return;
    case Kind::backward_end:
      thread.returned = false;
      thread.nodes.clear();
      return;
    case Kind::graph_node:
      thread.walked = event.number;
      if (in_step(event) && event.number >= 0) names_[event.number] = event.name;
      return;
    case Kind::value_retain:
      if (event.value == 0 && in_step(event) && thread.walked >= 0) saved(event, thread.walked);
      return;
    default: return;
  }
}

void StepEvents::module_begins(const Event& event, Thread& thread) {
  if (thread.calls.empty()) {
    has_graph_.push_back(true);
    thread.call = static_cast<std::uint32_t>(has_graph_.size());
  }
  thread.calls.begin(event.scope, {event.scope, thread.next_node});
  if (thread.enters != none) return;
  thread.enters = event.scope;
  thread.enters_at = thread.next_node;
}

void StepEvents::scope_ends(const Event& event, Thread& thread) {
  thread.calls.end(event.scope, [&](const Call& call) {
    if (thread.enters == call.scope) thread.enters = none;  // without an op
    if (!thread.calls.empty()) return;
    // The outermost module has made no node: no graph was recorded (torch.no_grad(), a teacher whose parameters are frozen).
    has_graph_[thread.call - 1] = thread.next_node != call.next_node;
    thread.call = 0;
  });
  entered(event, thread, event.scope < file_.dictionary().scopes.size() ? file_.dictionary().scopes[event.scope].parent : 0);
}

// From this number on, nodes are made in that scope.
void StepEvents::entered(const Event& event, const Thread& thread, std::uint32_t scope) {
  if (in_step(event) && event.phase != Phase::backward && thread.next_node != no_node) scopes_.push_back({thread.next_node, scope});
}

std::int64_t StepEvents::node_at(const Event& event, const Thread& thread, std::uint32_t& name) const {
  name = 0;
  if (!thread.nodes.empty()) {
    name = thread.nodes.back().first;
    return thread.nodes.back().second;
  }
  if (event.phase == Phase::backward || event.phase == Phase::optimizer) return no_node;
  return thread.next_node > thread.first_node ? thread.next_node - 1 : no_node;
}

void StepEvents::draft(const Event& event, Thread& thread, std::int64_t node, std::uint32_t name) {
  Draft each;
  each.phase = event.phase;
  each.scope = event.scope;
  each.thread = event.thread;
  each.enters = std::exchange(thread.enters, none);
  each.enters_at = thread.enters_at;
  each.node = node;
  each.name = name;
  each.after_function = thread.returned;
  each.time_ns = event.time_ns;
  each.call = thread.call;
  drafts_.push_back(std::move(each));
}

namespace {
bool continues(const Draft& last, const Event& event, std::int64_t node, std::uint32_t name, bool after_function) {
  return last.phase == event.phase && last.thread == event.thread && last.node == node && last.name == name && last.scope == event.scope &&
         last.after_function == after_function;
}
}  // namespace

void StepEvents::allocated(const Event& event, Thread& thread) {
  if (ledger_.blocks.find(event.allocation) == nullptr) return;  // a damaged trace
  std::uint32_t name = 0;
  const std::int64_t node = node_at(event, thread, name);
  if (drafts_.empty() || !drafts_.back().frees.empty() || thread.enters != none ||
      !continues(drafts_.back(), event, node, name, thread.returned))
    draft(event, thread, node, name);
  drafts_.back().writes.push_back(static_cast<std::uint32_t>(event.allocation));
}

// In forward a free belongs to the op before it: it is the caller's hand that lets go. In backward it is the node's.
void StepEvents::freed(const Event& event, Thread& thread) {
  const Block* const block = ledger_.blocks.find(event.allocation);
  if (block == nullptr || block->heap() != ledger_.shown_heap) return;
  std::uint32_t name = 0;
  const std::int64_t node = node_at(event, thread, name);
  const bool own = !is_forward(event.phase);
  if (drafts_.empty() || (own && !continues(drafts_.back(), event, node, name, thread.returned)) ||
      (!own && !is_forward(drafts_.back().phase)))
    draft(event, thread, node, name);
  drafts_.back().frees.push_back(static_cast<std::uint32_t>(event.allocation));
}

// A node that holds something is an op, even where it makes nothing.
void StepEvents::node_runs(const Event& event, Thread& thread) {
  if (event.number < 0 || saves_.find(event.number) == saves_.end()) return;
  graphs_cross_ = graphs_cross_ || !ran_.insert(event.number).second || event.number < first_made_;
  draft(event, thread, event.number, event.name);
}

void StepEvents::saved(const Event& event, std::int64_t node) {
  const std::uint32_t ordinal = statements_.stated();
  if (ordinal == none) return;
  const Block& block = *ledger_.blocks.find(ordinal);
  // A parameter, or what the job brought along; it is an op's input all the same where it dies in the step.
  if (block.birth < step_.first_event && block.death >= step_.end_event) {
    saves_static_.insert(node);
    return;
  }
  if (!saved_.emplace(node, ordinal).second) return;
  saves_[node].push_back({ordinal, event.name});
  if (looks_wrapped(event, block)) wrapped_.insert(ordinal);
  slots_.try_emplace(ordinal, event.name);
  if (file_.dictionary().string(event.name).ends_with(".self")) {
    const auto [self, is_new] = self_node_.try_emplace(ordinal, node);
    if (!is_new) self->second = std::min(self->second, node);
  }
}

// The number in `x / 2.0` becomes a tensor of one double, made for its operator and saved as its input.
bool StepEvents::looks_wrapped(const Event& event, const Block& block) const {
  const int dtype = trace::tensor_facts(event.number).dtype;
  const std::string_view slot = file_.dictionary().string(event.name);
  return ledger_.blocks.bytes(block) == 8 && (dtype == float64 || dtype == int64) && block.birth >= step_.first_event &&
         slot.find(".result") == std::string_view::npos;
}

void StepEvents::arrange() {
  for (Draft& each : drafts_) each.no_graph = each.call != 0 && !has_graph_[each.call - 1];
  join();
  order_saving_nodes();
}

// A node that ran without a block leaves an empty draft where it had nothing to free either: only the first of a node must stay.
void StepEvents::join() {
  std::vector<Draft> kept;
  kept.reserve(drafts_.size());
  for (Draft& each : drafts_) {
    const bool empty = each.writes.empty() && each.frees.empty();
    if (!kept.empty() && !empty) {
      Draft& last = kept.back();
      // The empty draft of a node's begin takes the node's first events.
      if (last.writes.empty() && last.frees.empty() && last.phase == each.phase && last.node == each.node && last.thread == each.thread &&
          !each.after_function) {
        last.writes = std::move(each.writes);
        last.frees = std::move(each.frees);
        last.scope = each.scope;
        continue;
      }
    }
    kept.push_back(std::move(each));
  }
  drafts_ = std::move(kept);
}

// Nodes that save something and made no block have no op yet: they go where their number belongs.
void StepEvents::order_saving_nodes() {
  std::unordered_set<std::int64_t> made;
  for (const Draft& each : drafts_)
    if (is_forward(each.phase) && each.node != no_node) made.insert(each.node);
  std::vector<std::int64_t> missing;
  for (const auto& [node, list] : saves_)
    if (made.find(node) == made.end()) missing.push_back(node);
  std::sort(missing.begin(), missing.end());
  std::stable_sort(scopes_.begin(), scopes_.end(), [](const Scoped& a, const Scoped& b) { return a.number < b.number; });
  std::vector<std::int64_t> next_made(drafts_.size(),
                                      std::numeric_limits<std::int64_t>::max());  // by draft: of the next forward one behind
  for (std::size_t index = drafts_.size(); index-- > 1;) {
    const Draft& each = drafts_[index];
    next_made[index - 1] = is_forward(each.phase) && each.node != no_node ? each.node : next_made[index];
  }
  std::vector<Draft> all;
  all.reserve(drafts_.size() + missing.size());
  std::size_t next = 0;
  const auto insert = [&](Draft& beside) {
    Draft each;
    each.phase = beside.phase;
    each.thread = beside.thread;
    each.node = missing[next];
    each.scope = scope_of(missing[next++], beside.scope);
    each.time_ns = beside.time_ns;
    each.no_graph = beside.no_graph;
    if (each.node >= beside.enters_at) each.enters = std::exchange(beside.enters, none);
    all.push_back(std::move(each));
  };
  for (std::size_t index = 0; index < drafts_.size(); ++index) {
    Draft& each = drafts_[index];
    if (is_forward(each.phase) && each.node != no_node)
      while (next < missing.size() && missing[next] < each.node) insert(each);
    if (each.phase == Phase::backward && next < missing.size() && !all.empty()) {
      // What is left of this forward: the last nodes before backward, and before what the next forward makes.
      Draft last = all.back();
      last.enters = none;
      while (next < missing.size() && missing[next] < next_made[index] && is_forward(last.phase)) insert(last);
    }
    all.push_back(std::move(each));
  }
  drafts_ = std::move(all);
  names_of_nodes();
}

std::uint32_t StepEvents::scope_of(std::int64_t node, std::uint32_t other) const {
  const auto after =
      std::upper_bound(scopes_.begin(), scopes_.end(), node, [](std::int64_t number, const Scoped& each) { return number < each.number; });
  return after == scopes_.begin() ? other : (after - 1)->scope;
}

// An operator runs in one module: what another module makes behind it is of operators that record no node (the mask of a dropout).
void StepEvents::names_of_nodes() {
  std::unordered_map<std::int64_t, std::uint32_t> scopes;  // by node: of its operator
  for (Draft& each : drafts_) {
    if (!is_forward(each.phase) || each.node == no_node) continue;
    if (scopes.try_emplace(each.node, each.scope).first->second != each.scope)
      each.node = no_node;
    else if (const auto found = names_.find(each.node); found != names_.end())
      each.name = found->second;
  }
}

}  // namespace liveset::model
