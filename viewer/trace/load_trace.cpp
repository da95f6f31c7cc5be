// Opening a trace: one walk over all packets, which builds the index and finds what is damaged.
//
// The footer is no substitute for the walk (a flipped bit anywhere must be known before figures are shown), but it is
// of use where the framing is lost: its offsets say where the next packet begins.
#include <algorithm>
#include <cstdio>
#include <string>

#include "viewer/trace/packet_scanner.h"
#include "viewer/trace/trace_state.h"

namespace liveset::trace {
namespace {

constexpr std::string_view trace_magic = "liveset trace";

std::string hex_of(Bytes bytes) {
  std::string text;
  char two[8];
  for (const std::uint8_t byte : bytes) {
    std::snprintf(two, sizeof two, "%s%02x", text.empty() ? "" : " ", byte);
    text += two;
  }
  return text;
}

class Loader {
 public:
  explicit Loader(TraceFile::State& state) : state_(state), file_(state.file), scanner_(state.file) {}

  Status run() {
    if (file_.size() == 0) {
      return Error{ErrorKind::unreadable, file_.path(), {}, "the file is empty", "was the recorder stopped before its first event?"};
    }
    Status status = read_header();
    if (status) status = find_footer();
    if (status) status = walk();
    if (!status) return status;
    while (!settle_last()) {
    }
    finish_health();
    return Done{};
  }

 private:
  Status read_header();
  Status not_a_trace();
  Status find_footer();
  Status walk();
  void take(const Packet& packet);
  void take_chunk(const Packet& packet);
  bool settle_last();
  void drop_last();
  // By the file's numbers, up to the last chunk's end.
  std::uint64_t allocations_so_far() const {
    return state_.chunks.empty() ? 0 : state_.places.back().first_allocation + state_.chunks.back().allocations;
  }
  void finish_health();

  void damaged(std::uint64_t offset, const std::string& what) {
    ++state_.health.damaged_packets;
    if (state_.health.damaged_packets == 1) first_damage_ = "at byte " + std::to_string(offset) + ": " + what;
  }
  // Where the framing is lost at `offset`: the next packet that the footer knows of, or 0.
  std::uint64_t next_known(std::uint64_t offset) const {
    const auto& known = footer_.packet_offsets;
    const auto next = std::upper_bound(known.begin(), known.end(), offset);
    return next == known.end() ? 0 : *next;
  }

  TraceFile::State& state_;
  const FileBytes& file_;
  PacketScanner scanner_;
  Footer footer_;
  std::uint64_t position_ = 0;
  std::uint64_t next_event_ = 0;
  std::string first_damage_;
  std::string tail_;  // what is wrong with the end of the file
};

Status Loader::not_a_trace() {
  PaddedBuffer buffer;
  Result<Bytes> start = file_.read(0, std::min<std::uint64_t>(64, file_.size()), buffer);
  if (!start) return start.take_error();
  const std::string_view text(reinterpret_cast<const char*>(start->data()), start->size());
  if (text.find(trace_magic) != std::string_view::npos) {
    return file_.error(0, "the trace's header is damaged or torn", "copy the file again");
  }
  return file_.error(0, "not a liveset trace: it begins with " + hex_of(start->first(std::min<std::size_t>(4, start->size()))),
                     "name a *.liveset file");
}

Status Loader::read_header() {
  Result<std::optional<Packet>> first = scanner_.at(0);
  if (!first) return first.take_error();
  if (!*first || (*first)->field != proto::header_field || (*first)->body.size() > proto::max_header_bytes) return not_a_trace();
  const Packet& packet = **first;
  std::string magic;
  const bool parsed = parse_header(packet.body, state_.header, magic, state_.layout);
  if (magic != trace_magic) return not_a_trace();
  // A newer major version may have changed anything else, so this comes before the checksum.
  if (state_.header.format_major > proto::format_major) {
    return file_.error(0,
                       "written in format " + std::to_string(state_.header.format_major) + "." +
                           std::to_string(state_.header.format_minor) + " by liveset " + state_.header.tool_version +
                           "; this liveset reads formats up to " + std::to_string(proto::format_major) + ".x",
                       "use a newer liveset");
  }
  if (!packet.intact || !parsed) return not_a_trace();
  position_ = packet.end;
  return Done{};
}

Status Loader::find_footer() {
  if (file_.size() < position_ + 8) return Done{};
  PaddedBuffer buffer;
  Result<Bytes> tail = file_.read(file_.size() - 8, 8, buffer);
  if (!tail) return tail.take_error();
  std::uint64_t offset = 0;
  for (unsigned i = 0; i < 8; ++i) offset |= static_cast<std::uint64_t>((*tail)[i]) << (8 * i);
  if (offset < position_ || offset >= file_.size()) return Done{};
  Result<std::optional<Packet>> packet = scanner_.at(offset);
  if (!packet) return packet.take_error();
  if (!*packet || !(*packet)->intact || (*packet)->field != proto::footer_field || (*packet)->end != file_.size()) return Done{};
  if ((*packet)->footer_offset != offset || !parse_footer((*packet)->body, footer_)) {
    footer_ = {};
    return Done{};
  }
  state_.health.has_footer = true;
  footer_.packet_offsets.push_back(offset);
  std::sort(footer_.packet_offsets.begin(), footer_.packet_offsets.end());
  return Done{};
}

Status Loader::walk() {
  std::uint64_t good_end = position_;  // after the last packet that could be used
  std::uint64_t damaged_since_good = 0;
  while (true) {
    Result<std::optional<Packet>> next = scanner_.at(position_);
    if (!next) return next.take_error();
    const std::uint64_t damaged_before = state_.health.damaged_packets;
    if (*next) {
      const Packet& packet = **next;
      if (packet.intact && packet.field == proto::header_field) {
        tail_ = "at byte " + std::to_string(position_) + ": a second header; only the first of several joined traces is read";
        break;
      }
      if (packet.intact) {
        take(packet);
      } else {
        damaged(packet.offset, "a packet's checksum is wrong");
      }
      position_ = packet.end;
    } else if (!scanner_.torn()) {
      break;
    } else {
      const std::uint64_t resume = next_known(position_);
      if (resume == 0) break;
      damaged(position_, "no packet begins here");
      position_ = resume;
    }
    const bool good = state_.health.damaged_packets == damaged_before;
    damaged_since_good = good ? 0 : damaged_since_good + 1;
    if (good) good_end = position_;
  }
  state_.health.readable_bytes = good_end;
  if (state_.health.has_footer) return Done{};
  // Damage that nothing good follows is a bad tail, not damage in the middle.
  state_.health.damaged_packets -= damaged_since_good;
  state_.health.truncated = true;
  if (!tail_.empty()) return Done{};
  tail_ = "at byte " + std::to_string(good_end) + ": ";
  tail_ += good_end == file_.size()
               ? "the trace ends without a footer (the recorder was killed, or the file was cut here)"
               : "the trace is torn; " + std::to_string(file_.size() - good_end) + " bytes at its end are not readable";
  return Done{};
}

void Loader::take(const Packet& packet) {
  switch (packet.field) {
    case proto::dictionary_field: {
      auto& sources = state_.dictionary.sources;
      const std::size_t known = sources.size();
      if (!parse_dictionary(packet.body, state_.dictionary)) damaged(packet.offset, "a dictionary packet makes no sense");
      for (std::size_t i = known; i < sources.size(); ++i) sources[i].since_event = next_event_;
      break;
    }
    case proto::events_field: take_chunk(packet); break;
    case proto::loss_field: {
      Loss loss;
      if (parse_loss(packet.body, loss)) state_.health.losses.push_back(loss);
      break;
    }
    case proto::calibration_field: break;
    case proto::footer_field:
      // The real one is found from the file's end.
      if (!state_.health.has_footer || packet.end != file_.size()) damaged(packet.offset, "the footer is damaged or not at the end");
      break;
    default: ++state_.health.unknown_packets; break;
  }
}

void Loader::take_chunk(const Packet& packet) {
  ChunkView view;
  std::string why;
  if (!parse_chunk(packet.body, view, why)) {
    damaged(packet.offset, why);
    return;
  }
  if (view.first_event < next_event_) {
    damaged(packet.offset, "a chunk begins with event " + std::to_string(view.first_event) + ", which came before");
    return;
  }
  const bool follows = view.first_event == next_event_ && !state_.chunks.empty();
  if (!follows) settle_last();
  const std::uint64_t missing_events = view.first_event - next_event_;
  const std::uint64_t counted = allocations_so_far();
  const std::uint64_t lowest = follows ? state_.places.back().first_allocation : counted;
  const std::uint64_t highest = follows ? lowest + state_.chunks.back().events : counted + missing_events;
  if (view.first_allocation < lowest || view.first_allocation > highest) {
    damaged(packet.offset, "a chunk's first allocation does not fit the one before");
    return;
  }
  if (follows) {
    state_.chunks.back().allocations = static_cast<std::uint32_t>(view.first_allocation - lowest);
  } else if (view.first_allocation > counted) {
    const std::uint64_t before = state_.gaps.empty() ? 0 : state_.gaps.back().before + state_.gaps.back().count;
    state_.gaps.push_back({counted, view.first_allocation - counted, before});
  }
  state_.health.lost_events += missing_events;
  const std::uint64_t gone = state_.gaps.empty() ? 0 : state_.gaps.back().before + state_.gaps.back().count;
  ChunkInfo& info = state_.chunks.emplace_back();
  info.offset = packet.offset;
  info.first_event = view.first_event;
  info.first_time_ns = view.first_time_ns;
  info.first_allocation = view.first_allocation - gone;
  info.events = view.events;
  info.totals = std::move(view.totals);
  const std::uint64_t content_bytes = packet.end - packet.content_offset;
  state_.places.push_back({packet.content_offset, static_cast<std::uint32_t>(content_bytes), view.first_allocation});
  next_event_ = view.first_event + view.events;
  state_.events += view.events;
}

// How many allocations the last chunk has, where no next one says so, and when it ends. False when it cannot be
// decoded: then what it held is missing, like that of a chunk with a wrong checksum.
bool Loader::settle_last() {
  if (state_.chunks.empty()) return true;
  Columns columns;
  if (Status status = state_.decode(state_.places.back(), proto::column_bit(proto::COLUMN_TIME), columns); !status) {
    damaged(state_.chunks.back().offset, status.error().what);
    drop_last();
    return false;
  }
  state_.chunks.back().allocations = columns.allocations;
  state_.allocations = state_.chunks.back().first_allocation + columns.allocations;
  state_.end_time_ns = columns.time_ns.back();
  return true;
}

// As if it had never been seen, nor the gap before it: whoever comes next finds one larger gap.
void Loader::drop_last() {
  state_.events -= state_.chunks.back().events;
  const std::uint64_t first_event = state_.chunks.back().first_event;
  state_.chunks.pop_back();
  state_.places.pop_back();
  next_event_ = state_.chunks.empty() ? 0 : state_.chunks.back().first_event + state_.chunks.back().events;
  state_.health.lost_events -= first_event - next_event_;
  if (!state_.gaps.empty() && state_.gaps.back().first >= allocations_so_far()) state_.gaps.pop_back();
}

void Loader::finish_health() {
  Health& health = state_.health;
  std::uint64_t stated = 0;
  for (const Loss& loss : health.losses) (loss.of_names() ? health.lost_names : stated) += loss.events;
  if (health.has_footer) {
    if (footer_.events > next_event_) health.lost_events += footer_.events - next_event_;
    stated = footer_.lost_events;
    health.unmatched_frees = footer_.unmatched_frees;
    health.implied_frees = footer_.implied_frees;
    health.conservation_mismatches = footer_.conservation_mismatches;
    health.end = footer_.end;
    state_.end_time_ns = std::max(state_.end_time_ns, footer_.end_time_ns);
  }
  health.lost_events += stated;
  health.note = tail_;
  if (health.damaged_packets == 0) return;
  if (!health.note.empty()) health.note += "; ";
  health.note += first_damage_;
  if (health.damaged_packets > 1) health.note += "; " + std::to_string(health.damaged_packets) + " damaged packets in all";
}

}  // namespace

Status load_trace(TraceFile::State& state) { return Loader(state).run(); }

}  // namespace liveset::trace
