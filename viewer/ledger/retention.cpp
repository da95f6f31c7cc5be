#include "viewer/ledger/retention.h"

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "viewer/ledger/block_finder.h"
#include "viewer/ledger/open_scopes.h"
#include "viewer/ledger/retention_casts.h"
#include "viewer/ledger/retention_list.h"
#include "viewer/ledger/retention_walk.h"
#include "viewer/trace/columns.h"

namespace liveset::ledger {
namespace {

using trace::Kind;
using trace::MemoryClass;
using trace::Phase;

// A block that is followed until its free.
struct Followed {
  std::uint32_t slot = 0, scope = 0, region = 0;       // scope: where it was saved, of what a region gave up
  std::uint32_t in_use = 0;                            // nodes that run now and have it in a slot
  std::uint32_t last_user = 0;                         // number of the last such node to end, in the order of all node begins
  bool read_again = false;                             // by the recompute of the region
  bool remade = false, used = false, settled = false;  // settled: a backward is over that could have used it
  std::uint64_t last_use_ns = 0, settled_ns = 0;
};

struct ThreadState {
  std::unique_ptr<Walk> walking, walk;     // the one that is being said; the one whose backward runs
  Walk* saying = nullptr;                  // the one of the two that the next slots are of
  OpenStack<std::uint32_t> nodes, scopes;  // String ids of their types; Scope ids
};

// Blocks freed one after the other, with nothing between.
struct Burst {
  std::uint32_t thread = 0, blocks = 0;
  std::vector<OverdueBlock> overdue;
};

constexpr std::uint32_t many_at_once = 16;

double by_bytes_and_time(const OverdueBlock& block) { return block.byte_seconds(); }
double by_bytes(const OverdueBlock& block) { return static_cast<double>(block.bytes); }

class Pass {
 public:
  Pass(const trace::TraceFile& file, const PhysicalLedger& ledger, const Lineage& lineage, const RetentionOptions& options)
      : file_(file), names_(file.dictionary()), ledger_(ledger), lineage_(lineage), options_(options), finder_(ledger.blocks) {
    threads_.resize(std::max<std::size_t>(names_.threads.size(), 1));
    followed_bits_.resize(ledger.blocks.end() / 64 + 1);
  }
  Result<Retention> run();

 private:
  static constexpr std::uint64_t max_again = 8'000'000;  // slots that recomputes have made again, of the last forward of each region

  void chunk(const trace::Columns& columns);
  void other(const trace::Columns& columns, std::uint32_t index, Kind kind, std::uint64_t event);
  void statement(const trace::Columns& columns, std::uint32_t index, Kind kind, std::uint64_t event);
  void retained(ThreadState& thread, std::uint32_t ordinal, std::uint32_t name, std::uint64_t size, const trace::TensorFacts& facts);
  void node(const trace::Columns& columns, std::uint32_t index, bool begins);
  void backward_end(ThreadState& thread, std::uint64_t time_ns);
  void freed(const trace::Columns& columns, std::uint32_t index, std::uint32_t ordinal);
  bool is_read(Followed& followed) const;
  void made_again(std::uint32_t region, std::uint32_t index, std::uint32_t block);
  void forget(std::uint32_t scope);
  void end_burst();
  void add(std::uint32_t ordinal, const Followed& followed, std::uint64_t time_ns, OverdueBlock block);

  const RemadeValue* find_remade(std::uint32_t block) const {
    const auto place = std::lower_bound(remade_.begin(), remade_.end(), block,
                                        [&](std::uint32_t value, std::uint32_t b) { return lineage_.values[value].block < b; });
    return place != remade_.end() && lineage_.values[*place].block == block ? &lineage_.values[*place] : nullptr;
  }
  // Of the strings of one text, one.
  std::uint32_t canonical(std::uint32_t string) {
    return string == 0 ? 0 : texts_.try_emplace(names_.string(string), string).first->second;
  }
  std::uint32_t region_scope(const OverdueBlock& block) const { return block.region != 0 ? lineage_.regions[block.region - 1].scope : 0; }
  Followed& follow(std::uint32_t ordinal) {
    followed_bits_[ordinal / 64] |= std::uint64_t{1} << ordinal % 64;
    return followed_[ordinal];
  }
  bool is_followed(std::uint64_t ordinal) const { return (followed_bits_[ordinal / 64] >> ordinal % 64 & 1) != 0; }
  // The block that a slot stands for now.
  std::uint32_t block_of(WalkSlot slot) const {
    if (!slot.is_again()) return slot.ordinal();
    const auto region = again_.find(slot.scope());
    if (region == again_.end()) return Walk::none;
    const auto block = region->second.find(slot.index());
    return block == region->second.end() ? Walk::none : block->second;
  }
  Followed* found(std::uint32_t ordinal) {
    const auto followed = followed_.find(ordinal);
    return followed == followed_.end() ? nullptr : &followed->second;
  }
  // Whether a block is the model's work and no data of the program.
  bool is_made(const Block& block) const {
    const Phase phase = block.phase();
    return block.in_step() && options_.range.contains(block.birth) &&
           (phase == Phase::forward || phase == Phase::loss || phase == Phase::recompute);
  }
  ThreadState& thread_at(const trace::Columns& columns, std::uint32_t index) {
    const std::uint32_t id = columns.thread[index];
    return threads_[id < threads_.size() ? id : 0];
  }

  const trace::TraceFile& file_;
  const trace::Dictionary& names_;
  const PhysicalLedger& ledger_;
  const Lineage& lineage_;
  const RetentionOptions& options_;
  Retention out_;
  BlockFinder finder_;
  trace::Positions at_;
  std::uint64_t next_ordinal_ = 0;
  WalkBudget walks_;  // before threads_, whose walks use it to their end
  std::vector<ThreadState> threads_;
  std::vector<std::uint32_t> scopes_;         // of each allocation
  std::vector<std::uint64_t> followed_bits_;  // by ordinal
  absl::flat_hash_map<std::uint32_t, Followed> followed_;
  absl::flat_hash_map<std::uint32_t, absl::flat_hash_map<std::uint32_t, std::uint32_t>> again_;  // region, slot -> block remade last
  std::uint64_t again_slots_ = 0, again_left_out_ = 0;
  // The nodes that wait for a region's slots, since its last forward, and the blocks that its recomputes read.
  struct RegionUse {
    std::uint64_t last_end_ns = 0;
    std::uint32_t running = 0;
    std::vector<std::uint32_t> inputs;
  };
  absl::flat_hash_map<std::uint32_t, RegionUse> uses_;
  absl::flat_hash_map<std::uint32_t, std::uint32_t> holders_;  // block -> String id
  absl::flat_hash_map<std::uint32_t, MemoryClass> stated_;
  Burst burst_;
  std::uint32_t node_begins_ = 0;
  std::uint64_t end_ns_ = 0;
  Casts casts_;
  std::vector<std::uint32_t> remade_;  // values, by block
  absl::flat_hash_map<std::string_view, std::uint32_t> texts_;
  OverdueList overdue_{by_bytes_and_time}, unused_{by_bytes};
};

Result<Retention> Pass::run() {
  for (std::uint32_t i = 0; i < lineage_.values.size(); ++i) remade_.push_back(i);
  std::sort(remade_.begin(), remade_.end(), [&](auto a, auto b) { return lineage_.values[a].block < lineage_.values[b].block; });
  for (const StillLive& live : lineage_.still_live) {
    const CheckpointRegion& region = lineage_.regions[live.region];
    if (region.rounds == 0 || region.forward_end == no_event || !is_made(*ledger_.blocks.find(live.block))) continue;
    Followed& followed = follow(live.block);
    if (followed.region != 0) continue;
    followed.region = live.region + 1;
    followed.slot = live.slot;
    followed.scope = live.scope;
    followed.used = true;
    followed.last_use_ns = std::max(region.forward_end_ns, live.read_until_ns);
    followed.read_again = live.read_until_ns != 0;
  }
  namespace column = trace::column;
  const trace::ColumnMask wanted = column::kind | column::time | column::thread | column::phase | column::scope | column::heap |
                                   column::address | column::size | column::age | column::value | column::name | column::memory_class |
                                   column::number;
  trace::Columns columns;
  const std::size_t chunks = file_.chunks().size();
  for (std::size_t index = 0; index < chunks; ++index) {
    if (Status status = file_.read_chunk(index, wanted, columns); !status) return status.take_error();
    chunk(columns);
    if (options_.progress) options_.progress(index + 1, chunks);
  }
  end_burst();
  for (auto& [ordinal, followed] : followed_) {
    if (followed.region != 0 && followed.read_again && is_read(followed)) continue;
    if (followed.settled || followed.region != 0) add(ordinal, followed, end_ns_, {});
  }
  OverdueBlocks overdue = overdue_.take(), unused = unused_.take();
  out_.overdue_blocks = overdue.all;
  out_.unused_blocks = unused.all;
  out_.ungrouped = overdue.ungrouped + unused.ungrouped;
  out_.overdue = std::move(overdue.largest);
  out_.unused = std::move(unused.largest);
  out_.overdue_groups = std::move(overdue.groups);
  out_.unused_groups = std::move(unused.groups);
  out_.left_out = walks_.left_out + again_left_out_ + casts_.left_out();
  out_.two_dtypes = casts_.take();
  std::vector<std::pair<std::uint32_t, MemoryClass>> stated(stated_.begin(), stated_.end());
  std::sort(stated.begin(), stated.end());
  out_.growth = find_growth(ledger_, options_.range, scopes_, stated);
  for (Growth& growth : out_.growth)
    if (const auto holder = holders_.find(growth.example); holder != holders_.end()) growth.holder = holder->second;
  return std::move(out_);
}

void Pass::chunk(const trace::Columns& columns) {
  at_ = {};
  next_ordinal_ = columns.first_allocation;
  scopes_.resize(next_ordinal_);  // without gaps, so this changes nothing
  const trace::ColumnTable& table = trace::column_table();
  for (std::uint32_t i = 0; i < columns.events; ++i) {
    const auto kind = static_cast<Kind>(columns.kind[i] & 0x7f);
    if (kind == Kind::alloc) {
      if (burst_.blocks != 0) end_burst();
      finder_.born(columns.heap[at_.heap++], columns.address[at_.address++], static_cast<std::uint32_t>(next_ordinal_++));
      ++at_.size;
      scopes_.push_back(columns.scope[i]);
    } else if (kind == Kind::free_requested) {
      const std::uint64_t age = columns.age[at_.age++];
      ++burst_.blocks;
      if (age != 0 && age <= next_ordinal_ && is_followed(next_ordinal_ - age))
        freed(columns, i, static_cast<std::uint32_t>(next_ordinal_ - age));
    } else {
      if (burst_.blocks != 0) end_burst();
      other(columns, i, kind, columns.first_event + i);
      at_.pass(table[columns.kind[i]]);
    }
  }
  if (columns.events != 0) end_ns_ = columns.time_ns.back();
}

void Pass::other(const trace::Columns& columns, std::uint32_t index, Kind kind, std::uint64_t event) {
  ThreadState& thread = thread_at(columns, index);
  switch (kind) {
    case Kind::scope_begin:
      thread.scopes.begin(columns.scope[index], columns.scope[index]);
      // What an earlier forward of a region had made again is no longer what its slots stand for.
      if (static_cast<Phase>(columns.phase[index] & 7U) != Phase::recompute) forget(columns.scope[index]);
      break;
    case Kind::scope_end: thread.scopes.end(columns.scope[index]); break;
    case Kind::attribute:
      if ((!again_.empty() || !uses_.empty()) && names_.string(columns.name[at_.name]) == "checkpoint") forget(columns.scope[index]);
      break;
    case Kind::graph_node:
      // Inside of a node it is a graph that backward has just built, and which it will run too.
      if (thread.nodes.empty() && thread.walking == nullptr) thread.walking = std::make_unique<Walk>(walks_);
      thread.saying = thread.nodes.empty() ? thread.walking.get() : thread.walk.get();
      if (thread.saying != nullptr) thread.saying->add(columns.name[at_.name], columns.number[at_.number]);
      break;
    case Kind::backward_begin:
      backward_end(thread, columns.time_ns[index]);
      thread.walk = std::move(thread.walking);
      thread.saying = nullptr;
      casts_.end_of_walk();
      break;
    case Kind::backward_end: backward_end(thread, columns.time_ns[index]); break;
    case Kind::node_begin:
    case Kind::node_end:
      out_.nodes = true;
      node(columns, index, kind == Kind::node_begin);
      break;
    case Kind::value_use: {
      const trace::TensorFacts facts = trace::tensor_facts(columns.number[at_.number]);
      if (columns.value[at_.value] == 0 && facts.index >= 0 && thread.saying != nullptr)
        thread.saying->add(WalkSlot::again(columns.scope[index], facts.index));
      break;
    }
    case Kind::value_retain:
    case Kind::value_remake:
    case Kind::value_offload:
      if (columns.value[at_.value] == 0) statement(columns, index, kind, event);
      break;
    case Kind::storage:
    case Kind::holder: statement(columns, index, kind, event); break;
    default: break;
  }
}

void Pass::statement(const trace::Columns& columns, std::uint32_t index, Kind kind, std::uint64_t event) {
  const std::uint64_t address = columns.address[at_.address];
  if (address == 0) return;
  const std::int64_t place = finder_.find(columns.heap[at_.heap], address, event);
  if (place == BlockFinder::none) return;
  const auto ordinal = static_cast<std::uint32_t>(place);
  const Block& block = *ledger_.blocks.find(ordinal);
  const std::uint32_t name = columns.name[at_.name], scope = columns.scope[index];
  if (kind == Kind::holder) {
    holders_[ordinal] = name;
    return;
  }
  const auto memory_class = static_cast<MemoryClass>(columns.memory_class[at_.memory_class]);
  const trace::TensorFacts facts = trace::tensor_facts(columns.number[at_.number]);
  if (kind == Kind::value_remake) {
    if (is_followed(ordinal))
      if (const Followed* followed = found(ordinal); followed != nullptr && followed->read_again) uses_[scope].inputs.push_back(ordinal);
    if (block.phase() != Phase::recompute || !is_made(block)) return;
    if (facts.index >= 0) {
      made_again(scope, WalkSlot::again(scope, facts.index).index(), ordinal);
    }
    return;
  }
  if (block.in_step() && memory_class != MemoryClass::none && kind == Kind::storage) stated_[ordinal] = memory_class;
  if (kind == Kind::value_retain && block.in_step()) stated_.try_emplace(ordinal, memory_class);
  // What the job names is held on purpose; a region's own outputs that it keeps (selective) are said in its scope.
  const bool of_graph = kind == Kind::value_retain && memory_class == MemoryClass::activation;
  if (is_followed(ordinal)) {
    // Given up by a region, and held by something that the job names: the graph, the next region.
    if (const auto followed = followed_.find(ordinal); followed != followed_.end() && followed->second.region != 0) {
      followed->second.region = 0;
      followed->second.slot = 0;
      followed->second.read_again = false;
      followed->second.used = false;
    }
  }
  const bool of_region = scope < names_.scopes.size() && names_.scopes[scope].kind == trace::ScopeKind::region;
  if (of_graph && !of_region && is_made(block)) retained(thread_at(columns, index), ordinal, name, columns.size[at_.size], facts);
}

void Pass::retained(ThreadState& thread, std::uint32_t ordinal, std::uint32_t name, std::uint64_t size, const trace::TensorFacts& facts) {
  if (thread.saying == nullptr || !thread.saying->is_numbered()) return;
  if (!thread.saying->add(WalkSlot::block(ordinal))) {
    // Of a block whose users are not all known nothing is said.
    followed_.erase(ordinal);
    return;
  }
  Followed& followed = follow(ordinal);
  if (followed.slot == 0) followed.slot = name;
  if (thread.nodes.empty())
    casts_.saved(scopes_[ordinal], name, ordinal, size != 0 ? size : ledger_.blocks.bytes(*ledger_.blocks.find(ordinal)), facts.dtype);
}

void Pass::node(const trace::Columns& columns, std::uint32_t index, bool begins) {
  ThreadState& thread = thread_at(columns, index);
  const std::uint32_t name = columns.name[at_.name];
  const std::int64_t number = columns.number[at_.number];
  node_begins_ += begins;
  if (begins)
    thread.nodes.begin(node_key(name, number), name);
  else
    thread.nodes.end(node_key(name, number));
  if (number < 0) return;
  // A device's thread runs nodes for the thread that called backward.
  Walk* walk = thread.walk.get();
  Walk::Node* node = walk != nullptr ? walk->find(name, number) : nullptr;
  for (std::size_t i = 0; node == nullptr && walk == nullptr && i < std::min<std::size_t>(threads_.size(), 64); ++i) {
    if (threads_[i].walk == nullptr) continue;
    node = threads_[i].walk->find(name, number);
    if (node != nullptr) walk = threads_[i].walk.get();
  }
  // A node runs once a walk.
  if (node == nullptr || (begins ? node->begun : node->ended || !node->begun)) return;
  (begins ? node->begun : node->ended) = true;
  walk->for_slots(*node, [&](WalkSlot slot, std::uint32_t& held) {
    const std::uint32_t block = block_of(slot);
    Followed* followed = found(block);
    if (slot.is_again()) {
      RegionUse& use = uses_[slot.scope()];
      if (begins) {
        ++use.running;
      } else {
        if (use.running != 0) --use.running;
        use.last_end_ns = columns.time_ns[index];
      }
    }
    if (begins) {
      if (followed == nullptr) return;
      held = block;
      ++followed->in_use;
      return;
    }
    // Exactly what its begin took is let go of; a slot that the node itself had made again stands for another block by now.
    if (Followed* taken = held == Walk::none ? nullptr : found(held); taken != nullptr && taken->in_use != 0) --taken->in_use;
    held = Walk::none;
    if (followed == nullptr) return;
    followed->used = true;
    followed->last_use_ns = columns.time_ns[index];
    followed->last_user = node_begins_;
  });
}

// What no node of it has used will not be used by it any more. A backward that raised says nothing of that.
void Pass::backward_end(ThreadState& thread, std::uint64_t time_ns) {
  thread.nodes.clear();
  thread.saying = nullptr;
  if (thread.walk == nullptr) return;
  const std::unique_ptr<Walk> walk = std::move(thread.walk);
  bool raised = false, ran = false;
  for (const Walk::Node& node : walk->nodes()) {
    raised |= node.begun && !node.ended;
    ran |= node.ended;
  }
  for (const Walk::Node& node : walk->nodes()) {
    walk->for_slots(node, [&](WalkSlot slot, std::uint32_t& held) {
      if (Followed* taken = held == Walk::none ? nullptr : found(held); taken != nullptr && taken->in_use != 0) --taken->in_use;
      held = Walk::none;
      if (const auto use = slot.is_again() ? uses_.find(slot.scope()) : uses_.end(); use != uses_.end()) use->second.running = 0;
      Followed* followed = found(block_of(slot));
      if (followed == nullptr || raised || !ran) return;
      followed->settled = true;
      followed->settled_ns = time_ns;
    });
  }
}

// A region may read its inputs as long as one of its nodes runs: they hold it. False: it is over.
bool Pass::is_read(Followed& followed) const {
  const auto use = uses_.find(lineage_.regions[followed.region - 1].scope);
  if (use == uses_.end()) return false;
  followed.last_use_ns = std::max(followed.last_use_ns, use->second.last_end_ns);
  return use->second.running != 0;
}

void Pass::made_again(std::uint32_t region, std::uint32_t index, std::uint32_t block) {
  const auto [place, is_new] = again_[region].try_emplace(index, block);
  place->second = block;
  again_slots_ += is_new;
  if (again_slots_ > max_again) {
    again_[region].erase(index);
    --again_slots_;
    ++again_left_out_;
    return;  // of a block whose users are not known nothing is said
  }
  follow(block).remade = true;
}

// The region runs forward again: its slots stand for nothing, and what it read before it reads no more.
void Pass::forget(std::uint32_t scope) {
  if (const auto again = again_.find(scope); again != again_.end()) {
    again_slots_ -= again->second.size();
    again_.erase(again);
  }
  const auto use = uses_.find(scope);
  if (use == uses_.end()) return;
  for (const std::uint32_t ordinal : use->second.inputs)
    if (Followed* followed = found(ordinal); followed != nullptr && followed->read_again)
      followed->last_use_ns = std::max(followed->last_use_ns, use->second.last_end_ns);
  uses_.erase(use);
}

void Pass::freed(const trace::Columns& columns, std::uint32_t index, std::uint32_t ordinal) {
  const auto place = followed_.find(ordinal);
  if (place == followed_.end()) return;
  Followed followed = place->second;
  followed_.erase(place);
  ++out_.followed;
  if (followed.in_use != 0 || (followed.read_again && is_read(followed))) return;
  ThreadState& thread = thread_at(columns, index);
  OverdueBlock block;
  if (!thread.nodes.empty()) {
    block.release = Release::in_node;
    block.released_in = thread.nodes.back();
  } else if (!thread.scopes.empty()) {
    block.release = Release::in_module;
    block.released_in = thread.scopes.back();
  } else {
    block.release = Release::outside;
  }
  add(ordinal, followed, columns.time_ns[index], block);
}

void Pass::add(std::uint32_t ordinal, const Followed& followed, std::uint64_t time_ns, OverdueBlock block) {
  block.block = ordinal;
  block.bytes = ledger_.blocks.bytes(*ledger_.blocks.find(ordinal));
  if (block.bytes < options_.min_bytes) return;
  block.scope = followed.region != 0 && followed.scope != 0 ? followed.scope : scopes_[ordinal];
  block.slot = followed.slot;
  if (const RemadeValue* value = followed.remade ? find_remade(ordinal) : nullptr; value != nullptr) {
    if (value->scope != 0) block.scope = value->scope;
    block.slot = value->slot;
    block.incarnation = value->incarnation;
  }
  block.slot = canonical(block.slot);
  if (block.release == Release::in_node) block.released_in = canonical(block.released_in);
  if (const auto holder = holders_.find(ordinal); holder != holders_.end()) block.holder = canonical(holder->second);
  block.region = followed.region;
  block.read_again = followed.region != 0 && followed.read_again;
  block.remade = followed.remade;
  block.used = followed.used;
  if (!followed.used) {
    if (!followed.settled) return;
    block.last_use_ns = followed.settled_ns;
    block.held_ns = time_ns - std::min(time_ns, followed.settled_ns);
    unused_.add(block, region_scope(block));
    return;
  }
  // Between the end of its last node and the next event of backward nothing can have let go of it.
  if (followed.region == 0 && !followed.settled && followed.last_user == node_begins_) return;
  block.last_use_ns = followed.last_use_ns;
  block.held_ns = time_ns - std::min(time_ns, followed.last_use_ns);
  if (block.held_ns == 0 || block.held_ns < options_.min_delay_ns) return;
  if (block.release == Release::at_the_end)
    overdue_.add(block, region_scope(block));
  else
    burst_.overdue.push_back(block);
}

void Pass::end_burst() {
  for (OverdueBlock& block : burst_.overdue) {
    block.freed_at_once = burst_.blocks;
    if (burst_.blocks >= many_at_once && block.release == Release::outside) block.release = Release::many;
    overdue_.add(block, region_scope(block));
  }
  burst_.overdue.clear();
  burst_.blocks = 0;
}

}  // namespace

Result<Retention> trace_retention(const trace::TraceFile& file, const PhysicalLedger& ledger, const Lineage& lineage,
                                  const RetentionOptions& options) {
  return Pass(file, ledger, lineage, options).run();
}

}  // namespace liveset::ledger
