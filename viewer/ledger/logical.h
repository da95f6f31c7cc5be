// The logical ledger: which values the backward pass holds, event by event. One struct for what a trace recorded and for what a
// model predicts, so that the two can be laid side by side.
//
// What is counted (reading C0 of the six-layer chain): a value is one id however often it is made; it is live from create or
// rerun to drop or release; a merge makes a value again that is still kept, and adds nothing. Values that share a storage (alias)
// are ids of their own, their bytes count once. An offloaded value stays live: backward still needs it.
//
// The live set itself is not stored per event, which would take n * live memory; LiveSet replays it along the events.
#pragma once
#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "viewer/ledger/range.h"
#include "viewer/trace/records.h"

namespace liveset::ledger {

enum class LogicalKind : std::uint8_t { create, keep, drop, rerun, merge, use, release, alias, offload, prefetch, mutate, region };
std::string_view logical_kind_name(LogicalKind kind);

inline constexpr std::uint32_t no_index = 0xffffffffU;
inline constexpr std::int64_t no_number = -1;

struct LogicalValue {
  std::string name;   // "h3"
  std::string group;  // "hidden_vectors"; empty: none
  std::int64_t layer = no_number;
  std::uint64_t bytes = 0;        // as last made
  std::uint32_t incarnation = 0;  // how often it was made again
  trace::MemoryClass memory_class = trace::MemoryClass::none;
  bool counted = true;  // false: shown in live sets, but not in live_ids and live_bytes (conventions.count_inputs)
  // Read off the allocator and the graph, not told by the program: its first making may have gone unseen.
  bool derived = false;
  // Of a derived one, as far as they are known: where it was made, the autograd node that holds it and its slot there.
  std::string module, op, slot;
  std::int64_t microbatch = no_number;
  std::uint64_t original_event = no_event;  // of a derived rerun: the allocation of the block that it replaces
};

struct LogicalEvent {
  std::uint64_t live_ids = 0, live_bytes = 0;  // after the event
  std::uint64_t away_bytes = 0;                // of live_bytes: offloaded, so not on the device
  std::uint64_t forward_layers = 0;            // executed so far: create, rerun and merge events that read something
  std::uint64_t trace_event = no_event;        // index in the trace
  std::int64_t layer = no_number;              // of the value; of a use: the layer that reads
  std::int64_t step = no_number;
  std::uint32_t value = no_index;
  std::uint32_t reads_begin = 0, read_count = 0;
  std::uint32_t region = no_index;  // of a region event
  trace::Phase phase = trace::Phase::other;
  LogicalKind kind = LogicalKind::create;
};

// A region that ended and that the program said something of.
struct LogicalRegion {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;  // key, JSON text
  std::vector<std::uint64_t> group_live;                        // per group: most values of it live inside the region
};

struct Broken {
  std::uint64_t event = 0;  // index in the ledger
  std::string what;
};

struct LogicalGroup {
  std::string name;
  std::uint64_t peak_ids = 0, peak_bytes = 0;
};

struct LogicalLedger {
  std::vector<LogicalValue> values;  // in the order in which they first appear
  std::vector<LogicalEvent> events;
  std::vector<std::uint32_t> reads;
  std::vector<LogicalRegion> regions;
  std::vector<LogicalGroup> groups;

  bool moves = false;  // some value was offloaded

  // State before events[0]: what already lived when the range began.
  std::vector<std::uint32_t> opening_live;
  std::uint64_t opening_ids = 0, opening_bytes = 0;

  // First event with the largest number of ids, and the first with the largest number of bytes. no_event: no events.
  std::uint64_t peak_ids = 0, peak_ids_event = no_event;
  std::uint64_t peak_bytes = 0, peak_bytes_event = no_event;
  std::uint64_t forward_layers = 0;
  bool has_layers = true;  // false: of a model whose values are not made by layers

  // What is live when the loss reads its value; where no loss is told apart, when backward begins.
  bool has_loss = false;
  std::uint64_t loss_event = no_event;
  std::vector<std::uint32_t> held_at_loss;  // in order of value
  std::uint64_t held_at_loss_bytes = 0;

  std::vector<std::uint32_t> live_at_end;
  std::uint64_t broken_count = 0;  // events that contradict the rules of a ledger: use after release, rerun without drop, ...
  std::vector<Broken> broken;      // the first of them

  // Some value was named by a program or a model. Otherwise (a PyTorch graph) nobody says what reads what, so that forward layers
  // are not known.
  bool names_values() const {
    return values.empty() || std::any_of(values.begin(), values.end(), [](const LogicalValue& value) { return !value.derived; });
  }
  // Whether forward_layers is the number of layers: of ops that are no layers nobody knows.
  bool counts_layers() const { return has_layers && names_values(); }
  std::span<const std::uint32_t> reads_of(const LogicalEvent& event) const {
    return std::span(reads).subspan(event.reads_begin, event.read_count);
  }
};

// Replays the live set: starts as it was before events[0]; apply() each event in order.
class LiveSet {
 public:
  explicit LiveSet(const LogicalLedger& ledger) : ids_(ledger.opening_live.begin(), ledger.opening_live.end()) {}
  void apply(const LogicalEvent& event);
  const std::set<std::uint32_t>& ids() const { return ids_; }

 private:
  std::set<std::uint32_t> ids_;
};

// The ids live after events[index].
std::vector<std::uint32_t> live_after(const LogicalLedger& ledger, std::uint64_t index);

struct LogicalInput {
  trace::Phase phase = trace::Phase::other;
  LogicalKind kind = LogicalKind::create;
  std::uint32_t value = no_index;
  std::uint64_t bytes = 0;         // create, rerun, merge; 0: as before
  std::int64_t layer = no_number;  // no_number: the value's own
  std::span<const std::uint32_t> reads;
  std::uint64_t trace_event = no_event;
  std::int64_t step = no_number;
};

// Does the accounting: takes events in order, gives the ledger. Never refuses an event; what breaks a rule is counted.
class LogicalBuilder {
 public:
  // `merge_copies`: a merge holds a second physical copy until the value is released (conventions.boundary = PHYSICAL_COPY).
  explicit LogicalBuilder(bool merge_copies = false) : merge_copies_(merge_copies) {}

  std::uint32_t add_value(LogicalValue value);
  // The ledger keeps only what is appended while this is on; the live set is followed all the time.
  void set_keeping(bool keeping);
  void append(const LogicalInput& input);
  // What lives now is what the loss holds; of derived values, which live as long as their block, only those in `kept`. Later calls,
  // and calls while the ledger keeps nothing, change nothing.
  void mark_loss(std::span<const std::uint32_t> kept = {});

  std::uint32_t add_group(std::string_view name);
  std::uint32_t begin_region(std::string name);
  void set_attribute(std::uint32_t region, std::string key, std::string json);
  // Adds a region event when the region has attributes, else forgets it.
  void end_region(std::uint32_t region, trace::Phase phase, std::uint64_t trace_event, std::int64_t step);

  LogicalLedger finish();

 private:
  enum class Life : std::uint8_t { unborn, live, dropped, released };
  struct State {
    Life life = Life::unborn;
    std::uint32_t storage = no_index;
    std::uint32_t group = no_index;
    std::uint64_t copy_bytes = 0;
    std::uint32_t copies = 0;
  };
  struct Storage {
    std::uint64_t bytes = 0;
    std::uint32_t holders = 0;
    bool away = false;
  };
  struct GroupState {
    std::uint64_t ids = 0, bytes = 0;
  };
  struct OpenRegion {
    LogicalRegion region;
    bool open = false;
  };

  void make_live(std::uint32_t value, std::uint32_t storage);
  void make_dead(std::uint32_t value, Life life);
  std::uint32_t new_storage(std::uint64_t bytes);
  void check_reads(const LogicalInput& input);
  void apply(const LogicalInput& input);
  void merge(const LogicalInput& input);
  void move(std::uint32_t value, bool away);
  void break_rule(const LogicalInput& input, const char* what);
  void store(const LogicalInput& input, std::uint32_t region);

  bool merge_copies_;
  bool keeping_ = true;
  LogicalLedger ledger_;
  std::vector<State> states_;
  std::vector<Storage> storages_;
  std::vector<std::uint32_t> free_storages_;
  std::vector<GroupState> groups_;
  std::vector<OpenRegion> regions_;
  std::vector<std::uint32_t> open_regions_;
  std::set<std::uint32_t> live_;
  std::uint64_t live_ids_ = 0, live_bytes_ = 0, away_bytes_ = 0, forward_layers_ = 0;
};

}  // namespace liveset::ledger
