#include "viewer/ledger/attribution.h"

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <algorithm>

#include "viewer/ledger/block_finder.h"
#include "viewer/ledger/classes.h"
#include "viewer/trace/columns.h"

namespace liveset::ledger {
namespace {

using trace::Kind;
using trace::MemoryClass;

// The class that a statement is evidence for.
MemoryClass evidence(Kind kind, MemoryClass stated) {
  if (stated != MemoryClass::none) return stated;
  switch (kind) {
    case Kind::value_create:
    case Kind::value_retain:
    case Kind::value_alias: return MemoryClass::activation;
    case Kind::value_remake:
    case Kind::value_merge: return MemoryClass::recomputed_activation;
    default: return MemoryClass::none;
  }
}

// Marks what outlives the region it was made in by a recompute. Every region is followed: whether one recomputes shows
// in the phase of its allocations (the phase changes only after the region began).
class RecomputeRegions {
 public:
  void begin(std::uint32_t thread, std::uint32_t scope, std::uint64_t next_ordinal) { open_.push_back({thread, scope, next_ordinal}); }
  void born(std::uint32_t thread, std::uint32_t ordinal, const Block& block, const BlockTable& blocks) {
    if (open_.empty() || block.phase() != trace::Phase::recompute) return;
    if (born_.size() >= compact_at_) {
      std::erase_if(born_, [&](const Born& b) { return blocks.find(b.ordinal)->death <= block.birth; });
      compact_at_ = std::max<std::size_t>(4096, 2 * born_.size());
    }
    born_.push_back({thread, ordinal});
  }
  void end(std::uint32_t thread, std::uint32_t scope, std::uint64_t event, BlockTable& blocks) {
    const auto region = std::find_if(open_.rbegin(), open_.rend(), [&](const Open& o) { return o.thread == thread && o.scope == scope; });
    if (region == open_.rend()) return;
    for (const Born& born : born_) {
      Block& block = *blocks.find(born.ordinal);
      if (born.ordinal >= region->first_ordinal && born.thread == thread && block.death > event)
        block.state(MemoryClass::recomputed_activation);
    }
    open_.erase(std::next(region).base());
    if (open_.empty()) born_.clear();
  }

 private:
  struct Open {
    std::uint32_t thread, scope;
    std::uint64_t first_ordinal;
  };
  struct Born {
    std::uint32_t thread, ordinal;
  };
  std::vector<Open> open_;
  std::vector<Born> born_;
  std::size_t compact_at_ = 4096;
};

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
      : file_(file), ledger_(ledger), options_(options), finder_(ledger.blocks), residents_(out_) {}
  Result<Attribution> run();

 private:
  void chunk(const trace::Columns& columns);
  void scope(const trace::Columns& columns, std::uint32_t index, Kind kind, std::uint64_t event);
  void statement(const trace::Columns& columns, std::uint32_t index, Kind kind, std::uint64_t event);
  void name(std::uint32_t ordinal, const BlockName& name);
  void backward(std::uint32_t thread);

  const trace::TraceFile& file_;
  PhysicalLedger& ledger_;
  const AttributionOptions& options_;
  Attribution out_;
  BlockFinder finder_;
  RecomputeRegions regions_;
  Residents residents_;
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
  if (ledger_.statements != 0 || ledger_.recompute_regions) {
    namespace column = trace::column;
    trace::ColumnMask wanted = column::kind | column::thread | column::phase | column::scope | column::heap | column::address |
                               column::size | column::value | column::name | column::memory_class;
    if (ledger_.releases != 0) wanted |= column::age | column::time;
    trace::Columns columns;
    const std::size_t chunks = file_.chunks().size();
    for (std::size_t index = 0; index < chunks; ++index) {
      if (Status status = file_.read_chunk(index, wanted, columns); !status) return status.take_error();
      chunk(columns);
      if (options_.progress) options_.progress(index + 1, chunks);
    }
  }
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
    switch (kind) {
      case Kind::alloc: {
        const auto ordinal = static_cast<std::uint32_t>(next_ordinal_++);
        finder_.born(columns.heap[at_.heap], columns.address[at_.address], ordinal);
        regions_.born(columns.thread[i], ordinal, *ledger_.blocks.find(ordinal), ledger_.blocks);
        break;
      }
      case Kind::free_requested:
        if (!residents_.empty()) {
          const std::uint64_t ordinal = next_ordinal_ - std::min(columns.age[at_.age], next_ordinal_);
          const Block* block = ledger_.blocks.find(ordinal);
          if (block != nullptr && block->death == event)
            residents_.freed(static_cast<std::uint32_t>(ordinal), ledger_.blocks.bytes(*block), columns.time_ns[i]);
        }
        break;
      case Kind::scope_begin:
      case Kind::scope_end: scope(columns, i, kind, event); break;
      case Kind::backward_begin: backward(columns.thread[i]); break;
      default:
        if (kind >= Kind::value_create && (mask & trace::column::address) != 0) statement(columns, i, kind, event);
        break;
    }
    at_.pass(mask);
  }
}

void Pass::scope(const trace::Columns& columns, std::uint32_t index, Kind kind, std::uint64_t event) {
  const std::uint32_t id = columns.scope[index], thread = columns.thread[index];
  const auto& scopes = file_.dictionary().scopes;
  if (id >= scopes.size() || scopes[id].kind != trace::ScopeKind::region) return;
  if (kind == Kind::scope_end)
    regions_.end(thread, id, event, ledger_.blocks);
  else
    regions_.begin(thread, id, next_ordinal_);
}

void Pass::statement(const trace::Columns& columns, std::uint32_t index, Kind kind, std::uint64_t event) {
  const bool is_value = kind != Kind::storage;
  const std::uint32_t value = is_value ? columns.value[at_.value] : 0;
  const std::uint32_t heap = columns.heap[at_.heap];
  const std::uint64_t address = columns.address[at_.address], size = columns.size[at_.size];
  const std::uint32_t string = columns.name[at_.name];
  if ((kind == Kind::value_release || kind == Kind::value_drop) && value != 0) residents_.release(value, event, columns.time_ns[index]);
  if (heap == 0 || address == 0) return;  // it states no storage

  ++out_.statements;
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
  const MemoryClass memory_class = evidence(kind, static_cast<MemoryClass>(columns.memory_class[at_.memory_class]));
  block.state(memory_class);
  out_.named_blocks += !block.named();
  block.name();
  if (ledger_.releases != 0 && value != 0 &&
      (kind == Kind::value_create || kind == Kind::value_remake || kind == Kind::value_merge || kind == Kind::value_alias))
    residents_.enter(value, ordinal);
  if (kind == Kind::value_retain && value == 0) {
    auto& [set, storages] = retained_[columns.thread[index]];
    const bool is_new = storages.insert(ordinal).second, is_parameter = memory_class == MemoryClass::parameter;
    const std::uint64_t bytes = is_new ? ledger_.blocks.bytes(block) : 0;
    ++set.slots;
    set.storages += is_new;
    set.bytes += bytes;
    set.parameter_storages += is_new && is_parameter;
    set.parameter_bytes += is_parameter ? bytes : 0;
  }
  if (block.live_after(options_.names_at)) name(ordinal, {value, string, memory_class});
}

void Pass::name(std::uint32_t ordinal, const BlockName& name) {
  if (name.value == 0 && name.name == 0) return;
  std::vector<BlockName>& names = out_.names[ordinal];
  const bool known =
      std::any_of(names.begin(), names.end(), [&](const BlockName& n) { return n.value == name.value && n.name == name.name; });
  if (!known && names.size() < Attribution::max_names) names.push_back(name);
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
