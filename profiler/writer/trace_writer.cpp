#include "profiler/writer/trace_writer.h"

#include <algorithm>
#include <map>

#include "profiler/writer/chunk_builder.h"
#include "profiler/writer/live_blocks.h"
#include "profiler/writer/packet_file.h"
#include "profiler/writer/utf8.h"

namespace liveset::writer {
namespace {

constexpr std::uint64_t max_waiting_bytes = 32U << 20;  // some 12 million events
constexpr std::size_t max_dictionary_bytes = 1U << 20;  // of one Dictionary packet
constexpr std::size_t max_string_bytes = 65535;
constexpr std::size_t max_command_bytes = 1U << 20;  // of a process's command line
constexpr std::uint32_t max_heaps = 65536;
constexpr std::uint64_t closing_bytes = 4096;  // room for the last Loss packets and the footer's fixed part

// Figures of the trace up to some event: what a footer says.
struct Position {
  std::uint64_t events = 0, time_ns = 0, allocations = 0;
  std::uint64_t unmatched_frees = 0, implied_frees = 0, mismatches = 0;
};

void describe_columns(proto::Header& header) {
  std::map<std::uint32_t, proto::KindColumns*> groups;
  for (int kind = proto::EventKind_MIN; kind <= proto::EventKind_MAX; ++kind) {
    if (!proto::EventKind_IsValid(kind)) continue;
    const std::uint32_t columns = proto::columns_of(static_cast<std::uint8_t>(kind));
    if (columns == 0) continue;
    proto::KindColumns*& group = groups[columns];
    if (group == nullptr) {
      group = header.add_kind_columns();
      for (int id = 1; id < proto::ColumnId_ARRAYSIZE; ++id) {
        if ((columns & proto::column_bit(static_cast<proto::ColumnId>(id))) != 0) group->add_column(static_cast<proto::ColumnId>(id));
      }
    }
    group->add_kind(static_cast<proto::EventKind>(kind));
  }
}

std::string encode_header(const HeaderInfo& info) {
  proto::Header header;
  header.set_magic("liveset trace");
  header.set_format_major(proto::format_major);
  header.set_format_minor(proto::format_minor);
  header.set_tool_version(valid_utf8(info.tool_version));
  proto::ClockDomain& clock = *header.mutable_clock();
  clock.set_kind(static_cast<proto::ClockDomain::Kind>(info.clock_kind));
  clock.set_start_ticks(info.start_ticks);
  clock.set_start_monotonic_ns(info.start_monotonic_ns);
  clock.set_start_realtime_ns(info.start_realtime_ns);
  clock.set_boot_id(valid_utf8(info.boot_id));
  proto::Process& process = *header.mutable_process();
  process.set_pid(info.pid);
  process.set_parent_pid(info.parent_pid);
  if (info.rank >= 0) process.set_rank(info.rank);
  if (info.world_size >= 0) process.set_world_size(info.world_size);
  if (info.local_rank >= 0) process.set_local_rank(info.local_rank);
  process.set_start_time(info.start_time);
  process.set_exec_count(info.exec_count);
  process.set_host(valid_utf8(info.host));
  process.set_executable(valid_utf8(info.executable));
  constexpr std::size_t frame_bytes = 4;  // tag and length of an argument
  std::size_t room = max_command_bytes;
  for (const std::string& argument : info.command) {
    if (room <= frame_bytes) break;
    const std::string_view kept = std::string_view(argument).substr(0, room - frame_bytes);
    room -= kept.size() + frame_bytes;
    process.add_command(valid_utf8(kept));
  }
  describe_columns(header);
  return header.SerializeAsString();
}

}  // namespace

struct TraceWriter::State {
  State(std::unique_ptr<Sink> sink, std::string path_) : file(std::move(sink)), path(std::move(path_)) {}

  void append(const Event& event);
  bool resolve_free(const Event& event, ResolvedEvent& resolved);
  void allocate(const Event& event);
  void report_totals(const Event& event, ResolvedEvent& resolved);
  void close_chunk();
  void close_dictionary();
  void lose(int reason, std::uint64_t events, bool last);
  bool finish(std::string_view end);
  void add_dictionary_bytes(std::size_t bytes) {
    dictionary_bytes += bytes + 32;
    if (dictionary_bytes > max_dictionary_bytes) close_dictionary();
  }
  LiveHeap& heap(std::uint32_t id) {
    if (id >= max_heaps) id = 0;
    if (id >= heaps.size()) heaps.resize(id + 1);
    return heaps[id];
  }
  std::uint64_t keep_free() const { return footer_bytes + closing_bytes; }
  // Past the limit of what may wait for the disk: from here on everything is lost, and only counted.
  bool stopped() const { return file.waiting_bytes() > max_waiting_bytes || has_stopped; }
  template <class Totals>
  void describe_heaps(Totals* totals) const {
    for (std::uint32_t id = 0; id < heaps.size(); ++id) {
      if (heaps[id].seen()) heaps[id].describe(id, *totals->Add());
    }
  }

  PacketFile file;
  std::string path;
  std::vector<LiveHeap> heaps;
  ChunkBuilder chunk;
  std::uint64_t chunk_first_event = 0, chunk_first_allocation = 0;
  proto::Dictionary dictionary;
  std::size_t dictionary_bytes = 0;
  Position now;          // of everything appended
  Position written;      // of what is in the file
  proto::Footer footer;  // its index and totals, of what is in the file
  std::uint64_t footer_bytes = 0;
  std::uint64_t lost = 0;          // said by the caller
  std::uint64_t lost_to_disk = 0;  // found out here
  bool has_stopped = false, finished = false;
};

void TraceWriter::State::append(const Event& event) {
  if (stopped()) {
    has_stopped = true;
    ++lost_to_disk;
    // The collector still asks is_live() to order events.
    if (event.kind == proto::EVENT_ALLOC) heap(event.heap).allocate(event.address, {now.allocations, event.size}, now.events);
    LiveBlock block;
    if (event.kind == proto::EVENT_FREE_REQUESTED) heap(event.heap).free(event.address, false, block);
    return;
  }
  if (event.kind == proto::EVENT_ALLOC) allocate(event);
  now.time_ns = std::max(now.time_ns, event.time_ns);
  ResolvedEvent resolved{event, event.kind, now.time_ns};
  if (event.kind == proto::EVENT_FREE_REQUESTED || event.kind == proto::EVENT_FREE_COMPLETED) {
    if (!resolve_free(event, resolved)) {
      resolved.kind_byte = proto::EVENT_FREE_UNMATCHED;
      ++now.unmatched_frees;
    }
  }
  if (event.has_totals) report_totals(event, resolved);
  chunk.add(resolved);
  ++now.events;
  if (chunk.full()) close_chunk();
}

void TraceWriter::State::allocate(const Event& event) {
  if (!heap(event.heap).allocate(event.address, {now.allocations, event.size}, now.events)) {
    // The free of what lived here was lost: without it the old block would live for ever.
    Event implied = event;
    implied.kind = proto::EVENT_FREE_REQUESTED;
    implied.has_totals = implied.completes_later = false;
    append(implied);
    ++now.implied_frees;
    heap(event.heap).allocate(event.address, {now.allocations, event.size}, now.events);
  }
  ++now.allocations;
}

bool TraceWriter::State::resolve_free(const Event& event, ResolvedEvent& resolved) {
  LiveBlock block;
  LiveHeap& live = heap(event.heap);
  const bool found = event.kind == proto::EVENT_FREE_COMPLETED ? live.complete(event.address, block)
                                                               : live.free(event.address, event.completes_later, block);
  if (found) resolved.age = now.allocations - block.ordinal;
  return found;
}

void TraceWriter::State::report_totals(const Event& event, ResolvedEvent& resolved) {
  const std::uint8_t with_totals = resolved.kind_byte | proto::kind_has_totals;
  if ((proto::columns_of(with_totals) & proto::column_bit(proto::COLUMN_TOTAL)) == 0) return;
  LiveHeap& live = heap(event.heap);
  live.touch();
  const LiveHeap::Reported reported = live.report(event.total, event.reserved);
  resolved.kind_byte = with_totals;
  resolved.total_error = reported.total_error;
  resolved.reserved_delta = reported.reserved_delta;
  now.mismatches += reported.mismatch ? 1 : 0;
}

void TraceWriter::State::close_dictionary() {
  if (dictionary_bytes == 0) return;
  file.put(proto::dictionary_field, dictionary.SerializeAsString(), keep_free(),
           [this](std::uint64_t offset) { footer.add_dictionary_offset(offset); });
  dictionary.Clear();
  dictionary_bytes = 0;
  footer_bytes += proto::max_varint_bytes;
}

void TraceWriter::State::close_chunk() {
  close_dictionary();
  if (chunk.events() == 0) return;
  proto::EventChunk message;
  proto::ChunkIndex index;
  index.set_events(chunk.events());
  chunk.encode(chunk_first_event, chunk_first_allocation, message);
  describe_heaps(message.mutable_total());
  index.set_first_event(message.first_event());
  index.set_first_time_ns(message.first_time_ns());
  index.set_first_allocation(message.first_allocation());
  *index.mutable_total() = message.total();
  footer_bytes += index.ByteSizeLong() + 2 * proto::max_varint_bytes;
  file.put(proto::events_field, message.SerializeAsString(), keep_free(), [this, index, position = now](std::uint64_t offset) {
    written = position;
    *footer.mutable_total() = index.total();
    *footer.add_chunk() = index;
    footer.mutable_chunk()->rbegin()->set_offset(offset);
  });
  chunk_first_event = now.events;
  chunk_first_allocation = now.allocations;
}

void TraceWriter::State::lose(int reason, std::uint64_t events, bool last) {
  proto::Loss loss;
  const Position& position = last ? written : now;
  loss.set_reason(static_cast<proto::Loss::Reason>(reason));
  loss.set_events(events);
  loss.set_before_event(position.events);
  loss.set_time_ns(position.time_ns);
  footer_bytes += proto::max_varint_bytes;
  const auto noted = [this](std::uint64_t offset) { footer.add_loss_offset(offset); };
  if (last) {
    file.put_last(proto::loss_field, loss.SerializeAsString(), noted);
  } else {
    file.put(proto::loss_field, loss.SerializeAsString(), keep_free(), noted);
  }
}

bool TraceWriter::State::finish(std::string_view end) {
  finished = true;
  close_chunk();
  bool whole = file.write_waiting() && !has_stopped;
  if (!whole) {
    // What waited is lost as well; what is said from here on is about the file as it is.
    file.drop_waiting();
    lost_to_disk += now.events - written.events;
    now = written;
    lose(proto::Loss::DISK_FULL, lost_to_disk, true);
  }
  footer.set_events(written.events);
  footer.set_end_time_ns(written.time_ns);
  footer.set_allocations(written.allocations);
  footer.set_unmatched_frees(written.unmatched_frees);
  footer.set_implied_frees(written.implied_frees);
  footer.set_conservation_mismatches(written.mismatches);
  footer.set_lost_events(lost + lost_to_disk);
  footer.set_end(valid_utf8(end));
  whole = file.put_footer(footer.SerializeAsString()) && whole;
  return file.close() && whole;
}

TraceWriter::TraceWriter() = default;

TraceWriter::~TraceWriter() {
  if (state_ == nullptr || state_->finished) return;
  state_->close_chunk();
  state_->file.write_waiting();
  state_->file.close();
}

std::unique_ptr<TraceWriter> TraceWriter::create(const std::string& path, const HeaderInfo& header, std::string* error) {
  std::unique_ptr<Sink> sink = open_file_sink(path, error);
  return sink == nullptr ? nullptr : create(std::move(sink), path, header, error);
}

std::unique_ptr<TraceWriter> TraceWriter::create(std::unique_ptr<Sink> sink, const std::string& path, const HeaderInfo& header,
                                                 std::string* error) {
  auto state = std::make_unique<State>(std::move(sink), path);
  state->file.put(proto::header_field, encode_header(header), state->keep_free(), [](std::uint64_t) {});
  if (state->file.waiting_bytes() != 0) {
    if (error != nullptr) *error = path + ": the trace's first bytes cannot be written; is the disk full?";
    return nullptr;
  }
  std::unique_ptr<TraceWriter> writer(new TraceWriter());
  writer->state_ = std::move(state);
  return writer;
}

void TraceWriter::define_string(std::uint32_t id, std::string_view text) {
  if (state_->stopped()) return;
  text = text.substr(0, max_string_bytes);
  proto::String& entry = *state_->dictionary.add_string();
  entry.set_id(id);
  entry.set_text(text.data(), text.size());
  state_->add_dictionary_bytes(text.size());
}

void TraceWriter::define_scope(std::uint32_t id, std::uint32_t parent, std::uint32_t kind, std::uint32_t name) {
  if (state_->stopped()) return;
  proto::Scope& entry = *state_->dictionary.add_scope();
  entry.set_id(id);
  entry.set_parent(parent);
  entry.set_kind(static_cast<proto::ScopeKind>(kind));
  entry.set_name(name);
  state_->add_dictionary_bytes(0);
}

void TraceWriter::define_heap(std::uint32_t id, std::uint32_t name, std::uint32_t device_type, std::int32_t device_index,
                              std::uint32_t source) {
  if (state_->stopped()) return;
  proto::Heap& entry = *state_->dictionary.add_heap();
  entry.set_id(id);
  entry.set_name(name);
  entry.set_device_type(static_cast<proto::DeviceType>(device_type));
  entry.set_device_index(device_index);
  entry.set_source(source);
  state_->add_dictionary_bytes(0);
}

void TraceWriter::define_thread(std::uint32_t id, std::int64_t tid, std::string_view name) {
  if (state_->stopped()) return;
  proto::Thread& entry = *state_->dictionary.add_thread();
  entry.set_id(id);
  entry.set_tid(tid);
  entry.set_name(valid_utf8(name));
  state_->add_dictionary_bytes(name.size());
}

void TraceWriter::define_value(std::uint32_t id, std::uint32_t name, std::uint32_t group, std::int64_t layer) {
  if (state_->stopped()) return;
  proto::Value& entry = *state_->dictionary.add_value();
  entry.set_id(id);
  entry.set_name(name);
  entry.set_group(group);
  entry.set_layer(layer);
  state_->add_dictionary_bytes(0);
}

void TraceWriter::define_frame(std::uint32_t id, const Frame& frame) {
  if (state_->stopped()) return;
  proto::Frame& entry = *state_->dictionary.add_frame();
  entry.set_id(id);
  entry.set_function(frame.function);
  entry.set_file(frame.file);
  entry.set_line(frame.line);
  entry.set_build_id(frame.build_id);
  entry.set_offset(frame.offset);
  state_->add_dictionary_bytes(0);
}

void TraceWriter::define_stack(std::uint32_t id, std::uint32_t parent, std::uint32_t frame) {
  if (state_->stopped()) return;
  proto::Stack& entry = *state_->dictionary.add_stack();
  entry.set_id(id);
  entry.set_parent(parent);
  entry.set_frame(frame);
  state_->add_dictionary_bytes(0);
}

void TraceWriter::define_source(std::uint32_t id, std::string_view name, std::string_view version, std::string_view covers,
                                std::string_view cannot_see) {
  if (state_->stopped()) return;
  proto::Source& entry = *state_->dictionary.add_source();
  entry.set_id(id);
  entry.set_name(valid_utf8(name));
  entry.set_version(valid_utf8(version));
  entry.set_covers(valid_utf8(covers));
  entry.set_cannot_see(valid_utf8(cannot_see));
  state_->add_dictionary_bytes(name.size() + version.size() + covers.size() + cannot_see.size());
}

void TraceWriter::append(const Event& event) { state_->append(event); }

bool TraceWriter::is_live(std::uint32_t heap, std::uint64_t address) const { return state_->heap(heap).find(address) != nullptr; }

void TraceWriter::calibrate(std::uint64_t ticks, std::uint64_t monotonic_ns) {
  if (state_->stopped()) return;
  proto::Calibration calibration;
  calibration.set_ticks(ticks);
  calibration.set_monotonic_ns(monotonic_ns);
  state_->file.put(proto::calibration_field, calibration.SerializeAsString(), state_->keep_free(), [](std::uint64_t) {});
}

void TraceWriter::lose(int reason, std::uint64_t events) {
  if (reason != proto::Loss::DICTIONARY_FULL) state_->lost += events;  // those are names
  if (!state_->stopped()) state_->lose(reason, events, false);
}

void TraceWriter::flush() {
  state_->file.write_waiting();
  state_->close_chunk();
}

bool TraceWriter::finish(std::string_view end) { return state_->finished || state_->finish(end); }

std::uint64_t TraceWriter::events() const { return state_->now.events; }
std::uint64_t TraceWriter::lost_events() const { return state_->lost + state_->lost_to_disk; }
const std::string& TraceWriter::path() const { return state_->path; }

}  // namespace liveset::writer
