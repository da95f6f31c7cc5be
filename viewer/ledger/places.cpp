#include "viewer/ledger/places.h"

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <memory>

#include "viewer/ledger/details.h"
#include "viewer/ledger/open_scopes.h"
#include "viewer/ledger/path_names.h"
#include "viewer/trace/columns.h"

namespace liveset::ledger {
namespace {

using trace::Kind;
using trace::Phase;

// The nodes that backward runs, per thread, each with its number among those of its name in the step.
class OpenNodes {
 public:
  struct Node {
    std::uint32_t name = 0, number = 0;
  };
  explicit OpenNodes(std::size_t threads) : threads_(std::max<std::size_t>(threads, 1)) {}

  void see(Kind kind, std::uint32_t thread, std::uint32_t name, std::int64_t number) {
    if (kind == Kind::node_begin)
      of(thread).begin(node_key(name, number), {name, ++numbers_[name]});
    else
      of(thread).end(node_key(name, number));
  }
  Node open(std::uint32_t thread) { return of(thread).empty() ? Node{} : of(thread).back(); }

 private:
  OpenStack<Node>& of(std::uint32_t thread) { return threads_[thread < threads_.size() ? thread : 0]; }

  std::vector<OpenStack<Node>> threads_;
  absl::flat_hash_map<std::uint32_t, std::uint32_t> numbers_;  // by String id: as many as the dictionary has
};

// Scopes of one module path have one number.
class Modules {
 public:
  explicit Modules(const trace::Dictionary& names) : paths_(names), numbers_(names.scopes.size(), unknown) {}

  std::uint32_t number(std::uint32_t scope) {
    if (scope >= numbers_.size()) scope = 0;
    if (numbers_.empty()) return 0;
    if (numbers_[scope] == unknown)
      numbers_[scope] = by_path_.try_emplace(paths_.module(scope), static_cast<std::uint32_t>(by_path_.size())).first->second;
    return numbers_[scope];
  }
  std::string_view path(std::uint32_t scope) { return paths_.module(scope); }

 private:
  static constexpr std::uint32_t unknown = 0xffffffffU;
  PathNames paths_;
  std::vector<std::uint32_t> numbers_;
  absl::flat_hash_map<std::string_view, std::uint32_t> by_path_;
};

// Counts what each module makes, by size and phase.
class BirthOrders {
 public:
  static constexpr std::size_t max_counts = 4'000'000;

  std::uint32_t next(std::uint32_t module, Phase phase, std::uint64_t bytes) {
    const Key key{size_units(bytes), std::uint64_t{module} << 3 | static_cast<unsigned>(counted_phase(phase))};
    if (counts_.size() < max_counts) return ++counts_[key];
    const auto found = counts_.find(key);
    return found != counts_.end() ? ++found->second : 0;
  }

 private:
  using Key = std::pair<std::uint64_t, std::uint64_t>;
  absl::flat_hash_map<Key, std::uint32_t> counts_;
};

constexpr trace::ColumnMask walk_columns = trace::column::kind | trace::column::thread | trace::column::phase | trace::column::scope |
                                           trace::column::heap | trace::column::name | trace::column::number;

std::size_t chunk_of(const trace::TraceFile& file, std::uint64_t event) {
  return static_cast<std::size_t>(
      std::upper_bound(file.chunks().begin(), file.chunks().end(), event,
                       [](std::uint64_t e, const trace::ChunkInfo& info) { return e < info.first_event + info.events; }) -
      file.chunks().begin());
}

// The first event of the chunk that `event` lies in.
std::uint64_t chunk_begin(const trace::TraceFile& file, std::uint64_t event) {
  const std::size_t chunk = chunk_of(file, event);
  return chunk < file.chunks().size() ? std::min(event, file.chunks()[chunk].first_event) : event;
}

// The events [first, end), with the columns' positions: visit(columns, index, positions, ordinal); false stops.
template <class Visit>
Status walk(const trace::TraceFile& file, std::uint64_t first, std::uint64_t end, trace::ColumnMask wanted, Visit visit) {
  const trace::ColumnTable& table = trace::column_table();
  trace::Columns columns;
  for (std::size_t chunk = chunk_of(file, first); chunk < file.chunks().size() && file.chunks()[chunk].first_event < end; ++chunk) {
    if (Status status = file.read_chunk(chunk, wanted, columns); !status) return status;
    trace::Positions at;
    std::uint64_t ordinal = columns.first_allocation;
    for (std::uint32_t i = 0; i < columns.events && columns.first_event + i < end; ++i) {
      const std::uint8_t kind_byte = columns.kind[i];
      if (columns.first_event + i >= first) visit(columns, i, at, ordinal, chunk);
      ordinal += static_cast<Kind>(kind_byte & 0x7f) == Kind::alloc;
      at.pass(table[kind_byte]);
    }
  }
  return Done{};
}

bool is_node(Kind kind) { return kind == Kind::node_begin || kind == Kind::node_end; }

// Index of the step that `event` lies in; steps.size(): in none.
std::size_t step_index_at(const PhysicalLedger& ledger, std::uint64_t event) {
  const auto after = std::upper_bound(ledger.steps.begin(), ledger.steps.end(), event,
                                      [](std::uint64_t e, const Step& step) { return e < step.first_event; });
  if (after == ledger.steps.begin() || event >= (after - 1)->end_event) return ledger.steps.size();
  return static_cast<std::size_t>(after - 1 - ledger.steps.begin());
}

// The step that a place of another run speaks of, as events [first, end).
Range step_of(const PhysicalLedger& ledger, const Place& place) {
  if (!place.step || ledger.steps.empty()) return {0, ledger.events};
  auto found = std::find_if(ledger.steps.begin(), ledger.steps.end(), [&](const Step& step) { return step.number == *place.step; });
  if (found == ledger.steps.end())
    found = ledger.steps.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(place.step_index, ledger.steps.size() - 1));
  return {found->first_event, std::min(found->end_event, ledger.events)};
}

// What the allocator of one heap has reserved by its own account, followed from a chunk's begin on.
class Reserved {
 public:
  Reserved(const trace::TraceFile& file, std::uint32_t heap) : file_(file), heap_(heap) {}

  // As the chunk before left it.
  void open(std::size_t chunk) {
    known_ = chunk == 0;
    now_ = 0;
    if (chunk == 0) return;
    for (const trace::HeapTotal& total : file_.chunks()[chunk - 1].totals) {
      if (total.heap != heap_ || !total.has_allocator) continue;
      known_ = true;
      now_ = static_cast<std::int64_t>(total.allocator_reserved);
    }
  }
  void add(std::int64_t delta) { now_ = wrapping_sum(now_, delta); }
  std::optional<std::uint64_t> now() const {
    return known_ && now_ > 0 ? std::optional<std::uint64_t>(static_cast<std::uint64_t>(now_)) : std::nullopt;
  }

 private:
  const trace::TraceFile& file_;
  std::uint32_t heap_;
  std::int64_t now_ = 0;
  bool known_ = false;
};

// The heap that a block event or one with the allocator's totals is of; 0: none.
std::uint32_t heap_of(const trace::Columns& columns, std::uint32_t i, const trace::Positions& at, std::uint64_t ordinal,
                      const PhysicalLedger& ledger) {
  const std::uint8_t kind_byte = columns.kind[i];
  if ((trace::column_table()[kind_byte] & trace::column::heap) != 0) return columns.heap[at.heap];
  if (static_cast<Kind>(kind_byte & 0x7f) != Kind::free_requested) return 0;
  const Block* const block = ledger.blocks.find(ordinal - columns.age[at.age]);
  return block != nullptr && block->death == columns.first_event + i ? block->heap() : 0;
}

// The running sum of one heap's blocks, and its highest moment at each closeness to a place.
class Search {
 public:
  Search(const trace::TraceFile& file, const PhysicalLedger& ledger, const Place& place)
      : file_(file),
        ledger_(ledger),
        place_(place),
        nodes_(file.dictionary().threads.size()),
        modules_(file.dictionary()),
        reserved_(file, ledger.shown_heap) {
    const std::vector<std::string>& strings = file.dictionary().strings;
    is_node_name_.resize(strings.size());
    if (place.node_number != 0)
      for (std::size_t id = 0; id < strings.size(); ++id) is_node_name_[id] = strings[id] == place.node;
  }

  Result<FoundPlace> run() {
    const Range range = step_of(ledger_, place_);
    begin(first_ = range.first);
    const trace::ColumnMask wanted = walk_columns | trace::column::size | trace::column::age | trace::column::reserved;
    // What is reserved is known where a chunk begins.
    Status status = walk(file_, chunk_begin(file_, range.first), range.end, wanted,
                         [&](const trace::Columns& columns, std::uint32_t i, const trace::Positions& at, std::uint64_t ordinal,
                             std::size_t chunk) { see(columns, i, at, ordinal, chunk); });
    if (!status) return status.take_error();
    for (int by = static_cast<int>(FoundBy::node); by > 0; --by)
      if (best_[by].event != no_event) return best_[by];
    return FoundPlace{};
  }

 private:
  void begin(std::uint64_t first) {
    if (first != 0) {
      ledger_.blocks.for_each([&](std::uint32_t, const Block& block) {
        if (block.heap() == ledger_.shown_heap && block.live_after(first - 1))
          sum_ = wrapping_sum(sum_, static_cast<std::int64_t>(ledger_.blocks.bytes(block)));
      });
    }
  }

  void see(const trace::Columns& columns, std::uint32_t i, const trace::Positions& at, std::uint64_t ordinal, std::size_t chunk) {
    if (chunk != chunk_) reserved_.open(chunk_ = chunk);
    const std::uint8_t kind_byte = columns.kind[i];
    const auto kind = static_cast<Kind>(kind_byte & 0x7f);
    const trace::ColumnMask mask = trace::column_table()[kind_byte];
    const std::uint64_t event = columns.first_event + i;
    const std::uint32_t heap = heap_of(columns, i, at, ordinal, ledger_);
    if ((mask & trace::column::total) != 0 && heap == ledger_.shown_heap) reserved_.add(columns.reserved_delta[at.total]);
    if (event < first_) return;
    if (kind == Kind::alloc && heap == ledger_.shown_heap) {
      sum_ = wrapping_sum(sum_, static_cast<std::int64_t>(columns.size[at.size]));
    } else if (kind == Kind::free_requested && heap == ledger_.shown_heap && heap != 0) {
      sum_ =
          wrapping_difference(sum_, static_cast<std::int64_t>(ledger_.blocks.bytes(*ledger_.blocks.find(ordinal - columns.age[at.age]))));
    } else if (is_node(kind)) {
      nodes_.see(kind, columns.thread[i], columns.name[at.name], columns.number[at.number]);
    }
    raise(FoundBy::step, event);
    if (static_cast<Phase>(columns.phase[i] & 7U) != place_.phase) return;
    raise(FoundBy::phase, event);
    if (!place_.module.empty() && is_module(columns.scope[i])) raise(FoundBy::module, event);
    if (place_.node_number == 0) return;
    const OpenNodes::Node node = nodes_.open(columns.thread[i]);
    if (node.number == place_.node_number && node.name < is_node_name_.size() && is_node_name_[node.name]) raise(FoundBy::node, event);
  }

  bool is_module(std::uint32_t scope) {
    if (scope != last_scope_) {
      last_scope_ = scope;
      last_is_module_ = modules_.path(scope) == place_.module;
    }
    return last_is_module_;
  }

  void raise(FoundBy by, std::uint64_t event) {
    FoundPlace& best = best_[static_cast<int>(by)];
    std::int64_t& most = most_[static_cast<int>(by)];
    if (best.event != no_event && sum_ <= most) return;
    most = sum_;
    best.event = event;
    best.by = by;
    best.reserved = reserved_.now();
  }

  const trace::TraceFile& file_;
  const PhysicalLedger& ledger_;
  const Place& place_;
  OpenNodes nodes_;
  Modules modules_;
  std::vector<bool> is_node_name_;
  FoundPlace best_[5];
  std::int64_t most_[5] = {};
  Reserved reserved_;
  std::int64_t sum_ = 0;
  std::uint64_t first_ = 0;  // event of the step
  bool last_is_module_ = false;
  std::size_t chunk_ = ~std::size_t{0};
  std::uint32_t last_scope_ = 0xffffffffU;
};

}  // namespace

std::string_view found_by_name(FoundBy found_by) {
  constexpr std::string_view names[] = {"nothing", "step", "phase", "module", "node"};
  return names[static_cast<std::size_t>(found_by)];
}

Result<PlacedEvent> place_of(const trace::TraceFile& file, const PhysicalLedger& ledger, std::uint64_t event,
                             std::span<const std::uint32_t> ordinals) {
  Result<EventStamp> stamp = describe_event(file, event);
  if (!stamp) return stamp.take_error();
  PlacedEvent placed;
  placed.time_ns = stamp->time_ns;
  placed.place.phase = stamp->phase;
  placed.place.module = file.dictionary().module_path(stamp->scope);
  placed.orders.assign(ordinals.size(), 0);
  const std::size_t step = step_index_at(ledger, event);
  std::uint64_t first = 0;
  if (step < ledger.steps.size()) {
    placed.place.step = ledger.steps[step].number;
    placed.place.step_index = step;
    first = ledger.steps[step].first_event;
  }
  OpenNodes nodes(file.dictionary().threads.size());
  Modules modules(file.dictionary());
  BirthOrders orders;
  std::size_t next = 0;
  Status status = walk(file, first, event + 1, walk_columns | trace::column::size,
                       [&](const trace::Columns& columns, std::uint32_t i, const trace::Positions& at, std::uint64_t ordinal, std::size_t) {
                         const auto kind = static_cast<Kind>(columns.kind[i] & 0x7f);
                         if (is_node(kind)) return nodes.see(kind, columns.thread[i], columns.name[at.name], columns.number[at.number]);
                         if (kind != Kind::alloc || columns.heap[at.heap] != ledger.shown_heap) return;
                         const auto phase = static_cast<Phase>(columns.phase[i] & 7U);
                         // What a node makes is told apart by the node.
                         if (phase == Phase::backward && nodes.open(columns.thread[i]).number != 0) return;
                         const std::uint32_t order = orders.next(modules.number(columns.scope[i]), phase, columns.size[at.size]);
                         while (next < ordinals.size() && ordinals[next] < ordinal) ++next;
                         if (next < ordinals.size() && ordinals[next] == ordinal) placed.orders[next++] = order;
                       });
  if (!status) return status.take_error();
  const OpenNodes::Node node = nodes.open(stamp->thread);
  placed.place.node_number = node.number;
  placed.place.node = file.dictionary().string(node.name);
  return placed;
}

Result<FoundPlace> find_place(const trace::TraceFile& file, const PhysicalLedger& ledger, const Place& place) {
  return Search(file, ledger, place).run();
}

}  // namespace liveset::ledger
