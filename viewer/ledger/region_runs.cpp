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
  if (HeapShare* const found = share(open->second.back().kept, event.heap); found != nullptr) found->bytes += event.size;
}

void RegionRuns::remade(const trace::Event& event, std::uint32_t ordinal, const Block& block, std::uint64_t bytes) {
  const auto open = open_.find(event.thread);
  if (open == open_.end() || open->second.empty()) return;
  RegionRun& run = open->second.back().kept;
  if (block.birth < run.begin || !run.remade.insert(ordinal).second) return;
  if (HeapShare* const found = share(run, block.heap()); found != nullptr) found->remade_bytes += bytes;
}

void RegionRuns::begin(const trace::Event& event) {
  const trace::ScopeKind kind = event.scope < names_.scopes.size() ? names_.scopes[event.scope].kind : trace::ScopeKind::none;
  if (kind == trace::ScopeKind::module) {
    const auto open = open_.find(event.thread);
    if (open != open_.end() && !open->second.empty() && names_.scopes[event.scope].parent == open->second.back().scope)
      call(open->second.back().kept, event.scope);
  } else if (kind == trace::ScopeKind::region) {
    Open::Region* const region = open_[event.thread].begin(rounds_, event.thread, event.scope, event.phase);
    if (region == nullptr) return;
    region->kept.scope = event.scope;
    region->kept.thread = event.thread;
    region->kept.begin = event.index;
  }
}

void RegionRuns::end(const trace::Event& event) {
  const auto open = open_.find(event.thread);
  if (open == open_.end()) return;
  open->second.end(event.scope, [&](Open::Region&& region) { close(open->second, std::move(region), event.index); });
}

void RegionRuns::close(Open& open, Open::Region&& region, std::uint64_t event) {
  RegionRun run = std::move(region.kept);
  run.recompute = region.again();
  run.end = event;
  if (!open.empty()) {
    RegionRun& outer = open.back().kept;
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
  Open::Region* const region = found == open_.end() ? nullptr : found->second.at(event.scope);
  if (region == nullptr) return;
  const std::string_view key = names_.string(event.name);
  if (key == "checkpoint") {
    if (region->kept.about == 0) region->kept.about = event.text;
    found->second.is_forward(rounds_, event.scope);
  } else if (key == "recompute") {
    region->kept.outcome = event.text;
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
