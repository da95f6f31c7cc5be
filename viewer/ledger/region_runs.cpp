#include "viewer/ledger/region_runs.h"

#include <algorithm>
#include <string_view>

namespace liveset::ledger {

using trace::Kind;

void RegionRuns::visit(const trace::Event& event) {
  switch (event.kind) {
    case Kind::scope_begin: begin(event); return;
    case Kind::scope_end: end(event); return;
    case Kind::attribute: attribute(event); return;
    case Kind::alloc: break;
    default: return;
  }
  const auto open = open_.find(event.thread);
  if (open == open_.end() || open->second.empty() || event.heap == 0) return;
  if (HeapShare* const found = share(open->second.back(), event.heap); found != nullptr) found->bytes += event.size;
}

void RegionRuns::remade(const trace::Event& event, std::uint32_t ordinal, const Block& block, std::uint64_t bytes) {
  const auto open = open_.find(event.thread);
  if (open == open_.end() || open->second.empty()) return;
  RegionRun& run = open->second.back();
  if (block.birth < run.begin || !run.remade.insert(ordinal).second) return;
  if (HeapShare* const found = share(run, block.heap()); found != nullptr) found->remade_bytes += bytes;
}

void RegionRuns::begin(const trace::Event& event) {
  const trace::ScopeKind kind = event.scope < names_.scopes.size() ? names_.scopes[event.scope].kind : trace::ScopeKind::none;
  if (kind == trace::ScopeKind::module) {
    const auto open = open_.find(event.thread);
    if (open != open_.end() && !open->second.empty() && names_.scopes[event.scope].parent == open->second.back().scope)
      call(open->second.back(), event.scope);
  } else if (kind == trace::ScopeKind::region) {
    std::vector<RegionRun>& open = open_[event.thread];
    if (open.size() >= max_open) return;
    RegionRun run;
    run.scope = event.scope;
    run.thread = event.thread;
    run.begin = event.index;
    run.recompute = event.phase == trace::Phase::recompute;
    open.push_back(std::move(run));
  }
}

// What an exception left without a word ends with what is around it.
void RegionRuns::end(const trace::Event& event) {
  const auto found = open_.find(event.thread);
  if (found == open_.end()) return;
  std::vector<RegionRun>& open = found->second;
  const auto run = std::find_if(open.rbegin(), open.rend(), [&](const RegionRun& each) { return each.scope == event.scope; });
  if (run == open.rend()) return;
  const auto wanted = static_cast<std::size_t>(open.rend() - run) - 1;
  while (open.size() > wanted) close(open, event.index);
}

void RegionRuns::close(std::vector<RegionRun>& open, std::uint64_t event) {
  RegionRun run = std::move(open.back());
  open.pop_back();
  run.end = event;
  if (!open.empty()) {
    RegionRun& outer = open.back();
    for (const std::uint32_t module : run.modules) call(outer, module);
    for (const HeapShare& made : run.made) {
      HeapShare* const found = share(outer, made.heap);
      if (found == nullptr) continue;
      found->bytes += made.bytes;
      found->remade_bytes += made.remade_bytes;
    }
  }
  ended_(run);
}

void RegionRuns::attribute(const trace::Event& event) {
  const auto found = open_.find(event.thread);
  if (found == open_.end() || found->second.empty() || found->second.back().scope != event.scope) return;
  RegionRun& run = found->second.back();
  const std::string_view key = names_.string(event.name);
  if (key == "checkpoint" && run.about == 0) {
    run.about = event.text;
    run.recompute = false;
  } else if (key == "recompute") {
    run.outcome = event.text;
  }
}

void RegionRuns::call(RegionRun& run, std::uint32_t module) {
  if (run.modules.size() < RegionRun::max_modules && std::find(run.modules.begin(), run.modules.end(), module) == run.modules.end())
    run.modules.push_back(module);
}

HeapShare* RegionRuns::share(RegionRun& run, std::uint32_t heap) {
  for (HeapShare& made : run.made) {
    if (made.heap == heap) return &made;
  }
  if (run.made.size() >= RegionRun::max_heaps) return nullptr;
  run.made.push_back({heap, 0, 0});
  return &run.made.back();
}

}  // namespace liveset::ledger
