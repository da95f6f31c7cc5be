#include "viewer/ledger/lineage.h"

#include "viewer/ledger/lineage_pass.h"

namespace liveset::ledger {
namespace lineage {

using trace::Kind;
using trace::MemoryClass;

Result<Lineage> LineagePass::run() {
  namespace column = trace::column;
  const trace::ColumnMask wanted = column::kind | column::time | column::thread | column::phase | column::scope | column::heap |
                                   column::address | column::value | column::name | column::memory_class | column::number | column::text;
  trace::Columns columns;
  const std::size_t chunks = file_.chunks().size();
  for (std::size_t index = 0; index < chunks; ++index) {
    if (Status status = file_.read_chunk(index, wanted, columns); !status) return status.take_error();
    chunk(columns);
    if (options_.progress) options_.progress(index + 1, chunks);
  }
  for (ThreadState& thread : threads_) {
    settle(thread);
    end_by_phase(thread, last_event_, last_time_ns_);
    for (std::size_t depth = 0; depth < thread.open.size(); ++depth) {
      Round* const round = thread.open[depth].kept.round.get();
      if (round == nullptr) continue;
      round->about.unfinished = true;
      round->about.end = last_event_;
      round->about.end_ns = last_time_ns_;
      finish(*round);
    }
  }
  for (auto& [key, work] : works_) finalize(*work);
  settle_phase_rounds();
  if (!wanted_.empty()) {
    if (Status status = match_by_order(file_, ledger_, intervals_, std::move(wanted_), out_); !status) return status.take_error();
  }
  settle_order();
  out_.left_out += slot_names_.left_out() + counter_.left_out();
  return std::move(out_);
}

void LineagePass::chunk(const trace::Columns& columns) {
  at_ = {};
  next_ordinal_ = columns.first_allocation;
  const trace::ColumnTable& table = trace::column_table();
  for (std::uint32_t i = 0; i < columns.events; ++i) {
    const auto kind = static_cast<Kind>(columns.kind[i] & 0x7f);
    if (kind == Kind::alloc) {
      const auto ordinal = static_cast<std::uint32_t>(next_ordinal_++);
      finder_.born(columns.heap[at_.heap++], columns.address[at_.address++], ordinal);
      if (static_cast<trace::Phase>(columns.phase[i]) == trace::Phase::recompute) recompute_allocation(columns, i, ordinal);
    } else if (kind != Kind::free_requested) {
      other(columns, i, kind, columns.first_event + i);
      at_.pass(table[columns.kind[i]]);
    }
  }
  if (columns.events == 0) return;
  last_event_ = columns.first_event + columns.events - 1;
  last_time_ns_ = columns.time_ns.back();
}

void LineagePass::other(const trace::Columns& columns, std::uint32_t index, Kind kind, std::uint64_t event) {
  switch (kind) {
    case Kind::step_begin:
    case Kind::step_end:
      has_step_ = kind == Kind::step_begin;
      step_ = has_step_ ? columns.number[at_.number] : 0;
      microbatch_ = -1;
      part_begin_ = event;
      break;
    case Kind::microbatch_begin:
    case Kind::microbatch_end:
      microbatch_ = kind == Kind::microbatch_begin ? columns.number[at_.number] : -1;
      if (kind == Kind::microbatch_begin) part_begin_ = event;
      break;
    case Kind::scope_begin: begin(columns, index, event); break;
    case Kind::scope_end: end(columns, index, event); break;
    case Kind::attribute:
      if (is_region(columns.scope[index]))
        attribute(thread_at(columns, index), columns.scope[index], columns.name[at_.name], columns.text[at_.text]);
      break;
    case Kind::graph_node:
      // Inside of a node it is a graph that backward has just built: one more part of this one.
      if (thread_at(columns, index).nodes.empty() && !std::exchange(walking_, true)) walked_.clear();
      if (columns.number[at_.number] >= 0 && walked_.size() < max_walked) walked_[columns.number[at_.number]] = columns.name[at_.name];
      break;
    case Kind::backward_begin: walking_ = false; break;
    case Kind::backward_end:
    case Kind::node_begin:
    case Kind::node_end: node(columns, index, kind, event); break;
    case Kind::value_drop:
    case Kind::value_remake:
    case Kind::value_use:
    case Kind::value_retain:
      if (columns.value[at_.value] == 0) statement(columns, index, kind, event);
      break;
    case Kind::storage: statement(columns, index, kind, event); break;
    default: break;
  }
}

// ---- scopes of regions

Work* LineagePass::new_work(std::uint32_t thread, std::uint32_t scope, std::uint64_t event) {
  const std::uint64_t key = std::uint64_t{thread} << 32 | scope;
  if (works_.size() >= Lineage::max_regions && !works_.contains(key)) {
    ++out_.left_out;
    return nullptr;
  }
  std::unique_ptr<Work>& work = works_[key];
  if (work == nullptr)
    work = std::make_unique<Work>();
  else
    finalize(*work);
  *work = {};
  slot_names_.forward(scope);
  latest_[scope] = work.get();
  if (!options_.range.contains(event)) return work.get();
  if (out_.regions.size() >= Lineage::max_regions) {
    ++out_.left_out;
    return work.get();
  }
  work->region = static_cast<std::uint32_t>(out_.regions.size());
  CheckpointRegion& region = out_.regions.emplace_back();
  region.scope = scope;
  region.thread = thread;
  region.has_step = has_step_;
  region.step = step_;
  region.microbatch = microbatch_;
  region.forward_begin = event;
  return work.get();
}

Work* LineagePass::work_of(std::uint32_t scope) {
  const auto found = latest_.find(scope);
  return found == latest_.end() ? nullptr : found->second;
}

void LineagePass::begin(const trace::Columns& columns, std::uint32_t index, std::uint64_t event) {
  const std::uint32_t scope = columns.scope[index], id = columns.thread[index];
  if (!is_region(scope)) return;
  ThreadState& thread = thread_at(columns, index);
  settle(thread);
  end_by_phase(thread, event, columns.time_ns[index]);
  const bool inside = thread.open.recompute() != nullptr;
  if (!inside) thread.made_inside.clear();
  Regions::Region* const region = thread.open.begin(counter_, id, scope, static_cast<trace::Phase>(columns.phase[index]));
  if (region == nullptr) return;
  if (!region->again()) {
    region->kept.work = new_work(id, scope, event);
    return;
  }
  const auto own = works_.find(std::uint64_t{id} << 32 | scope);
  Work* work = own != works_.end() ? own->second.get() : work_of(scope);
  region->kept.round = std::make_unique<Round>();
  Round& round = *region->kept.round;
  round.work = work;
  round.region = work != nullptr ? work->region : none;
  round.scope = scope;
  round.indexed = work != nullptr && !work->slots.empty();
  round.about.number = region->round;
  round.about.thread = id;
  round.about.inside = inside;
  round.about.begin = event;
  round.about.begin_ns = columns.time_ns[index];
}

void LineagePass::end(const trace::Columns& columns, std::uint32_t index, std::uint64_t event) {
  const std::uint32_t scope = columns.scope[index];
  if (!is_region(scope)) return;
  ThreadState& thread = thread_at(columns, index);
  thread.open.end(scope, [&](Regions::Region&& region) {
    settle(thread);
    KeptOfRegion& kept = region.kept;
    if (kept.round != nullptr) {
      kept.round->about.end = event;
      kept.round->about.end_ns = columns.time_ns[index];
      thread.ended = std::move(kept.round);
    } else if (kept.work != nullptr && kept.work->region != none) {
      out_.regions[kept.work->region].forward_end = event;
      out_.regions[kept.work->region].forward_end_ns = columns.time_ns[index];
    }
  });
}

void LineagePass::attribute(ThreadState& thread, std::uint32_t scope, std::uint32_t name, std::uint32_t text) {
  Regions::Region* const region = thread.open.at(scope);
  if (region == nullptr) return;
  KeptOfRegion& kept = region->kept;
  const std::string_view key = names_.string(name);
  if (key == "recompute" && kept.round != nullptr) {
    kept.round->about.outcome = text;
  } else if (key == "checkpoint") {
    if (thread.open.is_forward(counter_, scope) != nullptr) {
      const std::uint64_t event = kept.round->about.begin;
      kept.round.reset();
      if (!region->repeats) kept.work = new_work(region->thread, scope, event);
    }
    if (kept.work != nullptr && kept.work->region != none) out_.regions[kept.work->region].about = text;
  }
}

// ---- statements

void LineagePass::statement(const trace::Columns& columns, std::uint32_t index, Kind kind, std::uint64_t event) {
  const auto memory_class = static_cast<MemoryClass>(columns.memory_class[at_.memory_class]);
  const std::uint32_t scope = columns.scope[index], name = columns.name[at_.name];
  const trace::TensorFacts facts = trace::tensor_facts(columns.number[at_.number]);
  if (kind == Kind::value_use) {
    if (is_region(scope)) slot_names_.waits(columns.thread[index], scope, facts.index, name);
    return;
  }
  if ((kind == Kind::value_retain || kind == Kind::storage) && !is_region(scope)) return;
  if (columns.address[at_.address] == 0) return;
  const std::int64_t found = finder_.find(columns.heap[at_.heap], columns.address[at_.address], event);
  if (found == BlockFinder::none) {
    ++out_.lost_blocks;
    return;
  }
  const auto block = static_cast<std::uint32_t>(found);
  ThreadState& thread = thread_at(columns, index);
  if (kind == Kind::value_drop)
    drop(thread, block, scope, facts);
  else if (kind == Kind::value_remake)
    remake(thread, block, scope, name, facts);
  else
    held(block, scope, name, kind, memory_class);
}

void LineagePass::drop(ThreadState& thread, std::uint32_t block, std::uint32_t scope, const trace::TensorFacts& facts) {
  if (thread.open.empty() || facts.index < 0) {
    ++out_.stray_statements;
    return;
  }
  Work* work = thread.open.back().kept.work;
  if (work == nullptr || work->region == none) return;
  work->drop({block, scope, static_cast<std::uint32_t>(facts.index), none, static_cast<std::int16_t>(facts.dtype)});
  ++out_.regions[work->region].slots;
  ++out_.slots;
}

void LineagePass::remake(ThreadState& thread, std::uint32_t block, std::uint32_t scope, std::uint32_t name,
                         const trace::TensorFacts& facts) {
  Round* round = nullptr;
  for (std::size_t depth = thread.open.size(); depth != 0 && round == nullptr; --depth)
    if (thread.open[depth - 1].scope == scope) round = thread.open[depth - 1].kept.round.get();
  // Of a recompute that has just ended, too. A graph of nested backwards may be said without a region.
  const bool any = facts.index < 0 && !is_region(scope);
  if (round == nullptr && thread.ended != nullptr && (any || thread.ended->scope == scope)) round = thread.ended.get();
  if (round == nullptr && thread.by_phase != nullptr && any) round = thread.by_phase.get();
  if (round == nullptr) {
    ++out_.stray_statements;
    return;
  }
  if (facts.index < 0) {
    round->stated.push_back({block, name, static_cast<std::int16_t>(facts.dtype)});
    return;
  }
  const bool repeats = facts.index == std::exchange(round->last_index, facts.index);
  Slot slot;
  if (round->work != nullptr && round->work->region == round->region) {
    const Work& work = *round->work;
    const auto same = work.by_index.find(static_cast<std::uint32_t>(facts.index));
    if (!repeats)
      round->last_slot = same != work.by_index.end() ? same->second.first : none;
    else if (round->last_slot != none)
      round->last_slot = work.slots[round->last_slot].next;
    if (round->last_slot != none) {
      slot = work.slots[round->last_slot];
      slot.name = slot_names_.find(scope, facts.index).slot;
    }
  }
  round->by_slot.emplace_back(block, slot);
}

// What the region itself keeps: said in its scope.
void LineagePass::held(std::uint32_t block, std::uint32_t scope, std::uint32_t name, Kind kind, MemoryClass memory_class) {
  Work* work = work_of(scope);
  if (work == nullptr || work->region == none) return;
  CheckpointRegion& region = out_.regions[work->region];
  if (kind == Kind::value_retain) {
    if (names_.string(name).substr(0, 10) != "selective.") return;
    work->selective.push_back(block);
  } else if (memory_class == MemoryClass::checkpoint_input) {
    work->inputs.push_back(block);
  } else if (memory_class == MemoryClass::rng_state) {
    work->random.push_back(block);
  } else {
    return;
  }
  region.held_stated = true;
}

// ---- recomputes

void LineagePass::recompute_allocation(const trace::Columns& columns, std::uint32_t index, std::uint32_t ordinal) {
  ThreadState& thread = thread_at(columns, index);
  if (Regions::Region* const region = thread.open.recompute(); region != nullptr) {
    Round& round = *region->kept.round;
    if (!round.indexed) round.made.emplace_back(ordinal, columns.scope[index]);
    if (!round.about.inside) return;
    if (thread.made_inside.size() < max_made_inside)
      thread.made_inside.emplace_back(ordinal, region->round);
    else
      ++out_.left_out;
    return;
  }
  if (thread.nodes.empty() || thread.nodes.back().recomputed) return;
  if (thread.by_phase == nullptr) {
    const std::uint64_t event = columns.first_event + index;
    if (!options_.range.contains(event)) return;
    thread.by_phase = std::make_unique<Round>();
    Round& round = *thread.by_phase;
    round.depth = thread.nodes.size();
    round.node = thread.nodes.back().name;
    round.sequence = thread.nodes.back().number;
    round.about.thread = columns.thread[index];
    round.about.begin = event;
    round.about.begin_ns = columns.time_ns[index];
  }
  thread.by_phase->made.emplace_back(ordinal, columns.scope[index]);
}

void LineagePass::node(const trace::Columns& columns, std::uint32_t index, Kind kind, std::uint64_t event) {
  ThreadState& thread = thread_at(columns, index);
  settle(thread);
  end_by_phase(thread, event, columns.time_ns[index]);
  if (kind == Kind::backward_end) {
    thread.nodes.clear();
  } else if (kind == Kind::node_begin) {
    const std::uint32_t name = columns.name[at_.name];
    const std::int64_t number = columns.number[at_.number];
    thread.nodes.begin(node_key(name, number), {name, number});
  } else {
    thread.nodes.end(node_key(columns.name[at_.name], columns.number[at_.number]));
  }
}

}  // namespace lineage

Result<Lineage> trace_lineage(const trace::TraceFile& file, const PhysicalLedger& ledger, const LineageOptions& options) {
  return lineage::LineagePass(file, ledger, options).run();
}

}  // namespace liveset::ledger
