#include "viewer/ledger/attribution.h"

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <algorithm>

#include "viewer/ledger/block_finder.h"
#include "viewer/ledger/classes.h"
#include "viewer/ledger/lifetimes.h"
#include "viewer/ledger/slot_names.h"
#include "viewer/trace/columns.h"

namespace liveset::ledger {
namespace {

using trace::Kind;
using trace::MemoryClass;

struct Claim {
  MemoryClass memory_class = MemoryClass::none;
  Evidence why = Evidence::none;
};

// The class that a statement is evidence for, of a block that was born in `phase`. Without a value it speaks of what autograd saves.
Claim claim_of(Kind kind, bool has_value, MemoryClass stated, const Block& block) {
  const bool is_saved = stated == MemoryClass::none || stated == MemoryClass::activation || stated == MemoryClass::recomputed_activation;
  switch (kind) {
    case Kind::storage: return {stated, Evidence::storage};
    case Kind::collective: return {MemoryClass::communication, Evidence::collective};
    case Kind::value_retain:
      return {stated != MemoryClass::none ? stated : MemoryClass::activation, has_value ? Evidence::value : Evidence::graph};
    case Kind::value_create:
    case Kind::value_alias: return {stated != MemoryClass::none ? stated : MemoryClass::activation, Evidence::value};
    case Kind::value_merge: return {stated != MemoryClass::none ? stated : MemoryClass::recomputed_activation, Evidence::value};
    case Kind::value_remake:
      if (has_value) return {stated != MemoryClass::none ? stated : MemoryClass::recomputed_activation, Evidence::value};
      // A region saves again what it takes from outside, too: that was not made again.
      if (!is_saved) return {stated, Evidence::remade};
      if (block.phase() == trace::Phase::recompute) return {MemoryClass::recomputed_activation, Evidence::remade};
      // Given up and read again: what the region takes from outside without being given it.
      if (block.evidence() == Evidence::dropped || block.evidence() == Evidence::dropped_alive)
        return {MemoryClass::checkpoint_input, Evidence::read_again};
      return {};
    case Kind::value_drop:
      if (has_value) return {stated, Evidence::value};
      if (!is_saved) return {stated, Evidence::storage};
      if (block.in_step() && block.phase() == trace::Phase::forward) return {MemoryClass::temporary, Evidence::dropped};
      return {};
    case Kind::value_offload:
      if (has_value) return {stated, Evidence::value};
      return {stated != MemoryClass::none ? stated : MemoryClass::offloaded, Evidence::offload};
    default: return {stated, Evidence::value};
  }
}

// Which values live in which block, for programs that state releases.
class Residents {
 public:
  explicit Residents(Attribution& out) : out_(out) {}

  void enter(std::uint32_t value, std::uint32_t ordinal) {
    if (const auto old = home_.find(value); old != home_.end()) {
      if (old->second == ordinal) return;
      leave(old->second);
    }
    home_[value] = ordinal;
    Home& home = blocks_[ordinal];
    out_.shared_blocks += ++home.open == 2 && !home.shared;
    home.shared |= home.open >= 2;
  }
  void release(std::uint32_t value, std::uint64_t event, std::uint64_t time_ns) {
    const auto found = home_.find(value);
    if (found == home_.end()) return;
    const std::uint32_t ordinal = found->second;
    home_.erase(found);
    Home* home = leave(ordinal);
    if (home == nullptr) return;
    home->last_value = value;
    home->released_event = event;
    home->released_ns = time_ns;
  }
  void freed(std::uint32_t ordinal, std::uint64_t bytes, std::uint64_t time_ns) {
    const auto found = blocks_.find(ordinal);
    if (found == blocks_.end()) return;
    const Home home = found->second;
    blocks_.erase(found);
    if (home.open != 0) {
      ++out_.freed_before_release;
    } else if (home.last_value != 0 && time_ns > home.released_ns) {
      add({ordinal, home.last_value, home.released_event, bytes, time_ns - home.released_ns});
    }
  }
  bool empty() const { return blocks_.empty(); }

 private:
  struct Home {
    std::uint32_t open = 0, last_value = 0;
    bool shared = false;
    std::uint64_t released_event = 0, released_ns = 0;
  };
  Home* leave(std::uint32_t ordinal) {
    const auto home = blocks_.find(ordinal);
    if (home == blocks_.end()) return nullptr;
    if (home->second.open != 0) --home->second.open;
    return &home->second;
  }
  void add(const OverRetained& block) {
    ++out_.over_retained_blocks;
    out_.over_retained_bytes += block.bytes;
    out_.over_retained_byte_seconds += block.byte_seconds();
    out_.longest_delay_ns = std::max(out_.longest_delay_ns, block.delay_ns);
    const auto place = std::find_if(out_.worst.begin(), out_.worst.end(),
                                    [&](const OverRetained& other) { return other.byte_seconds() < block.byte_seconds(); });
    out_.worst.insert(place, block);
    if (out_.worst.size() > Attribution::max_examples) out_.worst.pop_back();
  }

  Attribution& out_;
  absl::flat_hash_map<std::uint32_t, std::uint32_t> home_;  // value -> block
  absl::flat_hash_map<std::uint32_t, Home> blocks_;
};

class Pass {
 public:
  Pass(const trace::TraceFile& file, PhysicalLedger& ledger, const AttributionOptions& options)
      : file_(file),
        ledger_(ledger),
        options_(options),
        finder_(ledger.blocks),
        residents_(out_),
        lifetimes_(ledger, file.dictionary()),
        slots_(file.dictionary()) {
    // Programs that name values state releases; what autograd saves has no names.
    follows_values_ = ledger.releases != 0 && file.dictionary().values.size() > 1;
  }
  Result<Attribution> run();

 private:
  void chunk(const trace::Columns& columns);
  void scope(const trace::Columns& columns, std::uint32_t index, Kind kind);
  void statement(const trace::Columns& columns, std::uint32_t index, Kind kind, std::uint64_t event);
  void born(const trace::Columns& columns, std::uint64_t event);
  BlockDetails* details_of(std::uint32_t ordinal);
  void detail(std::uint32_t ordinal, const BlockName& name, const trace::TensorFacts& facts, std::uint32_t scope, bool decides);
  void still_alive(std::uint32_t region, std::uint64_t event);
  void backward(std::uint32_t thread);

  const trace::TraceFile& file_;
  PhysicalLedger& ledger_;
  const AttributionOptions& options_;
  Attribution out_;
  BlockFinder finder_;
  Residents residents_;
  Lifetimes lifetimes_;
  bool follows_values_ = false;
  std::uint32_t thread_ = 0;  // of the statement
  std::int64_t microbatch_ = -1;
  SlotNames slots_;
  absl::flat_hash_map<std::uint32_t, std::vector<std::uint32_t>> dropped_;  // blocks, by region, of this step and not made again yet
  absl::flat_hash_map<std::uint32_t, std::pair<RetainedSet, absl::flat_hash_set<std::uint32_t>>> retained_;  // by thread
  trace::Positions at_;
  std::uint64_t next_ordinal_ = 0;
};

Result<Attribution> Pass::run() {
  for (const trace::Source& source : file_.dictionary().sources) {
    if (source.name != "python" || out_.python) continue;
    out_.python = true;
    out_.python_since = source.since_event;
  }
  out_.retained.reserve(ledger_.backwards.size());
  if (out_.python || ledger_.statements != 0 || ledger_.recompute_regions) {
    namespace column = trace::column;
    trace::ColumnMask wanted = column::kind | column::thread | column::phase | column::scope | column::heap | column::address |
                               column::size | column::value | column::name | column::memory_class | column::number;
    if (follows_values_) wanted |= column::age | column::time;
    trace::Columns columns;
    const std::size_t chunks = file_.chunks().size();
    for (std::size_t index = 0; index < chunks; ++index) {
      if (Status status = file_.read_chunk(index, wanted, columns); !status) return status.take_error();
      chunk(columns);
      if (options_.progress) options_.progress(index + 1, chunks);
    }
  }
  lifetimes_.finish();
  out_.details_left_out |= slots_.left_out() + lifetimes_.left_out() != 0;
  out_.retained.resize(ledger_.backwards.size());
  if (out_.python) settle_unnamed(ledger_, out_.python_since);
  return std::move(out_);
}

void Pass::chunk(const trace::Columns& columns) {
  at_ = {};
  next_ordinal_ = columns.first_allocation;
  const trace::ColumnTable& table = trace::column_table();
  for (std::uint32_t i = 0; i < columns.events; ++i) {
    const auto kind = static_cast<Kind>(columns.kind[i] & 0x7f);
    const std::uint64_t event = columns.first_event + i;
    const trace::ColumnMask mask = table[columns.kind[i]];
    lifetimes_.at(event, columns.thread[i], static_cast<trace::Phase>(columns.phase[i] & 7U));
    switch (kind) {
      case Kind::alloc: born(columns, event); break;
      case Kind::free_requested:
        if (!residents_.empty()) {
          const std::uint64_t ordinal = next_ordinal_ - std::min(columns.age[at_.age], next_ordinal_);
          const Block* block = ledger_.blocks.find(ordinal);
          if (block != nullptr && block->death == event)
            residents_.freed(static_cast<std::uint32_t>(ordinal), ledger_.blocks.bytes(*block), columns.time_ns[i]);
        }
        break;
      case Kind::scope_begin:
      case Kind::scope_end: scope(columns, i, kind); break;
      case Kind::backward_begin:
        backward(columns.thread[i]);
        lifetimes_.backward_begin();
        break;
      case Kind::backward_end: lifetimes_.backward_end(); break;
      case Kind::attribute:
        if (file_.dictionary().string(columns.name[at_.name]) == "checkpoint" && lifetimes_.region_is_forward(columns.scope[i]))
          slots_.forward(columns.scope[i]);
        break;
      case Kind::graph_node: slots_.walk(columns.thread[i], columns.name[at_.name]); break;
      case Kind::node_begin: lifetimes_.node_begin(columns.name[at_.name], columns.number[at_.number]); break;
      case Kind::node_end: lifetimes_.node_end(columns.name[at_.name], columns.number[at_.number]); break;
      case Kind::step_begin:
      case Kind::step_end:
        microbatch_ = -1;
        dropped_.clear();
        break;
      case Kind::microbatch_begin: microbatch_ = columns.number[at_.number]; break;
      default:
        // Who holds a storage (holder) says nothing of what it is.
        if (kind >= Kind::value_create && kind != Kind::holder && (mask & trace::column::address) != 0) statement(columns, i, kind, event);
        break;
    }
    at_.pass(mask);
  }
}

void Pass::scope(const trace::Columns& columns, std::uint32_t index, Kind kind) {
  const std::uint32_t id = columns.scope[index];
  const auto& scopes = file_.dictionary().scopes;
  if (id >= scopes.size() || scopes[id].kind != trace::ScopeKind::region) return;
  if (kind == Kind::scope_end) return lifetimes_.region_end(id);
  lifetimes_.region_begin(id);
  if (static_cast<trace::Phase>(columns.phase[index] & 7U) == trace::Phase::recompute)
    still_alive(id, columns.first_event + index);
  else
    slots_.forward(id);
}

void Pass::born(const trace::Columns& columns, std::uint64_t event) {
  const auto ordinal = static_cast<std::uint32_t>(next_ordinal_++);
  finder_.born(columns.heap[at_.heap], columns.address[at_.address], ordinal);
  lifetimes_.born(ordinal);
  if (options_.details_at == no_event || event > options_.details_at) return;
  const Block& block = *ledger_.blocks.find(ordinal);
  if (!block.live_after(options_.details_at)) return;
  BlockDetails* const known = details_of(ordinal);
  if (known == nullptr) return;
  BlockDetails& details = *known;
  details.microbatch = microbatch_;
  details.born_node = lifetimes_.node();
  if (block.phase() != trace::Phase::recompute) return;
  details.region = lifetimes_.region();
  details.incarnation = lifetimes_.incarnation();
}

void Pass::statement(const trace::Columns& columns, std::uint32_t index, Kind kind, std::uint64_t event) {
  const trace::ColumnMask mask = trace::column_table()[columns.kind[index]];
  const std::uint32_t value = (mask & trace::column::value) != 0 ? columns.value[at_.value] : 0;
  const MemoryClass stated =
      (mask & trace::column::memory_class) != 0 ? static_cast<MemoryClass>(columns.memory_class[at_.memory_class]) : MemoryClass::none;
  const std::uint32_t heap = columns.heap[at_.heap];
  const std::uint64_t address = columns.address[at_.address], size = columns.size[at_.size];
  const std::uint32_t string = columns.name[at_.name];
  if (follows_values_ && (kind == Kind::value_release || kind == Kind::value_drop) && value != 0)
    residents_.release(value, event, columns.time_ns[index]);
  const bool names_slots = value == 0 && options_.details_at != no_event && event <= options_.details_at;
  const std::int64_t slot = names_slots ? trace::tensor_facts(columns.number[at_.number]).index : trace::TensorFacts::no_index;
  if (names_slots && kind == Kind::value_use)
    slots_.waits(columns.thread[index], region_of(file_.dictionary(), columns.scope[index]), slot, string);
  if (names_slots && kind == Kind::value_drop)
    slots_.saved(region_of(file_.dictionary(), columns.scope[index]), slot, columns.scope[index]);
  if (heap == 0 || address == 0) return;  // it states no storage

  ++out_.statements;
  thread_ = columns.thread[index];
  const std::int64_t found = finder_.find(heap, address, event);
  if (found == BlockFinder::none) {
    ++out_.orphans;
    out_.orphan_bytes += size;
    if (out_.first_orphans.size() < Attribution::max_examples)
      out_.first_orphans.push_back({event, address, size, kind, heap, value, string});
    return;
  }
  const auto ordinal = static_cast<std::uint32_t>(found);
  Block& block = *ledger_.blocks.find(ordinal);
  const Claim claim = claim_of(kind, value != 0, stated, block);
  const bool decides = class_rank(claim.memory_class) < class_rank(block.stated());
  block.state(claim.memory_class, claim.why);
  if (claim.why == Evidence::dropped) dropped_[region_of(file_.dictionary(), columns.scope[index])].push_back(ordinal);
  out_.named_blocks += !block.named();
  block.name();
  if (follows_values_ && value != 0 &&
      (kind == Kind::value_create || kind == Kind::value_remake || kind == Kind::value_merge || kind == Kind::value_alias))
    residents_.enter(value, ordinal);
  if (kind == Kind::value_retain && value == 0) {
    auto& [set, storages] = retained_[columns.thread[index]];
    const bool is_new = storages.insert(ordinal).second, is_parameter = claim.memory_class == MemoryClass::parameter;
    const std::uint64_t bytes = is_new ? ledger_.blocks.bytes(block) : 0;
    ++set.slots;
    set.storages += is_new;
    set.bytes += bytes;
    set.parameter_storages += is_new && is_parameter;
    set.parameter_bytes += is_parameter ? bytes : 0;
  }
  if (options_.details_at != no_event && block.live_after(options_.details_at))
    detail(ordinal, {value, string, claim.memory_class, kind}, trace::tensor_facts(columns.number[at_.number]), columns.scope[index],
           decides);
}

BlockDetails* Pass::details_of(std::uint32_t ordinal) {
  const auto found = out_.details.find(ordinal);
  if (found != out_.details.end()) return &found->second;
  if (out_.details.size() < Attribution::max_details) return &out_.details[ordinal];
  out_.details_left_out = true;
  return nullptr;
}

void Pass::detail(std::uint32_t ordinal, const BlockName& name, const trace::TensorFacts& facts, std::uint32_t scope, bool decides) {
  BlockDetails* const known_details = details_of(ordinal);
  if (known_details == nullptr) return;
  BlockDetails& details = *known_details;
  const bool is_value = name.value != 0;
  if (decides) details.class_name = name.name;
  if (name.kind == Kind::value_retain && !is_value && !details.in_graph) {
    details.in_graph = true;
    details.slot_name = {slots_.node(thread_), name.name, details.slot_name.saved_in};
  }
  if (!is_value && name.kind != Kind::collective && details.dtype == trace::TensorFacts::no_dtype) details.dtype = facts.dtype;
  const bool of_region = !is_value && (name.kind == Kind::value_remake || name.kind == Kind::value_drop);
  if (of_region && details.slot == trace::TensorFacts::no_index) {
    details.slot = facts.index;
    details.region = region_of(file_.dictionary(), scope);
  }
  if (of_region && !details.in_graph && name.kind == Kind::value_remake)
    slots_.again(region_of(file_.dictionary(), scope), facts.index, name.name, details.slot_name);
  details.gathered |= name.memory_class == MemoryClass::parameter && file_.dictionary().string(name.name).starts_with("gathered:");
  if (name.value == 0 && name.name == 0) return;
  const bool known = std::any_of(details.names.begin(), details.names.end(),
                                 [&](const BlockName& n) { return n.value == name.value && n.name == name.name; });
  if (!known && details.names.size() < BlockDetails::max_names) details.names.push_back(name);
}

// What a region gave up and something else holds: not shown to be temporary.
void Pass::still_alive(std::uint32_t region, std::uint64_t event) {
  const auto dropped = dropped_.find(region);
  if (dropped == dropped_.end()) return;
  for (const std::uint32_t ordinal : dropped->second) {
    Block& block = *ledger_.blocks.find(ordinal);
    if (block.death > event) block.doubt(Evidence::dropped, Evidence::dropped_alive);
  }
  dropped_.erase(dropped);
}

void Pass::backward(std::uint32_t thread) {
  if (out_.retained.size() < ledger_.backwards.size()) out_.retained.push_back(retained_[thread].first);
  retained_.erase(thread);
}

}  // namespace

Result<Attribution> attribute_blocks(const trace::TraceFile& file, PhysicalLedger& ledger, const AttributionOptions& options) {
  return Pass(file, ledger, options).run();
}

}  // namespace liveset::ledger
