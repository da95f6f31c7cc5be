// A snapshot as a trace: first what it knows of itself, then what lived before its events, the events of all devices by time, and at the
// end the counters that only the dump tells.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <queue>
#include <set>

#include "profiler/writer/trace_writer.h"
#include "proto/trace.pb.h"
#include "viewer/import/importer.h"
#include "viewer/import/names.h"
#include "viewer/import/snapshot_facts.h"

namespace liveset::imports {
namespace {

using nlohmann::ordered_json;
using writer::Event;

constexpr std::size_t max_frames = 256;  // of a stack
constexpr std::uint32_t source_id = 1;
// Autograd's threads run no Python.
constexpr const char* no_frames = "the snapshot has no frames for it";

class Writing {
 public:
  Writing(const Snapshot& snapshot, const std::vector<DeviceFacts>& facts, writer::TraceWriter& writer)
      : snapshot_(snapshot), facts_(facts), writer_(writer), names_(writer) {
    for (std::size_t i = 0; i < facts.size(); ++i) place_of_[facts[i].device] = i;
    devices_.resize(facts.size());
  }

  // Microseconds since 1970 of the first event; no_time when none has one.
  static std::int64_t start_of(const Snapshot& snapshot) {
    std::int64_t start = SnapshotEvent::no_time;
    for (const std::vector<SnapshotEvent>& events : snapshot.traces) {
      for (const SnapshotEvent& event : events) {
        if (event.time_us == SnapshotEvent::no_time) continue;
        start = start == SnapshotEvent::no_time ? event.time_us : std::min(start, event.time_us);
        break;
      }
    }
    return start;
  }

  void run() {
    start_us_ = std::max<std::int64_t>(start_of(snapshot_), 0);
    define();
    state_facts();
    for (std::size_t i = 0; i < facts_.size(); ++i) open(i);
    merge();
    for (std::size_t i = 0; i < facts_.size(); ++i) close(i);
  }

 private:
  struct Device {
    std::uint32_t heap = 0;
    std::vector<SnapshotAnnotation> annotations;  // by time
    std::size_t next_event = 0, next_annotation = 0;
    std::vector<std::uint32_t> scopes;  // open ones
    unsigned optimizers = 0;            // how many of the open scopes are an optimizer's step
  };

  void define() {
    writer_.define_source(
        source_id, "torch-snapshot", "pickle protocol " + std::to_string(snapshot_.pickle.protocol()),
        "the events that PyTorch's caching allocator kept, as bytes that were requested, and its segments and blocks at the dump",
        "what was before its first event but for what still lived; memory outside of this allocator; modules, phases and what "
        "autograd retains; the rounded size of a block that is gone");
    for (std::size_t i = 0; i < facts_.size(); ++i) {
      const std::string name = "cuda:" + std::to_string(facts_[i].device);
      devices_[i].heap = static_cast<std::uint32_t>(i + 1);
      writer_.define_heap(devices_[i].heap, names_.string(name), proto::CUDA, static_cast<std::int32_t>(facts_[i].device), source_id);
      writer_.define_thread(devices_[i].heap, 0, "allocator of " + name);
    }
    for (const SnapshotAnnotation& annotation : snapshot_.annotations) {
      const auto found = place_of_.find(annotation.device);
      if (found != place_of_.end()) devices_[found->second].annotations.push_back(annotation);
    }
    for (Device& device : devices_)
      std::stable_sort(device.annotations.begin(), device.annotations.end(),
                       [](const SnapshotAnnotation& a, const SnapshotAnnotation& b) { return a.time_us < b.time_us; });
  }

  static Event event_of(int kind, std::uint64_t time_ns) {
    Event event;
    event.kind = static_cast<std::uint8_t>(kind);
    event.time_ns = time_ns;
    return event;
  }

  void state_facts() {
    ordered_json json = {{"from", "torch-snapshot"},
                         {"file", std::filesystem::path(snapshot_.pickle.name()).filename().string()},
                         {"block_bytes", "requested"},
                         {"allocator_conf", snapshot_.allocator_conf},
                         {"heaps", ordered_json::array()}};
    for (const DeviceFacts& facts : facts_) {
      ordered_json actions = ordered_json::object();
      for (std::size_t i = 0; i < action_count; ++i)
        if (facts.actions[i] != 0) actions[action_name(static_cast<Action>(i))] = facts.actions[i];
      std::uint64_t opening = 0;
      for (const Opening& block : facts.opening_blocks) opening += block.bytes;
      json["heaps"].push_back({{"heap", "cuda:" + std::to_string(facts.device)},
                               {"history", history_name(facts.history)},
                               {"events", facts.events},
                               {"actions", std::move(actions)},
                               {"opening_blocks", facts.opening_blocks.size()},
                               {"opening_bytes", opening},
                               {"unseen_allocations", facts.unseen_allocations},
                               {"at_dump",
                                {{"requested", facts.requested_at_dump},
                                 {"allocated", facts.allocated_at_dump},
                                 {"active", facts.active_at_dump},
                                 {"reserved", facts.reserved_at_dump},
                                 {"pending_blocks", facts.pending_at_dump}}},
                               {"contradictions", facts.contradictions},
                               {"contradiction_count", facts.contradiction_count}});
    }
    if (!snapshot_.unknown_actions.empty()) json["unknown_actions"] = snapshot_.unknown_actions;
    if (snapshot_.host_segments != 0) json["host_segments"] = snapshot_.host_segments;
    Event event = event_of(proto::EVENT_ATTRIBUTE, 0);
    event.name = names_.string("imported");
    event.text = names_.string(json.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
    writer_.append(event);
  }

  void open(std::size_t place) {
    const DeviceFacts& facts = facts_[place];
    Device& device = devices_[place];
    for (const Opening& segment : facts.opening_segments)
      segment_event(proto::EVENT_SEGMENT_ALLOC, 0, device, segment.address, segment.bytes, segment.stream);
    if (facts.opening_blocks.empty()) return;
    const std::uint32_t scope =
        names_.scope(0, proto::SCOPE_OP, facts.history == History::none ? "at the dump" : "before the snapshot's first event");
    Event begin = event_of(proto::EVENT_SCOPE_BEGIN, 0);
    begin.thread = device.heap;
    begin.scope = scope;
    writer_.append(begin);
    for (const Opening& block : facts.opening_blocks) {
      Event event = event_of(proto::EVENT_ALLOC, 0);
      event.thread = event.heap = device.heap;
      event.scope = scope;
      event.address = block.address;
      event.size = block.bytes;
      event.stream = block.stream;
      event.stack = stack_of(block.frames);
      writer_.append(event);
    }
    begin.kind = proto::EVENT_SCOPE_END;
    writer_.append(begin);
  }

  void segment_event(int kind, std::uint64_t time, const Device& device, std::uint64_t address, std::uint64_t bytes, std::uint64_t stream) {
    Event event = stamped(kind, time, device);
    event.heap = device.heap;
    event.address = address;
    event.size = bytes;
    event.stream = stream;
    writer_.append(event);
  }

  // All devices' events by time; those of one device in the order of the file, whatever their times say.
  void merge() {
    using Next = std::pair<std::int64_t, std::size_t>;
    std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
    const auto push = [&](std::size_t place, std::int64_t time) {
      if (devices_[place].next_event < trace_of(place).size()) {
        const std::int64_t own = trace_of(place)[devices_[place].next_event].time_us;
        next.emplace(std::max(own, time), place);
      }
    };
    for (std::size_t place = 0; place < devices_.size(); ++place) push(place, SnapshotEvent::no_time);
    while (!next.empty()) {
      const auto [time, place] = next.top();
      next.pop();
      now_us_ = std::max(now_us_, time);
      Device& device = devices_[place];
      annotate(device, time);
      write(place, device);
      push(place, time);
    }
    for (Device& device : devices_) annotate(device, std::numeric_limits<std::int64_t>::max());
  }
  const std::vector<SnapshotEvent>& trace_of(std::size_t place) const {
    static const std::vector<SnapshotEvent> none;
    const std::uint32_t device = facts_[place].device;
    return device < snapshot_.traces.size() ? snapshot_.traces[device] : none;
  }
  std::uint64_t time_ns(std::int64_t time_us) const {
    return time_us <= start_us_ ? 0 : static_cast<std::uint64_t>(time_us - start_us_) * 1000;
  }

  Event stamped(int kind, std::uint64_t time, const Device& device) const {
    Event event = event_of(kind, time);
    event.thread = device.heap;
    event.scope = device.scopes.empty() ? 0 : device.scopes.back();
    event.phase = device.optimizers != 0 ? proto::PHASE_OPTIMIZER : proto::PHASE_OTHER;
    return event;
  }

  // Regions that begin or end before an event of `time`; those that begin at its very time, too.
  void annotate(Device& device, std::int64_t time) {
    for (; device.next_annotation < device.annotations.size(); ++device.next_annotation) {
      const SnapshotAnnotation& annotation = device.annotations[device.next_annotation];
      if (annotation.time_us > time || (annotation.time_us == time && !annotation.begins)) return;
      const std::string_view name = snapshot_.pickle.text(annotation.name);
      const std::uint64_t at = time_ns(annotation.time_us);
      constexpr std::string_view step = "ProfilerStep#", optimizer = "Optimizer.step#";
      if (name.starts_with(step)) {
        Event event = stamped(annotation.begins ? proto::EVENT_STEP_BEGIN : proto::EVENT_STEP_END, at, device);
        event.number = std::strtoll(std::string(name.substr(step.size(), 18)).c_str(), nullptr, 10);
        writer_.append(event);
        continue;
      }
      constexpr std::size_t deepest = 64;
      const std::uint32_t scope = names_.scope(0, proto::SCOPE_OP, name);
      if (annotation.begins) {
        if (device.scopes.size() >= deepest) continue;
        device.scopes.push_back(scope);
        device.optimizers += name.starts_with(optimizer);
        writer_.append(stamped(proto::EVENT_SCOPE_BEGIN, at, device));
      } else {
        // The innermost of that name; what began inside of it and has no end ends with it.
        const auto found = std::find(device.scopes.rbegin(), device.scopes.rend(), scope);
        if (found == device.scopes.rend()) continue;
        for (auto left = found - device.scopes.rbegin() + 1; left > 0; --left) {
          writer_.append(stamped(proto::EVENT_SCOPE_END, at, device));
          device.scopes.pop_back();
        }
        device.optimizers = 0;
        for (const std::uint32_t open : device.scopes) device.optimizers += optimizer_scopes_.count(open) != 0;
      }
      if (name.starts_with(optimizer)) optimizer_scopes_.insert(scope);
    }
  }

  void write(std::size_t place, Device& device) {
    const std::vector<SnapshotEvent>& events = trace_of(place);
    const std::size_t index = device.next_event++;
    const SnapshotEvent& event = events[index];
    const std::uint64_t time = time_ns(now_us_);
    switch (event.action) {
      case Action::alloc: return block_event(proto::EVENT_ALLOC, time, device, event, event.frames);
      case Action::free_requested: {
        const bool at_once =
            index + 1 < events.size() && events[index + 1].action == Action::free_completed && events[index + 1].address == event.address;
        if (at_once) return;  // the completion says the same
        Event held = stamped(proto::EVENT_HOLDER, time, device);
        held.heap = device.heap;
        held.address = event.address;
        held.size = event.size;
        held.name = names_.string("a stream: the program freed it, and the work in the stream is not done");
        held.number = 0;
        return writer_.append(held);
      }
      case Action::free_completed: {
        const bool at_once = index != 0 && events[index - 1].action == Action::free_requested && events[index - 1].address == event.address;
        return block_event(proto::EVENT_FREE_REQUESTED, time, device, event, at_once ? events[index - 1].frames : event.frames);
      }
      case Action::segment_alloc: return segment_event(proto::EVENT_SEGMENT_ALLOC, time, device, event.address, event.size, event.stream);
      case Action::segment_free: return segment_event(proto::EVENT_SEGMENT_FREE, time, device, event.address, event.size, event.stream);
      case Action::segment_map: return segment_event(proto::EVENT_SEGMENT_MAP, time, device, event.address, event.size, event.stream);
      case Action::segment_unmap: return segment_event(proto::EVENT_SEGMENT_UNMAP, time, device, event.address, event.size, event.stream);
      case Action::oom: return segment_event(proto::EVENT_OUT_OF_MEMORY, time, device, 0, event.size, event.stream);
      case Action::snapshot:
      case Action::other: return;
    }
  }

  void block_event(int kind, std::uint64_t time, const Device& device, const SnapshotEvent& from, Pickle::Id frames) {
    Event event = stamped(kind, time, device);
    event.heap = device.heap;
    event.address = from.address;
    event.size = from.size;
    event.stream = from.stream;
    event.stack = stack_of(frames);
    writer_.append(event);
  }

  // What only the dump tells. Not of one moment before it, so they have names of their own.
  void close(std::size_t place) {
    const DeviceFacts& facts = facts_[place];
    const auto state = [&](const char* name, std::uint64_t bytes) {
      Event event = stamped(proto::EVENT_COUNTER, time_ns(now_us_), devices_[place]);
      event.heap = devices_[place].heap;
      event.name = names_.string(name);
      event.number = static_cast<std::int64_t>(bytes);
      writer_.append(event);
    };
    state("allocated at the dump", facts.allocated_at_dump);
    state("active at the dump", facts.active_at_dump);
  }

  // Frames stand with the innermost first. Each list and each frame of the file is looked at once.
  std::uint32_t stack_of(Pickle::Id list) {
    const Pickle& pickle = snapshot_.pickle;
    if (pickle.size(list) == 0 || !pickle.is_sequence(list)) return names_.stack(0, names_.frame(no_frames, "", 0));
    const auto [known, is_new] = stacks_.try_emplace(list, 0);
    if (!is_new) return known->second;
    std::vector<std::uint32_t> frames;
    pickle.for_each(list, [&](Pickle::Id frame) {
      frames.push_back(frame_of(frame));
      return frames.size() < max_frames;
    });
    std::uint32_t stack = 0;
    if (pickle.size(list) > max_frames)
      stack = names_.stack(0, names_.frame("deeper than " + std::to_string(max_frames) + " frames", "", 0));
    for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame)
      if (*frame != 0) stack = names_.stack(stack, *frame);
    return known->second = stack;
  }

  std::uint32_t frame_of(Pickle::Id id) {
    const auto [known, is_new] = frames_.try_emplace(id, 0);
    if (!is_new) return known->second;
    const Pickle& pickle = snapshot_.pickle;
    if (pickle.size(id) > 64) return 0;
    std::int64_t line = 0;
    pickle.integer(pickle.find(id, "line"), line);
    const std::string_view function = text_of(pickle.find(id, "name")), file = text_of(pickle.find(id, "filename"));
    if (function.empty() && file.empty()) return 0;
    return known->second = names_.frame(function, file, static_cast<std::uint32_t>(std::clamp<std::int64_t>(line, 0, 1 << 30)));
  }
  std::string_view text_of(Pickle::Id id) const { return snapshot_.pickle.text(id).substr(0, 4096); }

  const Snapshot& snapshot_;
  const std::vector<DeviceFacts>& facts_;
  writer::TraceWriter& writer_;
  Names names_;
  std::map<std::uint32_t, std::size_t> place_of_;  // by device
  std::vector<Device> devices_;
  std::map<Pickle::Id, std::uint32_t> stacks_, frames_;
  std::set<std::uint32_t> optimizer_scopes_;
  std::int64_t start_us_ = 0, now_us_ = 0;
};

}  // namespace

Status import_snapshot(const std::string& path, std::unique_ptr<writer::Sink> sink) {
  Result<Snapshot> snapshot = read_snapshot(path);
  if (!snapshot) return snapshot.take_error();
  Result<std::vector<DeviceFacts>> facts = facts_of(*snapshot);
  if (!facts) return facts.take_error();
  if (facts->empty())
    return Error{ErrorKind::unreadable,
                 path,
                 {},
                 "the snapshot is empty: no device has a segment or an event",
                 "call torch.cuda.memory._record_memory_history() before the memory is taken, and dump while it is held"};
  writer::HeaderInfo header;
  header.tool_version = LIVESET_VERSION;
  header.start_realtime_ns = static_cast<std::uint64_t>(std::max<std::int64_t>(Writing::start_of(*snapshot), 0)) * 1000;
  std::string error;
  const std::unique_ptr<writer::TraceWriter> writer = writer::TraceWriter::create(std::move(sink), "the imported trace", header, &error);
  if (writer == nullptr) return Error{ErrorKind::unreadable, "", {}, error, ""};
  Writing(*snapshot, *facts, *writer).run();
  if (!writer->finish(""))
    return Error{ErrorKind::unreadable, path, {}, "the trace of it could not be written as a whole", "is the disk full?"};
  return Done{};
}

bool looks_like_snapshot(std::string_view beginning) {
  return looks_like_pickle(beginning) || looks_like_old_pickle(beginning);  // of which the reader says why it reads none
}

}  // namespace liveset::imports
