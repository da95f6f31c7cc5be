#include "viewer/import/snapshot.h"

#include <algorithm>
#include <set>

namespace liveset::imports {
namespace {

using Id = Pickle::Id;

// What PyTorch writes has some twenty. More would let a small file that repeats one big dict cost without end.
constexpr std::uint32_t max_keys = 256;

constexpr std::array<const char*, action_count> action_names = {"alloc",        "free_requested", "free_completed", "segment_alloc",
                                                                "segment_free", "segment_map",    "segment_unmap",  "snapshot",
                                                                "oom",          "other"};

class Reading {
 public:
  Reading(Snapshot& out) : out_(out), pickle_(out.pickle) {}

  Status run() {
    const Id root = pickle_.root();
    if (pickle_.is_sequence(root)) return segments(root) ? Status(Done{}) : Status(problem_);
    if (pickle_.kind(root) != Pickle::Kind::dict || !is_small(root)) return no_snapshot("it holds neither a dict nor a list of segments");
    const Id list = pickle_.find(root, "segments");
    if (!pickle_.is_sequence(list)) return no_snapshot("it has no list \"segments\"");
    if (!segments(list)) return problem_;
    if (const Id traces = pickle_.find(root, "device_traces"); pickle_.is_sequence(traces) && !all_traces(traces)) return problem_;
    if (const Id annotations = pickle_.find(root, "external_annotations"); pickle_.is_sequence(annotations)) read_annotations(annotations);
    if (const Id settings = pickle_.find(root, "allocator_settings"); pickle_.kind(settings) == Pickle::Kind::dict && is_small(settings)) {
      out_.allocator_conf = pickle_.text(pickle_.find(settings, "PYTORCH_CUDA_ALLOC_CONF"));
      out_.expandable_segments = pickle_.truth(pickle_.find(settings, "expandable_segments"));
    }
    out_.host_segments = pickle_.size(pickle_.find(root, "host_segments"));
    return Done{};
  }

 private:
  Status no_snapshot(const std::string& why) const {
    return Error{ErrorKind::unreadable,
                 pickle_.name(),
                 {},
                 "a pickle, but no memory snapshot of PyTorch: " + why,
                 "torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") writes one"};
  }
  bool fail(const std::string& what) {
    problem_ = Error{ErrorKind::unreadable,
                     pickle_.name(),
                     {},
                     what + (where_.empty() ? "" : " in " + where_),
                     "the snapshot is damaged, or not PyTorch's"};
    return false;
  }
  bool is_small(Id dict) const { return pickle_.size(dict) <= max_keys; }
  bool is_dict(Id id, const char* what) {
    if (pickle_.kind(id) != Pickle::Kind::dict) return fail(std::string(what) + " that is no dict");
    return is_small(id) || fail(std::string(what) + " of " + std::to_string(pickle_.size(id)) + " entries");
  }
  // A number that is 0 or more.
  bool number(Id id, const char* key, std::uint64_t& value, std::uint64_t most = ~std::uint64_t{0} >> 1) {
    std::int64_t found = 0;
    if (!pickle_.integer(id, found)) return fail(std::string("\"") + key + "\" is no number of 64 bits");
    if (found < 0 || static_cast<std::uint64_t>(found) > most) return fail(std::string("\"") + key + "\" is " + std::to_string(found));
    value = static_cast<std::uint64_t>(found);
    return true;
  }
  bool bytes(Id id, const char* key, std::uint64_t& value) { return number(id, key, value, Snapshot::max_bytes); }
  bool device(Id id, std::uint32_t& value) {
    std::uint64_t found = 0;
    if (!number(id, "device", found, Snapshot::max_devices - 1)) return false;
    value = static_cast<std::uint32_t>(found);
    return true;
  }
  // A stream's number is its handle: any 64 bits.
  std::uint64_t stream(Id id) const {
    std::int64_t found = 0;
    pickle_.integer(id, found);
    return static_cast<std::uint64_t>(found);
  }
  // A list is read once: a small file could name a large one for ever.
  bool first_time(Id list, const char* what) {
    return pickle_.size(list) == 0 || seen_.insert(list).second || fail(std::string("the same list of ") + what + " stands there twice");
  }

  bool segments(Id list) {
    if (!first_time(list, "segments")) return false;
    std::size_t index = 0;
    bool good = true;
    pickle_.for_each(list, [&](Id id) {
      where_ = "segments[" + std::to_string(index++) + "]";
      return good = segment(id);
    });
    where_.clear();
    return good;
  }

  bool segment(Id id) {
    if (!is_dict(id, "a segment")) return false;
    SnapshotSegment found;
    Id blocks = Pickle::absent;
    bool good = true, has_address = false, has_total = false;
    pickle_.for_each_pair(id, [&](Id name, Id value) {
      const std::string_view key = pickle_.text(name);
      if (key == "device")
        good = device(value, found.device);
      else if (key == "address")
        good = has_address = number(value, "address", found.address);
      else if (key == "total_size")
        good = has_total = bytes(value, "total_size", found.total);
      else if (key == "allocated_size")
        good = bytes(value, "allocated_size", found.allocated);
      else if (key == "active_size")
        good = bytes(value, "active_size", found.active);
      else if (key == "requested_size")
        good = bytes(value, "requested_size", found.requested);
      else if (key == "stream")
        found.stream = stream(value);
      else if (key == "is_expandable")
        found.expandable = pickle_.truth(value);
      else if (key == "blocks")
        blocks = value;
      return good;
    });
    if (!good) return false;
    if (!has_address || !has_total || !pickle_.is_sequence(blocks)) return fail("\"address\", \"total_size\" or \"blocks\" is missing");
    if (!first_time(blocks, "blocks")) return false;
    found.first_block = out_.blocks.size();
    std::uint64_t next = found.address;
    pickle_.for_each(blocks, [&](Id item) { return good = block(item, next); });
    found.blocks = out_.blocks.size() - found.first_block;
    out_.segments.push_back(found);
    return good;
  }

  // `next`: where the block lies when it does not say, and then where the one behind it does.
  bool block(Id id, std::uint64_t& next) {
    if (!is_dict(id, "a block")) return false;
    SnapshotBlock found;
    found.address = next;
    bool good = true, has_size = false, has_requested = false, has_state = false;
    Id history = Pickle::absent;
    pickle_.for_each_pair(id, [&](Id name, Id value) {
      const std::string_view key = pickle_.text(name);
      if (key == "address")
        good = number(value, "address", found.address);
      else if (key == "size")
        good = has_size = bytes(value, "size", found.size);
      else if (key == "requested_size")
        good = has_requested = bytes(value, "requested_size", found.requested);
      else if (key == "state")
        good = has_state = state(pickle_.text(value), found.state);
      else if (key == "frames")
        found.frames = value;
      else if (key == "history")
        history = value;
      return good;
    });
    if (!good) return false;
    if (!has_size || !has_state) return fail("a block without \"size\" or \"state\"");
    if (history != Pickle::absent && !take_history(history, found, has_requested)) return false;
    if (!has_requested) found.requested = found.size;  // what was asked for is not known: not less than this is held
    next = found.address + found.size;
    out_.blocks.push_back(found);
    return true;
  }

  bool state(std::string_view text, BlockState& found) {
    if (text == "inactive")
      found = BlockState::inactive;
    else if (text == "active_allocated")
      found = BlockState::allocated;
    else if (text == "active_pending_free" || text == "active_awaiting_free")
      found = BlockState::pending;
    else
      return fail("a block's \"state\" is none that PyTorch has");
    return true;
  }

  // PyTorch before 2.1: who used the block, the last one first. What is free keeps its history.
  bool take_history(Id history, SnapshotBlock& block, bool& has_requested) {
    Id last = Pickle::absent;
    pickle_.for_each(history, [&](Id id) {
      last = id;
      return false;
    });
    if (last == Pickle::absent) return true;
    if (!is_dict(last, "a \"history\"")) return false;
    bool good = true;
    pickle_.for_each_pair(last, [&](Id name, Id value) {
      const std::string_view key = pickle_.text(name);
      if (key == "addr")
        good = number(value, "addr", block.address);
      else if (key == "real_size" && !has_requested)
        good = has_requested = bytes(value, "real_size", block.requested);
      else if (key == "frames")
        block.frames = value;
      return good;
    });
    return good;
  }

  bool all_traces(Id list) {
    out_.has_traces = true;
    if (pickle_.size(list) > Snapshot::max_devices) return fail("\"device_traces\" has " + std::to_string(pickle_.size(list)) + " devices");
    bool good = true;
    pickle_.for_each(list, [&](Id trace) {
      std::vector<SnapshotEvent>& events = out_.traces.emplace_back();
      const std::string place = "device_traces[" + std::to_string(out_.traces.size() - 1) + "]";
      where_ = place;
      if (!pickle_.is_sequence(trace)) return good = fail("no list of events");
      if (!first_time(trace, "events")) return good = false;
      events.reserve(pickle_.size(trace));
      pickle_.for_each(trace, [&](Id id) {
        if (event(id, events)) return true;
        problem_.what += " (event " + std::to_string(events.size()) + ")";
        return good = false;
      });
      return good;
    });
    where_.clear();
    return good;
  }

  bool event(Id id, std::vector<SnapshotEvent>& events) {
    if (!is_dict(id, "an event")) return false;
    SnapshotEvent found;
    std::uint64_t time = 0;
    std::string_view action;
    bool good = true, has_address = false, has_size = false;
    pickle_.for_each_pair(id, [&](Id name, Id value) {
      const std::string_view key = pickle_.text(name);
      if (key == "action")
        action = pickle_.text(value);
      else if (key == "addr")
        good = has_address = number(value, "addr", found.address);
      else if (key == "device_free")
        good = has_address = bytes(value, "device_free", found.address);
      else if (key == "size")
        good = has_size = bytes(value, "size", found.size);
      else if (key == "stream")
        found.stream = stream(value);
      else if (key == "frames")
        found.frames = value;
      else if (key == "time_us") {
        good = number(value, "time_us", time, std::uint64_t{Snapshot::max_time_us});
        found.time_us = static_cast<std::int64_t>(time);
      }
      return good;
    });
    if (!good) return false;
    found.action = action_of(action);
    if (action.empty()) return fail("an event without \"action\"");
    if (found.action == Action::other) {
      note_unknown(action);
    } else if (!has_size || (!has_address && found.action != Action::oom && found.action != Action::snapshot)) {
      return fail("an event without \"addr\" or \"size\"");
    }
    events.push_back(found);
    return true;
  }

  static Action action_of(std::string_view text) {
    for (std::size_t i = 0; i + 1 < action_count; ++i)
      if (text == action_names[i]) return static_cast<Action>(i);
    return text == "free" ? Action::free_completed : Action::other;  // PyTorch 2.0
  }

  void note_unknown(std::string_view action) {
    const std::string name(action.substr(0, 40));
    auto& known = out_.unknown_actions;
    if (known.size() < 8 && std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
  }

  // Names only: what does not read is left out.
  void read_annotations(Id list) {
    pickle_.for_each(list, [&](Id id) {
      if (pickle_.kind(id) != Pickle::Kind::dict || !is_small(id)) return true;
      std::int64_t device = 0, time = 0;
      const std::string_view stage = pickle_.text(pickle_.find(id, "stage"));
      SnapshotAnnotation found;
      found.name = pickle_.find(id, "name");
      found.begins = stage == "START";
      pickle_.integer(pickle_.find(id, "device"), device);
      const bool timed = pickle_.integer(pickle_.find(id, "time_us"), time) && time >= 0 && time <= Snapshot::max_time_us;
      if (!timed || (!found.begins && stage != "END") || pickle_.text(found.name).empty()) return true;
      if (device < 0 || device >= static_cast<std::int64_t>(Snapshot::max_devices)) return true;
      found.device = static_cast<std::uint32_t>(device);
      found.time_us = time;
      out_.annotations.push_back(found);
      return true;
    });
  }

  Snapshot& out_;
  const Pickle& pickle_;
  std::set<Id> seen_;
  std::string where_;
  Error problem_;
};

}  // namespace

const char* action_name(Action action) { return action_names[static_cast<std::size_t>(action)]; }

Result<Snapshot> parse_snapshot(Pickle pickle) {
  Snapshot snapshot;
  snapshot.pickle = std::move(pickle);
  if (Status status = Reading(snapshot).run(); !status) return status.take_error();
  return snapshot;
}

Result<Snapshot> read_snapshot(const std::string& path, const PickleLimits& limits) {
  Result<Pickle> pickle = Pickle::read(path, limits);
  if (!pickle) return pickle.take_error();
  return parse_snapshot(std::move(*pickle));
}

}  // namespace liveset::imports
